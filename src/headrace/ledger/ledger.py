"""The ledger's public class: one transaction per call, and only the newest writer may write."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headrace.errors import Code, HeadraceError
from headrace.ledger import builds, catalogue, commit, delivered, dirty, evidence, log, spines
from headrace.ledger.records import (
    AppendRecord,
    ArrangementRecord,
    Carried,
    ChangeRecord,
    CorrectionRecord,
    DeliveryRecord,
    Dirty,
    DirtyState,
    EpochCommit,
    EpochRecord,
    Evidence,
    Fence,
    Files,
    Gap,
    LoadProgress,
    LogSize,
    Merge,
    ObjectRecord,
    OffsetRange,
    ProducerPosition,
    Reject,
    RejectRecord,
    Repair,
    Retired,
    Run,
    Segment,
    SegmentFile,
)
from headrace.ledger.writer import Change, Writer
from headrace.types import (
    ArrangementId,
    BuildId,
    DirtyId,
    Epoch,
    EvidenceId,
    FrontierId,
    Offset,
    RelationId,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from headrace.ledger.heads import Head


class Ledger(Writer):
    """The transactional record of epochs.

    Every change is one transaction. Writes are serialized; reads never wait and see one consistent
    state. Only the process that last called :meth:`acquire` can write: changes by any other
    process fail as a whole with CONFLICT. That process has the newest state in memory, as
    :attr:`head`, and reads it without a transaction. Thread-safe.
    """

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

        Whoever holds a published state can read what its logs had, until the files are deleted.

        Raises:
            HeadraceError: INVALID if the log no longer starts that early.
        """
        with self._store.reading() as connection:
            found = log.segments(connection, relation, first, end)
        start = self.head.starts.get(relation, Offset(0))
        if first < min(start, end) and (not found or found[0].range.first > first):
            raise HeadraceError(
                Code.INVALID,
                f"changes of relation {relation} before offset {start} are no longer kept",
                f"They were asked for from offset {first} on.",
                "Keep more of its history from now on.",
            )
        return found

    def appended_end(self, segment: Segment) -> Offset:
        """Return the end of what was appended together with a segment, which may be just that."""
        with self._store.reading() as connection:
            return log.appended_end(connection, segment)

    def segment_bounds(
        self, relation: RelationId, end: Offset
    ) -> tuple[tuple[OffsetRange, Mapping[str, Any]], ...]:
        """Return the segments that begin before an offset, with the bounds of their columns."""
        with self._store.reading() as connection:
            return tuple(log.bounds(connection, relation, end))

    def deliveries(self) -> Mapping[RelationId, DeliveryRecord]:
        """Return how far each sink has been given changes."""
        with self._store.reading() as connection:
            return delivered.records(connection)

    def record_delivery(
        self, record: DeliveryRecord, refused: Sequence[Reject] = (), *, forgets: bool = False
    ) -> None:
        """Store how far a sink has been given changes, with rows that were refused meanwhile.

        What was refused before is forgotten where the sink begins anew, or if it ``forgets`` it.

        Raises:
            HeadraceError: CONFLICT if the sink was dropped, or another process took over.
        """
        with self._writing() as writing:
            connection = writing.connection
            if record.clears or forgets:
                delivered.forget_refused(connection, record.sink)
            log.append(connection, AppendRecord(record.sink, None, rejects=refused), self._clock())
            delivered.put(connection, record)

    def beginning(
        self, relation: RelationId, wanted: Callable[[Retired], bool]
    ) -> tuple[Retired, ...]:
        """Return the first segments of a log, up to one that is not wanted."""
        with self._store.reading() as connection:
            return tuple(takewhile(wanted, log.beginning(connection, relation)))

    def log_sizes(self) -> Mapping[RelationId, LogSize]:
        """Return how much each log has of what it keeps; those that have nothing are left out."""
        with self._store.reading() as connection:
            return log.sizes(connection)

    def retired(self, relation: RelationId) -> Retired | None:
        """Return what is known of the changes of a log that are not kept; None if all are."""
        with self._store.reading() as connection:
            return log.retired_of(connection, relation)

    def retire(self, relation: RelationId, retired: Retired) -> None:
        """Stop keeping the changes of a log before an offset; no log's start moves back.

        Raises:
            HeadraceError: CONFLICT if a build has not read the log that far, or epochs have not
                read a correction of its events.
        """
        with self._writing() as writing:
            if retired.start <= writing.head.starts[relation]:
                return
            _require_read(relation, retired.start, writing.head)
            amended = log.last_correction(writing.connection, relation)
            if writing.head.is_live(relation) and amended > writing.head.positions[relation]:
                raise _unread(relation, amended, writing.head.positions[relation])
            log.retire(writing.connection, relation, retired)
            self._fault("retired")
            writing.head = writing.head.after_starts({relation: retired.start})

    def begin(self, relation: RelationId, start: Offset, ids: Collection[BuildId]) -> None:
        """Record that builds need no change of a log before an offset, though they have read it."""
        with self._writing() as writing:
            for id_ in ids:
                known = writing.head.builds.get(id_)
                if known is not None:
                    begins = {**known.begins, relation: start}
                    builds.set_begins(writing.connection, id_, begins)
                    there = {**writing.head.builds, id_: replace(known, begins=begins)}
                    writing.head = replace(writing.head, builds=there)

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

    def corrections(self, relation: RelationId, limit: int = 100) -> tuple[CorrectionRecord, ...]:
        """Return the newest corrections of a stream's events, newest first."""
        with self._store.reading() as connection:
            return log.corrections(connection, relation, limit)

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

    def delta_rows(self, arrangement: ArrangementId, after: Epoch, upto: Epoch) -> int:
        """Return how many rows the deltas of the epochs ``(after, upto]`` have."""
        with self._store.reading() as connection:
            return spines.delta_rows(connection, arrangement, after, upto)

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

    def garbage(self, held: Mapping[RelationId, Offset] = MappingProxyType({})) -> Files:
        """Return the files that no readable epoch needs, now or later.

        The logs of relations that are ``held`` are still read from these offsets on.
        """
        with self._store.reading() as connection:
            return spines.garbage(connection, held)

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
        detail: str | None = None,
    ) -> None:
        """Change what is given of a dirty entry; do nothing if it is gone."""
        with self._writing() as writing:
            dirty.change(writing.connection, id_, state, repair, cost, detail)
            _read_dirty(writing)

    def record_changes(self, carried: Sequence[Carried], origin: Mapping[str, Any]) -> None:
        """Record what carries a change to views; the oldest of too many records are forgotten."""
        with self._writing() as writing:
            dirty.record_changes(writing.connection, carried, origin, self._clock())

    def changes(self) -> tuple[ChangeRecord, ...]:
        """Return the classified changes that are kept, newest first."""
        with self._store.reading() as connection:
            return dirty.changes(connection)

    def clear_dirty(self, view: RelationId, cause: str | None = None) -> None:
        """Remove the dirty entries of a view: of one cause or, with None, of all causes."""
        with self._writing() as writing:
            dirty.clear(writing.connection, view, cause)
            _read_dirty(writing)

    # Reconciliation

    def reconciled(self) -> Mapping[RelationId, Mapping[str, Any]]:
        """Return how far reconciliation has come with each view, as it recorded that."""
        with self._store.reading() as connection:
            return evidence.progress(connection)

    def record_comparison(
        self,
        view: RelationId,
        progress: Mapping[str, Any],
        found: Evidence | None = None,
        marked: Sequence[Dirty] = (),
    ) -> Evidence | None:
        """Record that a slice of a view was compared, in one transaction with what was found.

        Returns the evidence as stored; its id is in the origin of the dirty entries, as
        ``evidence``.
        """
        with self._writing() as writing:
            evidence.set_progress(writing.connection, view, progress)
            if found is None:
                return None
            stored = evidence.add(writing.connection, found)
            self._fault("evidence")
            for entry in marked:
                origin = {**entry.origin, "evidence": stored.id}
                dirty.mark(writing.connection, replace(entry, origin=origin))
            _read_dirty(writing)
            return stored

    def evidence(self, view: RelationId | None = None) -> tuple[Evidence, ...]:
        """Return the evidence that was found of a view (None: of all), newest first."""
        with self._store.reading() as connection:
            return evidence.entries(connection, view)

    def settle_evidence(self, id_: EvidenceId, outcome: str) -> None:
        """Record what became of a slice of which there is evidence."""
        with self._writing() as writing:
            evidence.settle(writing.connection, id_, outcome)


def _read_dirty(writing: Change) -> None:
    """Have the next head know the dirty entries of a transaction that changed them."""
    writing.head = replace(writing.head, dirty=dirty.entries(writing.connection))


def _require_read(relation: RelationId, start: Offset, head: Head) -> None:
    read = head.needed_from(relation)
    if start > read:
        raise _unread(relation, start, read)


def _unread(relation: RelationId, wanted: Offset, read: Offset) -> HeadraceError:
    return HeadraceError(
        Code.CONFLICT,
        f"changes of relation {relation} that are not read yet would be lost",
        f"All builds have read it up to offset {read}, and not up to {wanted}.",
        "Make the epochs that read them first.",
    )
