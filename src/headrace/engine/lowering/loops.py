"""Lowering recursions: the operator of a loop, and its rows of the previous round as a leaf."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import LongType

from headrace.zset import HASH, WEIGHT

if TYPE_CHECKING:
    from headrace.circuit import Feedback, Loop
    from headrace.engine.lowering.assembly import Assembly, Frame
    from headrace.types import DataType


def looped(assembly: Assembly, node: Loop, below: Frame) -> Frame:
    """Lower a loop over the delta of its start and its step."""
    transplant, attributes = assembly.transplant, node.plan.attributes
    names = node.operator.layout.columns.names
    columns = [(name, a.handle) for name, a in zip(names, attributes, strict=True)]
    keyed = assembly.keyed(below, [value for _, value in columns], columns, [], there=False)
    types: list[tuple[str, DataType]] = [(HASH, LongType())]
    types += [(name, a.type) for name, a in zip(names, attributes, strict=True)]
    types.append((WEIGHT, LongType()))
    inputs = ((HASH, *names, WEIGHT),)
    task = assembly.task(node.name, node.operator, node.arrangements, inputs, types)
    rows = assembly.stepped(task, keyed, types)
    output = transplant.output(rows)
    named = [
        transplant.alias(output[name], a.name, a.handle)
        for name, a in zip(names, attributes, strict=True)
    ]
    return assembly.weighted(named, output[WEIGHT], rows)


def fed_back(assembly: Assembly, node: Feedback) -> Frame:
    """Lower the leaf of a loop's step: the delta of the loop's rows in the previous round."""
    transplant, attributes = assembly.transplant, node.plan.attributes
    names = node.layout.columns.names
    types = [(name, a.type) for name, a in zip(names, attributes, strict=True)]
    below = assembly.handed(node.arrangement, [*types, (WEIGHT, LongType())])
    output = transplant.output(below)
    named = [
        transplant.alias(output[name], a.name, a.handle)
        for name, a in zip(names, attributes, strict=True)
    ]
    return assembly.weighted(named, output[WEIGHT], below)
