"""Queries as trees: rendered as Spark SQL, walked for what they use, and cut smaller.

An expression is a template over its arguments, so that one class serves all functions. Every
order is total by construction: ``ORDER BY ... LIMIT`` orders by all columns of its output, and
``{total}`` in a window's template stands for all columns that are in scope. Cutting a query
therefore never makes its answer depend on an order that is Spark's choice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Kind(StrEnum):
    """The type of an expression, as far as it matters for which functions take it."""

    INT = "INT"
    LONG = "BIGINT"
    TEXT = "STRING"
    DECIMAL = "DECIMAL(12,2)"
    DATE = "DATE"
    TIME = "TIMESTAMP"
    OF_DAY = "TIME(6)"
    BOOL = "BOOLEAN"
    DOUBLE = "DOUBLE"
    LIST = "ARRAY"
    """Of anything that can be ordered; passed on, compared and exploded, not computed with."""


@dataclass(frozen=True, slots=True)
class Expr:
    """An expression: ``template`` over ``args``, which are expressions or subqueries.

    ``bound`` limits the magnitude of a number, so that no arithmetic overflows.
    """

    kind: Kind
    template: str
    args: tuple[Expr | Query, ...] = ()
    tag: str = ""
    bound: int = field(default=0, compare=False)

    def sql(self, total: str = "") -> str:
        """Render; ``total`` is the list of the columns in scope."""
        if not self.args and "{" not in self.template:
            return self.template
        return self.template.format(*(arg.sql(total) for arg in self.args), total=total)


@dataclass(frozen=True, slots=True)
class Named:
    """A relation or common table expression by name."""

    name: str
    alias: str
    columns: tuple[str, ...]

    def sql(self) -> str:
        """Render."""
        return f"{self.name} {self.alias}"

    @property
    def outputs(self) -> tuple[str, ...]:
        """The visible columns."""
        return tuple(f"{self.alias}.{column}" for column in self.columns)


@dataclass(frozen=True, slots=True)
class Derived:
    """A query in FROM."""

    query: Query
    alias: str

    def sql(self) -> str:
        """Render."""
        return f"{self.query.sql()} {self.alias}"

    @property
    def outputs(self) -> tuple[str, ...]:
        """The visible columns."""
        return tuple(f"{self.alias}.{column}" for column in self.query.names)


@dataclass(frozen=True, slots=True)
class Values:
    """Rows of constants in FROM."""

    rows: tuple[tuple[Expr, ...], ...]
    alias: str
    columns: tuple[str, ...]

    def sql(self) -> str:
        """Render."""
        rows = (f"({', '.join(value.sql() for value in row)})" for row in self.rows)
        return f"VALUES {', '.join(rows)} AS {self.alias}({', '.join(self.columns)})"

    @property
    def outputs(self) -> tuple[str, ...]:
        """The visible columns."""
        return tuple(f"{self.alias}.{column}" for column in self.columns)


@dataclass(frozen=True, slots=True)
class Join:
    """Two sources; ``using`` has the shared columns, which then are one and unqualified."""

    kind: str
    left: Source
    right: Source
    on: Expr | None = None
    using: tuple[str, ...] = ()
    natural: bool = False

    def sql(self) -> str:
        """Render."""
        right = self.right.sql()
        if isinstance(self.right, Join):
            right = f"({right})"
        natural = "NATURAL " if self.natural else ""
        text = f"{self.left.sql()} {natural}{self.kind} {right}"
        if self.on is not None:
            return f"{text} ON {self.on.sql()}"
        return f"{text} USING ({', '.join(self.using)})" if self.using and not natural else text

    @property
    def outputs(self) -> tuple[str, ...]:
        """The visible columns."""
        if self.kind in ("LEFT SEMI JOIN", "LEFT ANTI JOIN"):
            return self.left.outputs
        both = (*self.left.outputs, *self.right.outputs)
        rest = [o for o in both if o.rpartition(".")[2] not in self.using]
        return (*self.using, *rest)


@dataclass(frozen=True, slots=True)
class Explode:
    """``LATERAL VIEW``, or a join with LATERAL, over a source."""

    source: Source
    call: Expr
    alias: str
    columns: tuple[str, ...]

    def sql(self) -> str:
        """Render."""
        text, names = f"{self.source.sql()} {self.call.sql()}", ", ".join(self.columns)
        if "JOIN" not in self.call.template:
            return f"{text} {self.alias} AS {names}"
        on = " ON TRUE" if self.call.template.startswith("LEFT") else ""
        return f"{text} AS {self.alias}({names}){on}"

    @property
    def outputs(self) -> tuple[str, ...]:
        """The visible columns."""
        return (*self.source.outputs, *(f"{self.alias}.{c}" for c in self.columns))


Source = Named | Derived | Values | Join | Explode


@dataclass(frozen=True, slots=True)
class Item:
    """A column of a SELECT."""

    expr: Expr
    name: str


@dataclass(frozen=True, slots=True)
class Grouping:
    """GROUP BY: plain keys, or one of ROLLUP, CUBE and GROUPING SETS over them."""

    keys: tuple[Expr, ...]
    form: str = ""
    sets: tuple[tuple[int, ...], ...] = ()

    def sql(self) -> str:
        """Render, with a space before."""
        if not self.keys:
            return ""
        texts = [key.sql() for key in self.keys]
        if self.form in ("ROLLUP", "CUBE"):
            return f" GROUP BY {self.form}({', '.join(texts)})"
        if self.form:
            sets = [[texts[i] for i in one if i < len(texts)] for one in self.sets]
            shown = ", ".join(f"({', '.join(one)})" for one in sets)
            return f" GROUP BY GROUPING SETS ({shown})"
        return f" GROUP BY {', '.join(texts)}"


_ORDERS = ("", " DESC", " ASC NULLS LAST", " DESC NULLS FIRST")


@dataclass(frozen=True, slots=True)
class Limit:
    """ORDER BY all columns, LIMIT and OFFSET; ``whole``: by those of FROM, selected or not.

    ``first`` has expressions to order by before them.
    """

    count: int
    offset: int = 0
    turn: int = 0
    whole: bool = False
    first: tuple[Expr, ...] = ()

    def sql(self, names: tuple[str, ...]) -> str:
        """Render, with a space before."""
        keys = (*(key.sql() for key in self.first), *names)
        by = (f"{key}{_ORDERS[(i + self.turn) % 4]}" for i, key in enumerate(keys))
        offset = f" OFFSET {self.offset}" if self.offset else ""
        return f" ORDER BY {', '.join(by)} LIMIT {self.count}{offset}"


class Whole(ABC):
    """A whole query."""

    __slots__ = ()

    @abstractmethod
    def body(self) -> str:
        """Render without parentheses."""

    def sql(self, total: str = "") -> str:
        """Render in parentheses."""
        del total
        return f"({self.body()})"


@dataclass(frozen=True, slots=True)
class Select(Whole):
    """SELECT ... FROM ... WHERE ... GROUP BY ... HAVING ... QUALIFY ... ORDER BY ... LIMIT ...

    ``piped``: without GROUP BY, QUALIFY and LIMIT, as FROM ... |> WHERE ... |> SELECT ...
    """

    items: tuple[Item, ...]
    source: Source
    where: Expr | None = None
    group: Grouping | None = None
    having: Expr | None = None
    qualify: Expr | None = None
    distinct: bool = False
    limit: Limit | None = None
    piped: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(item.name for item in self.items)

    @property
    def is_pipe(self) -> bool:
        """Whether it is rendered as a pipe."""
        return self.piped and self.group is self.qualify is self.limit is None

    def body(self) -> str:
        """Render without parentheses."""
        total = ", ".join(self.source.outputs)
        items = ", ".join(f"{item.expr.sql(total)} AS {item.name}" for item in self.items)
        chosen = f"SELECT {'DISTINCT ' if self.distinct else ''}{items}"
        if self.is_pipe:
            where = f" |> WHERE {self.where.sql()}" if self.where is not None else ""
            return f"FROM {self.source.sql()}{where} |> {chosen}"
        text = f"{chosen} FROM {self.source.sql()}"
        if self.where is not None:
            text += f" WHERE {self.where.sql()}"
        if self.group is not None:
            text += self.group.sql()
        if self.having is not None:
            text += f" HAVING {self.having.sql()}"
        if self.qualify is not None:
            text += f" QUALIFY {self.qualify.sql(total)}"
        if self.limit is not None:
            text += self.limit.sql(self.source.outputs if self.limit.whole else self.names)
        return text


@dataclass(frozen=True, slots=True)
class SetOperation(Whole):
    """UNION, INTERSECT and EXCEPT, with and without ALL."""

    operator: str
    left: Query
    right: Query

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns: those of the left side."""
        return self.left.names

    def body(self) -> str:
        """Render without parentheses."""
        return f"{self.left.sql()} {self.operator} {self.right.sql()}"


@dataclass(frozen=True, slots=True)
class With(Whole):
    """Common table expressions before a query; recursive ones may read themselves."""

    tables: tuple[Table, ...]
    query: Query
    recursive: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.query.names

    def body(self) -> str:
        """Render without parentheses."""
        tables = ", ".join(f"{t.name} AS {t.query.sql()}" for t in self.tables)
        return f"WITH {'RECURSIVE ' if self.recursive else ''}{tables} {self.query.body()}"


@dataclass(frozen=True, slots=True)
class Pivot(Whole):
    """PIVOT: ``call`` for some values of the last column of a query, by the columns in ``rest``."""

    query: Query
    call: Expr
    rest: tuple[str, ...]
    values: tuple[Expr, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return (*self.rest, *(f"p{i}" for i in range(len(self.values))))

    def body(self) -> str:
        """Render without parentheses."""
        values = ", ".join(f"{value.sql()} AS p{i}" for i, value in enumerate(self.values))
        last = self.query.names[-1]
        return (
            f"SELECT * FROM {self.query.sql()} PIVOT ({self.call.sql()} FOR {last} IN ({values}))"
        )


@dataclass(frozen=True, slots=True)
class Unpivot(Whole):
    """UNPIVOT: a row for each column of a query after the first one, beside that."""

    query: Query
    nulls: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return (*self.query.names[:1], "u0", "u1")

    def body(self) -> str:
        """Render without parentheses."""
        columns = ", ".join(self.query.names[1:])
        nulls = "INCLUDE NULLS " if self.nulls else ""
        return f"SELECT * FROM {self.query.sql()} UNPIVOT {nulls}(u1 FOR u0 IN ({columns}))"


@dataclass(frozen=True, slots=True)
class Table:
    """One common table expression."""

    name: str
    query: Query


@dataclass(frozen=True, slots=True)
class Text(Whole):
    """A query as it was written, from a file."""

    text: str

    @property
    def names(self) -> tuple[str, ...]:
        """Not known."""
        return ()

    def body(self) -> str:
        """Render without parentheses."""
        return self.text


Query = Select | SetOperation | With | Pivot | Unpivot | Text
Node = Expr | Named | Derived | Values | Join | Explode | Item | Grouping | Limit | Query | Table


def children(node: Node) -> Iterator[Node]:
    """Return the nodes directly below."""
    for name in node.__dataclass_fields__:
        value = getattr(node, name)
        for one in value if isinstance(value, tuple) else (value,):
            if hasattr(one, "__dataclass_fields__"):
                yield one


def walk(node: Node) -> Iterator[Node]:
    """Return a node and all nodes below."""
    yield node
    for child in children(node):
        yield from walk(child)
