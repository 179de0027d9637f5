"""Lowering the quarantines of a view: rows in quarantine do not reach its leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import LongType

from headrace.engine.jobs.guard_tasks import GuardTask
from headrace.zset import HASH, WEIGHT

if TYPE_CHECKING:
    from headrace.circuit import InputGuard
    from headrace.engine.lowering.assembly import Assembly
    from headrace.types import DataType


def guarded(
    assembly: Assembly, guard: InputGuard, values: list[Any], weight: Any, below: Any, *, uses: int
) -> Any:
    """Return a plan of the rows that pass a guard, under its names, with their hash and weight.

    ``values`` are its columns in the plan ``below``; ``uses`` is the number of leaves that read it.
    """
    transplant, names = assembly.transplant, guard.operator.columns.names
    named = [transplant.alias(transplant.hash(values), HASH)]
    named += [transplant.alias(value, name) for value, name in zip(values, names, strict=True)]
    named.append(transplant.alias(weight, WEIGHT))
    arrived = assembly.exchange(transplant.project(named, below))
    fields: list[tuple[str, DataType]] = [(HASH, LongType())]
    fields += zip(names, guard.types, strict=True)
    fields.append((WEIGHT, LongType()))
    (layout,) = guard.operator.layouts
    assembly.guard(guard.name, guard.arrangement, layout)
    task = GuardTask(guard.name, guard.operator, guard.arrangement)
    passed = assembly.stepped(task, arrived, fields)
    # Spark runs an exchange once however often it is used, and a stage once per use.
    return passed if uses == 1 else transplant.exchange(passed, HASH, assembly.partitions)
