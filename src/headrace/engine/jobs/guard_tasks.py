"""The task of a quarantine, in Spark's Python workers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.engine.jobs.reports import leave_nothing, leave_report, write_run_of
from headrace.engine.jobs.worker import arrived, batches_of
from headrace.operators import held_back
from headrace.runtime.quarantine import Guarded, candidates_of, refusals
from headrace.runtime.step import Report
from headrace.spine import Spine
from headrace.zset import ZSet

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from headrace.operators import Quarantine
    from headrace.types import ArrangementId


@dataclass(frozen=True, slots=True)
class GuardTask:
    """Divide a partition's rows between a view and its quarantine, as the step says."""

    name: str
    operator: Quarantine
    arrangement: ArrangementId

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Collect the partition's delta, write the quarantine's run and a report, yield the rest.

        In a trial, insertions may be held back, and the hashes of all of them are written.
        """
        found = arrived(self.name, batches)
        if found is None:
            leave_nothing(self.name)
            return
        begun = time.perf_counter()
        step, change, partition, (low, high) = found
        guarded = step.guards.get(self.arrangement, Guarded())
        stored = step.arrangements[self.arrangement]
        kept, known = (
            Spine.open(step.runs_directory, stored.layout, runs, low, high)
            for runs in (stored.runs, guarded.known)
        )
        taken = self.operator.step((change, refusals(guarded.refused)), (kept, known))
        (update,) = taken.updates
        runs = {}
        if update.rows:
            runs[self.arrangement] = write_run_of(step, update)
        output, inserted = held_back(taken.output, guarded.below)
        if guarded.listed and inserted.num_rows:
            rows = ZSet.of(self.operator.rows, inserted)
            listed = write_run_of(step, rows)
            runs[candidates_of(self.arrangement)] = listed
        read = kept.reads.rows + known.reads.rows
        seconds = time.perf_counter() - begun
        counts = change.num_rows, output.num_rows
        leave_report(Report(self.name, partition, runs, *counts, read, seconds))
        yield from batches_of(output.select(self.operator.rows.schema.names))
