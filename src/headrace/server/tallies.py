"""Counts of requests by operation and outcome, summed over processes."""

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
