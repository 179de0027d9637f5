"""Lowering comparisons with a value of another query: rows in buckets, the value in each of them.

The operator yields the pairs of a row and the value for which the comparison may change; what it
says of them is Spark's to find.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import LongType

from headrace.engine.lowering.assembly import Assembly, Frame
from headrace.engine.lowering.buckets import BUCKETS, bucket_of
from headrace.operators import BOUND, VALUE
from headrace.zset import HASH, WEIGHT

if TYPE_CHECKING:
    from headrace.circuit import Compared


def compared(
    assembly: Assembly, node: Compared, below: Frame | None, value: Frame | None
) -> Frame | None:
    """Lower a comparison; None where neither a row nor the value can change."""
    transplant, query, long = assembly.transplant, node.plan, LongType()
    own = [(f"x{i}", a) for i, a in enumerate(query.attributes)]
    (threshold,) = query.value.attributes
    types = [*((name, a.type) for name, a in own), (BOUND, query.bound.type)]
    types.append((VALUE, threshold.type))
    sides: list[Any] = []
    if below is not None:
        given = {BOUND: query.bound.handle, **{name: a.handle for name, a in own}}
        columns = [(name, type_, given.get(name)) for name, type_ in types]
        bucket = bucket_of(transplant, query.attributes)
        sides.append(assembly.side(0, bucket, columns, below))
    if value is not None:
        spread, weight, bucket = transplant.repeated(
            BUCKETS, threshold.handle, value.weight, value.plan
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
