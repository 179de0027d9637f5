"""Translates the tree of a query to SQL of DuckDB."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from headrace.engine.reading.scans import tree
from headrace.engine.reading.scans.expressions import column, expression
from headrace.engine.reading.scans.refused import Refused
from headrace.engine.reading.scans.tree import used
from headrace.engine.reading.scans.types import is_exact, name_of
from headrace.sql.keywords import double_quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from headrace.engine.reading.scans.tree import Ordering, Tree, Value
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
    offset: int = 0

    @property
    def text(self) -> str:
        limit = "" if self.limit is None else f" LIMIT {self.limit}"
        limit += f" OFFSET {self.offset}" if self.offset else ""
        shown = ", ".join(self.shown) or "*"
        return f"SELECT {shown} FROM {self.source}{self.where}{self.group}{self.order}{limit}"

    @property
    def nested(self) -> _Block:
        """A new block whose source is this block."""
        return _Block(f"({self.text})")


@dataclass(slots=True)
class _Translation:
    used: set[int]
    leaves: list[Leaf] = field(default_factory=list)

    def block(self, node: Tree) -> _Block:
        """Return the SELECT of a node and the nodes below it."""
        match node:
            case tree.Stored():
                return self._leaf(node)
            case tree.Project():
                below = self.block(node.below)
                if below.shown:
                    below = _in_any_order(below)
                return replace(below, shown=_named(node.output))
            case tree.Filter():
                below = self.block(node.below)
                if below != _Block(below.source):
                    below = _in_any_order(below)
                return replace(below, where=f" WHERE {expression(node.condition)}")
            case tree.Aggregate():
                return self._aggregate(node)
            case tree.Sort():
                return self._sort(node)
            case tree.Limit():
                return self._limited(node)
            case tree.Join():
                return self._join(node)
            case tree.Union():
                return self._union(node)

    def _leaf(self, node: tree.Stored) -> _Block:
        read = [(name, each) for name, each in node.columns if each.id in self.used]
        for _, each in read:
            name_of(each.type)
        leaf = Leaf(f"leaf{len(self.leaves)}", node.relation, tuple(name for name, _ in read))
        self.leaves.append(leaf)
        # Without any column, DuckDB still counts the rows.
        shown = [f"{double_quoted(name)} AS {column(each.id)}" for name, each in read]
        return _Block(f"(SELECT {', '.join(shown) or '1 AS one'} FROM {leaf.name})")

    def _aggregate(self, node: tree.Aggregate) -> _Block:
        below = self.block(node.below)
        if below != _Block(below.source, below.where):
            below = below.nested
        for key in node.keys:
            if not is_exact(key.type):
                raise Refused("grouping by floats")
        group = f" GROUP BY {', '.join(map(expression, node.keys))}" if node.keys else ""
        return replace(below, shown=_named(node.output), group=group)

    def _sort(self, node: tree.Sort) -> _Block:
        below = self.block(node.below)
        if below != _Block(below.source, below.where):
            below = below.nested
        return replace(below, order=f" ORDER BY {', '.join(map(_ordered, node.order))}")

    def _limited(self, node: tree.Limit) -> _Block:
        below = self.block(node.below)
        most = node.most
        if below.limit is not None:
            left = max(0, below.limit - node.skipped)
            most = left if most is None else min(most, left)
        return replace(below, limit=most, offset=below.offset + node.skipped)

    def _join(self, node: tree.Join) -> _Block:
        how = _JOINS.get(node.how)
        if how is None:
            raise Refused("a join without an equality")
        sides = []
        for side in (node.left, node.right):
            below = self.block(side)
            sides.append(below.source if below == _Block(below.source) else f"({below.text})")
        condition = expression(node.condition)
        return _Block(f"({sides[0]} AS l {how} {sides[1]} AS r ON {condition})")

    def _union(self, node: tree.Union) -> _Block:
        output = [column(each.id) for each in node.output]
        parts = []
        for child in node.inputs:
            given = [column(each.id) for each in child.output]
            shown = ", ".join(f"{a} AS {b}" for a, b in zip(given, output, strict=True))
            parts.append(f"SELECT {shown} FROM ({self.block(child).text})")
        return _Block(f"({' UNION ALL '.join(parts)})")


def translated(query: Tree, schema: pa.Schema) -> DuckDbQuery:
    """Translate a query for DuckDB; its result has a schema.

    Raises: Refused: only Spark can answer it; the text is the reason.
    """
    output = [column(each.id) for each in query.output]
    translation = _Translation(used(query))
    block = translation.block(query)
    if not block.shown:
        block = replace(block, shown=tuple(output))
    elif [each.rpartition(" AS ")[2] for each in block.shown] != output:
        raise Refused("columns in another order")
    return DuckDbQuery(block.text, tuple(translation.leaves), schema)


def _in_any_order(below: _Block) -> _Block:
    """Return a block over another one, which must not have an order: subqueries lose it."""
    if below.order:
        raise Refused("a projection of sorted rows")
    return below.nested


def _named(given: Iterable[Value]) -> tuple[str, ...]:
    return tuple(f"{expression(each)} AS {column(each.id)}" for each in given)


def _ordered(by: Ordering) -> str:
    nulls = "NULLS LAST" if by.nulls_last else "NULLS FIRST"
    return f"{expression(by.value)} {'DESC' if by.descending else 'ASC'} {nulls}"
