"""Sets of relations whose steps are independent: what one reads and writes, no other does.

Views that share an input, directly or through others, are in one set: they always agree. So are all
views that read the clock, as there is one clock of all epochs, and the tables of one source, since
its transactions are read whole. A view that epochs leave out connects nothing while they do.

Steps of two inputs of one set are independent too, unless a view is reached from both: what a step
writes is what its inputs reach, and what it reads besides is changed by inputs that reach that too.
So two streams that are joined with one table by two views wait for each other's steps only in what
the table's changes reach.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol, Self

from headrace.catalog import Table
from headrace.errors import Code
from headrace.ledger import OffsetRange, OutdatedEpochError
from headrace.runtime.backlog import rows_of_ranges
from headrace.runtime.stages import Performer, Poll
from headrace.runtime.step import Clock
from headrace.types import RelationId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from headrace.catalog import Catalog
    from headrace.ledger import EpochCommit, Head
    from headrace.runtime.backlog import Backlog
    from headrace.runtime.beside import SetStep, SetSteps
    from headrace.runtime.stages import Commit
    from headrace.runtime.timetable import Timetable
    from headrace.types import Offset


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
