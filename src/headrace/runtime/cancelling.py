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
    what a statement waits for before it can run.
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
    _waiting: deque[tuple[int, threading.Event]] = field(default_factory=deque)
    """The ids of the threads that wait for it, each with what says that it holds it now."""

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            HeadraceError: ``cancelled`` if the statement was cancelled meanwhile.
        """
        this, given = threading.get_ident(), threading.Event()
        with self._changing:
            if self._owner in (None, this):
                self._owner, self._depth = this, self._depth + 1
                return
            self._waiting.append((this, given))
        try:
            while not given.wait(_LISTEN_SECONDS):
                check_cancelled()
        except BaseException:
            self._give_up(this, given)
            raise

    def release(self) -> None:
        """Release the lock; the thread that has waited longest holds it then."""
        with self._changing:
            self._depth -= 1
            if self._depth == 0:
                self._pass_on()

    def _give_up(self, this: int, given: threading.Event) -> None:
        with self._changing:
            if given.is_set():
                self._pass_on()
            else:
                self._waiting.remove((this, given))

    def _pass_on(self) -> None:
        self._owner, self._depth = None, 0
        if self._waiting:
            self._owner, given = self._waiting.popleft()
            self._depth = 1
            given.set()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
