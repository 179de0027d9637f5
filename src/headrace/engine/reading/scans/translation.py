"""Spark's optimised plan as SQL of DuckDB."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.pandas.types import to_arrow_schema

from headrace.catalyst.resolved import columns_of, type_of
from headrace.catalyst.scala import items, kind_of, maybe
from headrace.engine.reading.scans.expressions import column, expression
from headrace.engine.reading.scans.refused import Refused
from headrace.engine.reading.scans.types import is_exact, name_of
from headrace.sql.keywords import double_quoted
from headrace.types import RelationId

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

_JOINS: Final[Mapping[str, str]] = {
    "Inner": "JOIN",
    "LeftOuter": "LEFT JOIN",
    "RightOuter": "RIGHT JOIN",
    "FullOuter": "FULL JOIN",
    "LeftSemi": "SEMI JOIN",
    "LeftAnti": "ANTI JOIN",
}
LEAF = "contents_"
"""What the name of the task begins with that reads a relation; its id follows."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A relation that is read under a name: these columns of it."""

    name: str
    relation: RelationId
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """A query for DuckDB over some leaves; ``schema`` is that of the result, as Spark's."""

    text: str
    leaves: tuple[Leaf, ...]
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class _Block:
    """One SELECT in the making; each part of it is empty until a node of the plan sets it."""

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
        """A block whose source is this one."""
        return _Block(f"({self.text})")


@dataclass(slots=True)
class _Translation:
    relations: Mapping[RelationId, tuple[str, ...]]
    """The columns of each relation that has stored rows."""
    used: set[int]
    leaves: list[Leaf] = field(default_factory=list)

    def block(self, node: Any) -> _Block:
        """Return the SELECT of a node and of what is below it."""
        match str(node.nodeName()):
            case "MapInArrow":
                return self._leaf(node)
            case "Project":
                below = self.block(node.child())
                if below.shown:
                    below = _in_any_order(below)
                return replace(below, shown=_named(items(node.projectList())))
            case "Filter":
                below = self.block(node.child())
                if below != _Block(below.source):
                    below = _in_any_order(below)
                return replace(below, where=f" WHERE {expression(node.condition())}")
            case "Aggregate":
                return self._aggregate(node)
            case "Sort":
                return self._sort(node)
            case "GlobalLimit" | "LocalLimit":
                return self._limited(node)
            case "Join":
                return self._join(node)
            case "Union":
                return self._union(node)
            case other:
                raise Refused(f"{other} of Spark's plan")

    def _leaf(self, node: Any) -> _Block:
        name = str(node.functionExpr().name())
        if not name.startswith(LEAF):
            raise Refused("rows that are not stored")
        id_ = RelationId(int(name.removeprefix(LEAF)))
        given = self.relations.get(id_)
        if given is None:
            raise Refused("a stream")
        output = items(node.output())
        if len(output) != len(given):
            raise Refused("other columns than are stored")
        read = [
            (name, attribute)
            for name, attribute in zip(given, output, strict=True)
            if int(attribute.exprId().id()) in self.used
        ]
        for _, attribute in read:
            name_of(type_of(attribute))
        leaf = Leaf(f"leaf{len(self.leaves)}", id_, tuple(name for name, _ in read))
        self.leaves.append(leaf)
        # Without any column, DuckDB still counts the rows.
        shown = [f"{double_quoted(name)} AS {column(int(a.exprId().id()))}" for name, a in read]
        return _Block(f"(SELECT {', '.join(shown) or '1 AS one'} FROM {leaf.name})")

    def _aggregate(self, node: Any) -> _Block:
        below = self.block(node.child())
        if below != _Block(below.source, below.where):
            below = below.nested
        keys = items(node.groupingExpressions())
        for key in keys:
            if not is_exact(type_of(key)):
                raise Refused("grouping by floats")
        group = f" GROUP BY {', '.join(map(expression, keys))}" if keys else ""
        return replace(below, shown=_named(items(node.aggregateExpressions())), group=group)

    def _sort(self, node: Any) -> _Block:
        if not getattr(node, "global")():
            raise Refused("a sort of partitions")
        below = self.block(node.child())
        if below != _Block(below.source, below.where):
            below = below.nested
        return replace(below, order=f" ORDER BY {', '.join(map(_ordered, items(node.order())))}")

    def _limited(self, node: Any) -> _Block:
        limit = node.limitExpr()
        if kind_of(limit) != "Literal":
            raise Refused("a limit that is computed")
        below = self.block(node.child())
        most = int(limit.value())
        return replace(below, limit=most if below.limit is None else min(most, below.limit))

    def _join(self, node: Any) -> _Block:
        how = _JOINS.get(str(node.joinType().toString()))
        condition = maybe(node.condition())
        if how is None or condition is None or not _has_equality(condition):
            raise Refused("a join without an equality")
        for attribute in columns_of(condition):
            if not is_exact(type_of(attribute)):
                raise Refused("a join by floats")
        sides = []
        for side in (node.left(), node.right()):
            below = self.block(side)
            sides.append(below.source if below == _Block(below.source) else f"({below.text})")
        return _Block(f"({sides[0]} AS l {how} {sides[1]} AS r ON {expression(condition)})")

    def _union(self, node: Any) -> _Block:
        output = [column(int(each.exprId().id())) for each in items(node.output())]
        parts = []
        for child in items(node.children()):
            given = [column(int(each.exprId().id())) for each in items(child.output())]
            shown = ", ".join(f"{a} AS {b}" for a, b in zip(given, output, strict=True))
            parts.append(f"SELECT {shown} FROM ({self.block(child).text})")
        return _Block(f"({' UNION ALL '.join(parts)})")


def translated(prepared: DataFrame, relations: Mapping[RelationId, tuple[str, ...]]) -> Scan:
    """Return a prepared query as one for DuckDB; ``relations`` have stored rows, of these columns.

    Raises:
        Refused: it is left to Spark; the text says why.
    """
    plan = prepared._jdf.queryExecution().optimizedPlan()  # noqa: SLF001
    if not plan.deterministic() or plan.subqueriesAll().nonEmpty():
        raise Refused("a scalar subquery" if plan.deterministic() else "a random function")
    output = [int(each.exprId().id()) for each in items(plan.output())]
    used = set(output)
    _collect(plan, used)
    translation = _Translation(relations, used)
    block = translation.block(plan)
    if not block.shown:
        block = replace(block, shown=tuple(map(column, output)))
    elif [each.rpartition(" AS ")[2] for each in block.shown] != list(map(column, output)):
        raise Refused("columns in another order")
    schema = to_arrow_schema(prepared.schema.toNullable(), timezone="UTC")
    return Scan(block.text, tuple(translation.leaves), schema)


def _in_any_order(below: _Block) -> _Block:
    """Return a block over another, which has no order that the result would have to keep."""
    if below.order:
        raise Refused("a projection of sorted rows")
    return below.nested


def _collect(node: Any, used: set[int]) -> None:
    """Add the ids of all columns that the expressions of a plan refer to."""
    if str(node.nodeName()) == "MapInArrow":
        return
    used.update(int(each.exprId().id()) for each in items(node.references().toSeq()))
    if str(node.nodeName()) == "Union":  # its children's columns, by their place
        for child in items(node.children()):
            used.update(int(each.exprId().id()) for each in items(child.output()))
    for child in items(node.children()):
        _collect(child, used)


def _named(given: list[Any]) -> tuple[str, ...]:
    return tuple(f"{expression(e)} AS {column(int(e.exprId().id()))}" for e in given)


def _ordered(by: Any) -> str:
    value = expression(by.child())
    return f"{value} {by.direction().sql()} {by.nullOrdering().sql()}"


def _has_equality(condition: Any) -> bool:
    kind = kind_of(condition)
    if kind == "And":
        return _has_equality(condition.left()) or _has_equality(condition.right())
    return kind == "EqualTo"
