"""Lowering operators that find rows by their order instead of a key.

These are comparisons with the value of another query, and conditions on the clock. Their rows are
spread over a few hashes, the *buckets*; a change of the value is sent to each of them.

A step in which time passes has one row of weight 0 in each partition, so that the operator of a
condition on the clock runs there whether or not rows arrive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import LongType

from headrace.catalyst.transplant import spark_schema
from headrace.engine.jobs.worker import TickTask
from headrace.engine.lowering.assembly import Assembly, Frame
from headrace.operators import BOUND, VALUE
from headrace.types import to_arrow
from headrace.zset import HASH, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.catalyst import plan
    from headrace.catalyst.transplant import Transplant
    from headrace.circuit import ComparedRows, TemporalRows
    from headrace.types import DataType

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
