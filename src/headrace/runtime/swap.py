"""Swaps: what is stored of relations is replaced in one epoch, and what reads them follows.

A build takes the place of another, a recomputed slice that of what was stored of it, repaired rows
that of damaged ones, a view that lags behind catches up. Whatever wrote the replacement, contents
change by a difference, as in an epoch of the sources, or not at all. Readers see the state before
or the one after, and followers and sinks get exactly the difference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.ledger import Merge, RunKind
from headrace.runtime.connected import rebased

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from headrace.ledger import EpochCommit
    from headrace.runtime.attempt import Attempt
    from headrace.runtime.epoch import EpochLoop
    from headrace.spine import RunFile
    from headrace.types import ArrangementId, Epoch, RelationId


def followed(
    loop: EpochLoop,
    attempt: Attempt,
    deltas: Mapping[RelationId, tuple[RunFile, ...]],
    clock: int,
    settled: Collection[RelationId] = (),
) -> Attempt:
    """Run a step of the views that read some relations, over the deltas of a swap.

    The runs that this writes belong to the attempt as well. See :meth:`EpochLoop.follow`.
    """
    above = loop.follow(deltas, clock, settled)
    attempt.own(above.reports)
    return above


@dataclass(frozen=True, slots=True)
class Swap:
    """A change whose runs an attempt has written, to be committed as the next epoch.

    ``above`` is what has followed it, and is committed with it. Of the arrangements ``emptied``,
    nothing stays that was stored before, and their earlier epochs cannot be read any more.
    """

    loop: EpochLoop
    attempt: Attempt
    change: EpochCommit
    above: Attempt | None = None
    emptied: Collection[ArrangementId] = ()

    def commit(self) -> Epoch:
        """Commit it; the sets that it changes have been held since its inputs were read.

        Who changes the catalog with it holds the lock until that is published.

        Raises:
            HeadraceError: as :meth:`Ledger.commit`.
        """
        with self.loop.lock:
            ledger, change = self.loop.ledger, self.change
            stored = ledger.spines.of(self.emptied)
            merges = tuple(
                Merge(id_, tuple(run.file.place for run in runs), None)
                for id_, runs in stored.items()
                if runs
            )
            change = replace(change, merges=merges, forgets=(*change.forgets, *self.emptied))
            if self.above is not None:
                counters = {**self.above.counters(change.reads), **change.counters}
                runs = (*change.runs, *self.above.new_runs(RunKind.DELTA))
                change = replace(change, runs=runs, counters=counters)
            return self.attempt.commit(ledger, rebased(self.loop, change))
