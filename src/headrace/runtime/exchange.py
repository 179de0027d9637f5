"""Two views exchange what computes them: one that serves, and its candidate or former build."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.ledger import EpochCommit, NewRun, RunKind
from headrace.runtime.attempt import Attempt
from headrace.runtime.swap import followed, swap
from headrace.spine import differences, sync_directory
from headrace.types import rows_of

if TYPE_CHECKING:
    from headrace.catalog import View
    from headrace.runtime.epoch import EpochLoop
    from headrace.types import DirtyId, Epoch


def exchange(
    loop: EpochLoop,
    before: tuple[View, View],
    after: tuple[View, View],
    cleaned: tuple[DirtyId, ...] = (),
) -> Epoch:
    """Commit an epoch in which two views get each other's builds; the lock of epochs is held.

    Both are maintained in every epoch and have the same columns and key. The contents of each
    change by the difference, which the views above, followers and sinks are given as that of any
    epoch. ``after`` are their new definitions, with the same ids in the same order. The dirty
    entries ``cleaned`` are repaired by that.
    """
    ledger, attempt = loop.ledger, Attempt(loop.runs)
    with attempt:
        state = loop.published.current
        stored = [[run.file for run in ledger.spines.runs(rows_of(v.id))] for v in before]
        deltas = {}
        for view, own, others in zip(before, stored, reversed(stored), strict=True):
            layout = state.layout(view)
            found = differences(attempt.directory, layout, own, others, loop.partitions)
            attempt.put(rows_of(view.id), found)
            deltas[view.id] = tuple(found)
        sync_directory(attempt.directory)
        loop.fault("exchange")
        above = followed(loop, attempt, deltas, ledger.epochs.clock())
        runs = tuple(
            NewRun(file, rows_of(id_), RunKind.DELTA)
            for id_, files in deltas.items()
            for file in files
        )
        changes = sum(file.rows for file in deltas[before[0].id])
        change = EpochCommit(
            state.epoch,
            uuid4().hex,
            runs=runs,
            exchanged={
                own.build: other.id for own, other in zip(before, reversed(before), strict=True)
            },
            cleaned=cleaned,
            redefined={view.id: view.to_json() for view in after},
            counters={"swapped": before[0].name, "changes": changes},
        )
        return swap(loop, attempt, change, above)
