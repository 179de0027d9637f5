"""A query as small values: what Spark has resolved and optimised, or what needs no Spark for it.

There is one translator to SQL of DuckDB, over this tree. Its kinds are Catalyst's: an expression
of kind ``EqualTo`` means what Catalyst's class of this name means, on values of the types given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import DataType

    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class Value:
    """An expression: its kind, its type, its inputs, and what else it has, by kind.

    ``given`` is the id of an ``AttributeReference`` or ``Alias``, the constant of a ``Literal``,
    the constants of an ``InSet``, the pattern of a ``Like``, the name of a function that is
    refused, and for an ``AggregateExpression`` the :class:`Call`. Constants are Python values:
    dates are days and times are microseconds since 1970.
    """

    kind: str
    type: DataType
    below: tuple[Value, ...] = ()
    given: Any = None

    @property
    def id(self) -> int:
        """The id of a named value."""
        return int(self.given)

    @property
    def uses(self) -> Iterator[Value]:
        """The attributes that it refers to."""
        if self.kind == "AttributeReference":
            yield self
        for each in self.below:
            yield from each.uses


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an aggregate function; the inputs are its arguments and, last, its filter."""

    kind: str
    name: str
    distinct: bool = False
    filtered: bool = False


@dataclass(frozen=True, slots=True)
class Stored:
    """The rows of a relation; ``columns`` are all of its columns, by name.

    ``events`` are those of a stream: they are read from its log, in the order of arrival.
    """

    relation: RelationId
    columns: tuple[tuple[str, Value], ...]
    events: bool = False

    @property
    def output(self) -> tuple[Value, ...]:
        """The columns."""
        return tuple(value for _, value in self.columns)


@dataclass(frozen=True, slots=True)
class Project:
    """Computes named values for each row."""

    output: tuple[Value, ...]
    below: Tree


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the rows for which a condition is true."""

    condition: Value
    below: Tree

    @property
    def output(self) -> tuple[Value, ...]:
        """The columns below."""
        return self.below.output


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Groups rows by keys, and returns named values of each group."""

    keys: tuple[Value, ...]
    output: tuple[Value, ...]
    below: Tree


@dataclass(frozen=True, slots=True)
class Ordering:
    """A value to order by, its direction and the place of NULL."""

    value: Value
    descending: bool = False
    nulls_last: bool = False


@dataclass(frozen=True, slots=True)
class Sort:
    """Orders all rows."""

    order: tuple[Ordering, ...]
    below: Tree

    @property
    def output(self) -> tuple[Value, ...]:
        """The columns below."""
        return self.below.output


@dataclass(frozen=True, slots=True)
class Limit:
    """Keeps the first rows after those that are skipped; None is no bound."""

    most: int | None
    skipped: int
    below: Tree

    @property
    def output(self) -> tuple[Value, ...]:
        """The columns below."""
        return self.below.output


@dataclass(frozen=True, slots=True)
class Join:
    """Joins rows of two sides; ``how`` is Spark's name of the kind of join."""

    how: str
    condition: Value
    left: Tree
    right: Tree
    output: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Union:
    """Returns the rows of all inputs, whose columns are matched by position."""

    inputs: tuple[Tree, ...]
    output: tuple[Value, ...]


Tree: TypeAlias = "Stored | Project | Filter | Aggregate | Sort | Limit | Join | Union"


def used(tree: Tree, apart: Filter | None = None) -> set[int]:
    """Return the ids of the columns that the nodes of a tree use, and those of its result.

    What just the filter ``apart`` uses is left out.
    """
    values = _values(tree, apart)
    return {each.id for each in tree.output} | {each.id for v in values for each in v.uses}


def _values(tree: Tree, apart: Filter | None) -> Iterator[Value]:
    match tree:
        case Filter() if tree is apart:
            yield from _values(tree.below, apart)
        case Stored():
            return
        case Union():
            for each in tree.inputs:
                yield from each.output
                yield from _values(each, apart)
        case Join():
            yield tree.condition
            yield from _values(tree.left, apart)
            yield from _values(tree.right, apart)
        case _:
            yield from _own_values(tree)
            yield from _values(tree.below, apart)


def _own_values(tree: Project | Filter | Aggregate | Sort | Limit) -> Iterator[Value]:
    match tree:
        case Project():
            yield from tree.output
        case Filter():
            yield tree.condition
        case Aggregate():
            yield from tree.keys
            yield from tree.output
        case Sort():
            yield from (each.value for each in tree.order)
        case Limit():
            return
