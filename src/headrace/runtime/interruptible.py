"""Background work that statements interrupt to use the same objects."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
