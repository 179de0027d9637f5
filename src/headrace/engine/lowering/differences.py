"""Builds the job that replaces slices of arrangements.

Spark evaluates the conditions, over the columns that they use; no rows are moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import LongType

from headrace.catalyst.predicates import Predicates
from headrace.catalyst.transplant import spark_schema
from headrace.engine.jobs.slice_tasks import PARTITION, PLACE, VERSION, ReplaceTask, SliceTask
from headrace.engine.lowering.assembly import Program
from headrace.engine.reading.candidates import keys_of

_FEW: Final = 1 << 22
"""The most rows of an arrangement whose columns are searched without a job."""

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.catalyst.transplant import Transplant
    from headrace.circuit import ArrangementSlice, Sliced
    from headrace.runtime.step import Step
    from headrace.types import ArrangementId, DataType


def difference_program(
    transplant: Transplant, partitions: int, sliced: Sliced, ids: Iterable[ArrangementId]
) -> Program:
    """Return the program that writes the difference between a recomputed slice and the stored rows.

    It covers the arrangements with the given ids.
    """
    kept = {id_: sliced.arrangements[id_] for id_ in ids}
    tasks, terminals = [], []
    for id_, each in kept.items():
        task, terminal = _replaced(transplant, partitions, id_, each)
        tasks.append(task.name)
        terminals.append(terminal)
    job = transplant.finished(transplant.union(terminals))
    layouts = {id_: each.layout for id_, each in kept.items()}
    return Program((job,), (), (), layouts, frozenset(), {}, reporting=tuple(tasks))


def without_spark(sliced: Sliced, step: Step) -> frozenset[ArrangementId]:
    """Return the arrangements of a step that need no job: small, or with slices given by key."""
    found = set()
    for id_, stored in step.arrangements.items():
        kept = sliced.arrangements[id_]
        runs = (*stored.runs, *step.recomputed.get(id_, ()))
        if kept.exact and (
            keys_of(kept.layout, kept.restriction) is not None
            or sum(run.rows for run in runs) <= _FEW
        ):
            found.add(id_)
    return frozenset(found)


def _replaced(
    transplant: Transplant, partitions: int, id_: ArrangementId, kept: ArrangementSlice
) -> tuple[ReplaceTask, Any]:
    """Return the task that replaces the slice of one arrangement, and its plan without rows."""
    numbers = transplant.range(partitions)
    none = spark_schema([("x", LongType())])
    met = None if kept.exact else Predicates(transplant.scala).met(kept.conditions)
    if met is None:
        task = ReplaceTask(id_, kept.restriction, whole=True)
        return task, transplant.mapped(numbers, task, none)
    used = sorted(kept.columns)
    read = SliceTask(id_, tuple(kept.names[i] for i in used), kept.restriction, partitions)
    places: list[tuple[str, DataType]] = [(n, LongType()) for n in (PARTITION, VERSION, PLACE)]
    fields = [*places, *((f"c{n}", kept.columns[i].type) for n, i in enumerate(used))]
    rows = transplant.mapped(numbers, read, spark_schema(fields))
    columns = transplant.output(rows)
    named = [columns[name] for name, _ in places]
    named += [
        transplant.alias(columns[f"c{n}"], kept.columns[i].name, kept.columns[i].handle)
        for n, i in enumerate(used)
    ]
    found = transplant.filter(met, transplant.project(named, rows))
    taken = transplant.project([columns[name] for name, _ in places], found)
    task = ReplaceTask(id_, kept.restriction, whole=False)
    return task, transplant.mapped(taken, task, none)
