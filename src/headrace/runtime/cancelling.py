"""Cancelling the statement that runs, wherever it is: in a job, between jobs, or waiting for one.

A database runs one statement at a time. Cancelling it has no effect on epochs that are made for
others: the statement stops waiting for them.
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
    """Whether the statement that runs shall end, and on which thread it runs."""

    asked: bool = False
    _thread: int | None = None

    @property
    def running(self) -> bool:
        """Whether a statement runs."""
        return self._thread is not None

    @contextmanager
    def statement(self) -> Iterator[None]:
        """Run a statement on this thread; nobody has asked it to end yet."""
        self._thread, self.asked = threading.get_ident(), False
        try:
            yield
        finally:
            self._thread = None

    def check(self) -> None:
        """End this thread's statement if that was asked for.

        Raises:
            HeadraceError: ``unavailable`` then.
        """
        if self.asked and self._thread == threading.get_ident():
            raise HeadraceError(Code.UNAVAILABLE, "the statement was cancelled")


@dataclass(slots=True)
class StatementLock:
    """A lock that a thread may take again, and that a cancelled statement does not wait for."""

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
        """Give the lock back."""
        self._lock.release()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
