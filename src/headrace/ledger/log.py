"""The embedded log: segments, bulk loads, producers, and rejected rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from headrace.errors import Code, HeadraceError
from headrace.ledger import schema
from headrace.ledger.records import (
    LoadProgress,
    OffsetRange,
    ProducerPosition,
    Reject,
    RejectRecord,
    Segment,
    SegmentFile,
)
from headrace.types import Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Sequence


def append(
    connection: sa.Connection,
    relation: RelationId,
    segment: SegmentFile | None,
    *,
    load: LoadProgress | None,
    producer: ProducerPosition | None,
    rejects: Sequence[Reject],
    now: float,
) -> OffsetRange:
    """Append a segment to a relation's log; see :meth:`Ledger.append`."""
    end, rejected = _log_for_append(connection, relation)
    if producer is not None and not _advance_producer(connection, relation, producer):
        return OffsetRange(Offset(end), Offset(end))
    if load is not None:
        _advance_load(connection, relation, load)
    rows = 0 if segment is None else segment.rows
    if segment is not None and rows > 0:
        row = {
            "relation": relation,
            "first_offset": end,
            "rows": rows,
            "file": segment.name,
            "bytes": segment.bytes,
            "checksum": segment.checksum,
            "appended_at": now,
        }
        connection.execute(schema.segments.insert(), row)
    if rejects:
        connection.execute(schema.rejects.insert(), [_reject(relation, r, now) for r in rejects])
    if rows or rejects:
        change = schema.logs.update().where(schema.logs.c.relation == relation)
        connection.execute(change.values(log_end=end + rows, rejected=rejected + len(rejects)))
    return OffsetRange(Offset(end), Offset(end + rows))


def log_ends(connection: sa.Connection) -> dict[RelationId, Offset]:
    """Return the end of every live relation's log."""
    return _per_live_relation(connection, schema.logs.c.log_end)


def positions(connection: sa.Connection) -> dict[RelationId, Offset]:
    """Return how far epochs have read every live relation's log."""
    return _per_live_relation(connection, schema.logs.c.consumed)


def log_end(connection: sa.Connection, relation: RelationId) -> Offset:
    """Return the end of one relation's log; 0 if it never had one."""
    return _of_relation(connection, schema.logs.c.log_end, relation)


def position(connection: sa.Connection, relation: RelationId) -> Offset:
    """Return how far epochs have read one relation's log."""
    return _of_relation(connection, schema.logs.c.consumed, relation)


def reject_count(connection: sa.Connection, relation: RelationId) -> int:
    """Return how many rows of a relation were rejected."""
    return _of_relation(connection, schema.logs.c.rejected, relation)


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
    query = (
        sa.select(schema.segments)
        .where(
            table.relation == relation,
            table.first_offset >= sa.func.coalesce(start, first),
            table.first_offset < end,
            table.first_offset + table.rows > first,
        )
        .order_by(table.first_offset)
    )
    return tuple(_segment(row) for row in connection.execute(query))


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
    logs, objects = schema.logs.c, schema.objects.c
    query = (
        sa.select(logs.log_end, logs.rejected)
        .join(schema.objects, objects.relation == logs.relation)
        .where(logs.relation == relation, objects.dropped_epoch.is_(None))
    )
    found = connection.execute(query).one_or_none()
    if found is None:
        raise HeadraceError(
            Code.CONFLICT,
            f"relation {relation} was dropped or never created",
            "Nothing was appended.",
        )
    return found.log_end, found.rejected


def _advance_producer(
    connection: sa.Connection, relation: RelationId, producer: ProducerPosition
) -> bool:
    """Record the producer's number; return False if this or a later one is recorded already."""
    table = schema.producers.c
    mine = (table.relation == relation) & (table.producer == producer.producer)
    last = connection.execute(sa.select(table.sequence).where(mine)).scalar()
    if last is None:
        row = {
            "relation": relation,
            "producer": producer.producer,
            "sequence": producer.sequence,
        }
        connection.execute(schema.producers.insert(), row)
        return True
    if producer.sequence <= last:
        return False
    connection.execute(schema.producers.update().where(mine).values(sequence=producer.sequence))
    return True


def producer_at(connection: sa.Connection, relation: RelationId, producer: str) -> int | None:
    """Return the last number of a producer; None if it never appended."""
    table = schema.producers.c
    query = sa.select(table.sequence).where(table.relation == relation, table.producer == producer)
    found: int | None = connection.execute(query).scalar()
    return found


def _advance_load(connection: sa.Connection, relation: RelationId, load: LoadProgress) -> None:
    known = load_of(connection, relation, load.source)
    values = {"progress": dict(load.progress), "finished": load.finished}
    if known is None:
        row = {"relation": relation, "source": load.source, **values}
        connection.execute(schema.loads.insert(), row)
        return
    if known.finished:
        raise HeadraceError(
            Code.CONFLICT,
            f'load of "{load.source}" was finished already',
            "Nothing was appended.",
            "Load it under another identity to append its rows once more.",
        )
    table = schema.loads.c
    mine = (table.relation == relation) & (table.source == load.source)
    connection.execute(schema.loads.update().where(mine).values(values))


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
        SegmentFile(row.file, row.rows, row.bytes, row.checksum),
        row.appended_at,
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


def _of_relation(
    connection: sa.Connection, column: sa.ColumnElement[int], relation: RelationId
) -> Offset:
    query = sa.select(column).where(schema.logs.c.relation == relation)
    return Offset(connection.execute(query).scalar() or 0)
