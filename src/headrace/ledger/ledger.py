"""The ledger's public class: one transaction per call, and only the newest writer may write."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import sqlalchemy as sa

from headrace.errors import Code, HeadraceError
from headrace.ledger import catalogue, commit, log, schema, spines
from headrace.ledger.records import (
    ArrangementRecord,
    Dirty,
    EpochCommit,
    EpochRecord,
    Fence,
    Files,
    LoadProgress,
    Merge,
    ObjectRecord,
    OffsetRange,
    ProducerPosition,
    Reject,
    RejectRecord,
    Run,
    Segment,
    SegmentFile,
)
from headrace.ledger.store import Mode, Store
from headrace.types import ArrangementId, Epoch, Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


def _uninterrupted(_stage: str) -> None:
    """Do nothing: the fault hook outside of tests."""


class Ledger:
    """The transactional record of epochs.

    Every method is one transaction. Writes are serialized; reads never wait and see one consistent
    state. Only the process that last called :meth:`acquire` can write: changes by any other
    process fail as a whole with CONFLICT. Thread-safe.
    """

    def __init__(
        self, store: Store, clock: Callable[[], float], fault: Callable[[str], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._fault = fault
        self._lock = threading.Lock()
        self._fence: Fence | None = None

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

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """Open a write transaction; raise CONFLICT if another process has taken over."""
        with self._lock, self._store.writing() as connection:
            query = sa.select(schema.fence.c.token).with_for_update()
            newest = connection.execute(query).scalar_one()
            if newest != self._fence:
                raise self._fenced_off(newest)
            yield connection
            self._fault("before commit")
        self._fault("after commit")

    def _fenced_off(self, newest: int) -> HeadraceError:
        if self._fence is None:
            return HeadraceError(
                Code.INTERNAL, "ledger was written to before it was acquired for writing"
            )
        return HeadraceError(
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
            self._fence = Fence(connection.execute(sa.select(token)).scalar_one())
        return self._fence

    @property
    def identity(self) -> str:
        """The unique and permanent id of this ledger."""
        return str(self.get("identity"))

    # Epochs

    def last_epoch(self) -> Epoch:
        """Return the newest committed epoch; 0 for an empty database."""
        with self._store.reading() as connection:
            return commit.last_epoch(connection)

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
        with self._writing() as connection:
            fence = Fence(0) if self._fence is None else self._fence
            return commit.commit_epoch(connection, change, fence, self._clock(), self._fault)

    def epochs(self, limit: int = 100) -> tuple[EpochRecord, ...]:
        """Return the newest epochs with what each one read, newest first."""
        with self._store.reading() as connection:
            return catalogue.epochs(connection, limit)

    def epoch_at(self, timestamp: float) -> Epoch:
        """Return the last epoch committed at or before a time in Unix seconds; 0 if none was."""
        with self._store.reading() as connection:
            return catalogue.epoch_at(connection, timestamp)

    def clock(self, epoch: Epoch | None = None) -> int:
        """Return ``now()`` of an epoch (None: the last one) in microseconds UTC; 0 if never set."""
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
        with self._writing() as connection:
            return log.append(
                connection,
                relation,
                segment,
                load=load,
                producer=producer,
                rejects=rejects,
                now=self._clock(),
            )

    def log_end(self, relation: RelationId) -> Offset:
        """Return the end of a relation's log."""
        with self._store.reading() as connection:
            return log.log_end(connection, relation)

    def log_ends(self) -> dict[RelationId, Offset]:
        """Return the end of every live relation's log."""
        with self._store.reading() as connection:
            return log.log_ends(connection)

    def position(self, relation: RelationId) -> Offset:
        """Return how far epochs have read a relation's log."""
        with self._store.reading() as connection:
            return log.position(connection, relation)

    def positions(self) -> dict[RelationId, Offset]:
        """Return how far epochs have read every live relation's log."""
        with self._store.reading() as connection:
            return log.positions(connection)

    def segments(self, relation: RelationId, first: Offset, end: Offset) -> tuple[Segment, ...]:
        """Return the segments that contain any of the offsets ``[first, end)``, in order."""
        with self._store.reading() as connection:
            return log.segments(connection, relation, first, end)

    def load_of(self, relation: RelationId, source: str) -> LoadProgress | None:
        """Return the progress of the load of a source; None if it never began."""
        with self._store.reading() as connection:
            return log.load_of(connection, relation, source)

    def unfinished_loads(self, relation: RelationId) -> tuple[LoadProgress, ...]:
        """Return the loads into a relation that have begun and not ended, by source."""
        with self._store.reading() as connection:
            return log.unfinished_loads(connection, relation)

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
        with self._store.reading() as connection:
            return spines.spines(connection, arrangements, epoch)

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
        with self._writing() as connection:
            return commit.compact(connection, merges, self._fault)

    def arrangements(self) -> tuple[ArrangementRecord, ...]:
        """Return every live arrangement, by id."""
        with self._store.reading() as connection:
            return spines.arrangements(connection)

    # Retention

    def since(self, arrangement: ArrangementId) -> Epoch:
        """Return the oldest epoch at which an arrangement can be read."""
        with self._store.reading() as connection:
            return spines.arrangement_of(connection, arrangement).since

    def advance_since(self, since: Mapping[ArrangementId, Epoch]) -> None:
        """Stop keeping the epochs before ``since``; no value moves back or past the last epoch."""
        with self._writing() as connection:
            spines.advance_since(connection, since)

    def garbage(self) -> Files:
        """Return the files that no readable epoch needs, now or later."""
        with self._store.reading() as connection:
            return spines.garbage(connection)

    def forget(self, files: Files) -> None:
        """Remove the names of garbage files; delete the files themselves first."""
        with self._writing() as connection:
            spines.forget(connection, files)

    def known_files(self) -> Files:
        """Return every file that the ledger names; at start, all others can be deleted."""
        with self._store.reading() as connection:
            return spines.known_files(connection)

    # Relations, settings, dirty views

    def reserve_relation(self) -> RelationId:
        """Return a new relation id; no id is returned twice."""
        with self._writing() as connection:
            return catalogue.reserve_relation(connection)

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
        with self._writing() as connection:
            catalogue.set_setting(connection, key, value)

    def dirty(self) -> tuple[Dirty, ...]:
        """Return every dirty entry, oldest first."""
        with self._store.reading() as connection:
            return catalogue.dirty(connection)

    def mark_dirty(self, entry: Dirty) -> None:
        """Record a dirty view; if its cause is recorded already, keep the earlier time."""
        with self._writing() as connection:
            catalogue.mark_dirty(connection, entry)

    def clear_dirty(self, view: RelationId, cause: str | None = None) -> None:
        """Remove the dirty entries of a view: of one cause or, with None, of all causes."""
        with self._writing() as connection:
            catalogue.clear_dirty(connection, view, cause)
