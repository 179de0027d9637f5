"""Admission of rows to the log of a stream: without duplicates and without late rows.

It is decided once, when rows are appended, in their order: views and later readers of the log all
see the admitted rows only. Other rows are counted by reason; late ones are stored as rejects.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import Code, HeadraceError
from headrace.execution.serving.values import python_rows
from headrace.files import mounts
from headrace.planning.catalog import ROWTIME, Declaration, Stream
from headrace.storage.ledger import Reject
from headrace.storage.log import APPENDED, Admitted, Seen, Watermark, blocks, ids_of
from headrace.storage.log.seen import DRAFT, NEVER
from headrace.types import Offset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from headrace.planning.catalog import Relation
    from headrace.storage.ledger import Ledger
    from headrace.storage.log.seen import Ids, Times
    from headrace.types import RelationId


DUPLICATE: Final = "duplicate"
LATE: Final = "late"
PLACE: Final = "__place"
"""A column of rows before admission: their location in the source, for rejects."""
LINE: Final = "__line"
"""A column of rows before admission: their line or offset within that location."""
PARTITION: Final = "__partition"
"""A column of rows before admission: their watermark partition, if not the location."""

_ON_THE_WAY: Final = frozenset({PLACE, LINE, PARTITION})
_TOO_LATE: Final = "late: its event time is before the watermark, less the allowed lateness"
IDLE_MICROS: Final = 60_000_000
"""How long a partition without rows holds back the watermark."""


@dataclass(slots=True)
class Admission:
    """The gates of the streams that do not admit every row."""

    directory: Path
    """The directory of the log's segments; indexes of ids are beside it."""
    ledger: Ledger
    clock: Callable[[], float] = time.time
    """The time at which rows arrive, in Unix seconds."""
    _gates: dict[RelationId, _Gate] = field(default_factory=dict)
    _making: threading.Lock = field(default_factory=threading.Lock)
    """Held while a gate is looked up or created: one for each stream."""

    def gate(self, relation: Relation) -> StreamGate | None:
        """Return the gate of a relation; None if it admits all rows."""
        found = self._gate(relation)
        if found is None or not isinstance(relation, Stream):
            return None
        return StreamGate(found, relation)

    def _gate(self, relation: Relation) -> _Gate | None:
        if not isinstance(relation, Stream) or not _decides(relation.declaration):
            return None
        with self._making:
            found = self._gates.get(relation.id)
            if found is None:
                found = self._gates[relation.id] = self._made(relation)
        return found

    def watermark(self, relation: Relation) -> int | None:
        """Return the watermark of a stream in microseconds; None if it has none yet."""
        gate = self._gate(relation)
        if gate is None or gate.watermark is None:
            return None
        return gate.watermark.now(self.micros())

    def keep_ids(self, stream: Stream, end: Offset) -> None:
        """Store the ids of the events before an offset, which retention is about to remove.

        The caller prevents appends to the stream meanwhile.
        """
        gate = self._gate(stream)
        if gate is not None and gate.seen is not None:
            gate.seen.keep(end, self.ledger.head.log_end(stream.id), self.micros())

    def sweep(self, relations: Iterable[Relation]) -> None:
        """Remove the indexes of all streams but these; not while a store does not answer.

        The next opening removes what is left.
        """
        kept = {str(each.id) for each in relations}
        if self._indexes.exists():
            try:
                self._sweep(kept)
            except HeadraceError as error:
                if error.code is not Code.UNAVAILABLE or mounts.mount_of(self._indexes) is None:
                    raise

    def _sweep(self, kept: set[str]) -> None:
        files = [name for name in mounts.files_in(self._indexes) if "-" in name]
        gone = [n for n in files if n.endswith(DRAFT) or n.split("-")[0] not in kept]
        if gone:
            self.ledger.require_newest()
            mounts.delete(self._indexes, gone)

    def _start(self, stream: RelationId) -> Offset:
        return self.ledger.head.starts.get(stream, Offset(0))

    @property
    def _indexes(self) -> Path:
        return self.directory.parent / "seen"

    def micros(self) -> int:
        """Return the time at which rows arrive now, in microseconds since 1970, UTC."""
        return round(self.clock() * 1_000_000)

    def _made(self, stream: Stream) -> _Gate:
        declaration = stream.declaration
        seen = None
        if declaration.unique:
            logged = partial(self._logged, stream)
            start = partial(self._start, stream.id)
            seen = Seen(
                self._indexes,
                str(stream.id),
                declaration.within,
                logged,
                start,
                self.ledger.require_newest,
            )
        watermark = None
        if declaration.watermark is not None or declaration.lateness is not None:
            newest = self.ledger.log.newest_times(stream.id)
            watermark = Watermark(declaration.delay, IDLE_MICROS, newest)
        return _Gate(self.ledger, seen, watermark, self.micros)

    def _logged(
        self, stream: Stream, first: int, end: int, since: int
    ) -> Iterator[tuple[int, Ids, Times]]:
        """Yield the ids of a part of the log by block, with the end of each and their times."""
        start = max(Offset(first), self._start(stream.id))
        names = dict(zip(stream.schema.names, stream.schema.stored_names, strict=True))
        stored = [names[name] for name in stream.declaration.unique]
        segments = [
            segment
            for segment in self.ledger.log.segments(stream.id, start, Offset(end))
            if int(segment.appended_at * 1_000_000) >= since
        ]
        for segment in segments:
            low, high = max(start, segment.range.first), min(Offset(end), segment.range.end)
            for block in blocks(self.directory, [segment], low, high):
                rows = block.read([*stored, APPENDED])
                times = rows[APPENDED].to_numpy().astype(np.uint64)
                ids, present = ids_of(pa.Table.from_batches([rows]), stored)
                present &= times >= since
                yield block.end, ids[:, present], times[present]


def takes_some(relation: Relation) -> bool:
    """Whether the log of a relation may reject or skip rows."""
    declaration = relation.declaration if isinstance(relation, Stream) else Declaration()
    return bool(declaration.unique or declaration.rejects_late)


def _decides(declaration: Declaration) -> bool:
    followed = declaration.watermark is not None and declaration.source
    return bool(declaration.unique or declaration.lateness is not None or followed)


@dataclass(frozen=True, slots=True)
class StreamGate:
    """The gate of a stream for rows with the columns that it has now."""

    _gate: _Gate
    _stream: Stream

    def admit(self, rows: pa.Table, end: Offset) -> Admitted:
        """Return the rows to append at the offset ``end``, and the rejects and counts of others."""
        return self._gate.admit(self._stream, rows, end)


@dataclass(slots=True)
class _Gate:
    """Decides which rows of one stream are admitted; not thread-safe."""

    ledger: Ledger
    seen: Seen | None
    watermark: Watermark | None
    clock: Callable[[], int]
    _end: int | None = None
    """The log's end after the last admitted rows, if they were appended."""

    def admit(self, stream: Stream, rows: pa.Table, end: Offset) -> Admitted:
        """Return the rows to append at the offset ``end``, and the rejects and counts of others.

        The rows have the columns of ``stream``, which may have other names than at first.
        """
        left_out: dict[str, int] = {}
        rejects: tuple[Reject, ...] = ()
        newest: Mapping[str, int] = {}
        mark, declaration, clock = self.watermark, stream.declaration, self.clock()
        kept = np.ones(rows.num_rows, bool)
        if mark is not None and rows.num_rows:
            if self._end not in (None, end):  # the last admitted rows were not appended
                mark.newest = self.ledger.log.newest_times(stream.id)
            times, partitions = _times(stream, rows), np.array(_partitions(rows), object)
            late = mark.late(times, partitions, declaration.lateness or 0, clock)
            if late.any():
                left_out[LATE] = int(late.sum())
            if declaration.rejects_late:
                rejects = tuple(_rejects(stream, rows.filter(pa.array(late))))
                kept = ~late
        if self.seen is not None and kept.any():
            ids, present = ids_of(rows, declaration.unique)
            fresh = self.seen.new(ids[:, kept], present[kept], end, clock)
            if not fresh.all():
                left_out[DUPLICATE] = int((~fresh).sum())
                kept[kept] = fresh
        if mark is not None and kept.any():
            newest = mark.advance(times[kept], partitions[kept], clock)
        if not kept.all():
            rows = rows.filter(pa.array(kept))
        self._end = end + rows.num_rows
        return Admitted(_without_places(rows), rejects, left_out, newest)


def _times(stream: Stream, rows: pa.Table) -> NDArray[np.int64]:
    """Return the event times of rows in microseconds."""
    values = rows[stream.event_time or ROWTIME]
    if pa.types.is_integer(values.type):
        values = pc.multiply(values.cast(pa.int64()), 1000)
    else:
        values = values.cast(pa.timestamp("us")).cast(pa.int64())
    filled: NDArray[np.int64] = pc.fill_null(values, NEVER).to_numpy()
    return filled


def _rejects(stream: Stream, rows: pa.Table) -> Iterator[Reject]:
    names = [name for name in rows.schema.names if name not in {*_ON_THE_WAY, ROWTIME}]
    lines = rows[LINE].to_pylist() if LINE in rows.schema.names else [0] * rows.num_rows
    found = zip(_places(rows), lines, python_rows(rows.select(names)), strict=True)
    for place, line, row in found:
        raw = json.dumps(row, default=str)
        yield Reject(place, line, stream.event_time, _TOO_LATE, raw)


def _places(rows: pa.Table) -> list[str]:
    return _texts(rows, PLACE)


def _partitions(rows: pa.Table) -> list[str]:
    return _texts(rows, PARTITION if PARTITION in rows.schema.names else PLACE)


def _texts(rows: pa.Table, name: str) -> list[str]:
    if name in rows.schema.names:
        found: list[str] = rows[name].to_pylist()
        return found
    return [""] * rows.num_rows


def _without_places(rows: pa.Table) -> pa.Table:
    return rows.select([name for name in rows.schema.names if name not in _ON_THE_WAY])
