"""Views and their candidates, or former builds, change places: in one epoch, for a set of them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.ledger import DirtyState, EpochCommit, NewRun, RunKind
from headrace.runtime.attempt import Attempt
from headrace.runtime.published import RESHAPED
from headrace.runtime.swap import Swap, followed
from headrace.spine import differences, sync_directory
from headrace.types import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from headrace.catalog import PlainView, View
    from headrace.ledger import Dirty, RepairedView
    from headrace.runtime.epoch import EpochLoop
    from headrace.spine import RunFile
    from headrace.types import DirtyId, Epoch, RelationId


@dataclass(frozen=True, slots=True)
class ChangedPlaces:
    """A view, what takes its place, and the definitions of both afterwards, by id.

    If their columns are the same, both keep their ids and get each other's builds, so that the
    contents of each change by the difference. Otherwise both keep their contents, and get each
    other's names.
    """

    view: View
    candidate: View
    after: Mapping[RelationId, View]

    @property
    def by_name(self) -> bool:
        """Whether they get each other's names instead of each other's builds."""
        return self.after[self.view.id].build == self.view.build

    @property
    def serves(self) -> View:
        """The definition of the view afterwards."""
        return self.after[self.candidate.id if self.by_name else self.view.id]

    @property
    def former(self) -> View:
        """The definition of what served before, afterwards."""
        return self.after[self.view.id if self.by_name else self.candidate.id]

    @property
    def both(self) -> tuple[View, View]:
        """The view and the candidate before."""
        return self.view, self.candidate


@dataclass(frozen=True, slots=True)
class ExchangedPlaces:
    """The epoch of an exchange, and how many rows of views it has changed by itself."""

    epoch: Epoch
    changes: int


def dirt_moved(
    entries: Iterable[Dirty], pairs: Iterable[ChangedPlaces]
) -> tuple[tuple[DirtyId, ...], tuple[Dirty, ...]]:
    """Return the ids of dirty entries that a swap makes right, and what replaces some of them.

    What is dirty goes with the contents: to the candidate whose build the view gets. Contents that
    get another name keep their entries.
    """
    places = {pair.view.id: None if pair.by_name else pair.candidate.id for pair in pairs}
    cleaned: list[DirtyId] = []
    moved: list[Dirty] = []
    for entry in entries:
        place = places.get(entry.view, entry.view)
        if place is not None and entry.id is not None:
            cleaned.append(entry.id)
            if place != entry.view:
                moved.append(replace(entry, view=place, state=DirtyState.OPEN, id=None))
    return tuple(cleaned), tuple(moved)


@dataclass(frozen=True, slots=True)
class Exchange:
    """Views and their candidates that change places, and the difference that this makes."""

    pairs: Sequence[ChangedPlaces]
    attempt: Attempt
    above: Attempt
    deltas: Mapping[RelationId, tuple[RunFile, ...]]
    previous: Epoch

    def committed(
        self,
        loop: EpochLoop,
        plain: Sequence[PlainView] = (),
        cleaned: tuple[DirtyId, ...] = (),
        ended: tuple[RepairedView, ...] = (),
        marked: tuple[Dirty, ...] = (),
    ) -> ExchangedPlaces:
        """Commit an epoch in which they change places.

        ``plain`` are the new definitions of plain views that name some of them. The dirty entries
        ``cleaned`` are repaired by that, views that had ``ended`` run again, and those ``marked``
        have stopped. A view that takes another's name has no history under it, so its earlier
        epochs cannot be read any more.
        """
        pairs, deltas = self.pairs, self.deltas
        by_build = [pair for pair in pairs if not pair.by_name]
        by_name = [pair for pair in pairs if pair.by_name]
        after: list[View | PlainView] = [*plain]
        after += [view for pair in pairs for view in pair.after.values()]
        changes = sum(file.rows for pair in by_build for file in deltas[pair.view.id])
        change = EpochCommit(
            self.previous,
            uuid4().hex,
            runs=tuple(
                NewRun(file, rows_of(id_), RunKind.DELTA)
                for id_, files in deltas.items()
                for file in files
            ),
            exchanged={
                pair.after[view.id].build: view.id for pair in by_build for view in pair.both
            },
            cleaned=cleaned,
            repaired=ended,
            dirtied=marked,
            redefined={each.id: each.to_json() for each in after},
            renamed={id_: view.name for pair in by_name for id_, view in pair.after.items()},
            reading={each.id: each.inputs for each in after},
            forgets=tuple(rows_of(pair.serves.id) for pair in by_name),
            counters={
                "swapped": pairs[0].view.name,
                "changes": changes,
                RESHAPED: sorted(pair.serves.id for pair in by_name),
            },
        )
        return ExchangedPlaces(Swap(loop, self.attempt, change, self.above).commit(), changes)


@contextmanager
def exchange(loop: EpochLoop, pairs: Sequence[ChangedPlaces]) -> Iterator[Exchange]:
    """Write the difference that an exchange makes, and yield what commits it; the sets are held.

    All are maintained in every epoch. The views above, followers and sinks are given the difference
    as that of any epoch. What was written is removed if the block fails.
    """
    state = loop.published.current
    deltas: dict[RelationId, tuple[RunFile, ...]] = {}
    with Attempt(loop.runs) as attempt:
        for pair in pairs:
            if pair.by_name:
                continue
            stored = [[run.file for run in state.spines[rows_of(v.id)]] for v in pair.both]
            for view, own, others in zip(pair.both, stored, reversed(stored), strict=True):
                layout = state.layout(view)
                found = differences(attempt.directory, layout, own, others, loop.partitions)
                attempt.put(rows_of(view.id), found)
                deltas[view.id] = tuple(found)
        sync_directory(attempt.directory)
        loop.fault("exchange")
        members = [view.id for pair in pairs for view in pair.both]
        above = followed(loop, attempt, deltas, loop.ledger.epochs.clock(), members)
        yield Exchange(pairs, attempt, above, deltas, state.epoch)
