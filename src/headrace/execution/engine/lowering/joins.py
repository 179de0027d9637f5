"""Lowering joins: the union of both sides, the operators, and conditions evaluated by Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import BooleanType, LongType

from headrace.algebra.operators import FLAG, ROW, Emits, RangePairs, RowKind
from headrace.algebra.zset import HASH, WEIGHT, Layout
from headrace.execution.engine.lowering.assembly import Assembly, Frame, StateShare, Tail

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.planning.catalyst import plan
    from headrace.planning.catalyst.transplant import Transplant
    from headrace.planning.circuit import Join, Match
    from headrace.types import DataType


@dataclass(frozen=True, slots=True)
class _Side:
    """One input of a join, and how it is arranged."""

    prefix: str
    attributes: tuple[plan.Attribute, ...]
    keys: tuple[plan.Expression, ...]
    layout: Layout
    computed: Mapping[str, plan.Expression]
    """The expressions of its order and of bounds, by the names of their columns."""

    def columns(self) -> list[tuple[str, DataType, Any]]:
        """Return the arranged columns: name, type, and the expression that computes it."""
        found = {name: (a.type, a.handle) for name, a in self.own().items()}
        for name, key in zip(self.layout.key, self.keys, strict=True):
            found.setdefault(name, (key.type, key.handle))
        for name, value in self.computed.items():
            found.setdefault(name, (value.type, value.handle))
        return [(name, *found[name]) for name in self.layout.columns.names]

    def own(self) -> dict[str, plan.Attribute]:
        """Return the attributes of the side by the names of their columns."""
        return _own(self.attributes, self.prefix)


def joined(
    assembly: Assembly,
    node: Join,
    frames: tuple[Frame | StateShare | None, Frame | StateShare | None],
) -> Frame | None:
    """Lower a join over the deltas of its sides; None where neither can change."""
    sides = _sides(node)
    branches = [
        _joined_side(assembly, i, sides, frame)
        for i, frame in enumerate(frames)
        if frame is not None
    ]
    if not branches:
        return None
    query, transplant, long = node.plan, assembly.transplant, LongType()
    # The condition on pairs may need columns of both sides that the result does not have.
    waits = query.residual is not None and any((query.kind.keeps_left, query.kind.keeps_right))
    of_both = waits or not query.kind.of_one_side
    own = {**sides[0].own(), **(sides[1].own() if of_both else {})}
    types: list[tuple[str, DataType]] = [(HASH, long), *((n, a.type) for n, a in own.items())]
    if query.flag is not None and not waits:
        own[FLAG] = query.flag
        types.append((FLAG, BooleanType()))
    types += [(ROW, long)] if waits else []
    types.append((WEIGHT, long))
    inputs = tuple((HASH, *side.layout.columns.names, WEIGHT) for side in sides)
    task = assembly.task(
        node.name, node.operator, node.arrangements, inputs, types, shared=node.shared
    )
    below = assembly.exchange(transplant.union(branches))
    plan_ = assembly.stepped(task, below, types)
    columns = transplant.output(plan_)
    named = [transplant.alias(columns[n], a.name, a.handle) for n, a in own.items()]
    hash_, weight, row = columns[HASH], columns[WEIGHT], columns.get(ROW)
    carried = [weight, hash_] if row is None else [weight, hash_, row]
    plan_ = transplant.project([*named, *carried], plan_)
    if query.residual is not None:
        plan_ = transplant.filter(_of_pairs(transplant, query.residual.handle, row), plan_)
        return Frame(plan_, weight, hash_, row=row)
    tail = Tail(task, below, {a.id: name for name, a in own.items()})
    return Frame(plan_, weight, hash_, tail)


def matched(assembly: Assembly, node: Match, below: Frame) -> Frame:
    """Lower the counting of pairs that follows a join on any condition."""
    query, transplant, long = node.plan, assembly.transplant, LongType()
    left, right = _own(query.left.attributes, "l"), _own(query.right.attributes, "r")
    own = left if node.operator.alone is RowKind.LEFT else right
    there = {**left, **right} if node.operator.passes else own
    types: list[tuple[str, DataType]] = [(HASH, long), *((n, a.type) for n, a in there.items())]
    types += [(ROW, long), (WEIGHT, long)]
    named = [transplant.alias(transplant.hash([a.handle for a in own.values()]), HASH)]
    named += [transplant.alias(a.handle, name) for name, a in there.items()]
    named += [transplant.alias(below.row, ROW), transplant.alias(below.weight, WEIGHT)]
    exchanged = assembly.exchange(transplant.project(named, below.plan))
    if node.operator.emits is Emits.FLAGGED and query.flag is not None:
        there = {**there, FLAG: query.flag}
        types.append((FLAG, BooleanType()))
    inputs = (tuple(node.operator.schema.names),)
    task = assembly.task(node.name, node.operator, node.arrangements, inputs, types)
    plan_ = assembly.stepped(task, exchanged, types)
    columns = transplant.output(plan_)
    renamed = [transplant.alias(columns[n], a.name, a.handle) for n, a in there.items()]
    weight, row = columns[WEIGHT], columns[ROW]
    # Pairs are in the partition of this side's hash; rows of the other side alone are not.
    return Frame(transplant.project([*renamed, weight, row], plan_), weight, row=row)


def _sides(node: Join) -> tuple[_Side, _Side]:
    query, pairs = node.plan, node.operator.pairs
    left: dict[str, plan.Expression] = {}
    right: dict[str, plan.Expression] = {}
    if isinstance(pairs, RangePairs) and query.ranges is not None:
        ranges = query.ranges
        left[pairs.left.order[0].name] = ranges.left.expression
        right[pairs.right.order[0].name] = ranges.right.expression
        for own, bounds, kept in (
            (left, ranges.of_left, pairs.of_left),
            (right, ranges.of_right, pairs.of_right),
        ):
            own |= {within.value: b.value for within, b in zip(kept, bounds, strict=True)}
    return (
        _Side("l", query.left.attributes, query.left_keys, pairs.left, left),
        _Side("r", query.right.attributes, query.right_keys, pairs.right, right),
    )


def _own(attributes: tuple[plan.Attribute, ...], prefix: str) -> dict[str, plan.Attribute]:
    return {f"{prefix}{i}": a for i, a in enumerate(attributes)}


def _of_pairs(transplant: Transplant, condition: Any, row: Any | None) -> Any:
    """Return a condition that applies to pairs only."""
    if row is None:
        return condition
    is_pair = transplant.literal(int(RowKind.PAIR), LongType())
    alone = transplant.scala.expression("GreaterThan", row, is_pair)
    return transplant.scala.expression("Or", alone, condition)


def _joined_side(
    assembly: Assembly, index: int, sides: tuple[_Side, _Side], frame: Frame | StateShare
) -> Any:
    own = sides[index]
    if isinstance(frame, StateShare):
        below = frame.read(assembly, {name: type_ for name, type_, _ in own.columns()})
        values = assembly.transplant.output(below)
        hash_, frame = values[HASH], Frame(below, values[WEIGHT])
    else:
        values = {name: value for name, _, value in own.columns()}
        hash_ = assembly.transplant.hash([key.handle for key in own.keys])
    columns = [
        (name, type_, values[name] if side is own else None)
        for side in sides
        for name, type_, _ in side.columns()
    ]
    return assembly.side(index, hash_, columns, frame)
