"""Lowering operators over the rows of groups: first rows, and groups that Spark recomputes.

For aggregates of all kinds and for windows, the operator yields the rows of each changed group
before and after the change. Spark evaluates the query's own node on them, with the version as an
additional key, and the version determines the weight of each result. Rows are first sorted by all
columns, so that equal groups have equal results, independently of the order in which rows arrive.

Lowering operators that find rows by their order instead of a key.

These are comparisons with the value of another query, and conditions on the clock. Their rows are
spread over a few hashes, the *buckets*; a change of the value is sent to each of them.

A step in which time passes has one row of weight 0 in each partition, so that the operator of a
condition on the clock runs there whether or not rows arrive.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import BooleanType, DecimalType, LongType

from headrace.algebra.operators import (
    BEFORE,
    BOUND,
    FOLDED,
    ORDERS,
    PRESENT,
    REACHED,
    SESSION,
    SLICE,
    VALUE,
    VERSION,
    FrameReach,
    NearRows,
    TouchedSessions,
    sums_of,
)
from headrace.algebra.zset import HASH, WEIGHT
from headrace.execution.engine.jobs.worker import TickTask
from headrace.execution.engine.lowering.assembly import Assembly, Frame, StateShare
from headrace.planning.catalyst import plan
from headrace.planning.catalyst.resolved import type_of
from headrace.planning.catalyst.scala import items, replaced
from headrace.planning.catalyst.transplant import spark_schema
from headrace.planning.catalyst.windows import Carry, carried
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.planning.catalyst.transplant import Transplant
    from headrace.planning.circuit import ComparedRows, First, FoldedRows, Recompute, TemporalRows
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


_STEP = 1 << 58
_BUCKETS = tuple(range(-(1 << 63), 1 << 63, _STEP))
"""The 64 hashes of the buckets: rows are spread over at most as many partitions."""


def compared(
    assembly: Assembly, node: ComparedRows, below: Frame | None, value: Frame | None
) -> Frame | None:
    """Lower a comparison; None where neither a row nor the value can change.

    The operator yields the pairs of a row and a value for which the comparison may change, and
    Spark evaluates the comparison.
    """
    transplant, query, long = assembly.transplant, node.plan, LongType()
    own = [(f"x{i}", a) for i, a in enumerate(query.attributes)]
    (threshold,) = query.value.attributes
    types = [*((name, a.type) for name, a in own), (BOUND, query.bound.type)]
    types.append((VALUE, threshold.type))
    sides: list[Any] = []
    if below is not None:
        given = {BOUND: query.bound.handle, **{name: a.handle for name, a in own}}
        columns = [(name, type_, given.get(name)) for name, type_ in types]
        bucket = _bucket_of(transplant, query.attributes)
        sides.append(assembly.side(0, bucket, columns, below))
    if value is not None:
        spread, weight, bucket = transplant.repeated(
            _BUCKETS, threshold.handle, value.weight, value.plan
        )
        given = {VALUE: threshold.handle}
        columns = [(name, type_, given.get(name)) for name, type_ in types]
        sides.append(assembly.side(1, bucket, columns, Frame(spread, weight)))
    if not sides:
        return None
    shown = [each for each in types if each[0] != BOUND]
    output = [(HASH, long), *shown, (WEIGHT, long)]
    task = assembly.task(node.name, node.operator, node.arrangements, node.operator.inputs, output)
    stepped = assembly.stepped(task, assembly.exchange(transplant.union(sides)), output)
    found = transplant.output(stepped)
    named = [transplant.alias(found[name], a.name, a.handle) for name, a in own]
    named.append(transplant.alias(found[VALUE], threshold.name, threshold.handle))
    weight = found[WEIGHT]
    paired = transplant.project([*named, weight], stepped)
    true = transplant.filter(query.condition.handle, paired)
    return Frame(transplant.project([*(a.handle for _, a in own), weight], true), weight)


def temporal(
    assembly: Assembly, node: TemporalRows, below: Frame | None, *, ticks: bool
) -> Frame | None:
    """Lower a condition on the clock; None where neither rows nor the clock change."""
    if below is None and not ticks:
        return None
    transplant, attributes = assembly.transplant, node.plan.attributes
    long = LongType()
    types: list[tuple[str, DataType]] = [(HASH, long)]
    types += [(f"x{i}", a.type) for i, a in enumerate(attributes)]
    operator = node.operator
    times = [name for name in (operator.enters, operator.leaves) if name is not None]
    fields = [*types, *((name, long) for name in times), (WEIGHT, long)]
    rows: list[Any] = []
    if below is not None:
        values = [(f"x{i}", a.handle) for i, a in enumerate(attributes)]
        values += [(n, time.handle) for n, time in zip(times, node.plan.times, strict=True)]
        named = [transplant.alias(_bucket_of(transplant, attributes), HASH)]
        named += [transplant.alias(value, name) for name, value in values]
        named.append(transplant.alias(below.weight, WEIGHT))
        rows.append(transplant.project(named, below.plan))
    if ticks:
        tick = TickTask(_arrow(fields), assembly.partitions)
        rows.append(
            transplant.mapped(transplant.range(assembly.partitions), tick, spark_schema(fields))
        )
    arrived = transplant.union(rows)
    if below is not None:
        arrived = assembly.exchange(arrived)
    types.append((WEIGHT, long))
    task = assembly.task(
        node.name, operator, node.arrangements, (operator.columns,), types, clocked=True
    )
    stepped = assembly.stepped(task, arrived, types)
    output = transplant.output(stepped)
    named = [transplant.alias(output[f"x{i}"], a.name, a.handle) for i, a in enumerate(attributes)]
    weight = output[WEIGHT]
    return Frame(transplant.project([*named, weight], stepped), weight)


def _bucket_of(transplant: Transplant, attributes: Iterable[plan.Attribute]) -> Any:
    """Return the hash of a row's bucket: the highest bits of the hash of its columns."""
    highest = transplant.literal(-_STEP, LongType())
    return transplant.scala.expression("BitwiseAnd", transplant.hash_of_row(attributes), highest)


def _arrow(fields: list[tuple[str, DataType]]) -> pa.Schema:
    return pa.schema([pa.field(name, to_arrow(type_)) for name, type_ in fields])
