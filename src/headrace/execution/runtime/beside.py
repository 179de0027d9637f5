"""What runs beside epochs: wide steps, and what holds connected sets to change them.

A wide step is of one connected set, which is busy until its step is committed.

A narrow step that fails is made again as these are, since it may take long to find out why.
Epochs of other sets are made meanwhile. What a step reads is fixed when it begins, and nobody else
changes it: epochs leave busy sets out, and what changes the catalog or the state of views holds the
sets that it touches, for which it waits until no step of these runs. So its result is the same
whichever epochs are committed before it, and it is committed as the next epoch, whatever that is.
The same is true of what a thread computes while it holds sets.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.cancelling import Cancellation, check_cancelled, running_statement
from headrace.planning.catalog import title
from headrace.types import RelationId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from headrace.execution.runtime.cancelling import StatementLock
    from headrace.execution.runtime.published import Published
    from headrace.execution.runtime.stages import Poll


if TYPE_CHECKING:
    Members = frozenset[RelationId]

_LISTEN_SECONDS = 0.1
_this_thread = threading.local()
_CANCEL_AGAIN_SECONDS = 0.3
_RETRY_SECONDS = 1.0
"""How long a set whose step has failed rests, unless a statement waits for it."""


def lane() -> str | None:
    """Return the name of the thread that this is among those of steps beside epochs, if it is.

    There are few such names, so that the jobs of each may share processors fairly.
    """
    return getattr(_this_thread, "lane", None)


@dataclass(slots=True, eq=False)
class SetStep:
    """A step of one connected set; it keeps readable what it reads.

    ``members`` are the relations of the set that it reads or writes. ``begun`` is in Unix seconds,
    ``number`` one more than that of the step begun before.
    """

    members: Members
    poll: Poll
    state: Published
    number: int
    begun: float = field(default_factory=time.time)
    ended: bool = False
    error: HeadraceError | None = None
    cancellation: Cancellation = field(default_factory=Cancellation)
    """By which it ends without a commit when the database is closed."""

    def what(self, relation: RelationId) -> str:
        """Return what it is, as people read it who wait for it with a relation of its set.

        If it does not reach the relation, a view is named that both reach.
        """
        catalog, read = self.state.catalog, sorted((*self.poll.ranges, *self.poll.due))
        names = ", ".join(title(catalog.by_id[id_]) for id_ in read)
        reached = {*read, *(each.id for id_ in read for each in catalog.dependants(id_))}
        shown = f"step of {self.changes:,} changes of {names}"
        if relation in reached:
            return f"its {shown}"
        own = {each.id for id_ in catalog.bases([relation]) for each in catalog.dependants(id_)}
        both = (v for v in catalog.views_in_order() if v.id in own & reached)
        through = next((f", as {title(each)} reads what both change" for each in both), "")
        return f"the {shown}{through}"

    @property
    def changed(self) -> frozenset[RelationId]:
        """The relations whose changes it reads, and the views that have rows due."""
        return self.poll.due.union(self.poll.ranges)

    @property
    def changes(self) -> int:
        """How many changes it reads."""
        return sum(each.rows for each in self.poll.ranges.values())


@dataclass(slots=True, eq=False)
class HeldSets:
    """Connected sets that nobody but one thread steps or changes, so that it can change them.

    ``among`` are relations of them, None for all sets. ``members`` are all relations of the sets;
    None until they are held. ``what`` says for what, as people read it.
    """

    among: Collection[RelationId] | None
    what: str
    thread: int = field(default_factory=threading.get_ident)
    begun: float = field(default_factory=time.time)
    members: Members | None = None
    ended: bool = False


@dataclass(slots=True)
class _Rest:
    """Until when a set has no wide step begun, by the monotonic clock; and why the last failed."""

    until: float
    error: HeadraceError | None = None


@dataclass(slots=True)
class _Threads:
    """Threads that do what they are given, as many as are needed up to ``most``.

    They are kept: Spark keeps a thread in its process for each that has called it.
    """

    most: int
    _given: SimpleQueue[Callable[[], None] | None] = field(default_factory=SimpleQueue)
    _threads: list[threading.Thread] = field(default_factory=list)

    def run(self, work: Callable[[], None]) -> None:
        """Do something on the next thread that is free."""
        if len(self._threads) < self.most:
            name = f"headrace-steps-{len(self._threads) + 1}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._given.put(work)

    def close(self) -> None:
        """Wait until all that was given is done, and end the threads."""
        for _ in self._threads:
            self._given.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _work(self) -> None:
        _this_thread.lane = threading.current_thread().name
        while (work := self._given.get()) is not None:
            work()
            del work  # it keeps readable what the step has read


@dataclass(slots=True)
class SetSteps:
    """The steps that run beside the epochs of one loop: at most ``most``, one of each set.

    They begin and end under the lock of epochs. ``run`` is called with what a step does, and has
    it done on another thread; without it, nothing runs beside epochs.
    """

    most: int
    run: Callable[[Callable[[], None]], None] | None = None
    cancel_jobs: Callable[[str], None] = field(default=lambda _tag: None)
    """Cancels the jobs of a step, by the tag of its cancellation."""
    freed: Callable[[], None] = field(default=lambda: None)
    """Called when a step has ended, and when steps may begin again."""
    members_of: Callable[[Collection[RelationId] | None], Members] = field(
        default=lambda among: frozenset(among or ())
    )
    """Returns all relations of the sets of some; of all sets for None."""
    steps: tuple[SetStep, ...] = ()
    holds: tuple[HeldSets, ...] = ()
    """What is held, and what waits for that, in the order in which it was asked for."""
    busy: frozenset[RelationId] = frozenset()
    """The relations of the sets whose steps run, and of those that are held."""
    waiting: frozenset[RelationId] = frozenset()
    """Those of the sets whose steps wait for others to end, or for changes to accumulate."""
    number: int = 0
    """That of the step that began last."""
    _numbers: dict[Members, int] = field(default_factory=dict)
    _rests: dict[Members, _Rest] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _threads: _Threads = field(init=False)

    def __post_init__(self) -> None:
        """Create what has the threads, once there are any."""
        self._threads = _Threads(self.most)

    def open(self, freed: Callable[[], None]) -> None:
        """Let steps run beside epochs, on threads of their own; ``freed`` as above."""
        self.run, self.freed = self._threads.run, freed

    def close(self) -> None:
        """Stop beginning steps, and cancel those that run; no lock may be held that they need.

        What they have read is read again when the database is opened.
        """
        self.run = None
        while self.steps:
            for step in self.steps:
                step.cancellation.asked = True
                self.cancel_jobs(step.cancellation.tag)  # again, since it may have begun another
            with self._changed:
                self._changed.wait_for(lambda: not self.steps, _CANCEL_AGAIN_SECONDS)
        self._threads.close()

    def turn(self, members: Members) -> int:
        """Return the sort key of the sets whose steps wait: whose last one began first."""
        return self._numbers.get(members, 0)

    def admits(self, members: Members, *, rested: bool, full: bool) -> bool:
        """Whether a step may begin now.

        If ``rested``, not while the set rests, unless as much waits as one step reads: ``full``.
        """
        if self.run is None or len(self.steps) >= self.most:
            return False
        if self._excludes(members):
            return False
        now = time.monotonic()
        rests = [r for m, r in self._rests.items() if r.until > now and not members.isdisjoint(m)]
        return not rested or all(full and rest.error is None for rest in rests)

    def begin(
        self, members: Members, poll: Poll, state: Published, make: Callable[[SetStep], None]
    ) -> SetStep | None:
        """Begin an admitted step, which ``make`` makes and ends; the lock of epochs is held.

        None if it is excluded since: who excludes it may have seen that no step runs.
        """
        assert self.run is not None  # noqa: S101  (it was admitted)
        with self._changed:
            if self._excludes(members):
                self.waiting |= members
                return None
            self.number = self._numbers[members] = self.number + 1
            step = SetStep(members, poll, state, self.number)
            self._run((*self.steps, step))
        self.run(lambda: make(step))
        return step

    def end(self, step: SetStep, error: HeadraceError | None = None, *, rests: float = 0.0) -> None:
        """End a step; its set rests for some seconds. The lock of epochs is held."""
        if step.ended:
            return
        step.error = error
        seconds = rests if error is None else _RETRY_SECONDS
        for members in [each for each in self._rests if not step.members.isdisjoint(each)]:
            del self._rests[members]
        self._rests[step.members] = _Rest(time.monotonic() + seconds, error)
        with self._changed:
            step.ended = True
            self._run(tuple(each for each in self.steps if each is not step))
            self._changed.notify_all()

    def look(self, sets: frozenset[Members]) -> None:
        """Begin to look which steps may begin, among sets that have something to read.

        How others stand is forgotten.
        """
        now, self.waiting = time.monotonic(), frozenset()
        near = frozenset[RelationId]().union(*sets)
        for members in [each for each in self._rests if near.isdisjoint(each)]:
            rest = self._rests[members]
            if rest.until <= now or rest.error is not None:
                del self._rests[members]
        for members in self._numbers.keys() - sets:
            if self.busy.isdisjoint(members):
                del self._numbers[members]

    def error(self, among: Collection[RelationId] | None = None) -> HeadraceError | None:
        """Return why the last step has failed of the set of one of some relations, by default any.

        None once one has not.
        """
        return next(
            (
                rest.error
                for members, rest in list(self._rests.items())
                if rest.error and (among is None or not members.isdisjoint(among))
            ),
            None,
        )

    def seconds_until_rested(self) -> float | None:
        """Return how long the set rests that rests for the shortest time; None if none does."""
        now = time.monotonic()
        left = min((r.until - now for r in list(self._rests.values()) if r.until > now), default=0)
        return left or None

    @contextmanager
    def holding(
        self, among: Collection[RelationId] | None, what: str, lock: StatementLock
    ) -> Iterator[None]:
        """Run a block while this thread holds the sets of some relations; None stands for all sets.

        ``lock`` is that of epochs: it is not held during the block, but the sets are taken with it,
        while no epoch is made. Within a block that holds them already, or if the thread has the
        lock, nothing is waited for.

        Raises:
            HeadraceError: ``cancelled`` if the statement was cancelled while it waited.
        """
        held = self.held()
        if held is not None or lock.is_mine:
            _require_within(held, among, self.members_of)
            yield
            return
        hold = HeldSets(among, what)
        with self._changed:
            self.holds = (*self.holds, hold)
        try:
            self._take(hold, lock)
            yield
        finally:
            with self._changed:
                hold.ended = True
                self.holds = tuple(each for each in self.holds if each is not hold)
                self._note_busy()
                self._changed.notify_all()
            self.freed()

    def held(self) -> HeldSets | None:
        """Return what this thread holds."""
        if not self.holds:
            return None
        own = threading.get_ident()
        return next((h for h in self.holds if h.thread == own and h.members is not None), None)

    def busy_elsewhere(self) -> frozenset[RelationId]:
        """Return the relations of the sets that are busy by what others do than this thread."""
        held = self.held()
        if held is None:
            return self.busy
        others = (each.members for each in self.holds if each is not held and each.members)
        return frozenset[RelationId]().union(*others, *(step.members for step in self.steps))

    @property
    def running(self) -> tuple[SetStep | HeldSets, ...]:
        """The steps that run, and what holds sets or waits for that."""
        return (*self.steps, *self.holds)

    def _take(self, hold: HeldSets, lock: StatementLock) -> None:
        """Wait until sets can be held, and hold them."""
        wanted, others = self.members_of(hold.among), (r for r in self.running if r is not hold)
        _say_what_is_waited_for(r for r in others if not wanted.isdisjoint(self._members(r)))
        while hold.members is None:
            self.wait(lambda: self._can_take(hold) is not None)
            with lock, self._changed:
                hold.members = self._can_take(hold)
                self._note_busy()

    def _can_take(self, hold: HeldSets) -> Members | None:
        """Return the members of sets that can be held now; None if others come first."""
        with self._changed:
            wanted, earlier = self.members_of(hold.among), True
            for other in self.running:
                if other is hold:
                    earlier = False
                    continue
                if isinstance(other, HeldSets) and other.members is None and not earlier:
                    continue
                if hold.among is None or not wanted.isdisjoint(self._members(other)):
                    return None
            return wanted

    def _members(self, running: SetStep | HeldSets) -> Members:
        if isinstance(running, HeldSets) and running.members is None:
            return self.members_of(running.among)
        return running.members or frozenset()

    def waited_for(self, relation: RelationId) -> str | None:
        """Return what the epochs of a relation wait for, as people read it; None for nothing."""
        for each in self.running:
            if relation in self._members(each):
                seconds = max(0.0, time.time() - each.begun)
                what = each.what if isinstance(each, HeldSets) else each.what(relation)
                return f"{what}, for {seconds:.1f} s so far"
        if relation not in self.waiting:
            return None
        if len(self.steps) >= self.most:
            return f"the end of a step of others, of {len(self.steps)} that run"
        return "its next step, for which changes gather"

    def wait(self, met: Callable[[], bool]) -> None:
        """Wait until a condition is met; it is tested when a step ends, and now and then.

        Raises:
            HeadraceError: ``cancelled`` if the statement was cancelled meanwhile.
        """
        while not met():
            check_cancelled()
            with self._changed:
                self._changed.wait_for(met, _LISTEN_SECONDS)

    def wait_for_one(
        self,
        running: tuple[SetStep | HeldSets, ...],
        met: Callable[[], bool],
        relations: Collection[RelationId],
        after: int,
    ) -> None:
        """Wait until a condition is met, something that was running has ended, or nothing runs.

        Raises:
            HeadraceError: why a step that reads some of the relations has failed, if it was begun
                after the one of a number; ``cancelled`` as :meth:`wait`.
        """
        _say_what_is_waited_for(s for s in running if not self._members(s).isdisjoint(relations))

        def is_over() -> bool:
            return met() or any(each.ended for each in running) or not self.running

        self.wait(is_over)
        for step in running:
            if isinstance(step, HeldSets) or step.error is None or step.number <= after:
                continue
            if not step.members.isdisjoint(relations):
                raise step.error

    def _excludes(self, members: Members) -> bool:
        return any(h.among is None or not members.isdisjoint(self._members(h)) for h in self.holds)

    def _run(self, steps: tuple[SetStep, ...]) -> None:
        self.steps = steps
        self._note_busy()

    def _note_busy(self) -> None:
        held = (each.members for each in self.holds if each.members)
        steps = (step.members for step in self.steps)
        self.busy = frozenset[RelationId]().union(*steps, *held)


def _say_what_is_waited_for(running: Iterable[SetStep | HeldSets]) -> None:
    statement, waited = running_statement(), list(running)
    changes = sum(each.changes for each in waited if isinstance(each, SetStep))
    if statement is None:
        return
    if changes:
        statement.waits(f"waiting for a step of {changes:,} changes")
    elif waited:
        statement.waits(f"waiting for {waited[0].what}")


def _require_within(
    held: HeldSets | None,
    among: Collection[RelationId] | None,
    members_of: Callable[[Collection[RelationId] | None], Members],
) -> None:
    """Raise if a thread that holds sets wants others: waiting for them could take forever."""
    if held is None or held.among is None:
        return
    if among is None or not members_of(among) <= (held.members or frozenset()):
        raise HeadraceError(
            Code.INTERNAL,
            "a statement changes more views than it holds",
            f"It holds them for {held.what}.",
        )
