"""Wide steps beside epochs: each of one connected set, which is busy until its step is committed.

A narrow step that fails is made again as these are, since it may take long to find out why.
Epochs of other sets are made meanwhile. What a step reads is fixed when it begins, and nobody else
changes it: epochs leave busy sets out, and what changes the catalog or the state of views waits
until no step runs. So its result is the same whichever epochs are committed before it, and it is
committed as the next epoch, whatever that is.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING

from headrace.runtime.cancelling import check_cancelled, running_statement
from headrace.types import RelationId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from headrace.errors import HeadraceError
    from headrace.runtime.published import Published
    from headrace.runtime.stages import Poll

    Members = frozenset[RelationId]

_LISTEN_SECONDS = 0.1
_this_thread = threading.local()
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

    ``begun`` is in Unix seconds, ``number`` one more than that of the step begun before.
    """

    members: Members
    poll: Poll
    state: Published
    number: int
    begun: float = field(default_factory=time.time)
    ended: bool = False
    error: HeadraceError | None = None

    @property
    def changes(self) -> int:
        """How many changes it reads."""
        return sum(each.rows for each in self.poll.ranges.values())


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
    freed: Callable[[], None] = field(default=lambda: None)
    """Called when a step has ended, and when steps may begin again."""
    steps: tuple[SetStep, ...] = ()
    busy: frozenset[RelationId] = frozenset()
    """The relations of the sets whose steps run."""
    waiting: frozenset[RelationId] = frozenset()
    """Those of the sets whose steps wait for others to end, or for changes to accumulate."""
    number: int = 0
    """That of the step that began last."""
    _excluding: tuple[Collection[RelationId] | None, ...] = ()
    """What is waited for, or changed: the sets of these relations begin no step; None is all."""
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
        """Stop beginning steps, and wait for those that run; no lock may be held that they need."""
        self.run = None
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
        rest = self._rests.get(members)
        if rest is None or not rested or rest.until <= time.monotonic():
            return True
        return full and rest.error is None

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
            self._hold((*self.steps, step))
        self.run(lambda: make(step))
        return step

    def end(self, step: SetStep, error: HeadraceError | None = None, *, rests: float = 0.0) -> None:
        """End a step; its set rests for some seconds. The lock of epochs is held."""
        if step.ended:
            return
        step.error = error
        seconds = rests if error is None else _RETRY_SECONDS
        self._rests[step.members] = _Rest(time.monotonic() + seconds, error)
        with self._changed:
            step.ended = True
            self._hold(tuple(each for each in self.steps if each is not step))
            self._changed.notify_all()

    def look(self, sets: frozenset[Members]) -> None:
        """Begin to look which steps may begin, among sets that have something to read.

        How others stand is forgotten.
        """
        now, self.waiting = time.monotonic(), frozenset()
        for members in self._rests.keys() - sets:
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
    def excluded(self, among: Collection[RelationId] | None) -> Iterator[None]:
        """Wait until no step runs of the sets of some relations; run a block in which none does.

        None stands for all relations.

        Raises:
            HeadraceError: ``cancelled`` if the statement was cancelled while it waited.
        """
        with self._changed:
            self._excluding = (*self._excluding, among)
        try:
            self._wait_for_steps(among)
            yield
        finally:
            with self._changed:
                left = list(self._excluding)
                left.remove(among)
                self._excluding = tuple(left)
                self._changed.notify_all()
            if self.waiting:
                self.freed()

    def _wait_for_steps(self, among: Collection[RelationId] | None) -> None:
        def running() -> list[SetStep]:
            return [s for s in self.steps if among is None or not s.members.isdisjoint(among)]

        _say_what_is_waited_for(running())
        self.wait(lambda: not running())

    def waited_for(self, relation: RelationId) -> str | None:
        """Return what the epochs of a relation wait for, as people read it; None for nothing."""
        for step in self.steps:
            if relation in step.members:
                seconds = max(0.0, time.time() - step.begun)
                return f"its step of {step.changes:,} changes, for {seconds:.1f} s so far"
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
        steps: tuple[SetStep, ...],
        met: Callable[[], bool],
        relations: Collection[RelationId],
        after: int,
    ) -> None:
        """Wait until a condition is met, one of some steps has ended, or steps may begin.

        Raises:
            HeadraceError: why a step that reads some of the relations has failed, if it was begun
                after the one of a number; ``cancelled`` as :meth:`wait`.
        """
        _say_what_is_waited_for([s for s in steps if not s.members.isdisjoint(relations)])

        def is_over() -> bool:
            return met() or any(s.ended for s in steps) or not (self.steps or self._excluding)

        self.wait(is_over)
        for step in steps:
            if step.error and step.number > after and not step.members.isdisjoint(relations):
                raise step.error

    def _excludes(self, members: Members) -> bool:
        return any(each is None or not members.isdisjoint(each) for each in self._excluding)

    def _hold(self, steps: tuple[SetStep, ...]) -> None:
        self.steps = steps
        self.busy = frozenset[RelationId]().union(*(step.members for step in steps))


def _say_what_is_waited_for(steps: Iterable[SetStep]) -> None:
    statement, changes = running_statement(), sum(step.changes for step in steps)
    if changes and statement is not None:
        statement.waits(f"waiting for a step of {changes:,} changes")
