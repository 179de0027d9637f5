"""Cancel a running statement: in a job, between jobs, or while it waits for an epoch.

Statements of several clients run side by side, each on its own thread. Cancelling one does not
cancel the others, nor epochs: the statement only stops waiting for them.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_LISTEN_SECONDS = 0.1

_this_thread = threading.local()


@dataclass(slots=True)
class Cancellation:
    """Whether a client's statement is running, and whether it is to be cancelled.

    ``tag`` identifies the Spark jobs that the client's statements start. ``waits`` is called with
    what a statement waits for before it can run, or go on.
    """

    tag: str = field(default_factory=lambda: f"headrace-{uuid4().hex}")
    asked: bool = False
    running: bool = False
    waits: Callable[[str], None] = field(default=lambda _what: None)

    @contextmanager
    def statement(self) -> Iterator[None]:
        """Run a statement on this thread, with cancellation not requested yet."""
        before = getattr(_this_thread, "cancellation", None)
        self.asked, self.running = False, True
        _this_thread.cancellation = self
        try:
            yield
        finally:
            _this_thread.cancellation = before
            self.running = False


def running_statement() -> Cancellation | None:
    """Return the cancellation of the statement that runs on this thread, if there is one."""
    return getattr(_this_thread, "cancellation", None)


def check_cancelled() -> None:
    """End this thread's statement if its cancellation was requested.

    Raises:
        HeadraceError: ``cancelled`` in that case.
    """
    cancellation = running_statement()
    if cancellation is not None and cancellation.asked:
        raise cancelled()


def cancelled() -> HeadraceError:
    """Return the error with which a cancelled statement ends."""
    return HeadraceError(Code.CANCELLED, "the statement was cancelled")


@dataclass(slots=True, eq=False)
class _Waiting:
    """A thread that waits for a lock; ``met`` says whether it no longer needs it."""

    met: Callable[[], bool] | None
    thread: int = field(default_factory=threading.get_ident)
    goes_on: threading.Event = field(default_factory=threading.Event)
    holds: bool = False
    """Whether it was given the lock when it goes on."""

    @property
    def is_over(self) -> bool:
        """Whether it need not wait; so it is if the condition fails, which it then sees itself."""
        try:
            return self.met is not None and self.met()
        except Exception:  # noqa: BLE001 - another thread waits for what this may raise
            return True


@dataclass(slots=True)
class StatementLock:
    """A reentrant lock that threads get in the order in which they ask.

    So a thread that takes it again and again, such as the one that makes epochs, delays a statement
    by no more than what it does now. Cancelling a statement ends its wait for the lock.
    """

    _changing: threading.Lock = field(default_factory=threading.Lock)
    _owner: int | None = None
    """The id of the thread that holds it."""
    _depth: int = 0
    _waiting: deque[_Waiting] = field(default_factory=deque)
    _free: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        """Begin free."""
        self._free.set()

    @property
    def is_mine(self) -> bool:
        """Whether this thread holds it."""
        return self._owner == threading.get_ident()

    @property
    def is_nested(self) -> bool:
        """Whether this thread holds it more than once."""
        return self.is_mine and self._depth > 1

    def acquire(self, unless: Callable[[], bool] | None = None) -> bool:
        """Take the lock, or stop waiting for it; return whether it was taken.

        It is not taken if the condition ``unless`` is met at a :meth:`reconsider` before.

        Raises:
            HeadraceError: ``cancelled`` if the statement was cancelled meanwhile.
        """
        waiting = _Waiting(unless)
        with self._changing:
            if self._owner in (None, waiting.thread):
                self._owner, self._depth = waiting.thread, self._depth + 1
                self._free.clear()
                return True
            self._waiting.append(waiting)
        try:
            while not waiting.goes_on.wait(_LISTEN_SECONDS):
                check_cancelled()
        except BaseException:
            self._give_up(waiting)
            raise
        return waiting.holds

    def release(self) -> None:
        """Release the lock; the thread that has waited longest holds it then."""
        with self._changing:
            self._depth -= 1
            if self._depth == 0:
                self._pass_on()

    @contextmanager
    def unless(self, met: Callable[[], bool]) -> Iterator[bool]:
        """Run a block with the lock, or without it; yield which. See :meth:`acquire`."""
        holds = self.acquire(met)
        try:
            yield holds
        finally:
            if holds:
                self.release()

    def reconsider(self) -> None:
        """Let the threads go on that wait for the lock and no longer need it.

        Else each of them would hold it for a moment, one after another, and before anyone else.
        """
        for waiting in list(self._waiting):
            if waiting.is_over:
                with self._changing:
                    if waiting in self._waiting:
                        self._waiting.remove(waiting)
                        waiting.goes_on.set()

    def wait_free(self, seconds: float) -> None:
        """Wait until nobody else holds the lock, at most for some seconds; do not take it."""
        if self._owner != threading.get_ident():
            self._free.wait(seconds)

    def _give_up(self, waiting: _Waiting) -> None:
        with self._changing:
            if waiting.holds:
                self._pass_on()
            elif waiting in self._waiting:
                self._waiting.remove(waiting)

    def _pass_on(self) -> None:
        self._owner, self._depth = None, 0
        if self._waiting:
            first = self._waiting.popleft()
            self._owner, self._depth = first.thread, 1
            first.holds = True
            first.goes_on.set()
        else:
            self._free.set()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
