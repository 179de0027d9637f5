"""Messages that a thread of its own reads from brokers while others are decoded and landed.

The thread always waits in a poll of the client, so a message is here as soon as a broker sends it.
Whoever takes messages gets all that have arrived. A part costs a transaction however few rows it
has, so messages are gathered for a time that goes by how long the last part took: parts become
larger as landing them becomes slower.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headrace.connectors.kafka.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_IDLE_SECONDS: Final = 0.25
_LONGEST_GATHER_SECONDS: Final = 0.02
_MOST_BYTES: Final = 32 << 20
_MOST_WAITING: Final = 100_000
"""Limits of what waits to be taken: at them, the thread stops reading."""
_BACKLOG: Final = 10_000
"""As many waiting messages indicate that more arrive than are taken."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """Messages in the order of each partition, and what else the client said after them.

    ``ends`` are the offsets before which a partition has been read completely, by its name in
    positions; ``failed`` is the error after which nothing more arrives.
    """

    messages: Batch = field(default_factory=Batch)
    ends: Mapping[str, int] = field(default_factory=dict)
    failed: Any = None


@dataclass(slots=True)
class Arrivals:
    """Reads messages on a thread of its own from when it is started until it is closed.

    ``consume`` waits for messages, for a short time, and returns those that have arrived. ``clock``
    returns seconds.
    """

    consume: Callable[[], Arrived]
    clock: Callable[[], float] = time.monotonic
    _messages: Batch = field(default_factory=Batch)
    _bytes: int = 0
    _ends: dict[str, int] = field(default_factory=dict)
    _failed: Any = None
    _raised: Exception | None = None
    _closed: bool = False
    _arrived: float = 0.0
    """When the first of the waiting messages arrived."""
    _taken: float | None = None
    """When messages were last taken; None once they have been landed."""
    _landed: float = 0.0
    _took: float = 0.0
    """When that was, and how long it took."""
    _asked: deque[tuple[Future[None], Callable[[], None]]] = field(default_factory=deque)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to read."""
        self._thread = threading.Thread(target=self._read, name="headrace-kafka", daemon=True)
        self._thread.start()

    def interrupt(self) -> None:
        """End :meth:`take`, and the thread after its present poll. Thread-safe."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def close(self) -> None:
        """Return once the thread does not use the client any more."""
        self.interrupt()
        if self._thread is not None:
            self._thread.join()

    def ask(self, question: Callable[[], None]) -> Future[None]:
        """Call a function that uses the client, on the thread that polls, between two polls.

        The future is cancelled if the thread has ended.
        """
        asked: Future[None] = Future()
        with self._changed:
            if self._closed or self._has_ended():
                asked.cancel()
            else:
                self._asked.append((asked, question))
                self._changed.notify_all()
        return asked

    def take(self, most: int) -> Arrived:
        """Return what has arrived; nothing if that is so for a while.

        At most ``most`` messages. What is said after messages is returned with the last of them.
        """
        if self._taken is not None:
            self._landed = self.clock()
            self._took, self._taken = self._landed - self._taken, None
        with self._changed:
            self._changed.wait_for(self._has_any, _IDLE_SECONDS)
            gathered = gathered_by(self._arrived, self._landed, self._took)
            while not self._has_enough(most) and (left := gathered - self.clock()) > 0:
                self._changed.wait(left)
            messages, self._messages = self._messages.divided(most)
            self._bytes = self._messages.bytes
            self._taken = self.clock() if len(messages) else None
            self._changed.notify_all()
            if self._raised is not None and not len(messages):
                raise self._raised
            if len(self._messages) or self._raised is not None:
                return Arrived(messages)
            ends, self._ends = self._ends, {}
            return Arrived(messages, ends, self._failed)

    @property
    def is_backlog(self) -> bool:
        """Whether many messages wait to be taken."""
        return len(self._messages) >= _BACKLOG

    def _has_ended(self) -> bool:
        return self._closed or self._failed is not None or self._raised is not None

    def _has_any(self) -> bool:
        return bool(len(self._messages) or self._ends) or self._has_ended()

    def _has_enough(self, most: int) -> bool:
        return len(self._messages) >= most or not self._has_room() or self._has_ended()

    def _has_room(self) -> bool:
        return len(self._messages) < _MOST_WAITING and self._bytes < _MOST_BYTES

    def _read(self) -> None:
        try:
            while self._answer() and not self._has_ended():
                arrived = self.consume()
                with self._changed:
                    if not len(self._messages):
                        self._arrived = self.clock()
                    self._messages.add_all(arrived.messages)
                    self._bytes += arrived.messages.bytes
                    self._ends.update(arrived.ends)
                    self._failed = arrived.failed
                    if self._has_any():
                        self._changed.notify_all()
        except Exception as error:  # noqa: BLE001 - it is raised where messages are taken
            self._raised = error
        with self._changed:
            self._changed.notify_all()
            for asked, _ in self._asked:
                asked.cancel()

    def _answer(self) -> bool:
        """Answer what was asked until there is room for messages; return whether there is."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._asked or self._has_room())
                if self._closed or not self._asked:
                    return not self._closed
                asked, question = self._asked.popleft()
            try:
                question()
            except Exception as error:  # noqa: BLE001 - it is raised to who has asked
                asked.set_exception(error)
            else:
                asked.set_result(None)


def gathered_by(arrived: float, landed: float, took: float) -> float:
    """Return until when messages are gathered, by when the first of them arrived.

    ``took`` is how long it took to land the last part, until ``landed``. Landing takes no more than
    half of the time, and what arrives together, from several partitions, is landed together, not in
    two parts, the second of them waiting for the first.
    """
    pause = min(took, _LONGEST_GATHER_SECONDS)
    return max(arrived + pause / 2, landed + pause)
