"""The log of a database, written by INSERT, UPDATE, DELETE, COPY, sources and sinks.

Preparations before the first events of a log are retired: their ids, and the views' state.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.retirement import latest_times
from headrace.execution.runtime.step import log_share
from headrace.execution.serving import key_values
from headrace.files import mounts
from headrace.lifecycle.inputs.rows import (
    completed,
    has_offsets,
    with_computed_columns,
    with_generated_columns,
    with_offsets,
    with_rowtime,
)
from headrace.planning.catalog import logged
from headrace.storage.log import CORRECTION, Admitted, Append, LogShare, read_range, write_segment
from headrace.types import Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from headrace.execution.engine.engine import Engine
    from headrace.execution.engine.reading.queries import Queries
    from headrace.execution.runtime.published import Published
    from headrace.execution.runtime.pump import Pump
    from headrace.lifecycle.inputs.admission import Admission
    from headrace.planning.catalog import Stream, Table, View
    from headrace.storage.ledger import (
        AppendRecord,
        Correction,
        DeliveryRecord,
        Ledger,
        LoadProgress,
        OffsetRange,
        ProducerPosition,
        Reject,
        Retired,
        SegmentFile,
    )
    from headrace.storage.log import Appender


@dataclass(frozen=True, slots=True)
class Changed:
    """The changes that a statement computed, its row count, and the state and rows it read."""

    state: Published
    count: int
    rows: tuple[pa.Table, ...]


@dataclass(frozen=True, slots=True)
class Log:
    """The changes of streams and tables, in the order in which epochs read them.

    An append is durable when its method returns. It does not wait for an epoch, but wakes the pump.
    What one call appends is read by one epoch.
    """

    directory: Path
    ledger: Ledger
    appender: Appender
    queries: Queries
    pump: Pump
    admission: Admission
    _changing: dict[RelationId, threading.RLock] = field(default_factory=dict)
    """By relation: the lock of statements that change rows which they have read."""

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
        """Append changes, with the values of generated columns; return their offsets.

        Fewer rows are appended if the relation does not admit all; see
        :class:`headrace.lifecycle.inputs.admission.Admission`. For ``guard`` and ``delivered`` see
        :class:`Append`.
        """
        rows = self.completed(relation, rows)
        gate = self.admission.gate(relation)
        placed = None

        def admitted(first: Offset) -> Admitted:
            taken = Admitted(rows) if gate is None else gate.admit(rows, first)
            return _stored(relation, taken, first)

        if gate is not None or (has_offsets(relation) and rows.num_rows):
            placed = admitted
        appended = self.appender.append(
            Append(
                relation.id,
                logged(relation).in_log(rows),
                load,
                producer,
                rejects,
                placed,
                guard,
                apart=expires(relation),
                delivered=delivered,
            )
        )
        self.pump.wake()
        return appended

    def require_writable(self) -> None:
        """Raise why an append would fail at present, as far as is known.

        Raises:
            HeadraceError: ``unavailable`` if the ledger does not answer, or if the store has not
                answered for so long that files wait for it no longer.
        """
        if self.ledger.trouble is not None:
            raise self.ledger.trouble
        mounts.require_taking(self.directory)

    def append_in_parts(
        self,
        relation: Stream | Table,
        parts: Iterator[pa.Table],
        *,
        producer: ProducerPosition,
        delivered: DeliveryRecord | None = None,
    ) -> OffsetRange:
        """Append changes that arrive in parts, all or none, as one call of :meth:`append` would.

        A part is written as it arrives, so memory stays small. Other writers of the relation wait
        meanwhile only if admission or stored values depend on offsets.
        """
        first = next(parts, relation.schema.arrow.empty_table())
        second = next(parts, None)
        if second is None:
            return self.append(relation, first, producer=producer, delivered=delivered)
        asked = Append(relation.id, first, producer=producer, delivered=delivered)
        gate = self.admission.gate(relation)
        offsets = gate is not None or has_offsets(relation)
        with self.appender.closed(relation.id) if offsets else nullcontext():
            staged: list[SegmentFile] = []
            end = self.ledger.head.log_end(relation.id)
            try:
                for part in chain([first, second], parts):
                    rows = self.completed(relation, part)
                    if gate is not None:
                        asked.take(gate.admit(rows, end))
                        rows = asked.rows
                    if not rows.num_rows:
                        continue
                    placed = with_offsets(relation, rows, end)
                    staged.append(self.stage(logged(relation).in_log(placed)))
                    end = Offset(end + rows.num_rows)
            except BaseException:
                self._unstage(staged)
                raise
            asked.rows, asked.staged = rows.slice(0, 0), tuple(staged)
            appended = self.appender.append(asked)
        if not appended.rows:  # a repeated append of the producer
            self._unstage(staged)
        self.pump.wake()
        return appended

    def correct(self, stream: Stream, rows: pa.Table, correction: Correction) -> OffsetRange:
        """Append changes that amend earlier events of a stream; return their offsets."""

        def numbered(first: Offset) -> Admitted:
            return Admitted(with_correction(stored, first))

        stored = stream.logged.in_log(rows)
        appended = self.appender.append(
            Append(stream.id, stored, placed=numbered, correction=correction, apart=expires(stream))
        )
        self.pump.wake()
        return appended

    @contextmanager
    def correcting(self, stream: RelationId) -> Iterator[None]:
        """Exclude other corrections of a stream while the block runs."""
        with self._lock(stream):
            yield

    def land(
        self,
        relation: Stream | Table,
        rows: pa.Table,
        *,
        load: LoadProgress,
        rejects: Sequence[Reject],
    ) -> Offset:
        """Append changes of an external source, together with its position; see :meth:`append`.

        The rows already have the values of generated columns.
        """
        timed = with_rowtime(relation, rows, self.admission.micros())
        gate = self.admission.gate(relation)
        placed = None

        def admitted(first: Offset) -> Admitted:
            taken = Admitted(timed) if gate is None else gate.admit(timed, first)
            return replace(taken, rows=logged(relation).in_log(taken.rows))

        if gate is not None:
            placed = admitted
        apart, rows = expires(relation), logged(relation).in_log(timed)
        asked = Append(relation.id, rows, load, None, rejects, placed, apart=apart)
        end = self.appender.append(asked).end
        self.pump.wake()
        return end

    def stage(self, rows: pa.Table) -> SegmentFile:
        """Write rows for :meth:`land_together` to a segment that the ledger does not name yet."""
        return write_segment(self.directory, rows)

    def _unstage(self, staged: Sequence[SegmentFile]) -> None:
        """Remove the segments of staged rows that are not appended."""
        mounts.discard(self.directory, [each.name for each in staged])

    def land_together(self, staged: Sequence[AppendRecord], appends: Sequence[Append]) -> None:
        """Append changes of several relations, with positions, all or none; staged ones first.

        The rows already have the values of generated columns.
        """
        self.appender.append_together(staged, appends)
        self.pump.wake()

    def change(self, table: Table, compute: Callable[[], Changed]) -> tuple[int, Offset]:
        """Append the changes that a statement computes from the rows of a table.

        Inserts continue meanwhile. If they touch the same rows, the statement is computed again
        while other writers of the table wait. Returns the number of rows that the statement counts,
        and the log's end.
        """
        with self._lock(table.id):
            try:
                return self._append_changed(table, compute())
            except _OvertakenError:
                with self.appender.closed(table.id):
                    return self._append_changed(table, compute())

    @contextmanager
    def alone(self, table: Table) -> Iterator[None]:
        """Exclude other writers of a table while the block runs."""
        with self._lock(table.id), self.appender.closed(table.id):
            yield

    def completed(self, relation: Stream | Table, rows: pa.Table) -> pa.Table:
        """Return the rows with their times, and with the values of generated columns."""
        now = self.admission.micros()
        rows = with_rowtime(relation, rows, now)
        if relation.declaration.generated and rows.num_rows:
            rows = with_generated_columns(self.queries, relation, rows, now)
        return rows

    def with_defaults(self, relation: Stream | Table, rows: pa.Table) -> pa.Table:
        """Return rows with all columns, in order; omitted columns have their default, or NULL.

        Raises:
            HeadraceError: ``invalid`` if a default fails, or its column cannot hold it.
        """
        return completed(self.queries, relation, rows, self.admission.micros())

    def with_computed(self, relation: Stream | Table, rows: pa.Table) -> pa.Table:
        """Return rows with the values of the computed columns."""
        return with_computed_columns(self.queries, relation, rows)

    def _lock(self, relation: RelationId) -> threading.RLock:
        return self._changing.setdefault(relation, threading.RLock())

    def _append_changed(self, table: Table, changed: Changed) -> tuple[int, Offset]:
        rows = pa.concat_tables(changed.rows)

        def guard(end: Offset) -> None:
            read = changed.state.positions.get(table.id, Offset(0))
            share = log_share(self.ledger, table.id, read, end)
            if _touches(table, rows, self._logged(share)):
                raise _OvertakenError(Code.CONFLICT, "other statements changed the same rows")

        return changed.count, self.append(table, rows, guard=guard).end

    def _logged(self, share: LogShare) -> pa.Table | None:
        """Return the changes of a part of a log, with stored names; None if there are none."""
        batches = list(read_range(self.directory, share.segments, share.first, share.end))
        return pa.Table.from_batches(batches) if batches else None


def with_correction(rows: pa.Table, first: Offset) -> pa.Table:
    """Return changes that amend earlier events, with the number of their correction.

    The number is the offset of the first change.
    """
    number = pa.repeat(pa.scalar(first, pa.int64()), rows.num_rows)
    return rows.append_column(CORRECTION, number)


def expires(relation: Stream | Table) -> bool:
    """Whether retention removes the oldest events from the log of a relation."""
    return relation.declaration.retention is not None


def _stored(relation: Stream | Table, taken: Admitted, first: Offset) -> Admitted:
    """Return admitted rows with their offsets, under the names that the log has."""
    placed = with_offsets(relation, taken.rows, first)
    return replace(taken, rows=logged(relation).in_log(placed))


class _OvertakenError(HeadraceError):
    """The rows that a statement is about to change have been changed since it read them."""


def _touches(table: Table, rows: pa.Table, meanwhile: pa.Table | None) -> bool:
    """Return whether changes made ``meanwhile`` concern the same rows.

    Other changes commute. Without a key, rows match by equality: insertions touch no existing row.
    """
    if meanwhile is None:
        return False
    if not table.primary_key:
        return bool((pc.min(meanwhile[WEIGHT]).as_py() or 0) < 0)
    columns = [c for c in table.schema.columns if c.name in table.primary_key]
    changed = key_values(rows, [c.name for c in columns])
    return not set(changed).isdisjoint(key_values(meanwhile, [c.stored_name for c in columns]))


@dataclass(frozen=True, slots=True)
class Retiring:
    """Implements the checks of :class:`headrace.execution.runtime.retirement.Retirement`."""

    appender: Appender
    admission: Admission
    engine: Engine

    def keep_ids(self, stream: Stream, end: Offset) -> None:
        """Store the ids of events before an offset, if the stream deduplicates by id.

        Appends to the stream wait meanwhile.
        """
        with self.appender.closed(stream.id):
            self.admission.keep_ids(stream, end)

    def left_by(self, view: View, stream: Stream, retired: Retired) -> int | None:
        """Return the clock from which the state of a view contains no retired event.

        None if that is unknown.
        """
        latest = latest_times(stream, retired)
        return self.engine.left_by(self.engine.circuit(view), stream, latest)
