"""Deliver changelogs of views to sinks: independently, by whole epochs, from a stored position.

A delivery begins with the rows at an epoch and continues with the changes of every epoch after it,
in parts, so that its memory does not depend on how much there is to deliver. Where it stands is
``execution/runtime/delivery_position.py``; how statements interrupt it is
``execution/runtime/pump.py``.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.delivery_position import SinkDifference
from headrace.execution.runtime.ports import Counted, Idles, StoresPosition
from headrace.execution.runtime.pump import Interruptible
from headrace.storage.ledger import DeliveryState, EpochCommit
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headrace.execution.runtime.delivery_position import Agreement, DeliveryPosition
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.ports import Changelog, SinkWriter
    from headrace.storage.ledger import DeliveryRecord
    from headrace.types import RelationId


PART_ROWS: Final = 50_000
"""How many rows a writer is given at a time."""

_RETRY_SECONDS: Final = 1.0
_SLOW_RETRY_SECONDS: Final = 15.0
"""The first wait where somebody has to repair something, such as credentials."""
_LONGEST_RETRY_SECONDS: Final = 60.0
_QUIET_EPOCHS: Final = 32
"""After how many epochs without changes the position is stored anyway."""
_LOOKED_AT: Final = 1024
"""How many epochs are listed at a time."""


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """How a sink is given changes.

    ``part_rows``: how many rows at a time, but not those of several seconds. ``rows_per_second`` is
    the most it is given; None is as fast as it takes them. ``interval``: seconds between two
    writes, whose epochs are joined; with 0 each epoch is written as it comes. ``joins``: whether
    epochs that wait are joined in any case, since the target only keeps the newest state.
    ``snapshot``: whether the rows that exist when the sink is created come first. ``stops``:
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
    """How many rows of the current write the target has taken, and how many there are.

    ``epoch`` is the one up to which they are. Rows are those that are read for the changes.
    """

    epoch: Epoch
    done: int
    total: int


@dataclass(slots=True)
class Delivery:
    """Delivers to one sink. ``error`` is that of the last attempt, None if it succeeded."""

    loop: EpochLoop
    position: DeliveryPosition
    changelog: Changelog
    writer: SinkWriter
    settings: DeliverySettings = field(default_factory=DeliverySettings)
    error: HeadraceError | None = None
    writing: Writing | None = None
    """How far the current write is; None if nothing is being written."""
    _work: Interruptible = field(default_factory=Interruptible)

    @property
    def record(self) -> DeliveryRecord:
        """The ledger's record of the delivery."""
        return self.position.record

    @property
    def at(self) -> Epoch | None:
        """The last epoch that is durable in the target; None before the first."""
        return self.position.at

    @property
    def refused(self) -> int:
        """How many rows the target has refused."""
        return self.position.refused

    @property
    def sink(self) -> RelationId:
        """The sink."""
        return self.record.sink

    @property
    def state(self) -> str:
        """``running``, ``failing``, ``paused`` or ``stopped``."""
        if self.position.is_running and self.error is not None:
            return "failing"
        return self.record.state.value

    @property
    def retries(self) -> bool:
        """Whether it has failed, and tries again in the background."""
        return self._work.has_thread and self.error is not None

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
        with self._work.lock:
            if not self.position.is_running:
                return False
            try:
                written = self._deliver()
            except (OSError, pa.ArrowException) as error:
                self.position.interrupt()
                self.error = HeadraceError(
                    Code.UNAVAILABLE, "a sink cannot be written to", detail=f"{error}."
                )
                raise self.error from error
            except HeadraceError as error:
                self.position.interrupt()
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
        written, position = False, self.position
        position.resume(self.writer)
        if self.at is None:
            if self.settings.snapshot:
                rows = self.changelog.snapshot(self.record.begins, self.settings.most)
                self._write(self.record.begins, rows)
                written = True
                if not position.is_running:
                    return True
            else:
                position.store(self.record.begins)
        while self.at is not None and self.at < last:
            upto = Epoch(min(last, self.at + _LOOKED_AT))
            changed = self.changelog.changed(self.at, upto)
            for epoch in position.steps(changed, joins=self._joins):
                written_together = bisect_right(changed, epoch) - bisect_right(changed, self.at)
                if written_together > 1:  # should it fail, one is written alone again anyway
                    position.begin(epoch)
                parts = self.changelog.delta(self.at, epoch, self.settings.most)
                rest = iter(parts)
                first = next(rest, None)
                if first is None:  # the changes of joined epochs cancel
                    position.store(epoch)
                    continue
                self._write(epoch, parts, chain([first], rest))
                written = True
                if not position.is_running:
                    return True
            position.at = upto
            if upto - (self.record.delivered or 0) >= _QUIET_EPOCHS:
                position.store(upto)
        return written

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
        """Write changes; return how many rows were refused.

        ``forgets`` is as in :meth:`DeliveryPosition.store`. ``read`` yields the parts if some of
        them have been read already.
        """
        self.loop.fault("sink")
        given = self._counted(epoch, parts, read or parts)
        try:
            if isinstance(self.writer, StoresPosition):
                record = self.position.delivering(epoch)
                self.writer.write_with(record, given)
                self.loop.fault("sink written")
                self.position.was_stored(record)
                return 0
            refused = self.writer.write(epoch, given)
            self.loop.fault("sink written")
            if refused and self.settings.stops:
                self.position.stop(epoch, refused)
            else:
                self.position.store(epoch, refused, written=epoch, forgets=forgets)
        finally:
            self.writing = None
        return len(refused)

    def _counted(
        self, epoch: Epoch, parts: Iterable[pa.Table], read: Iterable[pa.Table]
    ) -> Iterator[pa.Table]:
        """Yield parts, and count each as taken once the next one is requested."""
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
            self._work.require_going_on()
            yield part
            given += part.num_rows
            if pace:
                self._work.wait(given / pace - (time.monotonic() - begun))
        self._work.require_going_on()

    # -- statements ------------------------------------------------------------------------

    def pause(self) -> None:
        """Deliver nothing until resumed; a write ends after the current part."""
        with self._interrupted():
            self.position.put(replace(self.record, state=DeliveryState.PAUSED))

    def resume(self) -> None:
        """Continue where the delivery was paused, or has stopped at refused rows."""
        with self._interrupted():
            self.position.put(replace(self.record, state=DeliveryState.RUNNING, why=None))
            self.error = None

    def reset(self) -> None:
        """Start over with the rows of the last epoch, after removing what was written."""
        with self._interrupted():
            self.position.reset()
            self.error = None

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
            running = self.position.is_running
            if write and not running:
                raise HeadraceError(
                    Code.INVALID, f"the sink is {self.state}", hint="RESUME SINK it first."
                )
            lost = write and self.position.has_lost(self.writer)
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
                    hint="RESET SINK writes all rows of the view again.",
                )
            view = self.changelog.snapshot(at, self.settings.most)
            place = self.loop.directory / "attempts"
            with SinkDifference.of(place, columns, key, view, stored) as difference:
                found = difference.counted()
                if lost or (write and found.differences):
                    parts = difference.parts(self.settings.most)
                    found = replace(found, refused=self._write(at, parts, forgets=True))
                elif write and self.refused:
                    self.position.store(at, forgets=True)
            self.error = None if running else self.error
            return at, found

    def _own_epoch(self) -> Epoch:
        """Make an epoch in which nothing changes."""
        with self.loop.between():
            last = self.loop.ledger.head.epoch
            return self.loop.ledger.commit(EpochCommit(last, f"reconcile-{self.sink}"))

    def change(self, writer: SinkWriter, settings: DeliverySettings) -> None:
        """Continue with another writer to the same target, and other settings."""
        with self._interrupted():
            self.writer.close()
            self.writer, self.settings, self.error = writer, settings, None

    @contextmanager
    def _interrupted(self) -> Iterator[None]:
        """Run a block while nothing is delivered; what is being written is written again later."""
        with self._work.interrupted():
            self.position.interrupt()
            yield
        self.loop.published.wake()

    # -- in the background -----------------------------------------------------------------

    def start(self) -> None:
        """Deliver in the background, until closed."""
        self._work.start(self._run, f"sink-{self.sink}")

    def close(self) -> None:
        """Stop after the part that is being written, and release the target."""
        self._work.close(self.loop.published.wake)
        with self._work.lock:
            self.writer.close()

    def forget(self) -> None:
        """Stop for good, and hold no epochs any more."""
        self.close()
        self.loop.held.pop(self.sink, None)

    def _run(self) -> None:
        delay, work = 0.0, self._work
        while not work.is_closed:
            statements = work.wait_for_turn()
            try:
                self.advance()
            except Exception as error:  # noqa: BLE001 - it is shown, and must not end the thread
                if not isinstance(error, HeadraceError):
                    self.error = HeadraceError(Code.INTERNAL, "a sink failed", detail=f"{error!r}")
                delay = self._next_delay(delay)
                wait = delay * random.uniform(0.5, 1.0)  # noqa: S311 - it spreads retries
                work.wait(wait, statements)
                continue
            delay = 0.0
            work.wait(self.settings.interval)
            self.loop.published.wait_for(self._has_work, _LONGEST_RETRY_SECONDS)

    def _next_delay(self, before: float) -> float:
        """Return how long to wait after a failure: longer each time."""
        passes = self.error is None or self.error.code is Code.UNAVAILABLE
        least = _RETRY_SECONDS if passes else _SLOW_RETRY_SECONDS
        return min(_LONGEST_RETRY_SECONDS, max(least, 2 * before))

    def _has_work(self) -> bool:
        if self._work.is_closed:
            return True
        last = self.loop.published.current.epoch
        return self.position.is_running and (self.at is None or self.at < last)


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

        One that fails in the background is left out: a target that does not answer delays no other.
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
