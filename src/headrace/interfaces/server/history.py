"""How the database did over a day, at falling resolution, across restarts.

Samples of a second are summed up in spans of 5 seconds, a minute and 10 minutes. The ledger keeps
each for a while: a bounded number of small rows. They are stored some seconds late, all in one
transaction; while nothing happens, once a minute.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from headrace.errors import HeadraceError
from headrace.storage.ledger import StatusSpan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


_log = logging.getLogger(__name__)

RUNGS: Final[Mapping[int, int]] = {5: 900, 60: 4 * 3600, 600: 2 * 86400}
"""How long spans of so many seconds are kept, in seconds."""
_STORE_SECONDS: Final = 10
_IDLE_SECONDS: Final = 60
"""The interval of storing while nothing happens."""
_MOST_UNSTORED: Final = 1000
"""How many spans wait for a ledger that does not answer."""
_SUMS: Final = ("epochs", "narrow")
_MOST: Final = ("pending", "seconds", "statements", "subscribers")
_LAST: Final = ("epoch", "committed_at")


@dataclass(frozen=True, slots=True)
class StatusSample:
    """The state of the database in one second.

    ``epochs`` were committed, in ``epoch_seconds`` each on average; ``narrow`` of them ran in this
    process, and not as Spark jobs. ``rows`` were appended to logs per second; None in the first
    sample. ``views`` has, by name, the number of changes that a view does not show yet, and the
    seconds that the oldest has waited. ``seconds`` is the maximum wait of the running views that
    are maintained in every epoch.
    """

    at: float
    epoch: int
    committed_at: float
    epochs: int
    narrow: int
    epoch_seconds: float | None
    rows: float | None
    pending: int
    seconds: float
    statements: int
    subscribers: int
    views: dict[str, tuple[int | None, float]]
    sources: dict[str, int]
    """The ends of the logs of streams and tables."""
    rates: dict[str, float] = field(default_factory=dict)
    """The changes per second of streams and tables since the sample before."""
    error: str | None = None
    """Why no epochs are made; None if they are made."""


class StoredSpans(Protocol):
    """Where spans are kept."""

    def since(self, seconds: int, at: float) -> Sequence[StatusSpan]:
        """Return the spans of so many seconds that end after a time, oldest first."""

    def put(self, spans: Sequence[StatusSpan], oldest: Mapping[int, float]) -> None:
        """Store spans, and delete those that ended before the oldest time of their length."""


def first(at: int) -> dict[str, Any]:
    """Return the figures of a span before its first sample."""
    return {
        "until": float(at),
        "samples": 0,
        "took": 0.0,
        "appended": 0.0,
        **dict.fromkeys((*_SUMS, *_MOST, *_LAST), 0),
        "views": {},
        "sources": {},
    }


def added(figures: dict[str, Any], sample: StatusSample, passed: float) -> dict[str, Any]:
    """Return the figures of a span with those of a sample, ``passed`` seconds after the last one.

    A view is there if changes waited for it, with the most of them and the longest wait; a source
    if it took changes, with their number.
    """
    views = dict(figures["views"])
    for name, (pending, seconds) in sample.views.items():
        if pending or seconds:
            before = views.get(name, (0, 0.0))
            views[name] = [max(before[0], pending or 0), max(before[1], seconds)]
    sources = dict(figures["sources"])
    for name, rate in sample.rates.items():
        if rate:
            sources[name] = sources.get(name, 0) + rate * passed
    return {
        **figures,
        "until": sample.at,
        "samples": figures["samples"] + 1,
        "took": figures["took"] + (sample.epoch_seconds or 0.0) * sample.epochs,
        "appended": figures["appended"] + (sample.rows or 0.0) * passed,
        **{name: figures[name] + getattr(sample, name) for name in _SUMS},
        **{name: max(figures[name], getattr(sample, name)) for name in _MOST},
        **{name: getattr(sample, name) for name in _LAST},
        "views": views,
        "sources": sources,
    }


def _is_idle(figures: Mapping[str, Any]) -> bool:
    return not (figures["epochs"] or figures["appended"] or figures["pending"])


@dataclass(slots=True)
class StatusHistory:
    """Sums samples up, stores the sums, and reads them back. Thread-safe."""

    stored: StoredSpans
    _open: dict[int, StatusSpan] = field(default_factory=dict)
    """The span of each length that has not ended."""
    _unstored: list[StatusSpan] = field(default_factory=list)
    """Spans that have ended since the last time that some were stored."""
    _stored_at: float | None = None
    _sampled_at: float | None = None
    _failed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, sample: StatusSample) -> None:
        """Add a sample; store what has come together, if it is time for that."""
        with self._lock:
            if self._stored_at is None:
                self._stored_at = sample.at
                self._resume(sample.at)
            passed = 0.0 if self._sampled_at is None else max(0.0, sample.at - self._sampled_at)
            self._sampled_at = sample.at
            for seconds in RUNGS:
                at = int(sample.at // seconds * seconds)
                known = self._open.get(seconds)
                if known is not None and known.at != at:
                    self._unstored.append(known)
                    known = None
                figures = first(at) if known is None else dict(known.figures)
                self._open[seconds] = StatusSpan(seconds, at, added(figures, sample, passed))
            late = sample.at - self._stored_at
            idle = all(_is_idle(each.figures) for each in self._unstored)
            if late >= (_IDLE_SECONDS if idle else _STORE_SECONDS):
                self._store(sample.at)

    def close(self) -> None:
        """Store what has not been stored."""
        with self._lock:
            if self._sampled_at is not None:
                self._store(self._sampled_at)

    def since(self, seconds: int, at: float) -> list[StatusSpan]:
        """Return the spans of a length of :data:`RUNGS` that end after a time, oldest first."""
        with self._lock:
            found = {each.at: each for each in self.stored.since(seconds, at)}
            own = (*self._unstored, *self._open.values())
            found |= {e.at: e for e in own if e.seconds == seconds and e.at > at - seconds}
        return [found[each] for each in sorted(found)]

    def _resume(self, at: float) -> None:
        """Go on with the spans that an earlier process has begun."""
        try:
            for seconds in RUNGS:
                begin = int(at // seconds * seconds)
                for span in self.stored.since(seconds, begin + seconds - 1):
                    if span.at == begin:
                        self._open[seconds] = span
        except HeadraceError as error:
            _log.warning("the history cannot be read: %s", error.primary)

    def _store(self, now: float) -> None:
        spans = [*self._unstored, *self._open.values()]
        self._stored_at = now
        try:
            self.stored.put(spans, {seconds: now - kept for seconds, kept in RUNGS.items()})
        except HeadraceError as error:
            if not self._failed:
                _log.warning("the history cannot be stored: %s", error.primary)
            self._failed = True
            del self._unstored[:-_MOST_UNSTORED]
            return
        self._failed = False
        self._unstored.clear()


def rung(seconds: float) -> int:
    """Return the length of the shortest spans that are kept for so many seconds."""
    return next((each for each, kept in RUNGS.items() if seconds <= kept), max(RUNGS))


def totals(spans: Iterable[StatusSpan], names: Sequence[str]) -> dict[str, list[Any]]:
    """Return the figures of spans as those of samples, a list for each name."""
    listed = [_as_sample(each.figures, each.at) for each in spans]
    return {name: [each[name] for each in listed] for name in names}


def _as_sample(figures: Mapping[str, Any], begin: int) -> dict[str, Any]:
    epochs, passed = figures["epochs"], max(1.0, figures["until"] - begin)
    return {
        **figures,
        "at": figures["until"],
        "epoch_seconds": figures["took"] / epochs if epochs else None,
        "rows": figures["appended"] / passed,
    }


def of_relation(spans: Iterable[StatusSpan], name: str) -> dict[str, list[Any]]:
    """Return the figures of a relation in spans: changes that waited, and rows a second."""
    found: dict[str, list[Any]] = {"pending": [], "seconds": [], "rows": [], "end": []}
    for each in spans:
        pending, seconds = each.figures["views"].get(name, (0, 0.0))
        passed = max(1.0, each.figures["until"] - each.at)
        found["pending"].append(pending)
        found["seconds"].append(seconds)
        found["rows"].append(each.figures["sources"].get(name, 0) / passed)
        found["end"].append(None)
    return found
