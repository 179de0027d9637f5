"""Scoped replay: recompute a slice of a view from its inputs, and replace it in one epoch.

The slice is filled as another build of the view would be, from the rows of the inputs that it is
computed from, while epochs go on. What is stored, of the contents and of the operators' state, then
changes by the difference, in the slice of each; and all that reads the view follows in that epoch.
So readers see the old slice or the new one, and it does not matter what the old one was.

Damaged runs: finding them, and rebuilding the contents of a table from its log.

Views are rebuilt by :mod:`headrace.execution.runtime.builds`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.algebra.spine import check_run, differences, sync_directory
from headrace.algebra.zset import Layout
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.attempt import Attempt, retried
from headrace.execution.runtime.builds import Swap, followed
from headrace.execution.runtime.step import Clock, Step, StepArrangement, log_share, require_keys
from headrace.storage.ledger import LIVE, EpochCommit, RunKind
from headrace.types import Offset, RelationId, rows_of

if TYPE_CHECKING:
    from collections.abc import Container
    from pathlib import Path

    from headrace.algebra.spine import RunFile
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.fill import Fill, Progress
    from headrace.execution.runtime.fill_parts import Filled
    from headrace.execution.runtime.step import Report
    from headrace.planning.catalog import Table
    from headrace.storage.ledger import Ledger
    from headrace.types import ArrangementId, BuildId, DirtyId, Epoch


@dataclass(frozen=True, slots=True)
class Replaced:
    """The epoch that replaced a slice, and by how many rows the view has changed.

    ``state`` is the number of rows by which the state of its operators has.
    """

    epoch: Epoch
    changed: int
    state: int


def replace_slice(
    fill: Fill, build: BuildId, cleaned: tuple[DirtyId, ...] = (), *, lags: bool = False
) -> Replaced:
    """Commit the slice that a fill has recomputed in place of what is stored.

    The view's set is held since the fill's last catching up; if the view ``lags`` behind, since it
    was begun where the view stands. ``cleaned`` are the entries of the dirty ledger that this
    repairs: they go in the same transaction. The ledger does not name what the fill wrote.

    Raises:
        HeadraceError: if a view above fails on the new rows; nothing is replaced then.
    """
    loop, view, filled = fill.loop, fill.view, fill.written(None if lags else LIVE)
    rows = rows_of(view.id)
    clock = loop.ledger.epochs.clock() if lags else filled.clock
    loop.fault("replace")
    with Attempt(loop.runs) as attempt:
        _write_difference(attempt, fill, filled, build)
        delta = attempt.written(rows)
        changed = sum(run.rows for run in delta)
        written = sum(run.rows for runs in attempt.files.values() for run in runs)
        runs = attempt.new_runs(RunKind.DELTA)
        above = followed(loop, attempt, {view.id: delta}, clock)
        loop.fault("replaced")
        change = replace(filled.change(runs, clock, "replayed", view.name), cleaned=cleaned)
        with loop.between():
            epoch = Swap(loop, attempt, change, above).commit()
    return Replaced(epoch, changed, written - changed)


def _write_difference(attempt: Attempt, fill: Fill, filled: Filled, build: BuildId) -> None:
    """Write the difference between the slice and what is stored."""
    loop = fill.loop
    stored = loop.published.current.spines
    before = {
        id_: StepArrangement(layout, tuple(run.file for run in stored.get(id_, ())))
        for id_, layout in filled.layouts.items()
        if id_ not in filled.quarantines  # they stay as they are
    }
    recomputed = {id_: tuple(run.file for run in filled.runs_of(id_)) for id_ in before}
    step = Step(
        uuid4().hex,
        loop.directory,
        loop.partitions,
        {},
        before,
        clock=Clock(filled.clock, filled.clock),
        recomputed=recomputed,
    )
    run = loop.runner.run_difference
    attempt.take(retried(step, loop.settings.attempts, lambda tried: run(tried, build)))
    require_keys([fill.view], attempt.directory, before, attempt.reports)
    sync_directory(attempt.directory)


@dataclass(frozen=True, slots=True)
class Damage:
    """A run of a relation that cannot be read, and why."""

    owner: RelationId
    arrangement: ArrangementId
    run: RunFile
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
                found.append(Damage(record.owner, record.id, run.file, error.primary))
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

        The contents stay what they were, so no view changes. The table's set is held.

        Raises:
            HeadraceError: ``corrupt`` if the log is damaged as well; nothing is replaced then.
        """
        loop, id_ = self.loop, rows_of(self.table.id)
        end = loop.ledger.head.position(self.table.id)
        with Attempt(loop.runs) as attempt:
            self._read(end, attempt)
            sync_directory(loop.runs)
            change = EpochCommit(
                loop.published.current.epoch,
                uuid4().hex,
                runs=attempt.new_runs(RunKind.MERGED),
                counters={"repaired": self.table.name, "changes": 0},
            )
            with loop.between():
                return Swap(loop, attempt, change, emptied=(id_,)).commit(), end

    def correct(self) -> Epoch:
        """Replace stored rows that are not what the log makes, as an epoch would change them.

        What reads the table follows the difference. The table's set is held, and nothing is
        compacted.

        Raises:
            HeadraceError: as :meth:`run`; and if what reads the table cannot follow.
        """
        loop, ledger, id_ = self.loop, self.loop.ledger, rows_of(self.table.id)
        clock = ledger.epochs.clock()
        with Attempt(loop.runs) as attempt:
            self._read(ledger.head.position(self.table.id), attempt)
            before = [run.file for run in ledger.spines.runs(id_)]
            after = attempt.written(id_)
            attempt.put(id_, differences(loop.runs, self.layout, before, after, loop.partitions))
            loop.fault("correct")
            sync_directory(loop.runs)
            changes, delta = attempt.new_runs(RunKind.DELTA), attempt.written(id_)
            above = followed(loop, attempt, {self.table.id: delta}, clock)
            change = EpochCommit(
                loop.published.current.epoch,
                uuid4().hex,
                runs=changes,
                counters={"repaired": self.table.name},
                clock=clock,
            )
            with loop.between():
                return Swap(loop, attempt, change, above).commit()

    def _read(self, end: Offset, attempt: Attempt) -> None:
        """Read the log up to an offset, in parts of whole segments."""
        loop, at, id_ = self.loop, Offset(0), rows_of(self.table.id)
        clock = loop.ledger.epochs.clock()
        changed = frozenset([self.table.id])
        without = frozenset(view.id for view in loop.catalog.views_in_order())

        def run(tried: Step) -> tuple[Report, ...]:
            return loop.runner.run_live(tried, changed, without).reports

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
                {
                    i: StepArrangement(a, attempt.written(id_))
                    for i, a in needs.arrangements.items()
                },
                clock=Clock(clock, clock),
            )
            attempt.take(retried(step, loop.settings.attempts, run))
            attempt.compact({id_: self.layout}, loop.partitions)
            at = stop
        self.progress(end, end)
