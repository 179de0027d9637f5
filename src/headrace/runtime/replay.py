"""Scoped replay: recompute a slice of a view from its inputs, and replace it in one epoch.

The slice is filled as another build of the view would be, from the rows of the inputs that it is
computed from, while epochs go on. What is stored, of the contents and of the operators' state, then
changes by the difference, in the slice of each; and all that reads the view follows in that epoch.
So readers see the old slice or the new one, and it does not matter what the old one was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.circuit import rows_of
from headrace.ledger import LIVE, EpochCommit, RunKind
from headrace.runtime.attempt import Attempt, new_runs, retried
from headrace.runtime.declared_keys import require_keys
from headrace.runtime.rounds import remove_runs
from headrace.runtime.step import Arranged, Clock, Step
from headrace.spine import sync_directory

if TYPE_CHECKING:
    from headrace.runtime.fill import Fill
    from headrace.runtime.filled import Filled
    from headrace.runtime.step import Report
    from headrace.types import BuildId, DirtyId, Epoch


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

    The lock of epochs is held since the fill's last catching up; if the view ``lags`` behind, since
    it was begun where the view stands. ``cleaned`` are the entries of the dirty ledger that this
    repairs: they go in the same transaction. What the fill wrote is left, and not named.

    Raises:
        HeadraceError: if a view above fails on the new rows; nothing is replaced then.
    """
    loop, view, filled = fill.loop, fill.view, fill.written(None if lags else LIVE)
    rows, runs = rows_of(view.id), loop.directory / "runs"
    clock = loop.ledger.epochs.clock() if lags else filled.clock
    loop.fault("replace")
    reports, above = _difference(fill, filled, build), Attempt()
    try:
        delta = tuple(report.runs[rows] for report in reports if rows in report.runs)
        loop.follow({view.id: delta}, clock, above)
        changed = sum(run.rows for run in delta)
        written = sum(run.rows for report in reports for run in report.runs.values())
        loop.fault("replaced")
        commit = EpochCommit(
            filled.previous,
            uuid4().hex,
            filled.reads,
            (*new_runs(reports, RunKind.DELTA), *new_runs(above.reports, RunKind.DELTA)),
            cleaned=cleaned,
            counters={
                **above.counters(filled.reads),
                "replayed": view.name,
                "changes": filled.rows,
            },
            clock=clock,
        )
    except BaseException:
        for report in reports:
            remove_runs(runs, report.runs.values())
        raise
    epoch = loop.ledger.commit(commit)
    return Replaced(epoch, changed, written - changed)


def _difference(fill: Fill, filled: Filled, build: BuildId) -> tuple[Report, ...]:
    """Write by what the slice differs from what is stored; the ledger does not name it yet."""
    loop = fill.loop
    stored = loop.ledger.spines.of(list(filled.layouts))
    before = {
        id_: Arranged(layout, tuple(run.file for run in stored.get(id_, ())))
        for id_, layout in filled.layouts.items()
        if id_ not in filled.quarantines  # they stay as they are
    }
    recomputed = {
        id_: tuple(run.file for run in filled.runs if run.arrangement == id_) for id_ in before
    }
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
    reports = retried(step, loop.settings.attempts, lambda attempt: run(attempt, build))
    require_keys([fill.view], step.runs_directory, before, reports)
    sync_directory(step.runs_directory)
    return reports
