"""Damaged runs: finding them, and rebuilding the contents of a table from its log.

Views are rebuilt by :class:`headrace.runtime.fill.Fill`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.circuit import rows_of
from headrace.errors import Code, HeadraceError
from headrace.ledger import EpochCommit, Merge, RunKind
from headrace.runtime.attempt import Attempt, new_run, new_runs, retried
from headrace.runtime.compaction import compacted
from headrace.runtime.rounds import remove_runs
from headrace.runtime.shares import log_share
from headrace.runtime.step import Arranged, Clock, Step
from headrace.spine import check_run, differences, sync_directory
from headrace.types import Offset, RelationId
from headrace.zset import Layout

if TYPE_CHECKING:
    from collections.abc import Container
    from pathlib import Path

    from headrace.catalog import Table
    from headrace.ledger import Ledger
    from headrace.runtime.epoch import EpochLoop
    from headrace.runtime.fill import Progress
    from headrace.runtime.step import Report
    from headrace.spine import RunFile
    from headrace.types import ArrangementId, Epoch


@dataclass(frozen=True, slots=True)
class Damage:
    """A run of a relation that cannot be read, and why."""

    owner: RelationId
    arrangement: ArrangementId
    file: str
    reason: str


def damaged_runs(
    ledger: Ledger, directory: Path, owners: Container[RelationId]
) -> tuple[Damage, ...]:
    """Read every run that the last epoch of some relations sees; return those that are damaged.

    ``directory`` is that of the runs. Every byte is read.
    """
    records = [record for record in ledger.spines.arrangements() if record.owner in owners]
    spines = ledger.spines.of([record.id for record in records])
    found = []
    for record in records:
        layout = Layout.of_json(dict(record.layout))
        for run in spines[record.id]:
            try:
                check_run(directory, run.file, layout)
            except HeadraceError as error:
                if error.code is not Code.CORRUPT:
                    raise
                found.append(Damage(record.owner, record.id, run.name, error.primary))
    return tuple(found)


@dataclass(slots=True)
class TableRebuild:
    """Rebuilds the stored contents of a table from the part of its log that epochs have read."""

    loop: EpochLoop
    table: Table
    layout: Layout
    progress: Progress

    def run(self) -> tuple[Epoch, int]:
        """Replace what is stored; return the epoch from which on it is read, and the changes read.

        The contents stay what they were, so no view changes. The loop's lock is held.

        Raises:
            HeadraceError: ``corrupt`` if the log is damaged as well; nothing is replaced then.
        """
        ledger, id_ = self.loop.ledger, rows_of(self.table.id)
        end = ledger.head.position(self.table.id)
        files: list[RunFile] = []
        try:
            self._read(end, files)
        except BaseException:
            remove_runs(self.loop.directory / "runs", files)
            raise
        sync_directory(self.loop.directory / "runs")
        stored = tuple(run.name for run in ledger.spines.runs(id_))
        epoch = ledger.commit(
            EpochCommit(
                ledger.head.epoch,
                uuid4().hex,
                runs=tuple(new_run(id_, file, RunKind.MERGED) for file in files),
                merges=(Merge(id_, stored, None),) if stored else (),
                counters={"repaired": self.table.name, "changes": 0},
            )
        )
        ledger.spines.advance_since({id_: epoch})
        self.loop.published.publish()
        return epoch, end

    def correct(self) -> Epoch:
        """Replace stored rows that are not what the log makes, as an epoch would change them.

        What reads the table follows the difference. The loop's lock is held, and nothing is
        compacted.

        Raises:
            HeadraceError: as :meth:`run`; and if what reads the table cannot follow.
        """
        loop, ledger, id_ = self.loop, self.loop.ledger, rows_of(self.table.id)
        runs = loop.directory / "runs"
        files: list[RunFile] = []
        try:
            self._read(ledger.head.position(self.table.id), files)
            before = [run.file for run in ledger.spines.runs(id_)]
            delta = differences(runs, self.layout, before, files, loop.partitions)
        finally:
            remove_runs(runs, files)
        above, clock = Attempt(), ledger.epochs.clock()
        try:
            loop.fault("correct")
            sync_directory(runs)
            loop.follow({self.table.id: delta}, clock, above)
        except BaseException:
            remove_runs(runs, delta)
            raise
        changes = tuple(new_run(id_, file, RunKind.DELTA) for file in delta)
        epoch = ledger.commit(
            EpochCommit(
                ledger.head.epoch,
                uuid4().hex,
                runs=(*changes, *new_runs(above.reports, RunKind.DELTA)),
                counters={**above.counters(()), "repaired": self.table.name},
                clock=clock,
            )
        )
        loop.published.publish()
        return epoch

    def _read(self, end: Offset, files: list[RunFile]) -> None:
        """Read the log up to an offset, in parts of whole segments, into ``files``."""
        loop, at = self.loop, Offset(0)
        clock = loop.ledger.epochs.clock()
        changed = frozenset([self.table.id])
        without = frozenset(view.id for view in loop.catalog.views_in_order())

        def run(attempt: Step) -> tuple[Report, ...]:
            return loop.runner.run_live(attempt, changed, without)

        while at < end:
            self.progress(at, end)
            stop = Offset(min(end, at + loop.settings.fill_rows))
            partitions = loop.partitions_for(stop - at)
            needs = loop.runner.plan_live(changed, without, partitions)
            step = Step(
                uuid4().hex,
                loop.directory,
                partitions,
                {self.table.id: log_share(loop.ledger, self.table.id, at, stop)},
                {i: Arranged(layout, tuple(files)) for i, layout in needs.arrangements.items()},
                clock=Clock(clock, clock),
            )
            reports = retried(step, loop.settings.attempts, run)
            files += [file for report in reports for file in report.runs.values()]
            files[:] = compacted(step.runs_directory, self.layout, files, loop.partitions)
            at = stop
        self.progress(end, end)
