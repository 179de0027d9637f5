"""Feeds: external sources that land in logs for as long as the database is open.

Each has a thread of its own, so one that is slow or broken delays no other. A feed that fails for a
reason that may pass tries again, ever less often; one that cannot go on by itself stops with its
error. Either way it continues where its last part ended.

Land an external source in the log: its position enters the ledger together with its segment.

What was appended and where the source continues are one transaction, so each change counts once,
whatever is interrupted. The log's offsets are the only ones that views know.

Land several relations together: what a source gives them at one moment, all or nothing.

Each relation has a position of its own, which is stored with its rows; where a moment has
no part of a relation, its position stays. The ledger learns of all in one transaction, so no reader
sees a part of it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import AppendRecord, LoadProgress
from headrace.storage.log import Append

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from headrace.execution.runtime.ports import AppendRows, Moment, Part
    from headrace.storage.ledger import Ledger, SegmentFile
    from headrace.types import Offset, RelationId


_ROWS, _PARTS = "rows", "parts"


@dataclass(slots=True)
class Ingest:
    """One source being landed in the log of one relation.

    ``source`` identifies it among all that were ever landed there. ``rows`` and ``parts`` count
    what it has led to since its beginning; ``landed`` and ``rejected`` only since this object was
    made.
    """

    append: AppendRows
    source: str
    position: Mapping[str, Any] | None = None
    """Where the source continues; None at its beginning."""
    rows: int = 0
    parts: int = 0
    landed: int = 0
    rejected: int = 0

    @classmethod
    def of(cls, ledger: Ledger, relation: RelationId, source: str, append: AppendRows) -> Ingest:
        """Return the ingest of a source, which continues where its last part ended."""
        known = ledger.loads.progress(relation, source)
        if known is None:
            return cls(append, source)
        kept = {key: value for key, value in known.progress.items() if key not in (_ROWS, _PARTS)}
        # Loads from before parts were counted have made one.
        rows, parts = known.progress.get(_ROWS, 0), known.progress.get(_PARTS, 1)
        return cls(append, source, kept, rows, parts)

    def take(self, part: Part) -> None:
        """Land a part that has whole rows, unless it says nothing new."""
        if part.rows.num_rows or part.rejects or part.notes or part.position != self.position:
            self.land(part, part.rows)

    def land(self, part: Part, changes: pa.Table) -> Offset:
        """Append one part durably: its changes, rejects and position; return the log's end."""
        rows, parts = self.rows + changes.num_rows, self.parts + 1
        progress = {**part.position, _ROWS: rows, _PARTS: parts}
        load = LoadProgress(self.source, progress, notes=part.notes)
        end = self.append(changes, load=load, rejects=part.rejects)
        self.rows, self.parts, self.position = rows, parts, part.position
        self.landed += changes.num_rows
        self.rejected += len(part.rejects)
        return end

    def finish(self, nothing: pa.Table) -> Offset:
        """Record that the source has ended; ``nothing`` has the columns of changes, and no rows."""
        ended = LoadProgress(self.source, dict(self.position or {}), finished=True)
        return self.append(nothing, load=ended, rejects=())


class JointLog(Protocol):
    """Where several relations are landed."""

    def stage(self, rows: pa.Table) -> SegmentFile:
        """Write rows durably, without the ledger."""
        ...

    def land_together(self, staged: Sequence[AppendRecord], appends: Sequence[Append]) -> None:
        """Append what was staged and further changes, with positions, all or nothing."""
        ...


@dataclass(slots=True)
class JointIngest:
    """A source of several relations being landed; ``source`` identifies it.

    What is staged of a moment that is never whole is named by no ledger, and is deleted when the
    database is opened.
    """

    log: JointLog
    ledger: Ledger
    source: str
    position: dict[RelationId, Mapping[str, Any] | None]
    """Where each relation continues; None at its beginning."""
    _staged: list[AppendRecord] = field(default_factory=list)

    @classmethod
    def of(
        cls, log: JointLog, ledger: Ledger, source: str, relations: Iterable[RelationId]
    ) -> JointIngest:
        """Return the ingest of a source, which continues where the last moment ended."""
        known = {relation: ledger.loads.progress(relation, source) for relation in relations}
        return cls(
            log,
            ledger,
            source,
            {id_: None if load is None else load.progress for id_, load in known.items()},
        )

    def begin(self) -> None:
        """Forget what was staged: the source begins its moment again."""
        self._staged.clear()

    def take(self, moment: Moment) -> None:
        """Land a moment, or keep it aside if it is not whole.

        Relations that were dropped meanwhile are left out.
        """
        if not moment.whole:
            for relation, part in moment.parts:
                segment = self.log.stage(part.rows) if part.rows.num_rows else None
                self._staged.append(AppendRecord(relation, segment, None, (), part.rejects))
            return
        staged = list(self._staged)
        self._staged.clear()
        appends = [self._append(relation, part) for relation, part in moment.parts]
        while True:
            known = self.ledger.head.ends
            staged = [each for each in staged if each.relation in known]
            appends = [each for each in appends if each.relation in known]
            if not appends:
                break
            try:
                self.log.land_together(staged, appends)
            except HeadraceError as error:
                there = self.ledger.head.ends
                dropped = any(each.relation not in there for each in appends)
                if error.code is not Code.CONFLICT or not dropped:
                    raise
            else:
                break
        self.position |= {relation: part.position for relation, part in moment.parts}

    def _append(self, relation: RelationId, part: Part) -> Append:
        load = LoadProgress(self.source, dict(part.position), notes=part.notes)
        return Append(relation, part.rows, load, None, part.rejects)


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
