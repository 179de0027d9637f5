"""Recomputing all rows of a view from its inputs, beside the epochs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.catalog import Stream
from headrace.circuit import rows_of
from headrace.types import Epoch, Offset

if TYPE_CHECKING:
    from headrace.catalog import View
    from headrace.ledger import Ledger, Slice
    from headrace.parts.definer import Definer
    from headrace.parts.reader import Reader
    from headrace.runtime.fill import Progress
    from headrace.types import DirtyId


@dataclass(frozen=True, slots=True)
class Estimate:
    """The rows that recomputing a slice reads, and those that recomputing all of it reads."""

    cost: int
    whole: int


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild did: its epoch, the rows read, the rows of the view that changed."""

    epoch: Epoch
    read: int
    changed: int


@dataclass(frozen=True, slots=True)
class Rebuilds:
    """Recomputes views whole, whatever slice is asked for."""

    reader: Reader
    ledger: Ledger
    definer: Definer

    def plan(self, view: View, slice_: Slice) -> Estimate:
        """Return how many rows the inputs of a view hold."""
        del slice_
        rows = rows_of_inputs(self.reader, view)
        return Estimate(rows, rows)

    def replay(
        self, view: View, slice_: Slice, progress: Progress, cleaned: tuple[DirtyId, ...] = ()
    ) -> Rebuilt:
        """Fill another build of the view, which takes over from the one that serves.

        It removes all dirty entries that the view has now, ``cleaned`` among them.
        """
        del slice_, cleaned
        read = 0

        def counted(done: int, total: int) -> None:
            nonlocal read
            read = total
            progress(done, total)

        another = replace(view, replacement=self.ledger.reserve_build())
        epoch = self.definer.replace_view(view, another, counted)
        deltas = self.ledger.delta_runs(rows_of(view.id), Epoch(epoch - 1), epoch)
        return Rebuilt(epoch, read, sum(run.rows for run in deltas))


def rows_of_inputs(reader: Reader, view: View) -> int:
    """Return how many rows, with weights, what a view reads is stored as."""
    state, ends, rows = reader.published, reader.ledger.log_ends(), 0
    for id_ in view.depends_on:
        relation = state.catalog.by_id[id_]
        if isinstance(relation, Stream):
            rows += ends.get(id_, Offset(0))
        else:
            rows += sum(run.rows for run in state.runs(relation))
    return rows
