"""Merges of segments: which ones a log has, and the exchange of some for one that has their rows.

Whoever asks for segments afterwards is given the new one. Who has been given the former ones
holds them (:attr:`Segment.hold`), so their files are left until nobody does.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from headrace.errors import Code, HeadraceError
from headrace.files.mounts import SEGMENTS
from headrace.storage.ledger import schema
from headrace.storage.ledger.driver_statement import DriverStatement
from headrace.storage.ledger.records import OffsetRange, Retired, Segment, SegmentFile
from headrace.types import Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.storage.ledger.holds import ReadHold
    from headrace.storage.ledger.transactions import Transactions


_LIVE = schema.objects.c.dropped_epoch.is_(None)
_MOVE = DriverStatement(
    schema.segments.update()
    .where(
        schema.segments.c.relation == sa.bindparam("its_relation"),
        schema.segments.c.first_offset == sa.bindparam("its_first"),
        schema.segments.c.file == sa.bindparam("its_file"),
    )
    .values(
        file=sa.bindparam("new_file"),
        position=sa.bindparam("new_position"),
        bytes=sa.bindparam("new_bytes"),
        checksum=sa.bindparam("new_checksum"),
    )
)


class LoggedSegment(NamedTuple):
    """A segment of a log; when its first change was appended; what is known of its last one."""

    segment: Segment
    begun_at: float
    known: Retired


@dataclass(slots=True)
class Landed:
    """How many segments were appended to each log since they were merged last. Thread-safe."""

    most: int = 0
    """The most of one log."""
    total: int = 0
    """How many were ever counted."""
    _counts: Counter[RelationId] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, relation: RelationId, segments: int) -> None:
        """Count segments of a log."""
        with self._lock:
            self.total += segments
            self._counts[relation] += segments
            self.most = max(self.most, self._counts[relation])

    def take(self, least: int) -> tuple[RelationId, ...]:
        """Return the logs with at least so many, which are counted from 0 again."""
        with self._lock:
            found = tuple(id_ for id_, count in self._counts.items() if count >= least)
            for id_ in found:
                del self._counts[id_]
            self.most = max(self._counts.values(), default=0)
        return found


@dataclass(frozen=True, slots=True)
class LogMerges:
    """The segments of logs as what is merged. Thread-safe."""

    _transactions: Transactions

    def counts(self) -> Mapping[RelationId, int]:
        """Return how many segments the log of each live relation has."""
        table = schema.segments.c
        query = (
            sa.select(table.relation, sa.func.count())
            .join(schema.objects, schema.objects.c.relation == table.relation)
            .where(_LIVE)
            .group_by(table.relation)
        )
        with self._transactions.reading() as connection:
            return {RelationId(id_): count for id_, count in connection.execute(query)}

    def segments(
        self, relation: RelationId, first: Offset, end: Offset, most: int | None = None
    ) -> tuple[LoggedSegment, ...]:
        """Return the segments of a log in the offsets ``[first, end)``, as far as they are kept.

        They are all, or the first ones.
        """
        table, logs = schema.segments.c, schema.logs.c
        corrections = schema.corrections.c
        last = table.first_offset + table.rows
        amends = sa.exists().where(
            corrections.relation == table.relation,
            corrections.first_offset >= table.first_offset,
            corrections.first_offset < last,
        )
        query = (
            sa.select(*table, amends.label("amends"))
            .join(schema.logs, logs.relation == table.relation)
            .where(
                table.relation == relation,
                table.first_offset >= first,
                last <= end,
                last > logs.since,
            )
            .order_by(table.first_offset)
            .limit(most)
        )
        with self._transactions.reading() as connection:
            return tuple(_logged(row) for row in connection.execute(query))

    def landings_in(self, file: str) -> tuple[Segment, ...]:
        """Return the landings of logs that are kept in a file, in its order."""
        table, logs = schema.segments.c, schema.logs.c
        query = (
            sa.select(schema.segments)
            .join(schema.objects, schema.objects.c.relation == table.relation)
            .join(schema.logs, logs.relation == table.relation)
            .where(table.file == file, _LIVE, table.first_offset + table.rows > logs.since)
            .order_by(table.position)
        )
        with self._transactions.reading() as connection:
            return tuple(segment_of(row) for row in connection.execute(query))

    def move(self, moved: Sequence[tuple[Segment, SegmentFile]]) -> frozenset[str]:
        """Name copies of landings in place of them; they were appended when they were.

        Returns the files that no segment is in any longer.

        Raises:
            HeadraceError: CONFLICT if one of them is not there any more, or another process took
                over.
        """
        rows = [
            {
                "its_relation": each.relation,
                "its_first": each.range.first,
                "its_file": each.file.name,
                "new_file": copy.name,
                "new_position": copy.position,
                "new_bytes": copy.bytes,
                "new_checksum": copy.checksum,
            }
            for each, copy in moved
        ]
        with self._transactions.writing() as writing:
            if _MOVE.run(writing.connection, *rows) != len(rows):
                raise _changed(moved[0][0].relation)
            gone = _without_segments(writing.connection, {each.file.name for each, _ in moved})
            self._transactions.fault("segments moved")
            writing.head = writing.head.without_tails({each.relation for each, _ in moved})
        return gone

    def exchange(
        self, merged: Sequence[LoggedSegment], file: SegmentFile
    ) -> tuple[frozenset[str], Segment]:
        """Replace consecutive segments of a log by one with their rows, which was written.

        Returns the files that no segment is in any longer, and the new segment.

        Raises:
            HeadraceError: CONFLICT if the log has other segments there by now, or was dropped, or
                another process took over.
        """
        first, last = merged[0].segment, merged[-1].segment
        relation, table = first.relation, schema.segments
        place = (
            (table.c.relation == relation)
            & (table.c.first_offset >= first.range.first)
            & (table.c.first_offset < last.range.end)
        )
        stored = {
            "relation": relation,
            "first_offset": first.range.first,
            "rows": file.rows,
            "file": file.name,
            "position": file.position,
            "bytes": file.bytes,
            "checksum": file.checksum,
            "appended_at": last.appended_at,
            "bounds": dict(file.bounds) or None,
            "footer": file.footer or None,
            "begun_at": merged[0].begun_at,
        }
        span = OffsetRange(first.range.first, last.range.end)
        amends = any(each.segment.amends for each in merged)
        found = Segment(relation, span, file, last.appended_at, amends)
        with self._transactions.writing(frozenset([(SEGMENTS, file.name)])) as writing:
            connection = writing.connection
            columns = table.c.first_offset, table.c.rows, table.c.file, table.c.position
            now = connection.execute(
                sa.select(*columns)
                .join(schema.objects, schema.objects.c.relation == table.c.relation)
                .where(place, _LIVE)
                .order_by(table.c.first_offset)
            )
            expected = [
                (each.range.first, each.range.rows, each.file.name, each.file.position)
                for each, _, _ in merged
            ]
            if [tuple(row) for row in now] != expected or file.rows != span.rows:
                raise _changed(relation)
            connection.execute(table.delete().where(place))
            connection.execute(table.insert(), stored)
            gone = _without_segments(connection, {each.segment.file.name for each in merged})
            self._transactions.fault("segments exchanged")
            writing.head = writing.head.after_exchange(found)
        return gone, found


def _without_segments(connection: sa.Connection, names: set[str]) -> frozenset[str]:
    """Record, and return, those of some files in which no segment is."""
    table, replaced = schema.segments.c, schema.replaced_files
    named = sa.select(table.file).where(table.file.in_(names)).distinct()
    gone = names - set(connection.execute(named).scalars())
    if gone:
        connection.execute(replaced.delete().where(replaced.c.file.in_(gone)))
        connection.execute(replaced.insert(), [{"file": name} for name in sorted(gone)])
    return frozenset(gone)


def _logged(row: Any) -> LoggedSegment:
    segment = segment_of(row, amends=bool(row.amends))
    begun = row.appended_at if row.begun_at is None else row.begun_at
    return LoggedSegment(
        segment, begun, Retired(segment.range.end, row.bounds or {}, row.appended_at)
    )


def segment_of(row: Any, *, amends: bool = False, hold: ReadHold | None = None) -> Segment:
    """Return a segment of a row of the table; its bounds are left out."""
    first = Offset(row.first_offset)
    file = SegmentFile(
        row.file, row.rows, row.bytes, row.checksum, row.position, footer=row.footer or ""
    )
    span = OffsetRange(first, Offset(first + row.rows))
    return Segment(RelationId(row.relation), span, file, row.appended_at, amends, hold)


def _changed(relation: RelationId) -> HeadraceError:
    return HeadraceError(
        Code.CONFLICT,
        f"the log of relation {relation} has changed",
        "Segments that were to be merged are not there any more.",
    )
