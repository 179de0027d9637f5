"""Sets of relations whose steps are independent: what one reads and writes, no other does.

Views that share an input, directly or through others, are in one set: they always agree. So are all
views that read the clock, as there is one clock of all epochs, and the tables of one source, since
its transactions are read whole. A view that epochs leave out connects nothing while they do.

Steps of two inputs of one set are independent too, unless a view is reached from both: what a step
writes is what its inputs reach, and what it reads besides is changed by inputs that reach that too.
So two streams that are joined with one table by two views wait for each other's steps only in what
the table's changes reach.

What an epoch reads of a backlog.

One of a few narrow epochs is read in as many: that is faster than one wide epoch, and the first
changes are readable sooner. So is a longer one while jobs would have to wait.

The changes that one statement appended are read by one epoch, however many they are: no reader sees
half of an UPDATE. Of a source of several tables, all that has arrived is read: their logs do not
say where its transactions end.

A narrow epoch reads the changes that arrived first in all logs of a set together: a reader never
sees a change without those that were appended to the others before it.

The next times at which rows of views over the clock change; an idle database waits for them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Protocol, Self

from headrace.algebra.spine import Spine, earliest_due
from headrace.algebra.zset import DUE, Layout
from headrace.errors import Code
from headrace.execution.runtime.stages import Performer, Poll
from headrace.execution.runtime.step import Clock
from headrace.planning.catalog import Table
from headrace.storage.ledger import OffsetRange, OutdatedEpochError
from headrace.types import Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from headrace.execution.runtime.beside import SetStep, SetSteps
    from headrace.execution.runtime.published import Published
    from headrace.execution.runtime.stages import Commit
    from headrace.planning.catalog import Catalog
    from headrace.storage.ledger import EpochCommit, Head, Ledger
    from headrace.storage.ledger.records import ArrangementRecord, Build
    from headrace.types import ArrangementId, BuildId, Epoch


if TYPE_CHECKING:
    Ranges = Mapping[RelationId, OffsetRange]

_NARROW_EPOCHS = 8
"""The most narrow epochs that a backlog is read in, if those that write meanwhile stop."""


def rows_of_ranges(ranges: Ranges) -> int:
    """Return the number of changes in some ranges."""
    return sum(each.rows for each in ranges.values())


@dataclass(frozen=True, slots=True)
class Backlog:
    """Chooses what epochs of one loop read of what waits; the lock of epochs is held."""

    loop: Performer

    def waiting(self, relations: Collection[RelationId]) -> dict[RelationId, OffsetRange]:
        """Return the changes of some relations that no epoch has read yet."""
        ends, done, none = self.loop.ledger.head.ends, self.loop.ledger.head.positions, Offset(0)
        return {
            id_: OffsetRange(done.get(id_, none), ends[id_])
            for id_ in relations
            if ends.get(id_, none) > done.get(id_, none)
        }

    def first(self, ranges: Ranges, catalog: Catalog) -> Ranges:
        """Return those that an epoch reads first: about ``epoch_rows``, and at least one."""
        rows, few = rows_of_ranges(ranges), self.loop.settings.small_rows
        joint = _joint(catalog) if rows > min(few, self.loop.settings.epoch_rows) else frozenset()
        prefers_narrow = rows <= _NARROW_EPOCHS * few or self.loop.runner.jobs_wait
        if few < rows and prefers_narrow and joint.isdisjoint(ranges):
            first = first_arrived(self.loop.ledger, ranges, few)
            if rows_of_ranges(first) <= few and not self.loop.widths.fan_out(frozenset(first), few):
                ranges = first
        return ranges if rows <= self.loop.settings.epoch_rows else self._limited(ranges, joint)

    def _limited(
        self, ranges: Ranges, joint: frozenset[RelationId]
    ) -> dict[RelationId, OffsetRange]:
        """Return about the first ``epoch_rows`` changes of ranges; all of those in ``joint``."""
        left, found = self.loop.settings.epoch_rows, dict[RelationId, OffsetRange]()
        for id_, each in ranges.items():
            first, end = each.first, each.end
            if each.rows > left and id_ not in joint:
                end = self._last_statement(id_, first, Offset(first + left), some=not found)
            if end > first:
                found[id_] = OffsetRange(first, end)
                left -= end - first
        return found

    def _last_statement(
        self, id_: RelationId, first: Offset, limit: Offset, *, some: bool
    ) -> Offset:
        """Return the end of the last statement that ends by ``limit``.

        If none does, return the end of the first statement with ``some``, else ``first``.
        """
        # With the one after the limit: a statement may have appended several segments.
        segments = self.loop.ledger.log.segments(id_, first, Offset(max(limit, first) + 1))
        within = [
            each.range.end
            for each, after in pairwise(segments)
            if each.range.end <= limit and each.appended_at != after.appended_at
        ]
        if within:
            return within[-1]
        return self.loop.ledger.log.appended_end(segments[0]) if some else first


def _joint(catalog: Catalog) -> frozenset[RelationId]:
    """Return the tables of sources of several tables."""
    tables = (each for each in catalog if isinstance(each, Table))
    return frozenset(each.id for each in tables if each.declaration.shared_source)


def first_arrived(
    ledger: Ledger, waiting: Mapping[RelationId, OffsetRange], most: int
) -> dict[RelationId, OffsetRange]:
    """Return the ranges of the changes that arrived first among those that wait.

    At most so many rows, or those of the first statement; no statement is divided.
    """
    pieces = [piece for id_, each in waiting.items() for piece in _pieces(ledger, id_, each, most)]
    pieces.sort(key=itemgetter(0))
    found: dict[RelationId, OffsetRange] = {}
    for _, together in groupby(pieces, itemgetter(0)):
        statement = list(together)
        rows = sum(each.rows for _, _, each in statement)
        if found and rows > most:
            break
        most -= rows
        for _, id_, each in statement:
            first = found[id_].first if id_ in found else each.first
            found[id_] = OffsetRange(first, each.end)
    return found


def _pieces(
    ledger: Ledger, id_: RelationId, waits: OffsetRange, most: int
) -> Iterator[tuple[float, RelationId, OffsetRange]]:
    """Yield when each part of a log arrived, until more than ``most`` rows; times never go back."""
    time = 0.0
    end = Offset(min(waits.end, waits.first + most + 1))
    for segment in ledger.log.segments(id_, waits.first, end):
        time = max(time, segment.appended_at)
        first, last = max(waits.first, segment.range.first), min(waits.end, segment.range.end)
        yield time, id_, OffsetRange(first, last)


CLOCK: Final = RelationId(-1)
"""Stands for the clock of all epochs among the relations that are held: it stands still then."""


@dataclass(frozen=True, slots=True)
class ConnectedSets:
    """The sets of a catalog in which the views ``clocked`` read the clock.

    The views ``apart``, which epochs leave out, connect nothing that they read.
    """

    catalog: Catalog
    clocked: frozenset[RelationId]
    by_relation: Mapping[RelationId, frozenset[RelationId]]
    apart: frozenset[RelationId] = frozenset()
    whole: frozenset[RelationId] = frozenset()
    """The relations of the sets that are stepped as a whole: by one clock, or one source."""
    _reached: dict[RelationId, frozenset[RelationId]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(
        cls,
        catalog: Catalog,
        clocked: frozenset[RelationId],
        apart: frozenset[RelationId] = frozenset(),
    ) -> Self:
        """Return the sets of a catalog."""
        found = {id_: members for members in catalog.connected_sets(apart) for id_ in members}
        whole = frozenset[RelationId]()
        for together in (clocked & catalog.by_id.keys(), *_of_one_source(catalog)):
            joined = frozenset[RelationId]().union(*(found[id_] for id_ in together))
            found |= dict.fromkeys(joined, joined)
            whole |= joined
        return cls(catalog, clocked, found, apart, whole)

    def is_of(
        self, catalog: Catalog, clocked: frozenset[RelationId], apart: frozenset[RelationId]
    ) -> bool:
        """Whether they are those of a catalog."""
        return self.catalog is catalog and self.clocked == clocked and self.apart == apart

    def within(self, among: Collection[RelationId] | None) -> frozenset[RelationId]:
        """Return the relations of the sets of some relations; those of all for None."""
        of = self.by_relation
        if among is None:
            return frozenset(of)
        return frozenset[RelationId]().union(*(of[id_] for id_ in among if id_ in of))

    def parted(self, relations: Iterable[RelationId]) -> list[frozenset[RelationId]]:
        """Return some relations by independent steps, ordered by their smallest id.

        Those of one set are in one part if a view is reached from both, directly or by a chain.
        """
        found: list[tuple[frozenset[RelationId], frozenset[RelationId]]] = []
        for id_ in sorted(relations):
            part, reached = frozenset([id_]), self.reached(id_)
            apart = []
            for others, theirs in found:
                if theirs.isdisjoint(reached):
                    apart.append((others, theirs))
                else:
                    part, reached = part | others, reached | theirs
            found = [*apart, (part, reached)]
        return sorted((part for part, _ in found), key=min)

    def reached(self, relation: RelationId) -> frozenset[RelationId]:
        """Return a relation with what a change of it may change, of a whole set all of it."""
        known = self._reached.get(relation)
        if known is None:
            if relation in self.whole:
                known = self.by_relation[relation]
            else:
                above = (each.id for each in self.catalog.dependants(relation))
                known = frozenset((relation, *above)) & self.by_relation[relation]
            self._reached[relation] = known
        return known

    def touched(self, changed: Iterable[RelationId]) -> frozenset[RelationId]:
        """Return what a step of some changed relations reads and writes.

        That is what they reach, and all whose changes reach any of it: what it reads is changed by
        these alone, and what others than these reach is not touched by it.
        """
        there = [id_ for id_ in changed if id_ in self.by_relation]
        reached = frozenset[RelationId]().union(*map(self.reached, there))
        near = self.within(there) - reached
        return reached.union(id_ for id_ in near if not reached.isdisjoint(self.reached(id_)))


def _of_one_source(catalog: Catalog) -> list[list[RelationId]]:
    """Return the tables that have a source in common."""
    found: dict[str, list[RelationId]] = {}
    for each in catalog:
        if isinstance(each, Table) and each.declaration.shared_source:
            found.setdefault(each.declaration.shared_source, []).append(each.id)
    return list(found.values())


class PartedLoop(Performer, Protocol):
    """A loop whose epochs are parted by connected set."""

    beside: SetSteps
    backlog: Backlog
    timetable: Timetable

    def maintained(self) -> frozenset[RelationId]:
        """Return the relations whose changes the next epoch reads."""
        ...

    def now(self) -> int:
        """Return the clock for an epoch made now."""
        ...

    def due(self, now: int) -> frozenset[RelationId]:
        """Return the views with rows that are due at or before a time."""
        ...


_SLOW_SECONDS: Final = 0.5
"""A narrow step that takes longer delays others: the next one of its set runs beside epochs."""
_APART_EPOCHS: Final = 16
"""After a slow step of several sets, so many epochs have a step for each, to find which it is."""


@dataclass(slots=True)
class Parting:
    """Parts by connected set what epochs of one loop read; the lock of epochs is held."""

    loop: PartedLoop
    slow: frozenset[frozenset[RelationId]] = frozenset()
    """The sets whose last step was slow."""
    _apart: int = 0
    """How many of the next epochs have a step for each set."""
    _sets: ConnectedSets | None = None
    _whole: ConnectedSets | None = None
    _apart_at: tuple[Head, Catalog, frozenset[RelationId]] | None = None
    _busy: tuple[ConnectedSets, frozenset[RelationId], frozenset[RelationId]] | None = None
    """The sets, the relations that are busy, and those of the sets that have any of them."""

    def sets(self) -> ConnectedSets:
        """Return the sets of relations whose steps are independent.

        Views that epochs leave out, since they lag behind or have stopped, connect nothing.
        """
        catalog, apart, known = self.loop.catalog, self._left_out(), self._sets
        clocked = self.loop.timetable.views() - apart
        if known is None or not known.is_of(catalog, clocked, apart):
            known = self._sets = ConnectedSets.of(catalog, clocked, apart)
            there = known.by_relation.keys()
            self.slow = frozenset(each for each in self.slow if each <= there)
        return known

    def _left_out(self) -> frozenset[RelationId]:
        """Return the views that epochs leave out, found once for each state of the ledger."""
        of = self.loop.ledger.head, self.loop.catalog
        known = self._apart_at
        if known is None or known[0] is not of[0] or known[1] is not of[1]:
            known = self._apart_at = (*of, self.loop.left_out())
        return known[2]

    def _connected(self) -> ConnectedSets:
        """Return the sets of all views, also of those that epochs leave out."""
        catalog, clocked, known = self.loop.catalog, self.loop.timetable.views(), self._whole
        if known is None or not known.is_of(catalog, clocked, frozenset()):
            known = self._whole = ConnectedSets.of(catalog, clocked)
        return known

    def note(self, took: Iterable[tuple[frozenset[RelationId], float]]) -> None:
        """Note how many seconds the steps of an epoch took, each by what it has read."""
        for changed, seconds in took:
            is_slow, sets = seconds > _SLOW_SECONDS, self.sets()
            if len(sets.parted(changed)) > 1:
                self._apart = _APART_EPOCHS if is_slow else self._apart
            elif is_slow or self.slow:
                others = frozenset(each for each in self.slow if each.isdisjoint(changed))
                self.slow = others | {sets.touched(changed)} if is_slow else others

    def pending(self) -> int:
        """Return how many changes wait, without those of sets that are left to wide steps."""
        apart = self.loop.beside.busy | self.loop.beside.waiting
        return rows_of_ranges(self.loop.backlog.waiting(self.loop.maintained() - apart))

    def held_with(self, among: Collection[RelationId] | None) -> frozenset[RelationId]:
        """Return what is held by who holds the sets of some relations, or of all.

        Views that epochs leave out belong to the sets of what they read: who changes one reads
        that. Who holds views that read the clock holds the clock, and the other way round.
        """
        sets = self._connected()
        members, timed = sets.within(among), sets.clocked
        reads = among is not None and CLOCK in among
        if among is None or reads or not timed.isdisjoint(members):
            members |= sets.within(timed) | {CLOCK}
        return members

    def busy(self) -> frozenset[RelationId]:
        """Return the relations of the sets that others than this thread step or hold.

        A set may have grown meanwhile.
        """
        sets, busy = self.sets(), self.loop.beside.busy_elsewhere()
        if self._busy is None or self._busy[0] is not sets or self._busy[1] is not busy:
            steps = (sets.touched(step.changed) for step in self.loop.beside.steps)
            self._busy = sets, busy, busy.union(*steps)
        return self._busy[2]

    def clock_without(self, without: Collection[RelationId]) -> Clock:
        """Return the clock of an epoch made now ``without`` some relations; see :meth:`left_by`."""
        before = self.loop.ledger.epochs.clock()
        return self.left_by(Clock(before, self.loop.now()), without)

    def left_by(self, clock: Clock, without: Collection[RelationId]) -> Clock:
        """Return the clock of an epoch that leaves out some relations, polled at ``clock``.

        It stands still if they have views that read it, as rows may be due in these; or if it is
        held itself. It is never read again: rows that are due since would be passed over.
        """
        stands = CLOCK in without or not self.sets().clocked.isdisjoint(without)
        return Clock(clock.before, clock.before) if stands else clock

    def together(self) -> Poll:
        """Fix the inputs of an epoch of all sets that may be stepped now; see :class:`Backlog`."""
        loop, left_out, held = self.loop, self.busy(), self.loop.beside.held()
        if held is not None and held.among is not None:
            left_out |= loop.catalog.by_id.keys() - (held.members or frozenset())
        waiting = loop.backlog.waiting(loop.maintained() - left_out)
        ranges, clock = loop.backlog.first(waiting, loop.catalog), self.clock_without(left_out)
        return Poll(loop.ledger.head.epoch, ranges, clock, loop.due(clock.after) - left_out)

    def parted(self) -> tuple[Poll, list[Poll]]:
        """Fix the inputs of an epoch of the sets whose steps are narrow, and those of each other.

        Of each set, about the first changes are read, whatever waits in others. Those whose last
        step has failed, or was slow, are among the others.
        """
        loop, sets, busy = self.loop, self.sets(), self.busy()
        clock, previous = self.clock_without(busy), loop.ledger.head.epoch
        waiting = loop.backlog.waiting(loop.maintained() - busy)
        due, few, left = loop.due(clock.after) - busy, loop.settings.small_rows, _most_rows(loop)
        narrow, wide = dict[RelationId, OffsetRange](), list[Poll]()
        parts = sets.parted(waiting.keys() | due)
        loop.beside.look(frozenset(map(sets.touched, parts)))
        for part in parts:
            own = {id_: waiting[id_] for id_ in part & waiting.keys()}
            ranges = loop.backlog.first(own, sets.catalog)
            rows, due_here = rows_of_ranges(ranges), due & part
            apart = rows > few or loop.widths.fan_out(due_here.union(ranges), rows)
            apart = apart or any(not each.isdisjoint(part) for each in self.slow)
            if apart or loop.beside.error(part) is not None:
                wide.append(Poll(previous, ranges, clock, due_here))
            elif rows <= left:
                narrow |= ranges
                left -= rows
                continue
            due -= part
            busy |= sets.touched(part)
        self._apart, each_alone = max(0, self._apart - 1), self._apart > 0
        moved = self.left_by(clock, busy)
        return Poll(previous, narrow, moved, due, narrow=True, apart=each_alone), wide

    def without_wide(self, poll: Poll, changed: frozenset[RelationId]) -> tuple[Poll, list[Poll]]:
        """Return a poll without the set whose step is wide, and that of the set.

        If several sets were stepped together, they are first stepped apart.
        """
        if len(self.sets().parted(changed)) > 1:
            return replace(poll, apart=True), []
        members = self.sets().touched(changed)
        own = {id_: each for id_, each in poll.ranges.items() if id_ in members}
        others = {id_: each for id_, each in poll.ranges.items() if id_ not in members}
        clock = self.left_by(poll.clock, members)
        rest = replace(poll, ranges=others, due=poll.due - members, clock=clock, apart=True)
        return rest, [Poll(poll.previous, own, poll.clock, poll.due & members)]

    def admitted(
        self, polls: Iterable[Poll], *, rested: bool
    ) -> Iterator[tuple[frozenset[RelationId], Poll]]:
        """Yield the sets of polls whose wide steps may begin now; the others wait."""
        beside, sets, most = self.loop.beside, self.sets(), self.loop.settings.epoch_rows
        wide = [(sets.touched((*poll.ranges, *poll.due)), poll) for poll in polls]
        for members, poll in sorted(wide, key=lambda each: beside.turn(each[0])):
            rows = rows_of_ranges(self.loop.backlog.waiting(members & self.loop.maintained()))
            beside.waiting |= members  # before it is asked: who excludes it then wakes the pump
            if beside.admits(members, rested=rested, full=rows >= most):
                beside.waiting -= members
                yield members, poll

    def waits(self, ends: Mapping[RelationId, Offset], timed: Collection[RelationId]) -> bool:
        """Whether changes before some offsets, or due rows of views, are left to a wide step."""
        loop, beside = self.loop, self.loop.beside
        behind = loop.backlog.waiting(ends.keys() & loop.maintained())
        return not (self.busy() | beside.waiting).isdisjoint(behind.keys() | set(timed))

    def require_unchanged(self, stage: Commit, step: SetStep) -> None:
        """Check that nothing of a set has changed since its step has begun.

        Raises:
            OutdatedEpochError: if something has: the step has to be made again.
        """
        now, then, members = self.loop.catalog, step.state.catalog, step.members
        if (
            any(now.by_id.get(id_) is not then.by_id[id_] for id_ in members)
            or not self.sets().touched(step.changed) <= members
            or not members.isdisjoint(self.loop.left_out() ^ stage.without)
        ):
            raise OutdatedEpochError(
                Code.CONFLICT,
                "views were changed while a step of them ran",
                hint="The step is made again.",
            )


def rebased(loop: PartedLoop, change: EpochCommit) -> EpochCommit:
    """Return a change that this thread has made of what it holds, as the next epoch.

    Others may have committed epochs meanwhile. The lock of epochs is held.
    """
    held, last = loop.beside.held(), loop.ledger.head.epoch
    if held is None or held.members is None:
        return change
    if CLOCK not in held.members:  # it is not due to this thread to move it
        change = replace(change, clock=None)
    if change.previous == last:
        return change
    members = tuple(sorted(held.members - {CLOCK}))
    return replace(change, previous=last, began=change.previous, members=members)


def _most_rows(loop: PartedLoop) -> int:
    """Return the most changes that one epoch of narrow steps reads: those of one set at least."""
    return max(loop.settings.epoch_rows, loop.settings.small_rows)


def machine_clock() -> int:
    """Return the system time: microseconds since 1970, UTC."""
    return time.time_ns() // 1000


def clocked(head: Head) -> frozenset[RelationId]:
    """Return the views that read the clock: they have state ordered by due time."""
    return frozenset(record.owner for record in _timed(head))


def _timed(head: Head) -> list[ArrangementRecord]:
    """Return the arrangements of serving builds that are ordered by due time."""
    return [
        record
        for record in head.arrangements.values()
        if record.build is not None
        and any(by["name"] == DUE for by in record.layout.get("order", ())[:1])
        and head.builds[record.build].serving
    ]


@dataclass(frozen=True, slots=True)
class _Timed:
    """The arrangements that are ordered by due time, in heads with these arrangements and builds.

    Going through all arrangements takes long where there are thousands.
    """

    arrangements: Mapping[ArrangementId, ArrangementRecord]
    builds: Mapping[BuildId, Build]
    records: list[ArrangementRecord]
    views: frozenset[RelationId]

    @classmethod
    def of(cls, head: Head) -> _Timed:
        """Return those of a head."""
        records = _timed(head)
        views = frozenset(record.owner for record in records)
        return cls(head.arrangements, head.builds, records, views)

    def is_of(self, head: Head) -> bool:
        """Whether they are those of a head."""
        return head.arrangements is self.arrangements and head.builds is self.builds


@dataclass(slots=True)
class Timetable:
    """Reads the first due times of the arrangements ordered by time, once per epoch."""

    directory: Path
    ledger: Ledger
    _layouts: dict[ArrangementId, Layout] = field(default_factory=dict)
    _timed: _Timed | None = None
    _known: tuple[Epoch, Mapping[RelationId, int]] | None = None

    def at(self, state: Published) -> Mapping[RelationId, int]:
        """Return the next due time, in microseconds, of each view that has one.

        All of them are after the clock of the epoch.
        """
        known = self._known
        if known is None or known[0] != state.epoch:
            known = self._known = (state.epoch, self._read(state))
        return known[1]

    def views(self) -> frozenset[RelationId]:
        """Return the views that read the clock: they have state ordered by due time."""
        return self._present().views

    def _present(self) -> _Timed:
        head, timed = self.ledger.head, self._timed
        if timed is None or not timed.is_of(head):
            timed = self._timed = _Timed.of(head)
        return timed

    def _read(self, state: Published) -> Mapping[RelationId, int]:
        found: dict[RelationId, int] = {}
        records, known = self._present().records, self._layouts
        layouts = {r.id: known.get(r.id) or Layout.of_json(dict(r.layout)) for r in records}
        self._layouts = layouts
        for record in records:
            runs = [run.file for run in state.spines.get(record.id, ())]
            spine = Spine.open(self.directory / "runs", layouts[record.id], runs)
            due = earliest_due(spine, state.clock)
            if due is not None:
                found[record.owner] = min(due, found.get(record.owner, due))
        return found
