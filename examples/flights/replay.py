"""Replaying events into a database at a steady pace, and following its views as they change."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa

from headrace import Change, Database, Subscription

_INSERTS_PER_SECOND = 8
_MOST_PENDING = 80_000


@dataclass
class Mirror:
    """A copy of a view in this process: its contents once, and from then on its changes."""

    subscription: Subscription
    rows: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    recent: deque[Change] = field(default_factory=lambda: deque(maxlen=50))

    def poll(self, timeout: float = 0) -> bool:
        """Apply what has changed since the last call; say whether there was a new epoch."""
        changes = self.subscription.poll(timeout)
        for change in changes or ():
            row = tuple(change.row.values())
            self.rows[row] += change.weight
            if self.rows[row] == 0:
                del self.rows[row]
            self.recent.append(change)
        return changes is not None


class Replay:
    """Inserts events into a stream, and times how long it takes until views have taken them in.

    It keeps a mirror of each of ``views``. They may be read while holding ``lock``.
    """

    def __init__(self, db: Database, stream: str, events: pa.Table, views: Sequence[str]) -> None:
        self.db = db
        self.stream = stream
        self.events = events
        self.mirrors = {view: Mirror(db.subscribe(view)) for view in views}
        self.lock = threading.Lock()
        self.sent = 0
        self.readable = 0
        self.delays: list[float] = []
        self._unread: deque[tuple[int, float]] = deque()
        self._begun = self._last = time.perf_counter()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="follower", daemon=True)

    def run(self, seconds: float) -> Iterator[float]:
        """Insert all events in about so many seconds; after each part, yield the share that is in.

        Where the views cannot follow it waits, so that only so many events are pending.
        """
        total = self.events.num_rows
        parts = max(1, round(seconds * _INSERTS_PER_SECOND))
        size = -(-total // parts)
        self._begun = time.perf_counter()
        for part in range(-(-total // size)):
            due = self._begun + part / _INSERTS_PER_SECOND
            time.sleep(max(0.0, due - time.perf_counter()))
            while self.db.pending() > _MOST_PENDING:
                time.sleep(0.05)
            self.sent += self.db.insert(self.stream, self.events.slice(self.sent, size))
            self._unread.append((self.sent, time.perf_counter()))
            yield self.sent / total
        self.db.flush()
        while self.readable < self.sent:  # the follower hears of the last epoch a little later
            time.sleep(0.01)

    @property
    def rate(self) -> float:
        """Events per second that all views have taken in."""
        return self.readable / max(self._last - self._begun, 0.001)

    @property
    def last_delay(self) -> float:
        """Seconds from the last insert that is readable until it was."""
        return self.delays[-1] if self.delays else 0.0

    @property
    def median_delay(self) -> float:
        """The same, of all inserts."""
        return statistics.median(self.delays) if self.delays else 0.0

    @property
    def epoch(self) -> int:
        """The last epoch that has been delivered."""
        return max(mirror.subscription.epoch or 0 for mirror in self.mirrors.values())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()
        for mirror in self.mirrors.values():
            mirror.subscription.close()

    def _follow(self) -> None:
        first, *others = self.mirrors.values()
        while not self._closed.is_set():
            with self.lock:
                for mirror in others:
                    mirror.poll()
            if first.poll(timeout=0.2):
                self._took_in()

    def _took_in(self) -> None:
        """Take note of an epoch: what is no longer pending is readable now."""
        now, sent = time.perf_counter(), self.sent
        readable = sent - self.db.pending()
        if readable > self.readable:
            self.readable, self._last = readable, now
        while self._unread and self._unread[0][0] <= self.readable:
            self.delays.append(now - self._unread.popleft()[1])
