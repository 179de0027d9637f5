"""The embedded log: segments, what is no longer kept of it, and corrections of its events."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from headrace.errors import Code, HeadraceError
from headrace.files.mounts import SEGMENTS
from headrace.storage.ledger import loads, schema
from headrace.storage.ledger.driver_statement import DriverStatement
from headrace.storage.ledger.holds import Holds
from headrace.storage.ledger.log_merges import Landed, segment_of
from headrace.storage.ledger.records import (
    AppendRecord,
    Correction,
    CorrectionRecord,
    LogSize,
    OffsetRange,
    Retired,
    Segment,
    SegmentFile,
)
from headrace.types import Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.storage.ledger.driver_statement import FileKey
    from headrace.storage.ledger.heads import Head
    from headrace.storage.ledger.holds import ReadHold
    from headrace.storage.ledger.records import (
        DeliveryRecord,
        LoadProgress,
        ProducerPosition,
        Reject,
    )
    from headrace.storage.ledger.transactions import Transactions, WriteTransaction


_INSERT_SEGMENT = DriverStatement(schema.segments.insert())
_UPDATE_LOG = DriverStatement(
    schema.logs.update()
    .where(
        schema.logs.c.relation == sa.bindparam("its_relation"),
        schema.logs.c.log_end == sa.bindparam("its_end"),
    )
    .values(log_end=sa.bindparam("new_end"), rejected=schema.logs.c.rejected + sa.bindparam("more"))
)
_SELECT_TIMES = DriverStatement(
    sa.select(schema.newest_times.c.partition, schema.newest_times.c.time).where(
        schema.newest_times.c.relation == sa.bindparam("its_relation")
    )
)
_UPDATE_TIME = DriverStatement(
    schema.newest_times.update()
    .where(
        schema.newest_times.c.relation == sa.bindparam("its_relation"),
        schema.newest_times.c.partition == sa.bindparam("its_partition"),
    )
    .values(time=sa.bindparam("newest"))
)
_UPDATE_DELIVERED = DriverStatement(
    schema.deliveries.update()
    .where(schema.deliveries.c.sink == sa.bindparam("its_sink"))
    .values({c: sa.bindparam(c.name) for c in schema.deliveries.c if not c.primary_key})
)


def _segments_between() -> sa.Select[Any]:
    """Return the query for the segments with some offsets of a log, in order."""
    table, corrections = schema.segments.c, schema.corrections.c
    relation: sa.BindParameter[int] = sa.bindparam("its_relation")
    first: sa.BindParameter[int] = sa.bindparam("first", type_=sa.BigInteger())
    # Segments do not overlap: `first` is in the last segment that starts at or before it.
    start = (
        sa.select(sa.func.max(table.first_offset))
        .where(table.relation == relation, table.first_offset <= first)
        .scalar_subquery()
    )
    amends = sa.exists().where(
        corrections.relation == table.relation,
        corrections.first_offset >= table.first_offset,
        corrections.first_offset < table.first_offset + table.rows,
    )
    return (
        sa.select(*[*(c for c in table if c is not table.bounds), amends.label("amends")])
        .where(
            table.relation == relation,
            table.first_offset >= sa.func.coalesce(start, first),
            table.first_offset < sa.bindparam("end"),
            table.first_offset + table.rows > first,
        )
        .order_by(table.first_offset)
    )


_SELECT_SEGMENTS = _segments_between()


def _page_between(*, newest: bool) -> sa.Select[Any]:
    """Return the query for some segments of a log from one end of a range, with their bounds."""
    table, most = schema.segments.c, sa.bindparam("most", type_=sa.Integer())
    query = _segments_between().add_columns(table.bounds).limit(most)
    if not newest:
        return query
    return query.order_by(None).order_by(table.first_offset.desc())


_PAGE = _page_between(newest=False)
_NEWEST_PAGE = _page_between(newest=True)


def _corrections_between() -> sa.Select[Any]:
    """Return the query for the segments with corrections that begin in a range of a log, in order.

    They are found one after another, so it costs two look-ups for each, whatever is between them.
    """
    table, corrections = schema.segments, schema.corrections.c
    relation: sa.BindParameter[int] = sa.bindparam("its_relation")
    first = sa.bindparam("first", type_=sa.BigInteger())

    def holding(after: sa.ColumnElement[Any], *outer: sa.FromClause) -> sa.ColumnElement[bool]:
        """Return the condition of the segment with the next correction from an offset on."""
        following = sa.select(sa.func.min(corrections.first_offset)).where(
            corrections.relation == relation,
            corrections.first_offset >= after,
            corrections.first_offset < sa.bindparam("end", type_=sa.BigInteger()),
        )
        following = following.correlate(*outer)
        before = table.alias()
        place = sa.select(sa.func.max(before.c.first_offset)).where(
            before.c.relation == relation, before.c.first_offset <= following.scalar_subquery()
        )
        at = place.correlate(*outer).scalar_subquery()
        return sa.and_(table.c.relation == relation, table.c.first_offset == at)

    columns = [c for c in table.c if c is not table.c.bounds]
    found = sa.select(*columns).where(holding(first)).cte("found", recursive=True)
    end = found.c.first_offset + found.c.rows
    found = found.union_all(sa.select(*columns).join(found, holding(end, found)))
    return sa.select(*found.c, sa.true().label("amends")).order_by(found.c.first_offset)


_SELECT_CORRECTIONS = _corrections_between()


@dataclass(frozen=True, slots=True)
class Logs:
    """The log of each relation: its segments, and the corrections of earlier events in it."""

    _transactions: Transactions
    holds: Holds = field(default_factory=Holds)
    """What this process has read of it; files of segments in use are not deleted."""
    landed: Landed = field(default_factory=Landed)

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

        def change(writing: WriteTransaction) -> tuple[OffsetRange | HeadraceError, ...]:
            return tuple(self._tried(writing, each) for each in appends)

        return self._transactions.write(change, _naming(appends))

    def append_together(self, appends: Sequence[AppendRecord]) -> tuple[OffsetRange, ...]:
        """Append several segments in one transaction, all or none; see :meth:`append`.

        Raises:
            HeadraceError: as :meth:`append`; nothing is appended then.
        """

        def change(writing: WriteTransaction) -> tuple[OffsetRange, ...]:
            return tuple(self._append(writing, each) for each in appends)

        return self._transactions.write(change, _naming(appends))

    def _tried(
        self, writing: WriteTransaction, record: AppendRecord
    ) -> OffsetRange | HeadraceError:
        """Append a record; return the error for which it is not, which leaves the others."""
        try:
            return self._append(writing, record)
        except HeadraceError as error:
            return error

    def _append(self, writing: WriteTransaction, record: AppendRecord) -> OffsetRange:
        now = self._transactions.clock()
        appended = append(writing, record, now)
        self.landed.add(record.relation, len(record.segments) if appended.rows else 0)
        return appended

    def segments(self, relation: RelationId, first: Offset, end: Offset) -> tuple[Segment, ...]:
        """Return the segments that contain any of the offsets ``[first, end)``, in order.

        Whoever holds a published state can read what its logs had, until the files are deleted.

        Raises:
            HeadraceError: INVALID if the log no longer starts that early.
        """
        if first >= end:
            return ()
        # Before it is known which ones: they could be exchanged for another one meanwhile.
        hold = self.holds.new()
        known = self._transactions.head.in_tail(relation, first, end)
        if known is not None:
            return tuple(replace(each, hold=hold) for each in known)
        with self._transactions.reading() as connection:
            found = _segments(connection, relation, first, end, hold)
        start = self._transactions.head.starts.get(relation, Offset(0))
        if first < min(start, end) and (not found or found[0].range.first > first):
            raise HeadraceError(
                Code.INVALID,
                f"changes of relation {relation} before offset {start} are no longer kept",
                f"They were asked for from offset {first} on.",
                "Keep more of its history from now on.",
            )
        return found

    def page(
        self, relation: RelationId, first: Offset, end: Offset, most: int, *, newest: bool = False
    ) -> tuple[Segment, ...]:
        """Return up to ``most`` segments with any of the offsets ``[first, end)``, with bounds.

        They are the first ones, in order, or the ``newest``, last one first; none is left out
        between them. It costs as many rows of the ledger as it returns.
        """
        if first >= end:
            return ()
        wanted = {"its_relation": relation, "first": first, "end": end, "most": most}
        hold = self.holds.new()
        with self._transactions.reading() as connection:
            rows = connection.execute(_NEWEST_PAGE if newest else _PAGE, wanted)
            return tuple(_with_bounds(row, hold) for row in rows)

    def corrections_between(
        self, relation: RelationId, first: Offset, end: Offset
    ) -> tuple[Segment, ...]:
        """Return the segments with corrections that begin in ``[first, end)``, in order."""
        wanted = {"its_relation": relation, "first": first, "end": end}
        hold = self.holds.new()
        with self._transactions.reading() as connection:
            rows = connection.execute(_SELECT_CORRECTIONS, wanted)
            return tuple(segment_of(row, amends=True, hold=hold) for row in rows)

    def count(self, relation: RelationId, first: Offset, end: Offset) -> int:
        """Return the number of segments that begin in the offsets ``[first, end)``."""
        table = schema.segments.c
        query = sa.select(sa.func.count()).where(
            table.relation == relation, table.first_offset >= first, table.first_offset < end
        )
        with self._transactions.reading() as connection:
            return int(connection.execute(query).scalar_one())

    def appended_end(self, segment: Segment) -> Offset:
        """Return the end of what was appended together with a segment, which may be just that."""
        table = schema.segments.c
        query = sa.select(sa.func.max(table.first_offset + table.rows)).where(
            table.relation == segment.relation,
            table.first_offset >= segment.range.first,
            table.appended_at == segment.appended_at,
        )
        with self._transactions.reading() as connection:
            return Offset(connection.execute(query).scalar_one())

    def bounds(
        self, relation: RelationId, end: Offset
    ) -> tuple[tuple[OffsetRange, Mapping[str, Any]], ...]:
        """Return the segments that begin before an offset, with the bounds of their columns."""
        table = schema.segments.c
        query = (
            sa.select(table.first_offset, table.rows, table.bounds)
            .where(table.relation == relation, table.first_offset < end)
            .order_by(table.first_offset)
        )
        with self._transactions.reading() as connection:
            return tuple(
                (OffsetRange(Offset(first), Offset(first + rows)), found or {})
                for first, rows, found in connection.execute(query)
            )

    def sizes(self) -> Mapping[RelationId, LogSize]:
        """Return the size of what each log keeps; empty logs are left out."""
        table, logs = schema.segments.c, schema.logs.c
        query = (
            sa.select(
                table.relation,
                sa.func.count(),
                sa.func.sum(table.rows),
                sa.func.sum(table.bytes),
                sa.func.min(sa.func.coalesce(table.begun_at, table.appended_at)),
            )
            .join(schema.logs, logs.relation == table.relation)
            .where(table.first_offset + table.rows > logs.since)
            .group_by(table.relation)
        )
        with self._transactions.reading() as connection:
            return {
                RelationId(id_): LogSize(segments, int(changes), int(size), since)
                for id_, segments, changes, size, since in connection.execute(query)
            }

    def corrections(self, relation: RelationId, limit: int = 100) -> tuple[CorrectionRecord, ...]:
        """Return the newest corrections of a stream's events, newest first."""
        table = schema.corrections.c
        query = sa.select(schema.corrections).where(table.relation == relation)
        with self._transactions.reading() as connection:
            rows = connection.execute(query.order_by(table.first_offset.desc()).limit(limit))
            return tuple(
                CorrectionRecord(
                    relation,
                    OffsetRange(Offset(row.first_offset), Offset(row.first_offset + row.rows)),
                    row.at,
                    Correction(row.events, row.origin),
                )
                for row in rows
            )

    def newest_times(self, relation: RelationId) -> dict[str, int]:
        """Return the newest event time of each partition of a relation, in microseconds."""
        with self._transactions.reading() as connection:
            return _newest_times(connection, relation)

    def beginning(
        self, relation: RelationId, wanted: Callable[[Retired], bool]
    ) -> tuple[Retired, ...]:
        """Return the first segments of a log, up to one that is not wanted.

        Each is given as the last that would not be kept.
        """
        table, logs = schema.segments.c, schema.logs
        end = table.first_offset + table.rows
        query = (
            sa.select(end, table.bounds, table.appended_at)
            .join(logs, logs.c.relation == table.relation)
            .where(table.relation == relation, end > logs.c.since)
            .order_by(table.first_offset)
        )
        with self._transactions.reading() as connection:
            kept = (
                Retired(Offset(upto), bounds or {}, appended_at)
                for upto, bounds, appended_at in connection.execute(query)
            )
            return tuple(takewhile(wanted, kept))

    def retired(self, relation: RelationId) -> Retired | None:
        """Return what is known of the changes of a log that are not kept; None if all are."""
        table, logs = schema.retired, schema.logs
        query = (
            sa.select(table.c.bounds, table.c.appended_at, logs.c.since)
            .join(logs, logs.c.relation == table.c.relation)
            .where(table.c.relation == relation)
        )
        with self._transactions.reading() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else Retired(Offset(row.since), row.bounds, row.appended_at)

    def retire(self, relation: RelationId, retired: Retired) -> None:
        """Stop keeping the changes of a log before an offset; no log's start moves back.

        Raises:
            HeadraceError: CONFLICT if a build has not read the log that far, or epochs have not
                read a correction of its events.
        """
        with self._transactions.writing() as writing:
            head = writing.head
            if retired.start <= head.starts[relation]:
                return
            read = head.needed_from(relation)
            if retired.start > read:
                raise _unread(relation, retired.start, read)
            amended = _last_correction(writing.connection, relation)
            if head.is_live(relation) and amended > head.positions[relation]:
                raise _unread(relation, amended, head.positions[relation])
            _retire(writing.connection, relation, retired)
            self._transactions.fault("retired")
            writing.head = head.after_starts({relation: retired.start})


def append(writing: WriteTransaction, record: AppendRecord, now: float) -> OffsetRange:
    """Append segments to a relation's log; see :meth:`Logs.append`. Writes all or nothing."""
    connection, relation = writing.connection, record.relation
    end = _end_for_append(writing.head, relation)
    if record.correction is not None:
        _require_kept(writing.head, relation, record.correction)
    if record.load is not None:
        loads.require_unfinished(connection, relation, record.load)
    new = [p for p in record.producers if loads.is_new(connection, relation, p)]
    if record.delivered is not None:
        _end_for_append(writing.head, record.delivered.sink)
        _store_delivered(connection, record.delivered)
    if len(new) < len(record.producers):
        if len(record.producers) > 1:
            raise HeadraceError(Code.INTERNAL, "a gathered append repeats a producer's number")
        return OffsetRange(end, end)
    for producer in new:
        loads.advance_producer(connection, relation, producer)
    if record.load is not None:
        loads.advance_load(connection, relation, record.load)
    rows, stored = 0, list[dict[str, Any]]()
    for segment in record.segments:
        row = {
            "relation": relation,
            "first_offset": end + rows,
            "rows": segment.rows,
            "file": segment.name,
            "position": segment.position,
            "bytes": segment.bytes,
            "checksum": segment.checksum,
            "appended_at": now,
            "bounds": dict(segment.bounds) or None,
            "footer": segment.footer or None,
            "begun_at": None,
        }
        stored.append(row)
        rows += segment.rows
    if stored:
        _INSERT_SEGMENT.run(connection, *stored)
    if record.correction is not None and rows:
        correction = {
            "relation": relation,
            "first_offset": end,
            "rows": rows,
            "at": now,
            "events": record.correction.events,
            "origin": dict(record.correction.origin),
        }
        connection.execute(schema.corrections.insert(), correction)
    loads.add(connection, relation, record.rejects, now)
    loads.count(connection, relation, record.left_out)
    _advance_times(connection, relation, record.newest)
    appended = OffsetRange(end, Offset(end + rows))
    if rows or record.rejects:
        ends = {"its_end": end, "new_end": end + rows, "more": len(record.rejects)}
        if not _UPDATE_LOG.run(connection, {"its_relation": relation, **ends}):
            raise HeadraceError(Code.INTERNAL, f"the log of relation {relation} has another end")
    writing.head = writing.head.after_append(relation, _placed(record, appended, now))
    return appended


def _naming(appends: Iterable[AppendRecord]) -> frozenset[FileKey]:
    """Return the files of the segments that a transaction appends."""
    return frozenset((SEGMENTS, segment.name) for each in appends for segment in each.segments)


def _placed(record: AppendRecord, appended: OffsetRange, now: float) -> tuple[Segment, ...]:
    """Return the segments of a record that was appended at these offsets."""
    found, first = list[Segment](), appended.first
    for each in record.segments if appended.rows else ():
        end, amends = Offset(first + each.rows), record.correction is not None and not found
        file = replace(each, bounds={})
        found.append(Segment(record.relation, OffsetRange(first, end), file, now, amends))
        first = end
    return tuple(found)


def _require_kept(head: Head, relation: RelationId, correction: Correction) -> None:
    """Refuse a correction of an event that was retired after the statement had found it."""
    if correction.first < head.starts[relation]:
        raise HeadraceError(
            Code.CONFLICT,
            "some of the events have been retired meanwhile",
            "Nothing was appended.",
            "Run the statement again: it corrects those that are kept.",
        )


def _store_delivered(connection: sa.Connection, record: DeliveryRecord) -> None:
    """Store how far a sink has been given changes."""
    values = {
        "begins": record.begins,
        "delivered": record.delivered,
        "state": record.state.value,
        "why": record.why,
        "clears": record.clears,
        "writing": record.writing,
        "written": record.written,
    }
    if not _UPDATE_DELIVERED.run(connection, {"its_sink": record.sink, **values}):
        connection.execute(schema.deliveries.insert(), {"sink": record.sink, **values})


def _advance_times(
    connection: sa.Connection, relation: RelationId, newest: Mapping[str, int]
) -> None:
    known = _newest_times(connection, relation) if newest else {}
    for partition, time in newest.items():
        if partition not in known:
            row = {"relation": relation, "partition": partition, "time": time}
            connection.execute(schema.newest_times.insert(), row)
        elif time > known[partition]:
            row = {"its_relation": relation, "its_partition": partition, "newest": time}
            _UPDATE_TIME.run(connection, row)


def ends(connection: sa.Connection) -> dict[RelationId, Offset]:
    """Return the end of every live relation's log."""
    return _per_live_relation(connection, schema.logs.c.log_end)


def starts(connection: sa.Connection) -> dict[RelationId, Offset]:
    """Return the oldest offset of every live relation's log that can be read."""
    return _per_live_relation(connection, schema.logs.c.since)


def _with_bounds(row: sa.Row[Any], hold: ReadHold) -> Segment:
    found = segment_of(row, amends=bool(row.amends), hold=hold)
    return replace(found, file=replace(found.file, bounds=row.bounds or {}))


def _per_live_relation(
    connection: sa.Connection, column: sa.ColumnElement[int]
) -> dict[RelationId, Offset]:
    objects = schema.objects.c
    query = (
        sa.select(schema.logs.c.relation, column)
        .join(schema.objects, objects.relation == schema.logs.c.relation)
        .where(objects.dropped_epoch.is_(None))
    )
    return {RelationId(key): Offset(value) for key, value in connection.execute(query)}


def _retire(connection: sa.Connection, relation: RelationId, retired: Retired) -> None:
    """Cut a log at an offset that is after its start so far."""
    logs, table = schema.logs, schema.retired
    cut = logs.update().where(logs.c.relation == relation)
    connection.execute(cut.values(since=retired.start))
    row = {"bounds": dict(retired.bounds), "appended_at": retired.appended_at}
    known = table.update().where(table.c.relation == relation)
    if not connection.execute(known.values(row)).rowcount:
        connection.execute(table.insert(), {"relation": relation, **row})


def _segments(
    connection: sa.Connection, relation: RelationId, first: Offset, end: Offset, hold: ReadHold
) -> tuple[Segment, ...]:
    wanted = {"its_relation": relation, "first": first, "end": end}
    return tuple(
        segment_of(row, amends=bool(row.amends), hold=hold)
        for row in connection.execute(_SELECT_SEGMENTS, wanted)
    )


def _end_for_append(head: Head, relation: RelationId) -> Offset:
    """Return the end of a log: only the process of this head changes it."""
    if relation not in head.ends:
        raise HeadraceError(
            Code.CONFLICT,
            f"relation {relation} was dropped or never created",
            "Nothing was appended.",
        )
    return head.ends[relation]


def _newest_times(connection: sa.Connection, relation: RelationId) -> dict[str, int]:
    """Return the newest event time of each partition of a relation, in microseconds."""
    return dict(_SELECT_TIMES.rows(connection, its_relation=relation))


def _last_correction(connection: sa.Connection, relation: RelationId) -> Offset:
    """Return the end of the last correction of a stream's events; 0 if there is none."""
    table = schema.corrections.c
    query = sa.select(sa.func.max(table.first_offset + table.rows)).where(
        table.relation == relation
    )
    return Offset(connection.execute(query).scalar() or 0)


def _unread(relation: RelationId, wanted: Offset, read: Offset) -> HeadraceError:
    return HeadraceError(
        Code.CONFLICT,
        f"changes of relation {relation} that are not read yet would be lost",
        f"All builds have read it up to offset {read}, and not up to {wanted}.",
        "Make the epochs that read them first.",
    )
