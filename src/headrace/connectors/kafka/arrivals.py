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
    from collections.abc import Callable, Mapping, Sequence

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

    @classmethod
    def joined(cls, several: Sequence[Arrived]) -> Arrived:
        """Return what has arrived in several polls, one after another."""
        if len(several) == 1:
            return several[0]
        ends = {place: end for each in several for place, end in each.ends.items()}
        failed = several[-1].failed if several else None
        return cls(Batch.joined([each.messages for each in several]), ends, failed)

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return bool(len(self.messages) or self.ends) or self.failed is not None


@dataclass(slots=True)
class Arrivals:
    """Reads messages on a thread of its own from when it is started until it is closed.

    ``consume`` waits for messages, for a short time, and returns those that have arrived. ``clock``
    returns seconds.
    """

    consume: Callable[[], Arrived]
    clock: Callable[[], float] = time.monotonic
    _waiting: deque[Arrived] = field(default_factory=deque)
    """What polls have returned and nobody has taken."""
    _messages: int = 0
    _bytes: int = 0
    """How many messages these are, and the size of their values."""
    _most: int = _MOST_WAITING
    """How many messages who takes them wants at most."""
    _failed: bool = False
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

        What a poll has returned is taken as a whole: at most ``most`` messages, or those of one
        poll.
        """
        if self._taken is not None:
            self._landed = self.clock()
            self._took, self._taken = self._landed - self._taken, None
        with self._changed:
            self._most = most
            self._changed.wait_for(self._has_any, _IDLE_SECONDS)
            gathered = gathered_by(self._arrived, self._landed, self._took)
            while not self._has_enough() and (left := gathered - self.clock()) > 0:
                self._changed.wait(left)
            taken: list[Arrived] = []
            count = 0
            while self._waiting:
                more = len(self._waiting[0].messages)
                if taken and count + more > most:
                    break
                count += more
                taken.append(self._waiting.popleft())
            self._messages -= count
            self._bytes -= sum(each.messages.bytes for each in taken)
            self._taken = self.clock() if count else None
            self._changed.notify_all()
        if self._raised is not None and not taken:
            raise self._raised
        return Arrived.joined(taken)

    @property
    def is_backlog(self) -> bool:
        """Whether many messages wait to be taken."""
        return self._messages >= _BACKLOG

    def _has_ended(self) -> bool:
        return self._closed or self._failed or self._raised is not None

    def _has_any(self) -> bool:
        return bool(self._waiting) or self._has_ended()

    def _has_enough(self) -> bool:
        return self._messages >= self._most or not self._has_room() or self._has_ended()

    def _has_room(self) -> bool:
        return self._messages < _MOST_WAITING and self._bytes < _MOST_BYTES

    def _read(self) -> None:
        try:
            while self._answer() and not self._has_ended():
                arrived = self.consume()
                if not arrived:
                    continue
                size = arrived.messages.bytes
                with self._changed:
                    if not self._messages:
                        self._arrived = self.clock()
                    first = not self._waiting
                    self._waiting.append(arrived)
                    self._messages += len(arrived.messages)
                    self._bytes += size
                    self._failed = arrived.failed is not None
                    if first or self._has_enough():  # who gathers need not know of each poll
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
