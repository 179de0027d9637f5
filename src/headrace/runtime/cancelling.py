"""Cancel the running statement: in a job, between jobs, or while it waits for an epoch.

A database runs one statement at a time. Cancelling it does not cancel the epochs of others: the
statement only stops waiting for them.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LISTEN_SECONDS = 0.1


@dataclass(slots=True)
class Cancellation:
    """Whether the running statement is to be cancelled, and the thread on which it runs."""

    asked: bool = False
    _thread: int | None = None

    @property
    def running(self) -> bool:
        """Whether a statement is running."""
        return self._thread is not None

    @contextmanager
    def statement(self) -> Iterator[None]:
        """Run a statement on this thread, with cancellation not requested yet."""
        self._thread, self.asked = threading.get_ident(), False
        try:
            yield
        finally:
            self._thread = None

    def check(self) -> None:
        """End this thread's statement if its cancellation was requested.

        Raises:
            HeadraceError: ``unavailable`` in that case.
        """
        if self.asked and self._thread == threading.get_ident():
            raise HeadraceError(Code.UNAVAILABLE, "the statement was cancelled")


@dataclass(slots=True)
class StatementLock:
    """A reentrant lock; cancelling a statement ends its wait for the lock."""

    cancellation: Cancellation = field(default_factory=Cancellation)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            HeadraceError: ``unavailable`` if the statement was cancelled meanwhile.
        """
        while not self._lock.acquire(timeout=_LISTEN_SECONDS):
            self.cancellation.check()

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
