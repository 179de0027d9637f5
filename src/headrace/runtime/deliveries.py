"""Deliver changelogs of views to sinks: independently, by whole epochs, from a stored position.

A delivery begins with the rows at an epoch and continues with the changes of every epoch after it,
in parts, so that its memory does not depend on how much there is to deliver. Its position is stored
after each write, in the transaction that keeps the rows that were refused. If a crash between the
two makes a writer receive changes again, they are the same; a target that records epochs itself is
not given again what it has.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.ledger import DeliveryRecord, DeliveryState, EpochCommit, Reject
from headrace.runtime.ports import Counted, Idles, KeepsEpochs, KeepsRefused, lost_changes
from headrace.runtime.sink_differences import SinkDifference
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headrace.runtime.epoch import EpochLoop
    from headrace.runtime.ports import Changelog, Refused, SinkWriter
    from headrace.runtime.sink_differences import Agreement
    from headrace.types import RelationId

PART_ROWS: Final = 50_000
"""How many rows a writer is given at a time."""

_RETRY_SECONDS: Final = 1.0
_SLOW_RETRY_SECONDS: Final = 15.0
"""The first wait where somebody has to mend something, such as credentials."""
_LONGEST_RETRY_SECONDS: Final = 60.0
_QUIET_EPOCHS: Final = 32
"""After how many epochs without changes the position is stored anyway."""
_LOOKED_AT: Final = 1024
"""How many epochs are looked at together, so that a list of them stays small."""
_JOINED: Final = 64
"""How many epochs with changes are joined at most: each has files that are read together."""


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """How a sink is given changes.

    ``part_rows``: how many rows at a time, but not those of several seconds. ``rows_per_second`` is
    the most it is given; None is as fast as it takes them. ``interval``: seconds between two
    writes, whose epochs are joined; with 0 each epoch is written as it comes. ``joins``: whether
    epochs that wait are joined in any case, since the target only keeps the newest state.
    ``snapshot``: whether the rows that there are when the sink is created come first. ``stops``:
    whether a row that is refused stops it; otherwise the row is kept in the ledger.
    """

    part_rows: int = PART_ROWS
    rows_per_second: int | None = None
    interval: float = 0.0
    joins: bool = False
    snapshot: bool = True
    stops: bool = False

    @property
    def most(self) -> int:
        """How many rows a writer is given at a time."""
        pace = self.rows_per_second
        return self.part_rows if pace is None else min(self.part_rows, pace)


@dataclass(frozen=True, slots=True)
class Lag:
    """What a sink has not been given: epochs, changed rows, and the age of the oldest in seconds.

    The rows with which it begins count as changed. ``rows`` is None if they cannot be read any
    more.
    """

    epochs: int
    rows: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Writing:
    """How many rows of the changes that are being written the target has taken, of how many.

    ``epoch`` is the one up to which they are. Rows are those that are read for the changes.
    """

    epoch: Epoch
    done: int
    total: int


@dataclass(slots=True)
class Delivery:
    """Delivers to one sink. ``at`` is the last epoch durable there; None before the first.

    ``record`` is what the ledger has of it; ``error`` is the error of the last attempt, None if it
    succeeded; ``refused`` is how many rows the target has refused.
    """

    loop: EpochLoop
    record: DeliveryRecord
    changelog: Changelog
    writer: SinkWriter
    settings: DeliverySettings = field(default_factory=DeliverySettings)
    at: Epoch | None = None
    error: HeadraceError | None = None
    refused: int = 0
    writing: Writing | None = None
    """How far the write at hand is; None if nothing is being written."""
    _resumed: bool = False
    _first: bool = False
    """Whether the next write may be one that has failed before."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _asked: int = 0
    """How many statements wait for the lock: a wait ends, and a write after the part at hand."""
    _statements: int = 0
    """How many statements there were: after one, what failed is tried again at once."""
    _closed: bool = False
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        """Resume at the stored position; keep the epochs that are not delivered yet."""
        self.at = self.record.delivered
        self.refused = self.loop.ledger.rejects.count(self.sink)
        self.loop.held[self.sink] = self.record.held

    @property
    def sink(self) -> RelationId:
        """The sink."""
        return self.record.sink

    @property
    def state(self) -> str:
        """``running``, ``failing``, ``paused`` or ``stopped``."""
        if self.record.state is DeliveryState.RUNNING and self.error is not None:
            return "failing"
        return self.record.state.value

    @property
    def retries(self) -> bool:
        """Whether it has failed, and tries again in the background."""
        return self._thread is not None and self.error is not None

    @property
    def lag(self) -> Lag:
        """What has not been delivered yet."""
        ledger, last = self.loop.ledger, self.loop.published.current.epoch
        at, writing, begins = self.at, self.writing, self.record.begins
        taken = 0
        if writing is not None and (at is None or writing.epoch > at):
            taken = writing.done
        if at is None:
            first = self._rows_first()
            rows = self.changelog.rows_changed(begins, last)
            seconds = max(0.0, time.time() - ledger.epochs.committed_at(begins))
            left = None if first is None else max(0, first + rows - taken)
            return Lag(last - begins + 1, left, seconds)
        if at >= last:
            return Lag(0, 0, 0.0)
        rows = self.changelog.rows_changed(at, last)
        oldest = ledger.epochs.committed_at(Epoch(at + 1))
        seconds = max(0.0, time.time() - oldest) if rows else 0.0
        return Lag(last - at, max(0, rows - taken), seconds)

    def _rows_first(self) -> int | None:
        """Return how many rows the sink begins with; None if they cannot be read any more."""
        if not self.settings.snapshot:
            return 0
        try:
            return self.changelog.rows_at(self.record.begins)
        except HeadraceError:
            return None

    def advance(self) -> bool:
        """Deliver everything up to the last epoch; return whether anything was written.

        Nothing is done while the sink is paused or has stopped.

        Raises:
            HeadraceError: the writer's error; ``error`` keeps it until a delivery succeeds.
        """
        with self._lock:
            if self.record.state is not DeliveryState.RUNNING:
                return False
            try:
                written = self._deliver()
            except (OSError, pa.ArrowException) as error:
                self._resumed = False
                self.error = HeadraceError(
                    Code.UNAVAILABLE, "a sink cannot be written to", detail=f"{error}."
                )
                raise self.error from error
            except HeadraceError as error:
                self._resumed = False  # what was begun may have been completed there
                self.error = None if error.code is Code.CANCELLED else error
                raise
            self.error = None
            return written

    def _deliver(self) -> bool:
        written = self._deliver_upto(self.loop.published.current.epoch)
        if not written and isinstance(self.writer, Idles):
            self.writer.idle()
        return written

    def _deliver_upto(self, last: Epoch) -> bool:
        written = False
        self._resume()
        if self.at is None:
            if self.settings.snapshot:
                rows = self.changelog.snapshot(self.record.begins, self.settings.most)
                self._write(self.record.begins, rows)
                written = True
                if self.record.state is DeliveryState.STOPPED:
                    return True
            else:
                self._store(self.record.begins)
        while self.at is not None and self.at < last:
            upto = Epoch(min(last, self.at + _LOOKED_AT))
            for epoch in self._steps(self.changelog.changed(self.at, upto)):
                if self._joins and epoch != self.record.writing:
                    self._put(replace(self.record, writing=epoch))
                parts = self.changelog.delta(self.at, epoch, self.settings.most)
                rest = iter(parts)
                first = next(rest, None)
                if first is None:  # the changes of joined epochs cancel
                    self._store(epoch)
                    continue
                self._write(epoch, parts, chain([first], rest))
                written = True
                if self.record.state is DeliveryState.STOPPED:
                    return True
            self.at = upto
            if upto - (self.record.delivered or 0) >= _QUIET_EPOCHS:
                self._store(upto)
        return written

    def _resume(self) -> None:
        """Before the first write: begin anew if that was asked for, or where the target stands."""
        if self.record.clears:
            self.writer.clear()
            self.loop.fault("sink cleared")
            self._put(replace(self.record, clears=False))
        if self._resumed:
            return
        there = self._durable()
        if there is not None and there > self.loop.published.current.epoch:
            raise HeadraceError(
                Code.CONFLICT,
                f"the target has changes up to epoch {there}, which this database has not made",
                "The database was restored to an earlier state, or another one writes there.",
                "RESET SINK writes all rows of the view anew.",
            )
        if there is not None and there > (-1 if self.at is None else self.at):
            kept = self.writer.last_refused() if isinstance(self.writer, KeepsRefused) else ()
            self._store(there, kept, written=there)
        self._resumed = self._first = True

    def _durable(self) -> Epoch | None:
        """Return the last epoch that the target records.

        Raises:
            HeadraceError: ``conflict`` if that is an earlier one than it acknowledged.
        """
        there, written = self.writer.durable(), self.record.written
        if written is not None and self._is_lost(there) and isinstance(self.writer, KeepsEpochs):
            raise lost_changes(self.writer.target, there, written)
        return there

    def _is_lost(self, there: Epoch | None) -> bool:
        """Whether the target has acknowledged changes after those that it records."""
        written = self.record.written
        keeps = isinstance(self.writer, KeepsEpochs)
        return keeps and written is not None and (there is None or there < written)

    def _steps(self, epochs: Sequence[Epoch]) -> Sequence[Epoch]:
        """Return the epochs up to which changes are written together, of those that have any.

        What was begun before a failure comes first, up to the same epoch: among the changes up to
        another, some of those that were written may cancel.
        """
        if self._first and epochs:
            self._first = False
            begun = self.record.writing
            upto = epochs[0] if begun is None or begun not in epochs else begun
            return [upto, *self._steps([each for each in epochs if each > upto])]
        if not self._joins or not epochs:
            return epochs
        return [*epochs[_JOINED - 1 : -1 : _JOINED], epochs[-1]]

    @property
    def _joins(self) -> bool:
        return self.settings.joins or self.settings.interval > 0

    def _write(
        self,
        epoch: Epoch,
        parts: Iterable[pa.Table],
        read: Iterable[pa.Table] | None = None,
        *,
        forgets: bool = False,
    ) -> int:
        """Have changes written; return how many rows were refused. ``forgets``: see `_put`.

        ``read`` yields the parts, if it has been begun to read them.
        """
        self.loop.fault("sink")
        try:
            refused = self.writer.write(epoch, self._counted(epoch, parts, read or parts))
            self.loop.fault("sink written")
            if refused and self.settings.stops:
                self._stop(epoch, refused)
            else:
                self._store(epoch, refused, written=epoch, forgets=forgets)
        finally:
            self.writing = None
        return len(refused)

    def _counted(
        self, epoch: Epoch, parts: Iterable[pa.Table], read: Iterable[pa.Table]
    ) -> Iterator[pa.Table]:
        """Yield parts; while the next one is asked for, those before it have been taken."""
        if not isinstance(parts, Counted):
            yield from self._paced(read)
            return
        self.writing = Writing(epoch, 0, parts.total)
        for part in self._paced(read):
            upto = parts.read
            yield part
            self.writing = Writing(epoch, upto, parts.total)

    def _paced(self, parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield parts, not faster than the settings allow, until the delivery is to end."""
        pace = self.settings.rows_per_second
        begun, given = time.monotonic(), 0
        for part in parts:
            self._require_going_on()
            yield part
            given += part.num_rows
            if pace:
                self._wait(given / pace - (time.monotonic() - begun))
        self._require_going_on()

    def _require_going_on(self) -> None:
        if self._closed or self._asked:
            raise HeadraceError(Code.CANCELLED, "the delivery was interrupted")

    def _wait(self, seconds: float, statements: int | None = None) -> None:
        """Wait, until a statement or the end asks for the delivery.

        ``statements`` is how many there were when what is waited for began, by default now.
        """
        before = self._statements if statements is None else statements
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._asked or self._statements != before,
                max(0.0, seconds),
            )

    def _store(
        self,
        epoch: Epoch,
        refused: Sequence[Refused] = (),
        *,
        written: Epoch | None = None,
        forgets: bool = False,
    ) -> None:
        rejects = [
            Reject(f"epoch {epoch}", number, None, each.why, each.row)
            for number, each in enumerate(refused, 1)
        ]
        last = self.record.written if written is None else written
        record = replace(self.record, delivered=epoch, writing=None, written=last)
        self._put(record, rejects, forgets=forgets)
        self.at, self._first = epoch, False

    def _stop(self, epoch: Epoch, refused: Sequence[Refused]) -> None:
        first = refused[0]
        why = f"epoch {epoch}, {len(refused)} of its rows; the first is {first.row}: {first.why}"
        self._put(replace(self.record, state=DeliveryState.STOPPED, why=why))

    def _put(
        self, record: DeliveryRecord, rejects: Sequence[Reject] = (), *, forgets: bool = False
    ) -> None:
        """Store a record with rows that were refused; it ``forgets`` those before them."""
        self.loop.ledger.deliveries.put(record, rejects, forgets=forgets)
        self.record = record
        self.refused = len(rejects) + (0 if forgets else self.refused)
        # Hold the stored position, not the delivered one: a restart resumes there.
        self.loop.held[self.sink] = record.held

    # -- statements ------------------------------------------------------------------------

    def pause(self) -> None:
        """Deliver nothing until resumed; a write ends after the part at hand."""
        with self._interrupted():
            self._put(replace(self.record, state=DeliveryState.PAUSED))

    def resume(self) -> None:
        """Go on where the delivery was paused, or has stopped at rows that were refused."""
        with self._interrupted():
            self._put(replace(self.record, state=DeliveryState.RUNNING, why=None))
            self.error = None

    def reset(self) -> None:
        """Begin anew with the rows of the last epoch, once what was written has been removed."""
        with self._interrupted():
            begins = self.loop.published.current.epoch
            self._put(DeliveryRecord(self.sink, begins, clears=True))
            self.at, self.error, self.refused = None, None, 0

    def reconcile(
        self, columns: pa.Schema, key: Sequence[str], *, write: bool
    ) -> tuple[Epoch, Agreement]:
        """Compare the target with the view at one epoch; with ``write``, write the difference.

        What is waiting is delivered before, unless the target has lost changes. The difference is
        written under an epoch of its own, so that a target that orders changes by their epoch takes
        it, and what was refused before is forgotten: what still differs is refused again. Returns
        the epoch, and what was found before anything was written, with how many were refused.

        Raises:
            HeadraceError: ``unsupported`` if the target cannot be read; ``invalid`` if nothing was
                delivered yet, or the sink is paused or has stopped; the writer's error.
        """
        with self._interrupted():
            running = self.record.state is DeliveryState.RUNNING
            if write and not running:
                raise HeadraceError(
                    Code.INVALID, f"the sink is {self.state}", hint="RESUME SINK it first."
                )
            lost = write and self._is_lost(self.writer.durable())
            upto = self._own_epoch() if write else self.loop.published.current.epoch
            if running and not lost:
                self._deliver_upto(upto)
            at = upto if lost else self.at
            if at is None:
                raise HeadraceError(Code.INVALID, "the sink has been given nothing yet")
            stored = self.writer.stored()
            if stored is None:
                raise HeadraceError(
                    Code.UNSUPPORTED,
                    "the target cannot be read, so it cannot be compared",
                    hint="RESET SINK writes all rows of the view anew.",
                )
            view = self.changelog.snapshot(at, self.settings.most)
            place = self.loop.directory / "attempts"
            with SinkDifference.of(place, columns, key, view, stored) as difference:
                found = difference.counted()
                if lost or (write and found.differences):
                    parts = difference.parts(self.settings.most)
                    found = replace(found, refused=self._write(at, parts, forgets=True))
                elif write and self.refused:
                    self._store(at, forgets=True)
            self.error = None if running else self.error
            return at, found

    def _own_epoch(self) -> Epoch:
        """Make an epoch in which nothing changes."""
        with self.loop.exclusive():
            last = self.loop.ledger.head.epoch
            return self.loop.ledger.commit(EpochCommit(last, f"reconcile-{self.sink}"))

    def change(self, writer: SinkWriter, settings: DeliverySettings) -> None:
        """Go on with another writer to the same target, and other settings."""
        with self._interrupted():
            self.writer.close()
            self.writer, self.settings, self.error = writer, settings, None

    @contextmanager
    def _interrupted(self) -> Iterator[None]:
        """Run a block while nothing is delivered; what is being written is written again later."""
        with self._changed:
            self._asked += 1
            self._statements += 1
            self._changed.notify_all()
        with self._lock:
            with self._changed:
                self._asked -= 1
                self._changed.notify_all()
            self._resumed = False
            yield
        self.loop.published.wake()

    # -- in the background -----------------------------------------------------------------

    def start(self) -> None:
        """Deliver in the background, until closed."""
        self._thread = threading.Thread(target=self._run, name=f"sink-{self.sink}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop after the part that is being written, and release the target."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.loop.published.wake()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            self.writer.close()

    def forget(self) -> None:
        """Stop for good, and hold no epochs any more."""
        self.close()
        self.loop.held.pop(self.sink, None)

    def _run(self) -> None:
        delay = 0.0
        while not self._closed:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or not self._asked)
                statements = self._statements
            try:
                self.advance()
            except Exception as error:  # noqa: BLE001 - it is shown, and must not end the thread
                if not isinstance(error, HeadraceError):
                    self.error = HeadraceError(Code.INTERNAL, "a sink failed", detail=f"{error!r}")
                delay = self._next_delay(delay)
                wait = delay * random.uniform(0.5, 1.0)  # noqa: S311 - it spreads retries
                self._wait(wait, statements)
                continue
            delay = 0.0
            self._wait(self.settings.interval)
            self.loop.published.wait_for(self._has_work, _LONGEST_RETRY_SECONDS)

    def _next_delay(self, before: float) -> float:
        """Return how long to wait after a failure: longer each time."""
        passes = self.error is None or self.error.code is Code.UNAVAILABLE
        least = _RETRY_SECONDS if passes else _SLOW_RETRY_SECONDS
        return min(_LONGEST_RETRY_SECONDS, max(least, 2 * before))

    def _has_work(self) -> bool:
        if self._closed:
            return True
        running = self.record.state is DeliveryState.RUNNING
        return running and (self.at is None or self.at < self.loop.published.current.epoch)


@dataclass(slots=True)
class Deliveries:
    """The deliveries of one database, by sink."""

    by_sink: dict[RelationId, Delivery] = field(default_factory=dict)

    def add(self, delivery: Delivery, *, background: bool) -> None:
        """Add a delivery, and start it with ``background``."""
        self.by_sink[delivery.sink] = delivery
        if background:
            delivery.start()

    def advance(self) -> bool:
        """Run every delivery once, ignoring failures; return whether anything was written.

        One that fails in the background is left to that: a target that does not answer delays
        nobody else.
        """
        written = False
        for delivery in list(self.by_sink.values()):
            if delivery.retries:
                continue
            try:
                written |= delivery.advance()
            except HeadraceError:
                continue  # `error` has it, and the next call tries again
        return written

    def forget(self, sink: RelationId) -> None:
        """End and remove the delivery to a sink, if there is one."""
        delivery = self.by_sink.pop(sink, None)
        if delivery is not None:
            delivery.forget()

    def close(self) -> None:
        """Stop all deliveries."""
        for delivery in self.by_sink.values():
            delivery.close()
