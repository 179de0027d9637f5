"""Lowering conditions on the clock: rows with their times, over a few hashes, and a tick.

A step in which time is to pass has one row of weight 0 in each partition, so that the operator
runs there whether or not rows arrive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import LongType

from headrace.engine.jobs.worker import TickTask
from headrace.engine.lowering.assembly import Assembly, Frame, spark_schema
from headrace.engine.lowering.buckets import bucket_of
from headrace.types import to_arrow
from headrace.zset import HASH, WEIGHT

if TYPE_CHECKING:
    from headrace.circuit import Temporal
    from headrace.types import DataType


def temporal(
    assembly: Assembly, node: Temporal, below: Frame | None, *, ticks: bool
) -> Frame | None:
    """Lower a condition on the clock; None where neither a row nor the clock changes anything."""
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
        named = [transplant.alias(bucket_of(transplant, attributes), HASH)]
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


def _arrow(fields: list[tuple[str, DataType]]) -> pa.Schema:
    return pa.schema([pa.field(name, to_arrow(type_)) for name, type_ in fields])
