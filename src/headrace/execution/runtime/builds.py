"""Builds that have been filled take their place: as a new view, or instead of what is stored.

Swaps: what is stored of relations is replaced in one epoch, and what reads them follows.

A build takes the place of another, a recomputed slice that of what was stored of it, repaired rows
that of damaged ones, a view that lags behind catches up. Whatever wrote the replacement, contents
change by a difference, as in an epoch of the sources, or not at all. Readers see the state before
or the one after, and followers and sinks get exactly the difference.

Views and their candidates, or former builds, change places: in one epoch, for a set of them.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.algebra.spine import differences, sync_directory
from headrace.execution.runtime.attempt import Attempt
from headrace.execution.runtime.connected import rebased
from headrace.execution.runtime.dirty import removed_with, repairable
from headrace.execution.runtime.published import RESHAPED
from headrace.storage.ledger import (
    LIVE,
    DirtyState,
    EpochCommit,
    Merge,
    NewArrangement,
    NewBuild,
    NewObject,
    NewRun,
    RunKind,
)
from headrace.types import rows_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from headrace.algebra.spine import RunFile
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.fill import Fill
    from headrace.execution.runtime.fill_parts import Filled
    from headrace.planning.catalog import PlainView, View
    from headrace.storage.ledger import Dirty, RepairedView
    from headrace.types import ArrangementId, BuildId, DirtyId, Epoch, FrontierId, RelationId


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


def create_filled(fill: Fill, dropped: tuple[RelationId, ...] = ()) -> Swap:
    """Return the commit of a new view in place of ``dropped``.

    Its sets have been held since it last caught up. The clock of that is the epoch's.
    """
    view, frontier = fill.view, _new_frontier(fill)
    filled = fill.written(frontier)
    contents, state = _arrangements(fill, filled)
    definition = view.to_json()
    created = NewObject(view.id, view.name, view.kind, definition, view.inputs, (contents,))
    change = replace(
        filled.change(filled.runs, filled.clock, "filled", view.name),
        created=(created,),
        dropped=dropped,
        builds=(_new_build(fill, state, frontier),),
    )
    return Swap(fill.loop, fill.attempt, change)


def take_over(
    fill: Fill,
    former: BuildId,
    cleaned: tuple[DirtyId, ...] = (),
    ended: tuple[RepairedView, ...] = (),
    marked: tuple[Dirty, ...] = (),
    *,
    stays: bool = False,
) -> Swap:
    """Return the commit of a build in place of a former one of a view; see :func:`create_filled`.

    The view's contents change by the difference, in the epoch of the commit, and so does
    everything that reads them. The dirty entries ``cleaned`` are repaired by that, views that had
    ``ended`` run again, and those ``marked`` have stopped. If the view ``stays`` and lags behind,
    the fill was begun where it stands, and that does not change.
    """
    loop, view = fill.loop, fill.view
    if stays and view.refresh.lags:
        frontier, filled = loop.ledger.head.serving(view.id).frontier, fill.written(None)
        clock = loop.ledger.epochs.clock()
    else:
        frontier = _new_frontier(fill)
        filled = fill.written(frontier)
        clock = filled.clock
    _, state = _arrangements(fill, filled)
    loop.fault("take over")
    runs, delta = _by_difference(fill, filled)
    above = followed(loop, fill.attempt, {view.id: tuple(run.file for run in delta)}, clock)
    change = replace(
        filled.change((*runs, *delta), clock, "filled", view.name),
        builds=(_new_build(fill, state, frontier),),
        retired=(former,),
        cleaned=cleaned,
        repaired=ended,
        dirtied=marked,
    )
    return Swap(loop, fill.attempt, change, above)


def fill_again(fill: Fill, repaired: RepairedView, *, stays: bool = False) -> Epoch:
    """Fill a view again and replace its stored rows; its set and the lock of refreshes are held.

    The view is one that no epoch maintains. Its rows change by the difference, as in any epoch, and
    followers receive that difference. The state of its operators is discarded. Its slices are no
    longer dirty. If the view ``stays`` and lags behind, it is filled where it stands.
    """
    loop, view = fill.loop, fill.view
    with fill.attempt:
        if stays and view.refresh.lags:
            filled, clock = fill.whole(None, None), loop.ledger.epochs.clock()
        else:
            frontier = loop.ledger.head.serving(view.id).frontier
            filled = fill.whole(loop.quiet_clock(), frontier)
            clock = filled.clock
        runs, delta = _by_difference(fill, filled)
        change = replace(
            filled.change((*runs, *delta), clock, "filled", view.name),
            repaired=(repaired,),
            cleaned=_cleaned(fill),
        )
        state = filled.layouts.keys() - {rows_of(view.id)}
        return _published(Swap(loop, fill.attempt, change, emptied=state))


def rebuild_filled(fill: Fill, *repaired: RepairedView) -> Epoch:
    """Fill a view again, replacing its stored rows, damaged or not; held is as for the former.

    The view is computed as of its frontier, so its rows stay the same, and the views above it do
    not change. Epochs before this one can no longer be read.
    """
    with fill.attempt:
        filled = fill.whole(None, None)
        change = replace(
            filled.change(filled.runs, None, "repaired", fill.view.name),
            repaired=repaired,
            cleaned=_cleaned(fill),
            counters={"repaired": fill.view.name, "changes": 0},
        )
        return _published(Swap(fill.loop, fill.attempt, change, emptied=filled.layouts.keys()))


def _published(swap: Swap) -> Epoch:
    with swap.loop.between():
        return swap.commit()


def _by_difference(fill: Fill, filled: Filled) -> tuple[tuple[NewRun, ...], tuple[NewRun, ...]]:
    """Return the runs of the operators' state, and those by which the view's rows change.

    These are a run for each partition, in place of the rows that were filled.
    """
    loop, attempt, rows = fill.loop, fill.attempt, rows_of(fill.view.id)
    there = loop.published.current  # kept, so that a merge beside this deletes no file of it
    before = [run.file for run in there.spines[rows]]
    after = [run.file for run in filled.runs_of(rows)]
    layout = filled.layouts[rows]
    found = differences(attempt.directory, layout, before, after, loop.partitions)
    attempt.put(rows, found)
    sync_directory(attempt.directory)
    state = tuple(run for run in filled.runs if run.arrangement != rows)
    return state, tuple(NewRun(file, rows, RunKind.DELTA) for file in found)


def _new_frontier(fill: Fill) -> FrontierId:
    """Return the frontier of a new build: one of its own if the view is refreshed apart."""
    return fill.loop.ledger.ids.frontier() if fill.view.refresh.lags else LIVE


def _new_build(fill: Fill, state: tuple[NewArrangement, ...], frontier: FrontierId) -> NewBuild:
    view = fill.view
    definition = view.to_json()
    return NewBuild(
        view.build, view.id, definition, view.inputs, state, frontier, begins=fill.begins
    )


def _arrangements(fill: Fill, filled: Filled) -> tuple[NewArrangement, tuple[NewArrangement, ...]]:
    """Return the view's contents, and the state of the build's operators."""
    kept = {id_: NewArrangement(id_, a.to_json()) for id_, a in filled.layouts.items()}
    contents = kept.pop(rows_of(fill.view.id))
    return contents, tuple(kept.values())


def _cleaned(fill: Fill) -> tuple[DirtyId, ...]:
    """Return the dirty entries that are repaired once all of the view is computed again."""
    dirty, catalog = fill.loop.ledger.head.dirty, fill.loop.published.current.catalog
    return removed_with(repairable(dirty, fill.view.id), dirty, catalog)


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
