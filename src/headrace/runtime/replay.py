"""Scoped replay: recompute a slice of a view from its inputs, and replace it in one epoch.

The slice is filled as another build of the view would be, from the rows of the inputs that it is
computed from, while epochs go on. What is stored, of the contents and of the operators' state, then
changes by the difference, in the slice of each; and all that reads the view follows in that epoch.
So readers see the old slice or the new one, and it does not matter what the old one was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.ledger import LIVE, RunKind
from headrace.runtime.attempt import Attempt, retried
from headrace.runtime.declared_keys import require_keys
from headrace.runtime.step import Clock, Step, StepArrangement
from headrace.runtime.swap import Swap, followed
from headrace.spine import sync_directory
from headrace.types import rows_of

if TYPE_CHECKING:
    from headrace.runtime.fill import Fill
    from headrace.runtime.filled import Filled
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
