"""Feeds: external sources that land in logs for as long as the database is open.

Each has a thread of its own, so one that is slow or broken delays no other. A feed that fails for a
reason that may pass tries again, ever less often; one that cannot go on by itself stops with its
error. Either way it continues where its last part ended.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.types import RelationId

_RETRY_SECONDS = 1.0
_LONGEST_RETRY_SECONDS = 60.0


class FeedState(StrEnum):
    """What a feed does now."""

    STARTING = "starting"
    RUNNING = "running"
    RETRYING = "retrying"
    STOPPED = "stopped"
    FINISHED = "finished"


class Landing(Protocol):
    """Lands what a source gives: parts in the log of one relation, or moments in several logs."""

    @property
    def position(self) -> Mapping[Any, Any] | None:
        """Where the source continues; None at its beginning."""
        ...

    def take(self, part: Any) -> None:
        """Land a part or a moment durably."""
        ...


class Opened(Protocol):
    """A source that gives what its landing takes; see :class:`LiveSource`."""

    def parts(self, position: Any) -> Iterator[Any]:
        """Yield what follows a position."""
        ...

    def close(self) -> None:
        """Have :meth:`parts` end soon; may be called on another thread."""
        ...


@dataclass(slots=True)
class Feed:
    """Lands one source in the log of one relation, or of several, until it is closed.

    ``open_source`` is called for each attempt. ``behind`` is how many messages the source has that
    have not been landed, as far as it knows; ``read_at`` when it last answered, in Unix seconds.
    """

    ingest: Landing
    open_source: Callable[[], Opened]
    state: FeedState = FeedState.STARTING
    error: HeadraceError | None = None
    behind: int | None = None
    read_at: float | None = None
    _begun: threading.Event = field(default_factory=threading.Event)
    _source: Opened | None = None
    _closed: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self, name: str) -> None:
        """Begin to land the source, on a thread."""
        self._thread = threading.Thread(target=self._run, name=f"headrace-{name}", daemon=True)
        self._thread.start()

    def wait_begun(self, seconds: float) -> None:
        """Wait until the first part was landed, so that it is known where the source begins.

        Not longer than some seconds, and not for a source that fails.
        """
        self._begun.wait(seconds)

    def end(self) -> None:
        """Stop after the current part, without waiting for that."""
        self._closed.set()
        source = self._source
        if source is not None:
            source.close()

    def close(self) -> None:
        """Stop after the current part, and return once it has been landed."""
        self.end()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        wait = _RETRY_SECONDS
        while not self._closed.is_set():
            try:
                self._land()
            except HeadraceError as error:
                failure = error
            except Exception as error:  # noqa: BLE001 - it is shown, and must not end unseen
                failure = HeadraceError(
                    Code.INTERNAL, "a source failed", detail=f"{type(error).__name__}: {error}."
                )
            else:
                if not self._closed.is_set():
                    self.state, self.error = FeedState.FINISHED, None
                self._begun.set()
                return
            if self.state is FeedState.RUNNING:
                wait = _RETRY_SECONDS
            self.error = failure
            self._begun.set()
            if failure.code is not Code.UNAVAILABLE:
                self.state = FeedState.STOPPED
                return
            self.state = FeedState.RETRYING
            self._closed.wait(wait)
            wait = min(2 * wait, _LONGEST_RETRY_SECONDS)

    def _land(self) -> None:
        """Land parts until the feed is closed."""
        self._source = source = self.open_source()
        if self._closed.is_set():
            return
        for part in source.parts(self.ingest.position):
            self._take(part)
            if self._closed.is_set():
                return

    def _take(self, part: Any) -> None:
        self.ingest.take(part)
        self.state, self.error, self.read_at = FeedState.RUNNING, None, time.time()
        self._begun.set()
        self.behind = None if part.total is None else max(0, part.total - part.done)


@dataclass(slots=True)
class Feeds:
    """The feeds of one database: by the relation in whose log each lands, or by their source."""

    by_relation: dict[RelationId, Feed] = field(default_factory=dict)
    by_source: dict[str, Feed] = field(default_factory=dict)
    """The feeds that land in several logs."""

    def add(self, relation: RelationId, name: str, feed: Feed) -> None:
        """Begin a feed."""
        self.by_relation[relation] = feed
        feed.start(name)

    def share(self, source: str, feed: Feed | None) -> None:
        """Begin the feed of a source of several relations, in place of a former one.

        With None, only end it.
        """
        former = self.by_source.pop(source, None)
        if former is not None:
            former.close()
        if feed is not None:
            self.by_source[source] = feed
            feed.start(source)

    def forget(self, relation: RelationId) -> None:
        """End the feed of a relation, if it has one."""
        feed = self.by_relation.pop(relation, None)
        if feed is not None:
            feed.close()

    def close(self) -> None:
        """End all feeds, side by side."""
        for feed in (*self.by_relation.values(), *self.by_source.values()):
            feed.end()
        for relation in list(self.by_relation):
            self.forget(relation)
        for source in list(self.by_source):
            self.share(source, None)
