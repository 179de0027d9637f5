"""The limits of a server: each is finite.

Counts of requests by operation and outcome, summed over processes.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.core import Metric


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one server."""

    sql_bytes: int = 1 << 20
    """The maximum bytes of a request with SQL."""
    rows_bytes: int = 64 << 20
    """The maximum bytes of a request with rows, which is appended as a whole from memory."""
    body_seconds: float = 60.0
    """How long a request's body may take to arrive, plus one second per 64 KiB."""
    held_bytes: int = 256 << 20
    """The maximum bytes of such requests in memory at a time; further ones are refused."""
    statement_seconds: float = 60.0
    """The default timeout of a statement."""
    longest_seconds: float = 3600.0
    """The maximum timeout that a request may set."""
    json_rows: int = 100_000
    """The maximum rows of a JSON document, which is built in memory; other formats are streamed."""
    result_bytes: int = 1 << 30
    """The maximum bytes of a result, as Arrow."""
    statements: int = 16
    """The number of statements that run concurrently."""
    lookups: int = 8
    """The number of lookups that run concurrently beside them, so that none waits for a write."""
    queued: int = 64
    """The number of statements that may wait; further ones are refused."""
    sessions: int = 256
    idle_seconds: float = 600.0
    """The idle time after which a session ends."""
    logins: int = 1000
    """The maximum number of browser logins; another one ends the login that was idle longest."""
    login_seconds: float = 12 * 3600.0
    """The idle time after which a login ends."""
    subscribers: int = 2000
    followed: int = 64
    """The maximum number of different views and queries that are followed."""
    lag_bytes: int = 4 << 20
    """The maximum bytes queued for a subscriber; beyond, the changes are read from storage."""
    lag_seconds: float = 30.0
    """The time without progress after which a subscriber is disconnected."""


BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
"""The upper bounds of the histogram's buckets in seconds; the last bucket is unbounded."""


@dataclass(slots=True)
class RequestTally:
    """A histogram of the durations of requests, by bucket of :data:`BOUNDS`, and their sum."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    seconds: float = 0.0

    @property
    def count(self) -> int:
        """The number of requests."""
        return sum(self.buckets)

    def observe(self, seconds: float) -> None:
        """Count a request."""
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds

    def add(self, other: RequestTally) -> None:
        """Count the requests of another tally."""
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]
        self.seconds += other.seconds


class Tallies(Collector):
    """A histogram per operation and outcome, as metrics. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_kind: dict[tuple[str, str], RequestTally] = {}

    def observe(self, operation: str, outcome: str, seconds: float) -> None:
        """Count a request."""
        with self._lock:
            self._tally(operation, outcome).observe(seconds)

    def add(self, counted: Mapping[tuple[str, str], RequestTally]) -> None:
        """Count the requests that another process has counted."""
        with self._lock:
            for (operation, outcome), tally in counted.items():
                self._tally(operation, outcome).add(tally)

    def taken(self) -> dict[tuple[str, str], RequestTally]:
        """Return what was counted since the last call, and reset the counts."""
        with self._lock:
            counted, self._by_kind = self._by_kind, {}
            return counted

    def _tally(self, operation: str, outcome: str) -> RequestTally:
        known = self._by_kind.get((operation, outcome))
        if known is None:
            known = self._by_kind[operation, outcome] = RequestTally()
        return known

    def collect(self) -> Iterator[Metric]:
        """Yield the histogram of requests."""
        requests = CounterMetricFamily(
            "headrace_requests",
            "Requests, by operation and outcome: ok, or the code of the error.",
            labels=("operation", "outcome"),
        )
        seconds = HistogramMetricFamily(
            "headrace_request_seconds",
            "Seconds until a request was answered, or its answer began to be sent.",
            labels=("operation",),
        )
        by_operation: dict[str, RequestTally] = {}
        with self._lock:
            for (operation, outcome), tally in self._by_kind.items():
                requests.add_metric((operation, outcome), tally.count)
                by_operation.setdefault(operation, RequestTally()).add(tally)
        for operation, tally in by_operation.items():
            names = [*map(floatToGoString, BOUNDS), "+Inf"]
            counts = accumulate(tally.buckets)
            seconds.add_metric((operation,), list(zip(names, counts, strict=True)), tally.seconds)
        yield requests
        yield seconds
