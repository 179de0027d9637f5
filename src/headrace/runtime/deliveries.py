"""Deliver changelogs of views to sinks: independently, by whole epochs, from a stored position.

A delivery begins with the snapshot at the epoch that created the sink, and continues with the delta
of every epoch after it. Its position is stored in the ledger after each epoch that was written. If
a crash between the two makes a writer receive an epoch again, its changes are the same.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.ledger import ProducerPosition
from headrace.types import Epoch
from headrace.zset import HASH, WEIGHT

if TYPE_CHECKING:
    from headrace.ledger import Ledger
    from headrace.runtime.epoch import EpochLoop
    from headrace.runtime.ports import Changelog, SinkWriter
    from headrace.types import RelationId

_POSITION = "delivered"
_RETRY_SECONDS = 1.0
_LONGEST_RETRY_SECONDS = 60.0
_QUIET_EPOCHS = 32
"""After how many epochs without changes the position is stored anyway."""


def position(ledger: Ledger, sink: RelationId) -> Epoch | None:
    """Return the last epoch known to be durable at the sink; None before the first."""
    found = ledger.producer_at(sink, _POSITION)
    return None if found is None else Epoch(found)


@dataclass(slots=True)
class Delivery:
    """Delivers to one sink. ``at`` is the last epoch durable there; None before the first.

    ``begins`` is the epoch whose snapshot is delivered first; ``error`` is the error of the last
    attempt, None if it succeeded.
    """

    loop: EpochLoop
    sink: RelationId
    begins: Epoch
    changelog: Changelog
    writer: SinkWriter
    at: Epoch | None = None
    error: HeadraceError | None = None
    _stored: Epoch | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _closed: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        """Resume at the stored position; keep the epochs that are not delivered yet."""
        self.at = self._stored = position(self.loop.ledger, self.sink)
        self.loop.held[self.sink] = self.begins if self.at is None else self.at

    def advance(self) -> bool:
        """Deliver everything up to the last epoch; return whether anything was written.

        Raises:
            HeadraceError: the writer's error; ``error`` keeps it until a delivery succeeds.
        """
        with self._lock:
            try:
                written = self._deliver()
            except (OSError, pa.ArrowException) as error:
                self.error = HeadraceError(
                    Code.UNAVAILABLE, "a sink cannot be written to", detail=f"{error}."
                )
                raise self.error from error
            except HeadraceError as error:
                self.error = error
                raise
            self.error = None
            return written

    def _deliver(self) -> bool:
        last, written = self.loop.published.current.epoch, False
        if self.at is None:
            rows = self.changelog.whole(self.begins)
            ones = pa.array(np.ones(rows.num_rows, np.int64))
            self._write(self.begins, rows.append_column(WEIGHT, ones))
            written = True
        at = self.begins if self.at is None else self.at
        for epoch, changes in self.changelog.changes(at, last):
            self._write(epoch, changes.table.drop_columns([HASH]))
            written = True
        self.at = last
        if last - (self._stored or 0) >= _QUIET_EPOCHS:
            self._store_position(last)
        return written

    def _write(self, epoch: Epoch, changes: pa.Table) -> None:
        self.loop.fault("sink")
        self.writer.write(epoch, changes)
        self.loop.fault("sink written")
        self._store_position(epoch)
        self.at = epoch

    def _store_position(self, epoch: Epoch) -> None:
        self.loop.ledger.append(self.sink, None, producer=ProducerPosition(_POSITION, epoch))
        self._stored = epoch
        # Hold the stored position, not the delivered one: a restart resumes there.
        self.loop.held[self.sink] = epoch

    # -- in the background -----------------------------------------------------------------

    def start(self) -> None:
        """Deliver in the background, until closed."""
        self._thread = threading.Thread(target=self._run, name=f"sink-{self.sink}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop after the epoch that is being written."""
        self._closed.set()
        self.loop.published.wake()
        if self._thread is not None:
            self._thread.join()

    def forget(self) -> None:
        """Stop for good, and hold no epochs any more."""
        self.close()
        self.loop.held.pop(self.sink, None)

    def _run(self) -> None:
        delay = _RETRY_SECONDS
        while not self._closed.is_set():
            try:
                self.advance()
                delay = _RETRY_SECONDS
            except Exception as error:  # noqa: BLE001 - it is shown, and must not end the thread
                if self.error is None:
                    self.error = HeadraceError(Code.INTERNAL, "a sink failed", detail=f"{error!r}")
                self._closed.wait(delay)
                delay = min(2 * delay, _LONGEST_RETRY_SECONDS)
                continue
            self.loop.published.wait_for(self._has_work, _LONGEST_RETRY_SECONDS)

    def _has_work(self) -> bool:
        return self._closed.is_set() or (self.at or 0) < self.loop.published.current.epoch


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
        """Run every delivery once, ignoring failures; return whether anything was written."""
        written = False
        for delivery in list(self.by_sink.values()):
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
