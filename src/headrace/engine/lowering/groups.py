"""Lowering operators over the rows of groups: first rows, and groups that Spark recomputes.

For aggregates of all kinds and for windows, the operator yields the rows of each changed group
before and after the change. Spark evaluates the query's own node on them, with the version as an
additional key, and the version determines the weight of each result. Rows are first sorted by all
columns, so that equal groups have equal results, independently of the order in which rows arrive.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import BooleanType, DecimalType, LongType

from headrace.catalyst import plan
from headrace.catalyst.near import Carry, carried
from headrace.catalyst.resolved import type_of
from headrace.catalyst.scala import items
from headrace.catalyst.walk import replaced
from headrace.engine.lowering.assembly import Assembly, Frame
from headrace.engine.lowering.restored import StateShare
from headrace.operators import (
    BEFORE,
    FOLDED,
    ORDERS,
    PRESENT,
    REACHED,
    SESSION,
    SLICE,
    VERSION,
    FrameReach,
    NearRows,
    TouchedSessions,
    sums_of,
)
from headrace.zset import HASH, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.catalyst.transplant import Transplant
    from headrace.circuit import First, FoldedRows, Recompute
    from headrace.types import DataType


@dataclass(frozen=True, slots=True)
class _Touched:
    """The rows of the changed groups, under the ids of their attributes, maybe with sessions."""

    plan: Any
    version: Any
    present: Any
    session: Any | None = None


@dataclass(frozen=True, slots=True)
class _Slices:
    """The rows of slices around changes, under the ids of their attributes."""

    plan: Any
    version: Any
    slice: Any
    reached: Any
    before: Any | None
    orders: Any | None
    sums: tuple[tuple[Any, Any, Any], ...]
    """Values, the sum of each over the rows before a slice, and how many are not NULL there."""


def recomputed(assembly: Assembly, node: Recompute, below: Frame | StateShare) -> Frame:
    """Lower a recomputation over the delta of its input."""
    match node.plan:
        case plan.Aggregate():
            return _aggregate(assembly, node, node.plan, below)
        case plan.Window():
            return _window(assembly, node, node.plan, below)


def first_rows(assembly: Assembly, node: First, below: Frame | StateShare) -> Frame:
    """Lower the first rows of each group over the delta of the input."""
    transplant = assembly.transplant
    order = [(key.expression.handle, key.expression.type) for key in node.plan.order]
    keyed, types = _arranged(assembly, node, node.plan.keys, order, below)
    names = node.operator.layout.columns.names
    types.append((WEIGHT, LongType()))
    inputs = ((HASH, *names, WEIGHT),)
    task = assembly.task(node.name, node.operator, node.arrangements, inputs, types)
    rows = assembly.stepped(task, keyed, types)
    output = transplant.output(rows)
    weight, hash_ = output[WEIGHT], output[HASH]
    named = _renamed(transplant, node.plan.attributes, output)
    return Frame(transplant.project([*named, weight, hash_], rows), weight, hash_)


def folded(assembly: Assembly, node: FoldedRows, below: Frame) -> Frame:
    """Lower a fold over the delta of its events."""
    transplant, query = assembly.transplant, node.plan
    order = [(key.expression.handle, key.expression.type) for key in query.order]
    keyed, _ = _arranged(assembly, node, query.keys, order, below)
    layout = node.operator.layout
    types: list[tuple[str, DataType]] = [(HASH, LongType())]
    types += [(name, key.type) for name, key in zip(layout.key, query.keys, strict=True)]
    types += [(FOLDED, query.returns), (WEIGHT, LongType())]
    inputs = ((HASH, *layout.columns.names, WEIGHT),)
    task = assembly.task(node.name, node.operator, node.arrangements, inputs, types)
    rows = assembly.stepped(task, keyed, types)
    output = transplant.output(rows)
    columns = [output[name] for name in (*layout.key, FOLDED)]
    named = [
        transplant.alias(column, attribute.name, attribute.handle)
        for column, attribute in zip(columns, query.attributes, strict=True)
    ]
    weight, hash_ = output[WEIGHT], output[HASH]
    return Frame(transplant.project([*named, weight, hash_], rows), weight, hash_)


def _arranged(
    assembly: Assembly,
    node: First | FoldedRows | Recompute,
    keys: Sequence[plan.Expression],
    order: list[tuple[Any, DataType]],
    below: Frame | StateShare,
    bounds: Mapping[str, plan.Expression] = MappingProxyType({}),
) -> tuple[Any, list[tuple[str, DataType]]]:
    """Name the columns that the operator stores, and send rows to the partition of their group.

    Returns the plan with ``__hash``, these columns and the weight, and the types of all but the
    weight.
    """
    layout = node.operator.layout
    found = {f"x{i}": (a.handle, a.type) for i, a in enumerate(node.plan.child.attributes)}
    for name, key in zip(layout.key, keys, strict=True):
        found.setdefault(name, (key.handle, key.type))
    for by, value in zip(layout.order, order, strict=True):
        found.setdefault(by.name, value)
    for name, bound in bounds.items():
        found.setdefault(name, (bound.handle, bound.type))
    if isinstance(node.operator, TouchedSessions) and isinstance(node.plan, plan.Aggregate):
        session = node.plan.grouping[node.plan.session or 0]
        found.setdefault(node.operator.session, (session.handle, session.type))
    names = layout.columns.names
    columns = [(name, found[name][0]) for name in names]
    kept = [(name, found[name][1]) for name in names]
    types: list[tuple[str, DataType]] = [(HASH, LongType()), *kept]
    if isinstance(below, StateShare):
        return assembly.exchange(below.read(assembly, dict(kept))), types
    there = bool(keys) and below.is_by(node.plan.child, [key.passes for key in keys])
    keyed = assembly.keyed(below, [key.handle for key in keys], columns, [], there=there)
    return keyed, types


def _renamed(
    transplant: Transplant, attributes: tuple[plan.Attribute, ...], output: dict[str, Any]
) -> list[Any]:
    return [transplant.alias(output[f"x{i}"], a.name, a.handle) for i, a in enumerate(attributes)]


def _touched(
    assembly: Assembly,
    node: Recompute,
    keys: tuple[plan.Expression, ...],
    below: Frame | StateShare,
) -> _Touched:
    transplant, layout = assembly.transplant, node.operator.layout
    keyed, types = _arranged(assembly, node, keys, [], below)
    if node.operator.is_global:
        keyed = assembly.seeded(node.name, layout, keyed, [*types, (WEIGHT, LongType())])
    sessions = isinstance(node.operator, TouchedSessions)
    if isinstance(node.operator, TouchedSessions):
        types.append((SESSION, dict(types)[node.operator.session]))
    types += [(VERSION, LongType()), (PRESENT, BooleanType())]
    inputs = ((HASH, *layout.columns.names, WEIGHT),)
    task = assembly.task(node.name, node.operator, node.arrangements, inputs, types)
    rows = assembly.stepped(task, keyed, types)
    output = transplant.output(rows)
    named = _renamed(transplant, node.plan.child.attributes, output)
    marks = output[VERSION], output[PRESENT], *([output[SESSION]] if sessions else [])
    return _Touched(transplant.project([*named, *marks], rows), *marks)


def _together(
    assembly: Assembly,
    rows: Any,
    keys: list[Any],
    marks: list[Any],
    order: list[Any],
    *,
    ordered: bool,
) -> Any:
    """Move each group to one partition by Spark's own hash; ``ordered``: sort its rows.

    In ``marks``, such as the version, rows of one group may differ. Rows are sorted by the keys and
    the marks, then ``order``, then all other columns.
    """
    transplant = assembly.transplant
    if not keys:
        rows = transplant.gather(rows)
    elif assembly.partitions > 1:
        rows = transplant.hashed(rows, keys, assembly.partitions)
    return transplant.sorted(rows, [*keys, *marks], order) if ordered else rows


def _aggregate(
    assembly: Assembly, node: Recompute, query: plan.Aggregate, below: Frame | StateShare
) -> Frame:
    transplant = assembly.transplant
    touched = _touched(assembly, node, query.group_keys, below)
    there = {a.id for a in query.child.attributes}
    computed = [
        transplant.alias(key.handle, a.name, a.handle)
        for key, a in zip(query.grouping, query.grouping_attributes, strict=True)
        if a.id not in there
    ]
    own = [a.handle for a in query.child.attributes]
    marks = [touched.version, touched.present]
    marks += [] if touched.session is None else [touched.session]
    rows = transplant.project([*own, *computed, *marks], touched.plan)
    grouping = [a.handle for a in query.grouping_attributes]
    ordered = any(call.ordered for call in query.functions)
    order = [] if query.session is None else [transplant.scala.ascending(grouping[query.session])]
    order += [transplant.scala.ascending(tie.handle) for tie in query.ties]
    if query.session is not None and touched.session is not None:
        grouping[query.session] = touched.session
        keys = grouping
    else:
        keys = [g for i, g in enumerate(grouping) if i != query.session]
    rows = _together(assembly, rows, keys, [touched.version], order, ordered=ordered)
    condition = touched.present if node.operator.is_global else None
    calls = [transplant.call(f, condition) for f in query.functions]
    whole = transplant.aggregate([*grouping, touched.version], calls, rows)
    if query.session is not None and touched.session is not None:
        shown = query.grouping_attributes[query.session]
        named = [transplant.alias(touched.session, shown.name, shown.handle)]
        others = [each for each in items(whole.output()) if not each.sameRef(touched.session)]
        whole = transplant.project([*others, *named], whole)
    named = [e.handle for e in query.results]
    return _weighted(transplant, named, touched.version, whole)


def _window(
    assembly: Assembly, node: Recompute, query: plan.Window, below: Frame | StateShare
) -> Frame:
    transplant = assembly.transplant
    partition = [key.handle for key in query.partition]
    order = items(query.handle.orderSpec())
    order += [transplant.scala.ascending(tie.handle) for tie in query.ties]
    named = [a.handle for a in query.attributes]
    if query.near is not None:
        slices = _sliced(assembly, node, query, query.near, below)
        marks = [slices.version, slices.slice]
        rows = _together(assembly, slices.plan, partition, marks, order, ordered=True)
        windowed = _counted(transplant, query, slices, [*partition, *marks], rows)
        reached = transplant.filter(slices.reached, windowed)
        return _weighted(transplant, named, slices.version, reached)
    touched = _touched(assembly, node, query.partition, below)
    marks = [touched.version]
    rows = _together(assembly, touched.plan, partition, marks, order, ordered=True)
    windowed = transplant.window(query.handle, [*partition, *marks], rows)
    return _weighted(transplant, named, touched.version, windowed)


def _sliced(
    assembly: Assembly,
    node: Recompute,
    query: plan.Window,
    near: plan.NearFrames,
    below: Frame | StateShare,
) -> _Slices:
    transplant, operator, long = assembly.transplant, node.operator, LongType()
    order = [(key.expression.handle, key.expression.type) for key in near.order]
    reach = operator.reach if isinstance(operator, NearRows) else FrameReach()
    names = (*reach.lowers, *reach.uppers, *reach.sums)
    bounds = dict(zip(names, (*near.lowers, *near.uppers, *near.sums), strict=True))
    keyed, types = _arranged(assembly, node, query.partition, order, below, bounds)
    kept = len(types)
    types += [(VERSION, long), (SLICE, long), (REACHED, BooleanType())]
    types += [(BEFORE, long)] if reach.running else []
    types += [(ORDERS, long)] if reach.dense else []
    for i, value in enumerate(near.sums):
        total, seen = sums_of(i)
        scale = value.type.scale if isinstance(value.type, DecimalType) else 0
        types += [(total, DecimalType(38, scale)), (seen, long)]
    inputs = ((HASH, *operator.layout.columns.names, WEIGHT),)
    task = assembly.task(node.name, operator, node.arrangements, inputs, types)
    rows = assembly.stepped(task, keyed, types)
    output = transplant.output(rows)
    named = _renamed(transplant, node.plan.child.attributes, output)
    marks = [output[name] for name, _ in types[kept:]]
    plan_ = transplant.project([*named, *marks], rows)
    sums = tuple(
        (value.handle, *(output[name] for name in sums_of(i))) for i, value in enumerate(near.sums)
    )
    ends = output[VERSION], output[SLICE], output[REACHED], output.get(BEFORE), output.get(ORDERS)
    return _Slices(plan_, *ends, sums)


def _counted(
    transplant: Transplant, query: plan.Window, slices: _Slices, keys: list[Any], rows: Any
) -> Any:
    """Add the values of functions; running ones add what is before their slice."""
    near = query.near
    if near is None or not near.counted:
        return transplant.window(query.handle, keys, rows)
    functions: list[Any] = []
    added: list[Any] = []

    def value(expression: Any, kind: str, _node: str) -> Any | None:
        if kind != "WindowExpression":
            return None
        functions.append(transplant.alias(expression, f"f{len(functions)}"))
        return _from_the_first(transplant, expression, functions[-1].toAttribute(), slices)

    for each, attribute in zip(items(query.handle.windowExpressions()), query.added, strict=True):
        if attribute.id in near.counted:
            whole = replaced(transplant.scala, each.child(), "Window", value)
            added.append(transplant.alias(whole, attribute.name, attribute.handle))
        else:
            functions.append(each)
            added.append(attribute.handle)
    windowed = transplant.window(query.handle, keys, rows, functions)
    own = [a.handle for a in query.child.attributes]
    marks = [slices.version, slices.reached]
    return transplant.project([*own, *added, *marks], windowed)


def _from_the_first(transplant: Transplant, window: Any, found: Any, slices: _Slices) -> Any:
    """Return the value of a function from the first row of its group on.

    ``found`` is its value over the rows of its slice.
    """
    expression, carry = transplant.scala.expression, carried(window)
    if carry is None:
        return found
    what, argument = carry
    if what in (Carry.ROWS, Carry.ORDERS):
        before = slices.before if what is Carry.ROWS else slices.orders
        return expression("Add", found, transplant.cast(before, type_of(found)))
    ((total, seen),) = [both for value, *both in slices.sums if value.semanticEquals(argument)]
    if what is Carry.VALUES:
        return expression("Add", found, seen)
    type_ = type_of(found)
    own = expression("Coalesce", transplant.scala.seq([found, _zero(transplant, type_)]))
    both = transplant.cast(expression("Add", own, transplant.cast(total, type_)), type_)
    nothing = expression("EqualTo", seen, transplant.literal(0, LongType()))
    return expression("If", nothing, found, both)


def _zero(transplant: Transplant, type_: DataType) -> Any:
    return transplant.cast(transplant.literal(0, LongType()), type_)


def _weighted(transplant: Transplant, named: list[Any], version: Any, below: Any) -> Frame:
    """Give results of the new version the weight 1, and results of the old version -1."""
    long = LongType()
    is_new = transplant.scala.expression("EqualTo", version, transplant.literal(1, long))
    one, minus = transplant.literal(1, long), transplant.literal(-1, long)
    weight = transplant.alias(transplant.scala.expression("If", is_new, one, minus), WEIGHT)
    return Frame(transplant.project([*named, weight], below), weight.toAttribute())
