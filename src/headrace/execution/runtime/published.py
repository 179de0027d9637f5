"""What readers see: one immutable value per commit, taken without a lock and without SQL.

A commit swaps the value. Whoever holds an older one can go on reading it: its runs are not
collected while it is referenced from anywhere.

Differences between published states, sent to processes that read what this one publishes.

A difference has what is needed to read tables and views, not the state of their operators. It is
as large as the change: an epoch adds a few runs.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakSet

from headrace.algebra.spine import Spine, times_forgotten, unchecked_bytes
from headrace.algebra.zset import Layout
from headrace.errors import Code, HeadraceError
from headrace.planning.catalog import Catalog, PlainView, Stream, Table, View
from headrace.storage.ledger import RepairPath
from headrace.types import Epoch, Offset, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from headrace.planning.catalog import Relation
    from headrace.storage.ledger import Dirty, Frontier, Head, Ledger, RunRecord, Slice
    from headrace.types import ArrangementId, RelationId


RESHAPED = "reshaped"
"""The counter of an epoch with the ids of views that have other columns or another key from it."""

STOPPED = "stopped"
"""The cause of the dirty entry of a view whose query fails on its data."""

WAITING = "waiting"
"""The cause of the dirty entry of a view that lacks a function, or depends on such a view."""

REFILLED = "refilled"
"""The key in the origin of such an entry of a view that has no state of its operators: it is filled
again as soon as it lacks nothing. Up to the entry's epoch it is right."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Published:
    """One epoch and all that is needed to read it.

    ``committed_at`` is its commit time in Unix seconds, ``clock`` its ``now()`` in microseconds
    UTC. ``layouts`` are those of the contents of tables and views, ``spines`` the runs of every
    arrangement, ``positions`` how far epochs have read each log. Views in ``stopped`` are not
    maintained, so their contents are older; epochs read the logs of ``maintained`` relations.
    ``lagging`` says where the views stand that epochs leave out, since they are refreshed apart.
    ``dirty`` are the slices of views that are, or may be, inconsistent with their inputs.
    ``starts`` are the first offsets of logs that are kept, ``begins`` those from which on views
    have read logs that had been cut at their beginning before.
    """

    epoch: Epoch
    committed_at: float
    clock: int
    catalog: Catalog
    layouts: Mapping[ArrangementId, Layout]
    spines: Mapping[ArrangementId, tuple[RunRecord, ...]]
    positions: Mapping[RelationId, Offset]
    stopped: frozenset[RelationId]
    maintained: frozenset[RelationId]
    lagging: Mapping[RelationId, Frontier] = field(default_factory=dict)
    dirty: Mapping[RelationId, tuple[Slice, ...]] = field(default_factory=dict)
    starts: Mapping[RelationId, Offset] = field(default_factory=dict)
    begins: Mapping[RelationId, Mapping[RelationId, Offset]] = field(default_factory=dict)
    _opened: dict[RelationId, tuple[int, Spine]] = field(default_factory=dict, repr=False)

    def layout(self, relation: Relation) -> Layout:
        """Return the layout of the contents of a table or view."""
        return self.layouts[rows_of(relation.id)]

    def runs(self, relation: Relation) -> tuple[RunRecord, ...]:
        """Return the runs that sum to the contents of a table or view."""
        return self.spines[rows_of(relation.id)]

    def spine(self, relation: Relation, directory: Path) -> Spine:
        """Return the contents of a table or view, opened once, in a data directory."""
        known, found = times_forgotten(), self._opened.get(relation.id)
        if found is None or found[0] != known:
            files = [run.file for run in self.runs(relation)]
            found = (known, Spine.open(directory / "runs", self.layout(relation), files))
            self._opened[relation.id] = found
        return found[1]

    def unread_bytes(self, relation: Relation, directory: Path) -> int:
        """Return how much :meth:`spine` would read of files that this process has not checked."""
        found = self._opened.get(relation.id)
        if found is not None and found[0] == times_forgotten():
            return 0
        return unchecked_bytes(directory / "runs", [run.file for run in self.runs(relation)])

    def has_read(self, wanted: Mapping[RelationId, Offset]) -> bool:
        """Whether epochs have read every maintained log up to the wanted offsets."""
        done = self.positions
        return all(done.get(i, 0) >= wanted[i] for i in wanted.keys() & self.maintained)

    def behind(self, ends: Mapping[RelationId, Offset], view: RelationId | None = None) -> int:
        """Return the number of changes before the ends of logs that this epoch has not read.

        With a view, only those of the streams and tables that it reads, and that it does not show.
        """
        shown = self.shown(view)
        left = (ends.get(i, 0) - at for i, at in shown.items())
        return sum(number for number in left if number > 0)

    def shown(self, relation: RelationId | None = None) -> dict[RelationId, Offset]:
        """Return up to which offset of each log below a relation its contents show the changes.

        Without one, up to which epochs have read the maintained logs.
        """
        lagging = self.lagging
        if relation is None:
            return {id_: self.positions.get(id_, Offset(0)) for id_ in self.maintained}
        if relation in lagging:
            at = lagging[relation].offsets
            return {id_: at.get(id_, Offset(0)) for id_ in self.catalog.bases([relation])}
        return self._shown([relation], {id_: each.offsets for id_, each in lagging.items()})

    def read_by(self, view: View) -> Mapping[RelationId, Offset]:
        """Return how far a view has read each log: as far as epochs, unless it lags behind."""
        stands = self.lagging.get(view.id)
        return self.positions if stands is None else {**self.positions, **stands.offsets}

    def unkept(self, view: View) -> tuple[RelationId, ...]:
        """Return the streams whose first events a view has read, and that no longer keep them."""
        begins = self.begins.get(view.id, {})
        return tuple(id_ for id_ in view.depends_on if self.starts.get(id_, 0) > begins.get(id_, 0))

    def lags(self, relation: RelationId) -> bool:
        """Whether a relation is, or reads, a view that lags behind."""
        if not self.lagging:
            return False
        near = self.catalog.shown_by([relation], self.lagging)
        return not near.isdisjoint(self.lagging)

    def shown_to(
        self,
        view: View,
        streams: Mapping[RelationId, Offset],
        refreshed: Mapping[RelationId, Mapping[RelationId, Offset]] | None = None,
    ) -> dict[RelationId, Offset]:
        """Return how far a view that lags shows the logs below it, once it has read this state.

        ``streams`` says how far it has read streams itself, ``refreshed`` what views show that are
        refreshed together with it.
        """
        apart = {id_: each.offsets for id_, each in self.lagging.items() if id_ != view.id}
        return {**self._shown(view.inputs, {**apart, **(refreshed or {})}), **streams}

    def _shown(
        self,
        relations: Iterable[RelationId],
        apart: Mapping[RelationId, Mapping[RelationId, Offset]],
    ) -> dict[RelationId, Offset]:
        """Return how far relations show the logs below them, given what views ``apart`` show."""
        near = self.catalog.shown_by(relations, apart.keys())
        shown: dict[RelationId, Offset] = {}
        for id_ in near & apart.keys():
            for base, at in apart[id_].items():
                shown[base] = min(at, shown.get(base, at))
        for id_ in near:
            if isinstance(self.catalog.by_id[id_], Stream | Table):
                shown[id_] = self.positions.get(id_, Offset(0))
        return shown

    def word_for(self, relation: Relation) -> str:
        """Return the word for the state of a relation: stopped, not stored, lagging or running."""
        if relation.id in self.stopped:
            return "stopped"
        if isinstance(relation, PlainView):
            return "not stored"
        return "lagging" if isinstance(relation, View) and relation.refresh.lags else "running"

    @property
    def left_out(self) -> frozenset[RelationId]:
        """The views that epochs leave out: those that have stopped, and those that lag behind."""
        return self.stopped.union(self.lagging)


@dataclass(slots=True)
class Publisher:
    """Publishes the states of one database, and keeps what is still read.

    ``current`` needs no lock. Only the thread that holds the lock of epochs publishes.
    """

    ledger: Ledger
    current: Published
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _alive: WeakSet[Published] = field(default_factory=WeakSet)

    @classmethod
    def of(
        cls,
        ledger: Ledger,
        catalog: Catalog | None = None,
        layouts: Mapping[ArrangementId, Layout] | None = None,
    ) -> Publisher:
        """Return a publisher of the ledger's present state."""
        first = published_at(ledger.head, catalog or Catalog(), layouts or {})
        publisher = cls(ledger, first)
        publisher._alive.add(first)
        return publisher

    def publish(
        self,
        catalog: Catalog | None = None,
        layouts: Mapping[ArrangementId, Layout] | None = None,
    ) -> Published:
        """Publish the ledger's newest state, with another catalog and layouts if they changed."""
        before = self.current
        state = published_at(
            self.ledger.head,
            before.catalog if catalog is None else catalog,
            before.layouts if layouts is None else layouts,
            before,
        )
        with self._changed:
            self._alive.add(state)
            self.current = state
            self._changed.notify_all()
        return state

    def wait_for(self, met: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until a condition is met, tested at each publication; return whether it was."""
        with self._changed:
            return self._changed.wait_for(met, seconds)

    def wake(self) -> None:
        """Make the threads that wait test their conditions."""
        with self._changed:
            self._changed.notify_all()

    def as_of(self, epoch: Epoch, *relations: Relation) -> Published:
        """Return the state in which some tables and views can be read at an earlier epoch.

        Its dirty slices are those that were known while it was the last epoch.

        Raises:
            HeadraceError: INVALID if one of them cannot be read at this epoch.
        """
        current = self.current
        if epoch == current.epoch:
            return current
        with self._changed:  # from now on the epoch is kept, if it still is
            held = replace(current, epoch=epoch, spines={}, _opened={})
            self._alive.add(held)
        stored = [rows_of(r.id) for r in relations if isinstance(r, Table | View)]
        try:
            spines = self.ledger.spines.of(stored, epoch)
        except HeadraceError as error:
            raise self._since_when(relations, epoch, error) from error
        at = self.ledger.epochs.committed_at(epoch)
        until = self.ledger.epochs.committed_at(Epoch(epoch + 1))
        dirty = _dirty_slices(entry for entry in self.ledger.head.dirty if entry.since <= until)
        state = replace(held, committed_at=at, spines=spines, dirty=dirty, _opened={})
        with self._changed:
            self._alive.add(state)
        return state

    def _since_when(
        self, relations: Iterable[Relation], epoch: Epoch, error: HeadraceError
    ) -> HeadraceError:
        """Return the error with the relation that cannot be read so early, if that is why."""
        oldest = {record.id: record.since for record in self.ledger.spines.arrangements()}
        for relation in relations:
            if isinstance(relation, Table | View):
                since = oldest.get(rows_of(relation.id), epoch)
                if epoch < since:
                    why = self._begins(relation, since)
                    hint = "" if why else f" {_longer(relation)}"
                    return HeadraceError(
                        Code.INVALID,
                        f'{relation.kind} "{relation.name}" cannot be read at epoch {epoch}',
                        f"The first epoch at which it can be read is {since}{why}.",
                        f"Read a newer epoch.{hint}",
                    )
        return error

    def _begins(self, relation: Relation, since: Epoch) -> str:
        """Return why nothing before an epoch can be read of a relation, unless it was forgotten."""
        if relation.id in self.ledger.epochs.counters(since).get(RESHAPED, ()):
            return ", in which it got other columns or another key"
        existing = self.ledger.relations.existing()
        created = {each.relation: each.created_epoch for each in existing}
        return ", in which it was created" if created.get(relation.id) == since else ""

    def at_frontier(self, view: View, others: Iterable[View] = ()) -> Published:
        """Return the state of its inputs that a view shows: of one that lags, an earlier one.

        Its own contents, and those of the tables and views that it reads, can be read in it; and
        those of ``others``.
        """
        current = self.current
        stands, catalog = current.lagging.get(view.id), current.catalog
        if stands is None or stands.epoch is None:
            return current
        near = catalog.shown_by(view.depends_on, current.lagging)
        read = {*view.depends_on, *near.intersection(current.lagging), *(v.id for v in others)}
        held = self.as_of(stands.epoch, *(catalog.by_id[id_] for id_ in read))
        shown = current.shown(view.id)
        own = rows_of(view.id)  # what it shows has not changed since
        state = replace(
            held,
            clock=self.ledger.epochs.clock(stands.epoch),
            spines={**held.spines, own: current.spines[own]},
            positions={**held.positions, **shown},
            maintained=frozenset(shown),
            _opened={},
        )
        with self._changed:
            self._alive.add(state)
        return state

    def oldest_starts(self) -> dict[RelationId, Offset]:
        """Return the first offsets of logs that are read in a state which is held."""
        found: dict[RelationId, Offset] = {}
        with self._changed:
            for state in self._alive:
                for id_, start in state.starts.items():
                    found[id_] = min(start, found.get(id_, start))
        return found

    def alive(self) -> WeakSet[Published]:
        """Return the states that are held now; it is empty once none of them is any more."""
        with self._changed:
            return self._alive.copy()

    @contextmanager
    def oldest(self) -> Iterator[Epoch]:
        """Yield the oldest epoch that is read; no reader requests an older one during the block."""
        with self._changed:
            yield min(state.epoch for state in self._alive)


def _longer(relation: Table | View) -> str:
    """Return how more states of a table or view can be kept."""
    if isinstance(relation, Table):
        return "The setting history_epochs is how many are kept."
    return (
        f"ALTER MATERIALIZED VIEW {relation.name} SET (history = '30 days') keeps its states for"
        " longer from now on."
    )


def stopped_views(head: Head, catalog: Catalog) -> frozenset[RelationId]:
    """Return the views that are not maintained: stopped, waiting, and their dependants."""
    marked = {entry.view for entry in head.dirty if entry.cause in (STOPPED, WAITING)}
    return marked_and_above(marked, catalog)


def marked_and_above(marked: Collection[RelationId], catalog: Catalog) -> frozenset[RelationId]:
    """Return views and those that depend on them."""
    return frozenset({*marked, *(v.id for id_ in marked for v in catalog.dependants(id_))})


def maintained_logs(catalog: Catalog, left_out: frozenset[RelationId]) -> frozenset[RelationId]:
    """Return the relations whose changes epochs read: tables, and streams that views read.

    Views that are ``left_out`` do not have epochs read a stream.
    """
    read = {id_ for v in catalog.views_in_order() if v.id not in left_out for id_ in v.depends_on}
    return frozenset(
        r.id for r in catalog if isinstance(r, Table) or (isinstance(r, Stream) and r.id in read)
    )


def stored_layouts(head: Head, relations: Iterable[RelationId]) -> dict[ArrangementId, Layout]:
    """Return the layouts of the contents of relations, by arrangement; of those that have any."""
    stored = head.arrangements
    kept = [id_ for id_ in map(rows_of, relations) if id_ in stored]
    return {id_: Layout.of_json(dict(stored[id_].layout)) for id_ in kept}


def published_at(
    head: Head,
    catalog: Catalog,
    layouts: Mapping[ArrangementId, Layout],
    before: Published | None = None,
) -> Published:
    """Return the state that a ledger's head is, with a catalog and the layouts of contents.

    What did not change since the state ``before`` is taken from it.
    """
    stopped, lagging = stopped_views(head, catalog), head.lagging
    left_out = stopped.union(lagging)
    if before is not None and before.catalog is catalog and before.left_out == left_out:
        maintained = before.maintained
    else:
        maintained = maintained_logs(catalog, left_out)
    return Published(
        head.epoch,
        head.committed_at,
        head.clock,
        catalog,
        layouts,
        head.spines,
        head.positions,
        stopped,
        maintained,
        lagging,
        _dirty_slices(head.dirty),
        head.starts,
        {build.view: build.begins for build in head.builds.values() if build.serving},
    )


def _dirty_slices(entries: Iterable[Dirty]) -> dict[RelationId, tuple[Slice, ...]]:
    found: dict[RelationId, tuple[Slice, ...]] = {}
    for entry in entries:
        if entry.repair is not RepairPath.RESUME:
            found[entry.view] = (*found.get(entry.view, ()), entry.slice)
    return found


Piece: TypeAlias = "RunRecord | tuple[int, int]"
"""A run, or the range ``[start, end)`` of the runs that the arrangement had before."""


@dataclass(frozen=True, slots=True)
class StateDifference:
    """A published state, relative to another; what is None is as it was.

    ``spines`` has the arrangements whose runs changed, ``positions`` the logs that are read
    further; ``gone`` are arrangements and logs that are no longer there.
    """

    epoch: Epoch
    committed_at: float
    clock: int
    relations: tuple[Relation, ...] | None = None
    layouts: Mapping[ArrangementId, Layout] | None = None
    spines: Mapping[ArrangementId, tuple[Piece, ...]] = field(default_factory=dict)
    positions: Mapping[RelationId, Offset] = field(default_factory=dict)
    gone: frozenset[ArrangementId | RelationId] = frozenset()
    stopped: frozenset[RelationId] | None = None
    maintained: frozenset[RelationId] | None = None
    lagging: Mapping[RelationId, Frontier] | None = None
    dirty: Mapping[RelationId, tuple[Slice, ...]] | None = None


NOTHING = Published(Epoch(0), 0.0, 0, Catalog(), {}, {}, {}, frozenset(), frozenset())
"""The state from which the first difference is made."""


def difference(before: Published, after: Published) -> StateDifference:
    """Return the difference that turns the state ``before`` into the state ``after``."""
    spines = {}
    for id_ in after.layouts:
        runs, former = after.spines.get(id_, ()), before.spines.get(id_, ())
        if id_ not in before.layouts or runs != former:
            spines[id_] = _pieces(former if id_ in before.layouts else (), runs)
    gone: frozenset[ArrangementId | RelationId] = frozenset(
        (before.layouts.keys() - after.layouts.keys())
        | (before.positions.keys() - after.positions.keys())
    )
    done = before.positions
    return StateDifference(
        after.epoch,
        after.committed_at,
        after.clock,
        None if after.catalog is before.catalog else after.catalog.relations,
        None if after.layouts is before.layouts else after.layouts,
        spines,
        {id_: at for id_, at in after.positions.items() if done.get(id_) != at},
        gone,
        None if after.stopped == before.stopped else after.stopped,
        None if after.maintained == before.maintained else after.maintained,
        None if after.lagging == before.lagging else after.lagging,
        None if after.dirty == before.dirty else after.dirty,
    )


def applied(before: Published, change: StateDifference) -> Published:
    """Return the state that results from applying a difference to the state it is relative to.

    Runs of operators are not in it.
    """
    gone, spines = change.gone, dict(before.spines)
    for id_, pieces in change.spines.items():
        spines[id_] = _runs(before.spines.get(id_, ()), pieces)
    return Published(
        change.epoch,
        change.committed_at,
        change.clock,
        before.catalog if change.relations is None else Catalog.of(change.relations),
        before.layouts if change.layouts is None else change.layouts,
        {id_: runs for id_, runs in spines.items() if id_ not in gone},
        {i: at for i, at in {**before.positions, **change.positions}.items() if i not in gone},
        before.stopped if change.stopped is None else change.stopped,
        before.maintained if change.maintained is None else change.maintained,
        before.lagging if change.lagging is None else change.lagging,
        before.dirty if change.dirty is None else change.dirty,
    )


def _pieces(before: tuple[RunRecord, ...], after: tuple[RunRecord, ...]) -> tuple[Piece, ...]:
    places = {run.file.place: place for place, run in enumerate(before)}
    pieces: list[Piece] = []
    for run in after:
        place = places.get(run.file.place)
        last = pieces[-1] if pieces else None
        if place is None or before[place] != run:
            pieces.append(run)
        elif isinstance(last, tuple) and last[1] == place:
            pieces[-1] = (last[0], place + 1)
        else:
            pieces.append((place, place + 1))
    return tuple(pieces)


def _runs(before: tuple[RunRecord, ...], pieces: tuple[Piece, ...]) -> tuple[RunRecord, ...]:
    runs: list[RunRecord] = []
    for piece in pieces:
        if isinstance(piece, tuple):
            runs += before[piece[0] : piece[1]]
        else:
            runs.append(piece)
    return tuple(runs)
