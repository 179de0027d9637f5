"""Translates Spark's optimised plan to SQL of DuckDB."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.catalyst import select
from headrace.catalyst.resolved import columns_of, id_of, type_of
from headrace.catalyst.scala import kind_of
from headrace.catalyst.select import nodes
from headrace.engine.reading.scans.expressions import column, expression
from headrace.engine.reading.scans.refused import Refused
from headrace.engine.reading.scans.types import is_exact, name_of
from headrace.sql.keywords import double_quoted
from headrace.types import exchanged

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from headrace.catalyst.select import Node, Optimised
    from headrace.types import RelationId

_JOINS: Final[Mapping[str, str]] = {
    "Inner": "JOIN",
    "LeftOuter": "LEFT JOIN",
    "RightOuter": "RIGHT JOIN",
    "FullOuter": "FULL JOIN",
    "LeftSemi": "SEMI JOIN",
    "LeftAnti": "ANTI JOIN",
}


@dataclass(frozen=True, slots=True)
class Leaf:
    """A relation that is read under a name, and the columns that are read."""

    name: str
    relation: RelationId
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DuckDbQuery:
    """A query for DuckDB over some leaves; ``schema`` is the schema of Spark's result."""

    text: str
    leaves: tuple[Leaf, ...]
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class _Block:
    """A SELECT under construction; each part is empty until a node of the plan sets it."""

    source: str
    where: str = ""
    shown: tuple[str, ...] = ()
    group: str = ""
    order: str = ""
    limit: int | None = None

    @property
    def text(self) -> str:
        limit = "" if self.limit is None else f" LIMIT {self.limit}"
        shown = ", ".join(self.shown) or "*"
        return f"SELECT {shown} FROM {self.source}{self.where}{self.group}{self.order}{limit}"

    @property
    def nested(self) -> _Block:
        """A new block whose source is this block."""
        return _Block(f"({self.text})")


@dataclass(slots=True)
class _Translation:
    relations: Mapping[RelationId, tuple[str, ...]]
    """The columns of each relation with stored rows."""
    used: set[int]
    leaves: list[Leaf] = field(default_factory=list)

    def block(self, node: Node) -> _Block:
        """Return the SELECT of a node and the nodes below it."""
        match node:
            case select.Stored():
                return self._leaf(node)
            case select.Project():
                below = self.block(*node.below)
                if below.shown:
                    below = _in_any_order(below)
                return replace(below, shown=_named(node.expressions))
            case select.Filter():
                below = self.block(*node.below)
                if below != _Block(below.source):
                    below = _in_any_order(below)
                return replace(below, where=f" WHERE {expression(node.condition)}")
            case select.Aggregate():
                return self._aggregate(node)
            case select.Sort():
                return self._sort(node)
            case select.Limit():
                return self._limited(node)
            case select.Join():
                return self._join(node)
            case select.Union():
                return self._union(node)
            case _:
                raise Refused(f"{node.name} of Spark's plan")

    def _leaf(self, node: select.Stored) -> _Block:
        if not node.whole:
            raise Refused("rows that are not stored")
        given = self.relations.get(node.relation)
        if given is None:
            raise Refused("a stream")
        output = node.output
        if len(output) != len(given):
            raise Refused("other columns than are stored")
        read = [
            (name, attribute)
            for name, attribute in zip(given, output, strict=True)
            if id_of(attribute) in self.used
        ]
        for _, attribute in read:
            name_of(type_of(attribute))
        leaf = Leaf(f"leaf{len(self.leaves)}", node.relation, tuple(name for name, _ in read))
        self.leaves.append(leaf)
        # Without any column, DuckDB still counts the rows.
        shown = [f"{double_quoted(name)} AS {column(id_of(a))}" for name, a in read]
        return _Block(f"(SELECT {', '.join(shown) or '1 AS one'} FROM {leaf.name})")

    def _aggregate(self, node: select.Aggregate) -> _Block:
        below = self.block(*node.below)
        if below != _Block(below.source, below.where):
            below = below.nested
        keys = node.keys
        for key in keys:
            if not is_exact(type_of(key)):
                raise Refused("grouping by floats")
        group = f" GROUP BY {', '.join(map(expression, keys))}" if keys else ""
        return replace(below, shown=_named(node.expressions), group=group)

    def _sort(self, node: select.Sort) -> _Block:
        if not node.is_total:
            raise Refused("a sort of partitions")
        below = self.block(*node.below)
        if below != _Block(below.source, below.where):
            below = below.nested
        return replace(below, order=f" ORDER BY {', '.join(map(_ordered, node.order))}")

    def _limited(self, node: select.Limit) -> _Block:
        limit = node.most
        if kind_of(limit) != "Literal":
            raise Refused("a limit that is computed")
        below = self.block(*node.below)
        most = int(limit.value())
        return replace(below, limit=most if below.limit is None else min(most, below.limit))

    def _join(self, node: select.Join) -> _Block:
        how, condition = _JOINS.get(node.how), node.condition
        if how is None or condition is None or not _has_equality(condition):
            raise Refused("a join without an equality")
        for attribute in columns_of(condition):
            if not is_exact(type_of(attribute)):
                raise Refused("a join by floats")
        sides = []
        for side in node.below:
            below = self.block(side)
            sides.append(below.source if below == _Block(below.source) else f"({below.text})")
        return _Block(f"({sides[0]} AS l {how} {sides[1]} AS r ON {expression(condition)})")

    def _union(self, node: select.Union) -> _Block:
        output = [column(id_of(each)) for each in node.output]
        parts = []
        for child in node.below:
            given = [column(id_of(each)) for each in child.output]
            shown = ", ".join(f"{a} AS {b}" for a, b in zip(given, output, strict=True))
            parts.append(f"SELECT {shown} FROM ({self.block(child).text})")
        return _Block(f"({' UNION ALL '.join(parts)})")


def translated(query: Optimised, relations: Mapping[RelationId, tuple[str, ...]]) -> DuckDbQuery:
    """Translate a query for DuckDB; ``relations`` has the columns of relations with stored rows.

    Raises: Refused: only Spark can answer it; the text is the reason.
    """
    if not query.is_deterministic:
        raise Refused("a random function")
    if query.has_subqueries:
        raise Refused("a scalar subquery")
    output = list(map(id_of, query.root.output))
    used = set(output).union(*(node.uses for node in nodes(query.root)))
    translation = _Translation(relations, used)
    block = translation.block(query.root)
    if not block.shown:
        block = replace(block, shown=tuple(map(column, output)))
    elif [each.rpartition(" AS ")[2] for each in block.shown] != list(map(column, output)):
        raise Refused("columns in another order")
    schema = exchanged(query.schema)
    return DuckDbQuery(block.text, tuple(translation.leaves), schema)


def _in_any_order(below: _Block) -> _Block:
    """Return a block over another one, which must not have an order: subqueries lose it."""
    if below.order:
        raise Refused("a projection of sorted rows")
    return below.nested


def _named(given: list[Any]) -> tuple[str, ...]:
    return tuple(f"{expression(e)} AS {column(id_of(e))}" for e in given)


def _ordered(by: Any) -> str:
    value = expression(by.child())
    return f"{value} {by.direction().sql()} {by.nullOrdering().sql()}"


def _has_equality(condition: Any) -> bool:
    kind = kind_of(condition)
    if kind == "And":
        return _has_equality(condition.left()) or _has_equality(condition.right())
    return kind == "EqualTo"
