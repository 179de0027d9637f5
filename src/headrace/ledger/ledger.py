"""The ledger's public class: one transaction per call, and only the newest writer may write."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import sqlalchemy as sa

from headrace.errors import Code, HeadraceError
from headrace.ledger import catalogue, commit, dirty, heads, log, schema, spines
from headrace.ledger.records import (
    AppendRecord,
    ArrangementRecord,
    Dirty,
    DirtyState,
    EpochCommit,
    EpochRecord,
    Fence,
    Files,
    Gap,
    LoadProgress,
    Merge,
    ObjectRecord,
    OffsetRange,
    ProducerPosition,
    Reject,
    RejectRecord,
    Repair,
    Run,
    Segment,
    SegmentFile,
)
from headrace.ledger.store import Mode, Store
from headrace.types import (
    ArrangementId,
    BuildId,
    DirtyId,
    Epoch,
    FrontierId,
    Offset,
    RelationId,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from headrace.ledger.heads import Head


def _uninterrupted(_stage: str) -> None:
    """Do nothing: the fault hook outside of tests."""


_LOCK_FENCE = sa.select(schema.fence.c.token).with_for_update()


@dataclass(slots=True)
class _Change:
    """A write transaction, and the head once it is committed."""

    connection: sa.Connection
    head: Head


class Ledger:
    """The transactional record of epochs.

    Every change is one transaction. Writes are serialized; reads never wait and see one consistent
    state. Only the process that last called :meth:`acquire` can write: changes by any other
    process fail as a whole with CONFLICT. That process has the newest state in memory, as
    :attr:`head`, and reads it without a transaction. Thread-safe.
    """

    def __init__(
        self, store: Store, clock: Callable[[], float], fault: Callable[[str], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._fault = fault
        self._lock = threading.Lock()
        self._fence: Fence | None = None
        self._head: Head | None = None

    @classmethod
    def open(
        cls,
        where: str | Path,
        mode: Mode = Mode.WRITE,
        *,
        clock: Callable[[], float] = time.time,
        fault: Callable[[str], None] = _uninterrupted,
    ) -> Ledger:
        """Open and check the ledger at a SQLite file or a database URL.

        In WRITE mode it is created if it does not exist. ``fault`` is called with the name of each
        point at which a test may crash.

        Raises:
            HeadraceError: INVALID, UNSUPPORTED, CORRUPT or UNAVAILABLE; see :class:`Store`.
        """
        return cls(Store.open(where, mode, clock()), clock, fault)

    def close(self) -> None:
        """Close every connection to the database."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def head(self) -> Head:
        """The newest state, as a value that does not change; of the last write of this process."""
        head = self._head
        if head is not None:
            return head
        if self._fence is None:
            return self._loaded()
        with self._lock:
            if self._head is None:
                self._head = self._loaded()
            return self._head

    def _loaded(self) -> Head:
        with self._store.reading() as connection:
            return heads.load(connection)

    @contextmanager
    def _writing(self) -> Iterator[_Change]:
        """Open a write transaction; raise CONFLICT if another process has taken over."""
        with self._lock:
            if self._head is None:
                self._head = self._loaded()
            try:
                with self._store.writing() as connection:
                    self._require_fence(connection)
                    change = _Change(connection, self._head)
                    yield change
                    self._fault("before commit")
            except BaseException:
                self._head = None  # whether it was committed may not be known
                raise
            self._head = change.head
        self._fault("after commit")

    def _require_fence(self, connection: sa.Connection) -> None:
        """Lock the fence; refuse a change if another process has taken over."""
        newest = connection.execute(_LOCK_FENCE).scalar_one()
        if newest == self._fence:
            return
        if self._fence is None:
            raise HeadraceError(
                Code.INTERNAL, "ledger was written to before it was acquired for writing"
            )
        raise HeadraceError(
            Code.CONFLICT,
            "another process took over the data directory",
            f"This process holds fence {self._fence}; the newest is {newest}. Nothing was written.",
            "Close this one, or open it again to take over.",
        )

    # Taking over

    def acquire(self) -> Fence:
        """Become the only writer: changes by earlier writers fail from now on."""
        with self._lock, self._store.writing() as connection:
            token = schema.fence.c.token
            connection.execute(schema.fence.update().values(token=token + 1))
            fence = Fence(connection.execute(sa.select(token)).scalar_one())
        self._fence, self._head = fence, None
        return fence

    @property
    def identity(self) -> str:
        """The unique and permanent id of this ledger."""
        return str(self.get("identity"))

    # Epochs

    def last_epoch(self) -> Epoch:
        """Return the newest committed epoch; 0 for an empty database."""
        return self.head.epoch

    @property
    def upper(self) -> Epoch:
        """The first epoch not yet committed."""
        return Epoch(self.last_epoch() + 1)

    def commit(self, change: EpochCommit) -> Epoch:
        """Commit an epoch atomically.

        Raises:
            HeadraceError: CONFLICT if it does not follow the last epoch, or another process took
                over; INTERNAL if it violates an invariant.
        """
        with self._writing() as writing:
            fence = Fence(0) if self._fence is None else self._fence
            at = commit.commit_epoch(writing.connection, change, fence, self._clock(), self._fault)
            writing.head = writing.head.after_commit(change, at)
            if change.dirtied:
                _read_dirty(writing)
            return change.epoch

    def epochs(self, limit: int = 100) -> tuple[EpochRecord, ...]:
        """Return the newest epochs with what each one read, newest first."""
        with self._store.reading() as connection:
            return catalogue.epochs(connection, limit)

    def epoch_at(self, timestamp: float) -> Epoch:
        """Return the last epoch committed at or before a time in Unix seconds; 0 if none was."""
        with self._store.reading() as connection:
            return catalogue.epoch_at(connection, timestamp)

    def committed_at(self, epoch: Epoch) -> float:
        """Return when an epoch was committed, in Unix seconds."""
        with self._store.reading() as connection:
            return catalogue.committed_at(connection, epoch)

    def clock(self, epoch: Epoch | None = None) -> int:
        """Return ``now()`` of an epoch (None: the last one) in microseconds UTC; 0 if never set."""
        head = self.head
        if epoch is None or epoch == head.epoch:
            return head.clock
        with self._store.reading() as connection:
            return catalogue.clock(connection, epoch)

    # The log

    def append(
        self,
        relation: RelationId,
        segment: SegmentFile | None,
        *,
        load: LoadProgress | None = None,
        producer: ProducerPosition | None = None,
        rejects: Sequence[Reject] = (),
    ) -> OffsetRange:
        """Append a synced file to a relation's log and return its offsets.

        The load's progress, the producer's position and the rejects are recorded in the same
        transaction. If the producer's number is not above its last one, nothing is appended: the
        returned range is empty, at the log's end, and the ledger does not name the file.
        ``segment`` is None if every row was rejected.

        Raises:
            HeadraceError: CONFLICT if the relation was dropped, the load was finished, or another
                process took over.
        """
        producers = () if producer is None else (producer,)
        (outcome,) = self.append_all([AppendRecord(relation, segment, load, producers, rejects)])
        if isinstance(outcome, HeadraceError):
            raise outcome
        return outcome

    def append_all(
        self, appends: Sequence[AppendRecord]
    ) -> tuple[OffsetRange | HeadraceError, ...]:
        """Append several segments in one transaction; see :meth:`append`.

        Returns the offsets of each one, or the error for which just that one was not appended.
        """
        outcomes: list[OffsetRange | HeadraceError] = []
        with self._writing() as writing:
            for each in appends:
                try:
                    appended = log.append(writing.connection, each, self._clock())
                except HeadraceError as error:
                    outcomes.append(error)
                    continue
                outcomes.append(appended)
                writing.head = writing.head.after_append(each.relation, appended)
        return tuple(outcomes)

    def append_together(self, appends: Sequence[AppendRecord]) -> tuple[OffsetRange, ...]:
        """Append several segments in one transaction, all or none; see :meth:`append`.

        Raises:
            HeadraceError: as :meth:`append`; nothing is appended then.
        """
        outcomes = []
        with self._writing() as writing:
            for each in appends:
                appended = log.append(writing.connection, each, self._clock())
                outcomes.append(appended)
                writing.head = writing.head.after_append(each.relation, appended)
        return tuple(outcomes)

    def log_end(self, relation: RelationId) -> Offset:
        """Return the end of a relation's log."""
        return self.head.ends.get(relation, Offset(0))

    def log_ends(self) -> Mapping[RelationId, Offset]:
        """Return the end of every live relation's log."""
        return self.head.ends

    def position(self, relation: RelationId) -> Offset:
        """Return how far epochs have read a relation's log."""
        return self.head.positions.get(relation, Offset(0))

    def positions(self) -> Mapping[RelationId, Offset]:
        """Return how far epochs have read every live relation's log."""
        return self.head.positions

    def segments(self, relation: RelationId, first: Offset, end: Offset) -> tuple[Segment, ...]:
        """Return the segments that contain any of the offsets ``[first, end)``, in order.

        Raises:
            HeadraceError: INVALID if the log no longer starts that early.
        """
        start = self.head.starts.get(relation, Offset(0))
        if first < min(start, end):
            raise HeadraceError(
                Code.INVALID,
                f"changes of relation {relation} before offset {start} are no longer kept",
                f"They were asked for from offset {first} on.",
                "Keep more of its history from now on.",
            )
        with self._store.reading() as connection:
            return log.segments(connection, relation, first, end)

    def advance_starts(self, starts: Mapping[RelationId, Offset]) -> None:
        """Stop keeping the changes of logs before some offsets; no log's start moves back.

        Raises:
            HeadraceError: CONFLICT if a build has not read a log that far.
        """
        with self._writing() as writing:
            for relation, start in starts.items():
                _require_read(relation, start, writing.head)
            log.advance_starts(writing.connection, starts)
            writing.head = writing.head.after_starts(starts)

    def load_of(self, relation: RelationId, source: str) -> LoadProgress | None:
        """Return the progress of the load of a source; None if it never began."""
        with self._store.reading() as connection:
            return log.load_of(connection, relation, source)

    def notes_of(self, relation: RelationId, source: str) -> dict[str, Any]:
        """Return the notes of the load of a source, by name; see :class:`LoadProgress`."""
        with self._store.reading() as connection:
            return log.notes_of(connection, relation, source)

    def unfinished_loads(self, relation: RelationId) -> tuple[LoadProgress, ...]:
        """Return the loads into a relation that have begun and not ended, by source."""
        with self._store.reading() as connection:
            return log.unfinished_loads(connection, relation)

    def producers_at(
        self, asked: Sequence[tuple[RelationId, str]]
    ) -> dict[tuple[RelationId, str], int]:
        """Return the last number of each of some producers; those without one are left out."""
        with self._store.reading() as connection:
            return log.producers_at(connection, asked)

    def producer_at(self, relation: RelationId, producer: str) -> int | None:
        """Return the last number that a producer gave an append; None if there was none."""
        with self._store.reading() as connection:
            return log.producer_at(connection, relation, producer)

    def rejects(self, relation: RelationId, limit: int = 100) -> tuple[RejectRecord, ...]:
        """Return the newest rejected rows of a relation, newest first."""
        with self._store.reading() as connection:
            return log.rejects(connection, relation, limit)

    def reject_count(self, relation: RelationId) -> int:
        """Return how many rows of a relation were rejected."""
        with self._store.reading() as connection:
            return log.reject_count(connection, relation)

    def left_out(self, relation: RelationId) -> Mapping[str, int]:
        """Return how many rows a relation's log has not taken, by reason, besides rejects."""
        with self._store.reading() as connection:
            return log.left_out(connection, relation)

    def newest_times(self, relation: RelationId) -> dict[str, int]:
        """Return the newest event time of each partition of a relation, in microseconds."""
        with self._store.reading() as connection:
            return log.newest_times(connection, relation)

    # Spines

    def spine(self, arrangement: ArrangementId, epoch: Epoch | None = None) -> tuple[Run, ...]:
        """Return the runs that sum to one arrangement; see :meth:`spines`."""
        return self.spines((arrangement,), epoch)[arrangement]

    def spines(
        self, arrangements: Iterable[ArrangementId], epoch: Epoch | None = None
    ) -> dict[ArrangementId, tuple[Run, ...]]:
        """Return the runs that sum to each arrangement at an epoch, oldest first.

        None means the runs that the next epoch builds on: the contents of the last epoch, with
        every compaction applied.

        Raises:
            HeadraceError: INVALID if an arrangement cannot be read at this epoch.
        """
        wanted, head = tuple(arrangements), self.head
        kept = {None: head.next_spines, head.epoch: head.spines}.get(epoch)
        if kept is not None and all(id_ in kept for id_ in wanted):
            return {id_: kept[id_] for id_ in wanted}
        with self._store.reading() as connection:
            return spines.spines(connection, wanted, epoch)

    def delta_runs(self, arrangement: ArrangementId, after: Epoch, upto: Epoch) -> tuple[Run, ...]:
        """Return the runs that are the deltas of the epochs ``(after, upto]``, by epoch.

        Raises:
            HeadraceError: INVALID if ``after`` is older than the arrangement's ``since``.
        """
        with self._store.reading() as connection:
            return spines.delta_runs(connection, arrangement, after, upto)

    def compact(self, merges: Sequence[Merge]) -> Epoch:
        """Replace runs by their sums from the first uncommitted epoch on, and return that epoch.

        Readers at committed epochs still see the original runs.

        Raises:
            HeadraceError: CONFLICT if an arrangement was dropped meanwhile, or another process
                took over; INTERNAL if an invariant is violated.
        """
        with self._writing() as writing:
            epoch = commit.compact(writing.connection, merges, self._fault)
            writing.head = writing.head.after_merges(merges)
            return epoch

    def arrangements(self) -> tuple[ArrangementRecord, ...]:
        """Return every live arrangement, by id."""
        return tuple(record for _, record in sorted(self.head.arrangements.items()))

    # Retention

    def since(self, arrangement: ArrangementId) -> Epoch:
        """Return the oldest epoch at which an arrangement can be read."""
        with self._store.reading() as connection:
            return spines.arrangement_of(connection, arrangement).since

    def advance_since(self, since: Mapping[ArrangementId, Epoch]) -> None:
        """Stop keeping the epochs before ``since``; no value moves back or past the last epoch."""
        with self._writing() as writing:
            spines.advance_since(writing.connection, since)
            writing.head = writing.head.after_since(since)

    def release_dropped(self, contents: Epoch, state: Epoch) -> None:
        """Stop keeping dropped arrangements that no reader needs any more.

        Contents are needed by readers after the epoch ``contents``, the state of operators by those
        after ``state``.
        """
        with self._store.reading() as connection:
            if not spines.any_droppable(connection, contents, state):
                return
        with self._writing() as writing:
            spines.release_dropped(writing.connection, contents, state)

    def garbage(self) -> Files:
        """Return the files that no readable epoch needs, now or later."""
        with self._store.reading() as connection:
            return spines.garbage(connection)

    def forget(self, files: Files) -> None:
        """Remove the names of garbage files; delete the files themselves first."""
        with self._writing() as writing:
            spines.forget(writing.connection, files)

    def known_files(self) -> Files:
        """Return every file that the ledger names; at start, all others can be deleted."""
        with self._store.reading() as connection:
            return spines.known_files(connection)

    # Relations, settings, dirty views

    def reserve_relation(self) -> RelationId:
        """Return a new id for a relation; no id is returned twice, for whatever it is."""
        return RelationId(self._reserve())

    def reserve_build(self) -> BuildId:
        """Return a new id for a build. The first build of a view has the id of the view."""
        return BuildId(self._reserve())

    def reserve_frontier(self) -> FrontierId:
        """Return a new id for a frontier."""
        return FrontierId(self._reserve())

    def _reserve(self) -> int:
        with self._writing() as writing:
            return catalogue.reserve(writing.connection)

    def objects(self, epoch: Epoch | None = None) -> tuple[ObjectRecord, ...]:
        """Return the relations that exist at an epoch (None: now), by id."""
        with self._store.reading() as connection:
            return catalogue.objects(connection, epoch)

    def get(self, key: str) -> Any:
        """Return a setting; None if it was never set."""
        with self._store.reading() as connection:
            return catalogue.get_setting(connection, key)

    def set(self, key: str, value: Any) -> None:
        """Set a setting to a value that ``json`` can write."""
        with self._writing() as writing:
            catalogue.set_setting(writing.connection, key, value)

    def dirty(self) -> tuple[Dirty, ...]:
        """Return every dirty entry, oldest first."""
        return self.head.dirty

    def gap_at(self, view: RelationId, epoch: Epoch) -> Gap | None:
        """Return the gap in which an epoch of a view lies: its contents were not right then."""
        with self._store.reading() as connection:
            return catalogue.gap_at(connection, view, epoch)

    def mark_dirty(self, *marked: Dirty) -> tuple[Dirty, ...]:
        """Record dirty slices of views, all or none, and return the entries as stored.

        Of equal entries, of the same view, cause, slice and origin, one is kept: with the earlier
        time and epoch. While it is repaired, another is added, which is repaired after it.
        """
        with self._writing() as writing:
            stored = tuple(dirty.mark(writing.connection, entry) for entry in marked)
            self._fault("marked")
            _read_dirty(writing)
            return stored

    def set_dirty(
        self,
        id_: DirtyId,
        *,
        state: DirtyState | None = None,
        repair: Repair | None = None,
        cost: int | None = None,
    ) -> None:
        """Change what is given of a dirty entry; do nothing if it is gone."""
        with self._writing() as writing:
            dirty.change(writing.connection, id_, state, repair, cost)
            _read_dirty(writing)

    def clear_dirty(self, view: RelationId, cause: str | None = None) -> None:
        """Remove the dirty entries of a view: of one cause or, with None, of all causes."""
        with self._writing() as writing:
            dirty.clear(writing.connection, view, cause)
            _read_dirty(writing)


def _read_dirty(writing: _Change) -> None:
    """Have the next head know the dirty entries of a transaction that changed them."""
    writing.head = replace(writing.head, dirty=dirty.entries(writing.connection))


def _require_read(relation: RelationId, start: Offset, head: Head) -> None:
    read = head.needed_from(relation)
    if start > read:
        raise HeadraceError(
            Code.CONFLICT,
            f"changes of relation {relation} that are not read yet would be lost",
            f"All builds have read it up to offset {read}; it would start at {start}.",
            "Make the epochs that read them first.",
        )
