"""Lowering comparisons with a value of another query: rows in buckets, the value in each of them.

The operator yields the pairs of a row and the value for which the comparison may change; what it
says of them is Spark's to find.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import LongType

from headrace.engine.assembly import Assembly, Frame
from headrace.engine.buckets import BUCKETS, bucket_of
from headrace.engine.worker import SIDE
from headrace.operators import BOUND, VALUE
from headrace.zset import HASH, WEIGHT

if TYPE_CHECKING:
    from headrace.circuit import Compared
    from headrace.types import DataType


def compared(
    assembly: Assembly, node: Compared, below: Frame | None, value: Frame | None
) -> Frame | None:
    """Lower a comparison; None where neither a row nor the value can change."""
    transplant, query, long = assembly.transplant, node.plan, LongType()
    own = [(f"x{i}", a) for i, a in enumerate(query.attributes)]
    (threshold,) = query.value.attributes
    types: list[tuple[str, DataType]] = [(HASH, long), *((name, a.type) for name, a in own)]
    types += [(BOUND, query.bound.type), (VALUE, threshold.type), (WEIGHT, long)]
    sides: list[Any] = []
    if below is not None:
        given = {HASH: bucket_of(transplant, query.attributes), BOUND: query.bound.handle}
        given |= {name: a.handle for name, a in own}
        sides.append(_side(assembly, 0, types, given, below))
    if value is not None:
        spread, weight, bucket = transplant.repeated(
            BUCKETS, threshold.handle, value.weight, value.plan
        )
        given = {HASH: bucket, VALUE: threshold.handle}
        sides.append(_side(assembly, 1, types, given, Frame(spread, weight)))
    if not sides:
        return None
    output = [each for each in types if each[0] != BOUND]
    task = assembly.task(node.name, node.operator, node.arrangements, node.operator.inputs, output)
    stepped = assembly.stepped(task, assembly.exchange(transplant.union(sides)), output)
    columns = transplant.output(stepped)
    named = [transplant.alias(columns[name], a.name, a.handle) for name, a in own]
    named.append(transplant.alias(columns[VALUE], threshold.name, threshold.handle))
    weight = columns[WEIGHT]
    paired = transplant.project([*named, weight], stepped)
    true = transplant.filter(query.condition.handle, paired)
    return Frame(transplant.project([*(a.handle for _, a in own), weight], true), weight)


def _side(
    assembly: Assembly,
    which: int,
    types: list[tuple[str, DataType]],
    given: dict[str, Any],
    frame: Frame,
) -> Any:
    """Name one side's columns, with NULL for the other's, so that both can be one plan."""
    transplant = assembly.transplant
    values = {**given, WEIGHT: frame.weight}
    named = [transplant.alias(transplant.literal(which, LongType()), SIDE)]
    named += [
        transplant.alias(values.get(name, transplant.literal(None, type_)), name)
        for name, type_ in types
    ]
    return transplant.project(named, frame.plan)
