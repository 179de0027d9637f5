"""The background threads of a database: one makes epochs, one refreshes views, one compacts.

The pump makes an epoch as soon as changes have arrived after a pause. Every epoch has a fixed cost,
so what follows at once gathers: after a small epoch for a few times as long as it has computed, at
most for a fraction of a second, so that a steady stream of events takes a small share of a
processor. The wide step of a connected set runs beside the epochs of others; after one of many
changes, those of its set gather for as long as it took, which a bulk load then pays half as often.

An idle database does no work: the threads wait to be woken, or until a row of a view that reads the
clock is due. Once nothing has arrived for some seconds, what it keeps is made small.

Background work that statements interrupt to use the same objects.

How long a thread that computes in Python keeps others from going on.

Python lets a thread compute for 5 ms before another that has waited for a disk, a socket or the JVM
goes on. Landing a part or answering a request waits a dozen times, and epochs compute in Python, so
beside them each of these took several times as long.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.log_merging import RESTING_SEGMENTS
from headrace.execution.runtime.refreshing import Refreshes
from headrace.execution.runtime.retirement import SECONDS_BETWEEN
from headrace.storage.log.merging import TAIL_SEGMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.execution.runtime.compaction import Compaction
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.published import Published
    from headrace.types import Epoch, Offset, RelationId


@dataclass(slots=True)
class Interruptible:
    """Lets one thread work at a time: a statement that asks gets its turn after the current part.

    Whoever works holds :attr:`lock`, calls :meth:`require_going_on` between parts, and waits with
    :meth:`wait`. Thread-safe.
    """

    lock: threading.RLock = field(default_factory=threading.RLock)
    is_closed: bool = False
    statements: int = 0
    """The number of statements so far; after one, failed work is tried again at once."""
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _asked: int = 0
    """How many statements wait for the lock."""
    _thread: threading.Thread | None = None

    @property
    def has_thread(self) -> bool:
        """Whether it works in the background."""
        return self._thread is not None

    def start(self, work: Callable[[], None], name: str) -> None:
        """Work in the background; ``work`` returns soon after this is closed."""
        self._thread = threading.Thread(target=work, name=name, daemon=True)
        self._thread.start()

    @contextmanager
    def interrupted(self) -> Iterator[None]:
        """Run a block while no work is done: work in progress ends after its current part."""
        with self._changed:
            self._asked += 1
            self.statements += 1
            self._changed.notify_all()
        with self.lock:
            with self._changed:
                self._asked -= 1
                self._changed.notify_all()
            yield

    def wait_for_turn(self) -> int:
        """Wait until no statement asks for the lock; return how many there were so far."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_closed or not self._asked)
            return self.statements

    def wait(self, seconds: float, statements: int | None = None) -> None:
        """Wait, until a statement asks for the lock or this is closed.

        ``statements`` is how many there were when what is waited for began, by default now.
        """
        before = self.statements if statements is None else statements
        with self._changed:
            self._changed.wait_for(
                lambda: self.is_closed or self._asked or self.statements != before,
                max(0.0, seconds),
            )

    def require_going_on(self) -> None:
        """Raise CANCELLED if a statement asks for the lock, or this is closed."""
        if self.is_closed or self._asked:
            raise HeadraceError(Code.CANCELLED, "the delivery was interrupted")

    def close(self, wake: Callable[[], None]) -> None:
        """End the work after the current part, and wait for it.

        ``wake`` ends what it waits for besides :meth:`wait`.
        """
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()
        wake()
        if self._thread is not None:
            self._thread.join()


_SECONDS: Final = 0.0005


@dataclass(slots=True)
class QuickSwitching:
    """Makes this process's threads take turns quickly while anybody asks for it. Thread-safe."""

    _changing: threading.Lock = field(default_factory=threading.Lock)
    _holders: int = 0
    _before: float = 0.0

    def begin(self) -> None:
        """Ask for it, until :meth:`end` has been called as often."""
        with self._changing:
            if self._holders == 0:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, _SECONDS))
            self._holders += 1

    def end(self) -> None:
        """Ask for it no longer; the interval is what it was before if nobody else does."""
        with self._changing:
            self._holders -= 1
            if self._holders == 0:
                sys.setswitchinterval(self._before)


QUICK_SWITCHING: Final = QuickSwitching()
"""That of this process: the interval is Python's own setting."""


_RETRY_SECONDS = 1.0
_LONGEST_WAIT_SECONDS = 60.0
"""The longest wait for a due row: the system clock may be set meanwhile."""

_MERGE_EVERY: Final = 8
"""The number of epochs between two looks for runs to merge."""
_SWEEP_EVERY: Final = 64
"""The number of epochs between two compaction passes, which also look for what nothing needs."""
_REST_SECONDS: Final = 15.0
"""How long no epoch is made before what the database keeps is made small."""

_TIMES_AS_LONG: Final = 9
"""How many times as long as a small epoch has computed changes may gather after it: a tenth of a
processor is spent on epochs then."""


@dataclass(slots=True)
class Pump:
    """Runs the epochs of one loop in the background until it is closed.

    ``error`` is the error of the last epoch, if any; the pump retries until it succeeds. Those of
    wide steps are kept by ``loop.beside``.
    """

    loop: EpochLoop
    compaction: Compaction
    error: HeadraceError | None = None
    refreshes: Refreshes = field(init=False)
    _arrived: threading.Event = field(default_factory=threading.Event)
    _due: threading.Event = field(default_factory=threading.Event)
    _closed: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _merged: int = 0
    _swept: int = 0
    _rested: int = 0
    """The epochs at which each of these was last begun."""

    def __post_init__(self) -> None:
        """Create what refreshes the views of the loop."""
        self.refreshes = Refreshes(self.loop)

    def start(self) -> None:
        """Start the threads."""
        QUICK_SWITCHING.begin()
        self.loop.beside.open(self._freed)
        self.compaction.logs.begin()
        for name, work in (
            ("epochs", self._make_epochs),
            ("refreshes", self._refresh),
            ("compaction", self._compact),
        ):
            thread = threading.Thread(target=work, name=f"headrace-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)
        self.wake()

    @property
    def running(self) -> bool:
        """Whether epochs are made in the background."""
        return bool(self._threads)

    def wake(self) -> None:
        """Notify the pump that changes have arrived."""
        self._arrived.set()
        if self._threads and self.loop.ledger.log.landed.most >= TAIL_SEGMENTS:
            self._due.set()

    def close(self) -> None:
        """Stop after the current epoch, and the steps that run beside it."""
        self._closed.set()
        self.loop.closing.set()
        self._arrived.set()
        self._due.set()
        if self._threads:
            self.loop.published.wake()
        for thread in self._threads:
            thread.join()
        if self._threads:
            self.loop.beside.close()
            self._threads.clear()
            QUICK_SWITCHING.end()

    def made(self, epoch: Epoch) -> None:
        """Count an epoch, made here or elsewhere; compact after ``_MERGE_EVERY`` of them."""
        if epoch - self._merged >= _MERGE_EVERY:
            if self._threads:
                self._due.set()
            else:
                self.compaction.merge_logs()
                self._compact_at(epoch)

    def settle(
        self,
        wanted: Mapping[RelationId, Offset] | None = None,
        timed: frozenset[RelationId] | None = None,
    ) -> Published:
        """Make epochs until all changes before the wanted offsets (default: now's) are read.

        Rows of the views ``timed`` (default: all) that are due by now have also entered or left.
        """
        loop, now = self.loop, self.loop.now()
        ends = dict(loop.ledger.head.ends if wanted is None else wanted)

        def settled() -> Published | None:
            state = loop.published.current
            return state if state.has_read(ends) and not loop.due(now, timed) else None

        begun = loop.beside.number
        while (state := settled()) is None:
            epoch, waits, running = None, False, loop.beside.running
            # Another thread may hold the lock to make the epoch.
            with loop.lock.unless(lambda: settled() is not None) as held:
                if held and settled() is None:
                    epoch = loop.advance()
                    waits = loop.parting.waits(ends, loop.due(now, timed))
                    running = loop.beside.running
                    if epoch is None and (not waits or loop.lock.is_nested):
                        self._require(settled)  # a step cannot end while its commit waits for this
            if epoch is not None:
                self.made(epoch)
            elif waits:
                related = ends.keys() | (timed or loop.timetable.views())
                loop.beside.wait_for_one(running, lambda: settled() is not None, related, begun)
        return state

    def settle_held(self) -> Published:
        """Make epochs of the sets that this thread holds until all their changes are read."""
        held = self.loop.beside.held()
        members = frozenset() if held is None or held.members is None else held.members
        ends = self.loop.ledger.head.ends
        return self.settle({id_: ends[id_] for id_ in ends.keys() & members}, members)

    def _require(self, settled: Callable[[], Published | None]) -> None:
        """Publish again, since a view may have stopped, so that nothing waits for its inputs."""
        self.loop.published.publish()
        if settled() is None:
            raise HeadraceError(Code.INTERNAL, "no epoch reads what a statement waits for")

    def _make_epochs(self) -> None:
        while not self._closed.is_set():
            self._arrived.wait(self._seconds_to_wait())
            self._arrived.clear()
            try:
                while not self._closed.is_set():
                    begun = time.thread_time()
                    epoch = self.loop.advance(rested=True)
                    if epoch is None:
                        break
                    self.made(epoch)
                    self._gather(time.thread_time() - begun)
                self.error = None
            except Exception as error:  # noqa: BLE001 - it is shown, and must not end the thread
                self.error = _shown(error)
                self._closed.wait(_RETRY_SECONDS)
                self._arrived.set()

    def _gather(self, computed: float) -> None:
        """Let changes gather after an epoch that has computed for so many seconds.

        For a multiple of that, at most ``gather_ms``. A backlog does not wait, nor does a statement
        that needs an epoch: it makes it itself.
        """
        settings = self.loop.settings
        if self.loop.parting.pending() < settings.small_rows:
            self._closed.wait(min(settings.gather_ms / 1000, _TIMES_AS_LONG * computed))

    def _freed(self) -> None:
        """Count the epochs of steps beside, and look for what waits for their end."""
        self.made(self.loop.published.current.epoch)
        self.wake()

    def _seconds_to_wait(self) -> float | None:
        """Return how long to wait if no changes arrive; None means forever."""
        try:
            seconds = self.loop.seconds_until_due()
        except HeadraceError as error:
            self.error = error
            return _RETRY_SECONDS
        rests = self.loop.beside.seconds_until_rested()
        waits = [each for each in (seconds, rests) if each is not None]
        return min([*waits, _LONGEST_WAIT_SECONDS]) if waits else None

    def _refresh(self) -> None:
        """Refresh the views that are due, one refresh after another; epochs are made in between."""
        while not self._closed.is_set():
            seconds = self.refreshes.seconds_until_due()
            longest = None if seconds is None else min(seconds, _LONGEST_WAIT_SECONDS)
            self.loop.published.wait_for(self._rescheduled(), longest)
            try:
                while not self._closed.is_set() and (epoch := self.refreshes.run_due()) is not None:
                    self.made(epoch)
            except Exception as error:  # noqa: BLE001 - as above
                self.error = _shown(error)
                self._closed.wait(_RETRY_SECONDS)

    def _rescheduled(self) -> Callable[[], bool]:
        """Return a condition that is met once views are due at other times than now."""
        known = self.refreshes.due_times()
        return lambda: self._closed.is_set() or self.refreshes.due_times() != known

    def _compact(self) -> None:
        while not self._closed.is_set():
            before, landed = self.loop.ledger.head.epoch, self.loop.ledger.log.landed
            counted = landed.total
            woken = self._due.wait(self._seconds_to_rest(before))
            self._due.clear()
            if self._closed.is_set():
                return
            rests = not woken and landed.total == counted
            try:
                self.compaction.merge_logs(RESTING_SEGMENTS if rests else TAIL_SEGMENTS)
                self._compact_at(self.loop.ledger.head.epoch, before=None if woken else before)
            except Exception as error:  # noqa: BLE001 - as above
                self.error = _shown(error)

    def _seconds_to_rest(self, epoch: Epoch) -> float | None:
        """Return how long to wait for epochs before the database is at rest; None means forever."""
        if epoch > self._rested or self.loop.ledger.log.landed.most >= RESTING_SEGMENTS:
            return _REST_SECONDS
        return SECONDS_BETWEEN if self.compaction.retirement.streams else None

    def _compact_at(self, epoch: Epoch, before: Epoch | None = None) -> None:
        """Do what is due at an epoch; ``before`` is that of some time ago, if nothing was due."""
        at_rest = before is not None and not self.loop.beside.steps
        if at_rest and before == epoch > self._rested:
            self._rested = self.compaction.rest()
        elif before is not None or epoch - self._swept >= _SWEEP_EVERY:
            self.compaction.run()
            self._merged = self._swept = epoch
        else:
            self._merged = epoch
            self.compaction.merge_due()


def _shown(error: Exception) -> HeadraceError:
    if isinstance(error, HeadraceError):
        return error
    return HeadraceError(Code.INTERNAL, "a background thread failed", detail=f"{error!r}.")
