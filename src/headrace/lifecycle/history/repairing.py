"""Repairs dirty slices of views, in the background or on request of a statement.

Records what a statement would write, for trials: nothing is appended or rebuilt.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.cancelling import Cancellation, StatementLock, check_cancelled
from headrace.execution.runtime.dirty import next_to_repair, removed_with, repairable
from headrace.lifecycle.history.amending import Amending
from headrace.lifecycle.inputs.log import Log, with_correction
from headrace.lifecycle.inputs.rows import with_offsets
from headrace.planning.catalog import View
from headrace.storage.ledger import DirtyState, OffsetRange, Slice
from headrace.types import Offset

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import pyarrow as pa

    from headrace.execution.runtime.fill import Progress
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Stream, Table
    from headrace.storage.ledger import (
        Correction,
        DeliveryRecord,
        Dirty,
        Ledger,
        LoadProgress,
        ProducerPosition,
        Reject,
    )
    from headrace.types import DirtyId, Epoch


_NEVER: Final = (0.0, 2.5)
"""Initial retry state: the time of the next try, and half of the first delay, in seconds."""
_LAST_RETRY_SECONDS: Final = 600.0
_CANCEL_SECONDS: Final = 0.1


class Plan(Protocol):
    """The cost of recomputing a slice, in rows."""

    @property
    def cost(self) -> int:
        """The estimated number of rows that recomputing the slice reads."""

    @property
    def whole(self) -> int:
        """The estimated number of rows that recomputing the whole view reads."""


class Recomputed(Protocol):
    """The result of recomputing a slice."""

    @property
    def epoch(self) -> Epoch:
        """The epoch in which the view's rows were replaced."""

    @property
    def read(self) -> int:
        """The number of rows that were read."""

    @property
    def whole(self) -> int:
        """The number of rows that recomputing the whole view reads."""

    @property
    def changed(self) -> int:
        """The number of rows of the view that changed."""


class Recomputing(Protocol):
    """Recomputes slices of views from their inputs."""

    def plan(self, view: View, slice_: Slice) -> Plan:
        """Return the estimated cost of recomputing a slice; changes nothing."""

    def replay(
        self, view: View, slice_: Slice, progress: Progress, cleaned: tuple[DirtyId, ...] = ()
    ) -> Recomputed:
        """Recompute a slice, replace it in one epoch, and remove dirty entries in its commit."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """A dirty entry and the result of its repair, or the error that it failed with."""

    entry: Dirty
    done: Recomputed | HeadraceError


@dataclass(slots=True)
class Repairing:
    """Repairs dirty slices, one at a time: the oldest first, and inputs before the views above.

    An entry is removed by the transaction that corrects its slice. An interrupted repair is
    repeated. If a repair fails, its entry stays with the error as its detail, and the repair is
    tried again after growing delays.
    """

    ledger: Ledger
    reader: Reader
    recomputing: Recomputing
    automatic: bool
    """Whether entries are repaired in the background, or only by statements."""
    cancel_jobs: Callable[[str], None]
    """Cancels the Spark jobs with a tag."""
    _busy: StatementLock = field(default_factory=StatementLock)
    _closed: bool = False
    _cancellation: Cancellation = field(default_factory=Cancellation)
    _thread: threading.Thread | None = None
    _failed: dict[DirtyId, tuple[float, float]] = field(default_factory=dict)
    """The next try, in monotonic seconds, and the delay, by entry whose repair failed."""

    def start(self) -> None:
        """Repair in the background from now on, unless repairs are left to statements."""
        if self.automatic:
            self._thread = threading.Thread(target=self._work, name="headrace-repairs", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Cancel the running repair, and stop."""
        self._closed = True
        while self._thread is not None and self._thread.is_alive():
            self.reader.publisher.wake()
            if self._cancellation.running:
                self._cancellation.asked = True
                self.cancel_jobs(self._cancellation.tag)
            self._thread.join(_CANCEL_SECONDS)

    def repair(
        self, among: Collection[DirtyId], progress: Callable[[Dirty], Progress]
    ) -> list[Repaired]:
        """Repair entries now, quarantined ones too; return the results in order.

        ``progress`` returns the callback for the progress of an entry's repair. Entries of stopped
        views, and of views above one whose repair fails, are skipped.
        """
        done: list[Repaired] = []
        wanted = set(among)
        with self._busy:
            while (entry := self._next(wanted)) is not None and entry.id is not None:
                wanted.discard(entry.id)
                try:
                    done.append(Repaired(entry, self._repaired(entry, progress(entry))))
                except HeadraceError as error:
                    if is_cancelled(error):
                        raise
                    done.append(Repaired(entry, error))
        return done

    def _next(self, among: Collection[DirtyId]) -> Dirty | None:
        state = self.reader.published
        return next_to_repair(self.ledger.head.dirty, state.catalog, state.stopped, among)

    def _repaired(self, entry: Dirty, progress: Progress) -> Recomputed:
        """Repair an entry; if that fails, restore its state and add the error."""
        view = self.reader.catalog.by_id.get(entry.view)
        if not isinstance(view, View):
            raise HeadraceError(Code.CONFLICT, "the view was dropped meanwhile")
        return self._recomputed(view, entry.slice, [entry], progress)

    def replay(self, view: View, slice_: Slice, progress: Progress) -> Recomputed:
        """Recompute a slice of a view now, dirty or not; repair the entries within it.

        Raises:
            HeadraceError: as the replay raises it; the entries stay then, with the error.
        """
        with self._busy:
            entries = repairable(self.ledger.head.dirty, view.id)
            covered = [e for e in entries if slice_ in (e.slice, Slice())]
            return self._recomputed(view, slice_, covered, progress)

    def _recomputed(
        self, view: View, slice_: Slice, entries: Collection[Dirty], progress: Progress
    ) -> Recomputed:
        """Recompute a slice; if that fails, restore the state of entries and add the error."""
        self._set(entries, lambda _entry: DirtyState.REPAIRING)
        try:
            cleaned = removed_with(entries, self.ledger.head.dirty, self.reader.catalog)
            return self.recomputing.replay(view, slice_, progress, cleaned)
        except BaseException as error:
            self._set(entries, _before, _why(error))
            raise

    def _set(
        self,
        entries: Collection[Dirty],
        state: Callable[[Dirty], DirtyState],
        detail: str | None = None,
    ) -> None:
        for entry in entries:
            if entry.id is not None:
                self.ledger.dirty.change(entry.id, state=state(entry), detail=detail)
        if entries:
            self.reader.publisher.publish()

    # -- in the background -----------------------------------------------------------------

    def _work(self) -> None:
        while not self._closed:
            self.reader.publisher.wait_for(self._is_due, self._seconds_to_retry())
            with self._cancellation.statement():
                if not self._closed:
                    self._work_on_one()

    def _is_due(self) -> bool:
        return self._closed or self._next(self._ready()) is not None

    def _ready(self) -> frozenset[DirtyId]:
        """Return the entries that the background thread may repair now."""
        now = time.monotonic()
        return frozenset(
            e.id
            for e in self.ledger.head.dirty
            if e.id is not None
            and e.state is not DirtyState.QUARANTINED
            and self._failed.get(e.id, _NEVER)[0] <= now
        )

    def _seconds_to_retry(self) -> float | None:
        known = {e.id for e in self.ledger.head.dirty}
        self._failed = {id_: of for id_, of in self._failed.items() if id_ in known}
        first = min((at for at, _ in self._failed.values()), default=None)
        return None if first is None else max(0.0, first - time.monotonic())

    def _work_on_one(self) -> None:
        """Repair one entry, if one is still due."""
        entry: Dirty | None = None
        try:
            with self._busy:
                entry = self._next(self._ready())
                if entry is not None:
                    self._repaired(entry, lambda _done, _total: check_cancelled())
        except Exception as error:  # noqa: BLE001 - stored with the entry; it must not end the thread
            if entry is not None and entry.id is not None and not is_cancelled(error):
                seconds = min(2 * self._failed.get(entry.id, _NEVER)[1], _LAST_RETRY_SECONDS)
                self._failed[entry.id] = (time.monotonic() + seconds, seconds)


def is_cancelled(error: BaseException) -> bool:
    """Whether an error says that work was cancelled."""
    return isinstance(error, HeadraceError) and error.code is Code.CANCELLED


def _before(entry: Dirty) -> DirtyState:
    return DirtyState.OPEN if entry.state is DirtyState.REPAIRING else entry.state


def _why(error: BaseException) -> str | None:
    """Return the error text that is stored with an entry whose repair failed."""
    if is_cancelled(error) or not isinstance(error, Exception):
        return None
    said = str(error) if isinstance(error, HeadraceError) else "error[internal]"
    return f"Its repair failed: {said}"


@dataclass(frozen=True, slots=True)
class TrialLog(Log):
    """Records changes as the log would append them, without deduplication; writes nothing."""

    taken: list[tuple[Stream | Table, pa.Table]] = field(default_factory=list)

    @classmethod
    def of(cls, log: Log) -> TrialLog:
        """Return a trial log in place of a log."""
        return cls(log.directory, log.ledger, log.appender, log.queries, log.pump, log.admission)

    def append(
        self,
        relation: Stream | Table,
        rows: pa.Table,
        *,
        load: LoadProgress | None = None,
        producer: ProducerPosition | None = None,
        rejects: Sequence[Reject] = (),
        guard: Callable[[Offset], None] | None = None,
        delivered: DeliveryRecord | None = None,
    ) -> OffsetRange:
        """Record changes, with the values of generated columns, at the end of the log."""
        del load, producer, rejects, guard, delivered
        end = self.ledger.head.log_end(relation.id)
        rows = self.completed(relation, rows)
        self.taken.append((relation, with_offsets(relation, rows, end)))
        return OffsetRange(end, Offset(end + rows.num_rows))

    def correct(self, stream: Stream, rows: pa.Table, correction: Correction) -> OffsetRange:
        """Record changes that amend earlier events of a stream."""
        del correction
        end = self.ledger.head.log_end(stream.id)
        self.taken.append((stream, with_correction(rows, end)))
        return OffsetRange(end, Offset(end + rows.num_rows))


class TrialAmending(Amending):
    """Prepares trial corrections: rebuilds no view."""

    __slots__ = ()

    def prepared(self, stream: Stream, progress: Progress) -> tuple[Stream, tuple[View, ...]]:
        """Return the stream; no view is rebuilt."""
        del progress
        return stream, ()

    @classmethod
    def of(cls, amending: Amending) -> TrialAmending:
        """Return the trial form of an amending part."""
        return cls(amending.reader, amending.ledger, amending.engine, amending.definer)
