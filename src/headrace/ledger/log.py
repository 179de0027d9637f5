"""The embedded log: segments, bulk loads, producers, and rejected rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from headrace.errors import Code, HeadraceError
from headrace.ledger import schema
from headrace.ledger.records import (
    AppendRecord,
    Correction,
    CorrectionRecord,
    LoadProgress,
    LogSize,
    OffsetRange,
    ProducerPosition,
    Reject,
    RejectRecord,
    Retired,
    Segment,
    SegmentFile,
)
from headrace.types import Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


# Built once: building a statement takes as long as running it, and every append runs these.
_SELECT_LOG = (
    sa.select(schema.logs.c.log_end, schema.logs.c.rejected)
    .join(schema.objects, schema.objects.c.relation == schema.logs.c.relation)
    .where(
        schema.logs.c.relation == sa.bindparam("its_relation"),
        schema.objects.c.dropped_epoch.is_(None),
    )
)
_INSERT_SEGMENT = schema.segments.insert()
_UPDATE_LOG = (
    schema.logs.update()
    .where(schema.logs.c.relation == sa.bindparam("its_relation"))
    .values(log_end=sa.bindparam("log_end"), rejected=sa.bindparam("rejected"))
)
_DELETE_NOTE = schema.loads.delete().where(
    schema.loads.c.relation == sa.bindparam("its_relation"),
    schema.loads.c.source == sa.bindparam("its_source"),
)
_NOTE = "\n"
"""Between the source of a load and the name of a note of it."""
_VALUE = "value"


def append(connection: sa.Connection, append: AppendRecord, now: float) -> OffsetRange:
    """Append segments to a relation's log; see :meth:`Ledger.append`. Writes all or nothing."""
    relation, rejects = append.relation, append.rejects
    end, rejected = _log_for_append(connection, relation)
    if append.load is not None:
        _require_unfinished(connection, relation, append.load)
    new = [p for p in append.producers if _is_new(connection, relation, p)]
    if len(new) < len(append.producers):
        if len(append.producers) > 1:
            raise HeadraceError(Code.INTERNAL, "a gathered append repeats a producer's number")
        return OffsetRange(Offset(end), Offset(end))
    for producer in new:
        _advance_producer(connection, relation, producer)
    if append.load is not None:
        _advance_load(connection, relation, append.load)
    rows = 0
    for segment in append.segments:
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
        }
        connection.execute(_INSERT_SEGMENT, row)
        rows += segment.rows
    if append.correction is not None and rows:
        _require_kept(connection, relation, append.correction)
        correction = {
            "relation": relation,
            "first_offset": end,
            "rows": rows,
            "at": now,
            "events": append.correction.events,
            "origin": dict(append.correction.origin),
        }
        connection.execute(schema.corrections.insert(), correction)
    if rejects:
        connection.execute(schema.rejects.insert(), [_reject(relation, r, now) for r in rejects])
    _count(connection, relation, append.left_out)
    _advance_times(connection, relation, append.newest)
    if rows or rejects:
        ends = {"log_end": end + rows, "rejected": rejected + len(rejects)}
        connection.execute(_UPDATE_LOG, {"its_relation": relation, **ends})
    return OffsetRange(Offset(end), Offset(end + rows))


def corrections(
    connection: sa.Connection, relation: RelationId, limit: int
) -> tuple[CorrectionRecord, ...]:
    """Return the newest corrections of a stream, newest first."""
    table = schema.corrections.c
    query = sa.select(schema.corrections).where(table.relation == relation)
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


def _require_kept(connection: sa.Connection, relation: RelationId, correction: Correction) -> None:
    """Refuse a correction of an event that was retired after the statement had found it."""
    query = sa.select(schema.logs.c.since).where(schema.logs.c.relation == relation)
    if correction.first < connection.execute(query).scalar_one():
        raise HeadraceError(
            Code.CONFLICT,
            "some of the events have been retired meanwhile",
            "Nothing was appended.",
            "Run the statement again: it corrects those that are kept.",
        )


def _count(connection: sa.Connection, relation: RelationId, rows: Mapping[str, int]) -> None:
    for reason, count in rows.items():
        before = left_out(connection, relation).get(reason)
        if before is None:
            row = {"relation": relation, "reason": reason, "rows": count}
            connection.execute(schema.left_out.insert(), row)
            continue
        its = schema.left_out.c
        connection.execute(
            schema.left_out.update()
            .where(its.relation == relation, its.reason == reason)
            .values(rows=before + count)
        )


def _advance_times(
    connection: sa.Connection, relation: RelationId, newest: Mapping[str, int]
) -> None:
    known = newest_times(connection, relation) if newest else {}
    for partition, time in newest.items():
        if partition not in known:
            row = {"relation": relation, "partition": partition, "time": time}
            connection.execute(schema.newest_times.insert(), row)
        elif time > known[partition]:
            its = schema.newest_times.c
            connection.execute(
                schema.newest_times.update()
                .where(its.relation == relation, its.partition == partition)
                .values(time=time)
            )


def left_out(connection: sa.Connection, relation: RelationId) -> dict[str, int]:
    """Return how many rows a relation's log has not taken, by reason, besides rejects."""
    its = schema.left_out.c
    query = sa.select(its.reason, its.rows).where(its.relation == relation)
    return {row.reason: row.rows for row in connection.execute(query)}


def newest_times(connection: sa.Connection, relation: RelationId) -> dict[str, int]:
    """Return the newest event time of each partition of a relation, in microseconds."""
    its = schema.newest_times.c
    query = sa.select(its.partition, its.time).where(its.relation == relation)
    return {row.partition: row.time for row in connection.execute(query)}


def log_ends(connection: sa.Connection) -> dict[RelationId, Offset]:
    """Return the end of every live relation's log."""
    return _per_live_relation(connection, schema.logs.c.log_end)


def log_starts(connection: sa.Connection) -> dict[RelationId, Offset]:
    """Return the oldest offset of every live relation's log that can be read."""
    return _per_live_relation(connection, schema.logs.c.since)


def retire(connection: sa.Connection, relation: RelationId, retired: Retired) -> None:
    """Stop keeping the changes before an offset, which is after the log's start so far."""
    logs, table = schema.logs, schema.retired
    cut = logs.update().where(logs.c.relation == relation)
    connection.execute(cut.values(since=retired.start))
    row = {"bounds": dict(retired.bounds), "appended_at": retired.appended_at}
    known = table.update().where(table.c.relation == relation)
    if not connection.execute(known.values(row)).rowcount:
        connection.execute(table.insert(), {"relation": relation, **row})


def retired_of(connection: sa.Connection, relation: RelationId) -> Retired | None:
    """Return what is known of the changes of a log that are no longer kept; None if all are."""
    table, logs = schema.retired, schema.logs
    query = (
        sa.select(table.c.bounds, table.c.appended_at, logs.c.since)
        .join(logs, logs.c.relation == table.c.relation)
        .where(table.c.relation == relation)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else Retired(Offset(row.since), row.bounds, row.appended_at)


def beginning(connection: sa.Connection, relation: RelationId) -> Iterator[Retired]:
    """Yield the segments of a log that are kept, in order, each as the last that would not be."""
    table, logs = schema.segments.c, schema.logs
    end = table.first_offset + table.rows
    query = (
        sa.select(end, table.bounds, table.appended_at)
        .join(logs, logs.c.relation == table.relation)
        .where(table.relation == relation, end > logs.c.since)
        .order_by(table.first_offset)
    )
    for upto, bounds, appended_at in connection.execute(query):
        yield Retired(Offset(upto), bounds or {}, appended_at)


def sizes(connection: sa.Connection) -> dict[RelationId, LogSize]:
    """Return how much each log has; those that have nothing are left out."""
    table, logs = schema.segments.c, schema.logs.c
    query = (
        sa.select(
            table.relation,
            sa.func.count(),
            sa.func.sum(table.rows),
            sa.func.sum(table.bytes),
            sa.func.min(table.appended_at),
        )
        .join(schema.logs, logs.relation == table.relation)
        .where(table.first_offset + table.rows > logs.since)
        .group_by(table.relation)
    )
    return {
        RelationId(id_): LogSize(segments, int(changes), int(size), since)
        for id_, segments, changes, size, since in connection.execute(query)
    }


def last_correction(connection: sa.Connection, relation: RelationId) -> Offset:
    """Return the end of the last correction of a stream's events; 0 if there is none."""
    table = schema.corrections.c
    query = sa.select(sa.func.max(table.first_offset + table.rows)).where(
        table.relation == relation
    )
    return Offset(connection.execute(query).scalar() or 0)


def reject_count(connection: sa.Connection, relation: RelationId) -> int:
    """Return how many rows of a relation were rejected."""
    query = sa.select(schema.logs.c.rejected).where(schema.logs.c.relation == relation)
    return connection.execute(query).scalar() or 0


def segments(
    connection: sa.Connection, relation: RelationId, first: Offset, end: Offset
) -> tuple[Segment, ...]:
    """Return the segments that contain any of the offsets ``[first, end)``, by offset."""
    if first >= end:
        return ()
    table = schema.segments.c
    # Segments do not overlap: `first` is in the last segment that starts at or before it.
    start = (
        sa.select(sa.func.max(table.first_offset))
        .where(table.relation == relation, table.first_offset <= first)
        .scalar_subquery()
    )
    corrections = schema.corrections.c
    amends = sa.exists().where(
        corrections.relation == table.relation, corrections.first_offset == table.first_offset
    )
    query = (
        sa.select(*[*(c for c in table if c is not table.bounds), amends.label("amends")])
        .where(
            table.relation == relation,
            table.first_offset >= sa.func.coalesce(start, first),
            table.first_offset < end,
            table.first_offset + table.rows > first,
        )
        .order_by(table.first_offset)
    )
    return tuple(_segment(row) for row in connection.execute(query))


def appended_end(connection: sa.Connection, segment: Segment) -> Offset:
    """Return the end of the last segment that was appended together with one, or that one's."""
    table = schema.segments.c
    query = sa.select(sa.func.max(table.first_offset + table.rows)).where(
        table.relation == segment.relation,
        table.first_offset >= segment.range.first,
        table.appended_at == segment.appended_at,
    )
    return Offset(connection.execute(query).scalar_one())


def bounds(
    connection: sa.Connection, relation: RelationId, end: Offset
) -> Iterator[tuple[OffsetRange, Mapping[str, Any]]]:
    """Yield the segments that begin before an offset, each with the bounds of its columns."""
    table = schema.segments.c
    query = (
        sa.select(table.first_offset, table.rows, table.bounds)
        .where(table.relation == relation, table.first_offset < end)
        .order_by(table.first_offset)
    )
    for first, rows, found in connection.execute(query):
        yield OffsetRange(Offset(first), Offset(first + rows)), found or {}


def load_of(connection: sa.Connection, relation: RelationId, source: str) -> LoadProgress | None:
    """Return the progress of the load of a source; None if it never began."""
    loads = schema.loads.c
    query = sa.select(loads.progress, loads.finished).where(
        loads.relation == relation, loads.source == source
    )
    found = connection.execute(query).one_or_none()
    return None if found is None else LoadProgress(source, found.progress, found.finished)


def unfinished_loads(connection: sa.Connection, relation: RelationId) -> tuple[LoadProgress, ...]:
    """Return the loads into a relation that have begun and not ended, by source."""
    loads = schema.loads.c
    query = (
        sa.select(loads.source, loads.progress)
        .where(loads.relation == relation, ~loads.finished)
        .order_by(loads.source)
    )
    return tuple(LoadProgress(row.source, row.progress) for row in connection.execute(query))


def notes_of(connection: sa.Connection, relation: RelationId, source: str) -> dict[str, Any]:
    """Return the notes of the load of a source, by name."""
    loads, prefix = schema.loads.c, source + _NOTE
    query = sa.select(loads.source, loads.progress).where(
        loads.relation == relation, loads.source.startswith(prefix, autoescape=True)
    )
    return {
        row.source.removeprefix(prefix): row.progress[_VALUE]
        for row in connection.execute(query)
        if row.source.startswith(prefix)  # LIKE may not tell cases apart
    }


def rejects(
    connection: sa.Connection, relation: RelationId, limit: int
) -> tuple[RejectRecord, ...]:
    """Return the newest rejected rows of a relation, newest first."""
    table = schema.rejects.c
    query = (
        sa.select(schema.rejects)
        .where(table.relation == relation)
        .order_by(table.id.desc())
        .limit(limit)
    )
    return tuple(
        RejectRecord(Reject(row.file, row.line, row.column, row.reason, row.raw), row.at)
        for row in connection.execute(query)
    )


def _log_for_append(connection: sa.Connection, relation: RelationId) -> tuple[int, int]:
    found = connection.execute(_SELECT_LOG, {"its_relation": relation}).one_or_none()
    if found is None:
        raise HeadraceError(
            Code.CONFLICT,
            f"relation {relation} was dropped or never created",
            "Nothing was appended.",
        )
    return found.log_end, found.rejected


def _is_new(connection: sa.Connection, relation: RelationId, producer: ProducerPosition) -> bool:
    last = producer_at(connection, relation, producer.producer)
    return last is None or producer.sequence > last


def _advance_producer(
    connection: sa.Connection, relation: RelationId, producer: ProducerPosition
) -> None:
    table = schema.producers.c
    mine = (table.relation == relation) & (table.producer == producer.producer)
    values = {"sequence": producer.sequence}
    if connection.execute(schema.producers.update().where(mine).values(values)).rowcount:
        return
    row = {"relation": relation, "producer": producer.producer, **values}
    connection.execute(schema.producers.insert(), row)


def producer_at(connection: sa.Connection, relation: RelationId, producer: str) -> int | None:
    """Return the last number of a producer; None if it never appended."""
    table = schema.producers.c
    query = sa.select(table.sequence).where(table.relation == relation, table.producer == producer)
    found: int | None = connection.execute(query).scalar()
    return found


def producers_at(
    connection: sa.Connection, asked: Sequence[tuple[RelationId, str]]
) -> dict[tuple[RelationId, str], int]:
    """Return the last number of each producer of a relation that has appended."""
    table = schema.producers.c
    wanted = sa.tuple_(table.relation, table.producer).in_(list(asked))
    query = sa.select(schema.producers).where(wanted)
    return {
        (RelationId(row.relation), row.producer): row.sequence for row in connection.execute(query)
    }


def _require_unfinished(
    connection: sa.Connection, relation: RelationId, load: LoadProgress
) -> None:
    known = load_of(connection, relation, load.source)
    if known is not None and known.finished:
        raise HeadraceError(
            Code.CONFLICT,
            f'load of "{load.source}" was finished already',
            "Nothing was appended.",
            "Load it under another identity to append its rows once more.",
        )


def _advance_load(connection: sa.Connection, relation: RelationId, load: LoadProgress) -> None:
    table = schema.loads.c
    if load.notes:
        _write_notes(connection, relation, load)
    mine = (table.relation == relation) & (table.source == load.source)
    values = {"progress": dict(load.progress), "finished": load.finished}
    if connection.execute(schema.loads.update().where(mine).values(values)).rowcount:
        return
    row = {"relation": relation, "source": load.source, **values}
    connection.execute(schema.loads.insert(), row)


def _write_notes(connection: sa.Connection, relation: RelationId, load: LoadProgress) -> None:
    """Write the notes of a load, each as a finished load of its own."""
    rows = [
        {
            "relation": relation,
            "source": f"{load.source}{_NOTE}{name}",
            "progress": {_VALUE: value},
            "finished": True,
        }
        for name, value in load.notes.items()
    ]
    connection.execute(
        _DELETE_NOTE, [{"its_relation": relation, "its_source": row["source"]} for row in rows]
    )
    connection.execute(schema.loads.insert(), rows)


def _reject(relation: RelationId, reject: Reject, now: float) -> dict[str, object]:
    raw = reject.raw.encode("utf-8", "replace")[: schema.REJECT_BYTES].decode("utf-8", "ignore")
    return {
        "relation": relation,
        "file": reject.file,
        "line": reject.line,
        "column": reject.column,
        "reason": reject.reason.replace("\0", "\ufffd"),
        "raw": raw.replace("\0", "\ufffd"),  # PostgreSQL's text cannot hold NUL
        "at": now,
    }


def _segment(row: sa.Row[tuple[object, ...]]) -> Segment:
    first = Offset(row.first_offset)
    return Segment(
        RelationId(row.relation),
        OffsetRange(first, Offset(first + row.rows)),
        SegmentFile(row.file, row.rows, row.bytes, row.checksum, row.position),
        row.appended_at,
        bool(row.amends),
    )


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
