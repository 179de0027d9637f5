"""Reading segments of the embedded log: immutable Arrow IPC files, parts of files, Parquet files.

A table's segment has :data:`~headrace.storage.log.large.WEIGHT` as its last column: +1 for an
insert or upsert, -1 for a delete. :mod:`headrace.storage.log.appender` writes them, and
:mod:`headrace.storage.log.large` those that they are merged into.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from headrace.errors import BACKUPS, Code, HeadraceError
from headrace.files import mounts
from headrace.storage.log.large import APPENDED, forget_footers, opened
from headrace.types import Offset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from headrace.storage.ledger import Segment, SegmentFile
    from headrace.storage.log.large import LargeFile, RowGroup


T = TypeVar("T")

_SECOND: Final = 1_000_000
_HASHED_AT_ONCE: Final = 16 << 20

_SHORT_BYTES: Final = 1 << 16
"""Longer segments are mapped into memory. Of short ones many are open at once, each of a landing,
and a process may map only about 65,000 parts of files."""
_EXHAUSTED: Final = (errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_MOST_VERIFIED: Final = 65_536
"""The most segments that a process remembers as verified; older ones are verified again."""

KEPT_BYTES = 1 << 24
"""The most bytes of segments that a process has written and reads from memory."""

_verified: OrderedDict[tuple[str, str], None] = OrderedDict()
_verified_lock = threading.Lock()


@dataclass(slots=True)
class _Written:
    """The newest segments that this process has written: what the next epoch reads."""

    tables: OrderedDict[tuple[str, int], tuple[SegmentFile, pa.Table, int]] = field(
        default_factory=OrderedDict
    )
    bytes: int = 0


_written = _Written()


@dataclass(frozen=True, slots=True)
class LogBlock:
    """Consecutive changes of a log, at most 65,536 of one segment, not read yet.

    ``first`` is the offset of the first one. ``schema`` is that of the segment, or of plain events
    if none of them is of a correction; beyond it, the column :data:`APPENDED` can be read.
    ``bounds`` are those of its columns (:mod:`headrace.storage.log.share`), as far as they are
    known without reading.
    """

    first: Offset
    rows: int
    schema: pa.Schema
    bounds: Mapping[str, Any]
    _read: Callable[[Sequence[str]], pa.RecordBatch]

    @property
    def end(self) -> Offset:
        """The offset after the last change."""
        return Offset(self.first + self.rows)

    def read(self, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Return columns of the changes that the segment has, by default all; no others are read.

        Raises:
            HeadraceError: CORRUPT if the file is missing, short or changed.
        """
        return self._read(self.schema.names if columns is None else columns)


def blocks(
    directory: Path,
    segments: Sequence[Segment],
    from_: Offset,
    to: Offset,
    *,
    newest_first: bool = False,
) -> Iterator[LogBlock]:
    """Yield the changes ``[from_, to)`` in blocks, in order; or from the last block to the first.

    Raises:
        HeadraceError: CORRUPT if a file is damaged, or the segments leave a gap.
    """
    parts = _covering(segments, from_, to)
    for segment, first, end in reversed(parts) if newest_first else parts:
        found = _blocks(directory, segment, first, end)
        yield from reversed(list(found)) if newest_first else found


def read_range(
    directory: Path,
    segments: Sequence[Segment],
    from_: Offset,
    to: Offset,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the changes ``[from_, to)`` in order; by default all columns.

    Those of small segments are not copied, and of large ones only what is asked for is read.

    Raises:
        HeadraceError: as :func:`blocks`.
    """
    for block in blocks(directory, segments, from_, to):
        yield block.read(columns)


def appended_at(directory: Path, segments: Sequence[Segment], offset: Offset) -> float:
    """Return when a change was appended, in Unix seconds; one of the segments has it.

    Raises:
        HeadraceError: as :func:`blocks`.
    """
    (own,) = (s for s in segments if s.range.first <= offset < s.range.end)
    if not own.file.footer:
        return own.appended_at
    end = Offset(offset + 1)
    (batch,) = read_range(directory, [own], offset, end, [APPENDED])
    return int(batch[APPENDED][0].as_py()) / _SECOND


def appended_with(
    directory: Path, segments: Sequence[Segment], offset: Offset, columns: Sequence[str]
) -> pa.Table:
    """Return columns of what was appended together with a change; one of the segments has it.

    Raises:
        HeadraceError: as :func:`blocks`.
    """
    (own,) = (s for s in segments if s.range.first <= offset < s.range.end)
    names = [*columns, APPENDED]
    read = read_range(directory, [own], own.range.first, own.range.end, names)
    rows = pa.Table.from_batches(read)
    at = rows[APPENDED][offset - own.range.first]
    return rows.filter(pc.equal(rows[APPENDED], at)).select(list(columns))


def appended_by(directory: Path, segment: Segment, time: float) -> int:
    """Return how many changes of a segment had been appended by a time, in Unix seconds.

    Raises:
        HeadraceError: as :func:`blocks`.
    """
    if segment.appended_at <= time:
        return segment.range.rows
    count = 0
    if segment.file.footer:
        first, end = segment.range.first, segment.range.end
        upto = int(time * _SECOND)
        for batch in read_range(directory, [segment], first, end, [APPENDED]):
            count += pc.sum(pc.less_equal(batch[APPENDED], upto)).as_py() or 0
    return count


@dataclass(frozen=True, slots=True)
class LargePart:
    """The part of a Parquet file that has the changes of a log from the offset ``first`` on.

    They are its rows ``[first_row, end_row)``, in order. ``schema`` is that of the changes: the
    file also has the column :data:`APPENDED`.
    """

    path: Path
    schema: pa.Schema
    first: Offset
    first_row: int
    end_row: int


def large_parts(
    directory: Path, segments: Sequence[Segment], from_: Offset, to: Offset
) -> tuple[LargePart, ...]:
    """Return the parts of the range ``[from_, to)`` that are in Parquet files, in order.

    The files are fetched and verified whole, once per process; :func:`blocks` has all else.

    Raises:
        HeadraceError: as :func:`blocks`.
    """
    found = []
    for segment, first, end in _covering(segments, from_, to):
        if segment.file.footer:
            file = _whole_file(directory, segment.file)
            begins = first - segment.range.first
            rows = end - first
            found.append(LargePart(file.path, file.schema, first, begins, begins + rows))
    return tuple(found)


def open_segment(directory: Path, segment: SegmentFile) -> pa.Table:
    """Return a segment's rows; its checksum is verified once per process.

    Those of one file of Arrow are mapped into memory, or read if they are short; the newest ones
    that this process has written are in memory.

    Raises:
        HeadraceError: CORRUPT if the file is missing, short or changed.
    """
    if segment.footer:
        file = _whole_file(directory, segment)
        read = [_read_group(file, group, file.schema.names) for group in file.groups]
        return pa.Table.from_batches(read, file.schema).slice(0, segment.rows)
    kept = _written.tables.get((f"{directory}/{segment.name}", segment.position))
    if kept is not None and kept[0] == segment:
        return kept[1]
    return _fetched(directory / segment.name, lambda path: _opened(path, segment))


def _fetched(path: Path, open_: Callable[[Path], T]) -> T:
    """Open a file; again, after fetching it, if it is damaged or missing."""
    try:
        return open_(path)
    except HeadraceError as error:
        if error.code is not Code.CORRUPT or not mounts.fetch(str(path)):
            raise
    return open_(path)


def _opened(path: Path, segment: SegmentFile) -> pa.Table:
    bytes_of = _read if segment.bytes <= _SHORT_BYTES else _mapped
    try:
        table = pa.ipc.open_file(bytes_of(path, segment)).read_all()
    except (OSError, pa.ArrowException) as error:
        raise _failed(path, error) from error
    if table.num_rows != segment.rows:
        raise _corrupt(path, f"It holds {table.num_rows} rows instead of {segment.rows}.")
    return table


def _read(path: Path, segment: SegmentFile) -> bytes:
    with path.open("rb", buffering=0) as file:
        data = os.pread(file.fileno(), segment.bytes, segment.position)
        if len(data) < segment.bytes:
            raise _too_short(path, segment, os.fstat(file.fileno()).st_size)
    checksum = xxhash.xxh3_64(data).hexdigest()
    if checksum != segment.checksum:
        raise _changed(path, segment.checksum, checksum)
    return data


def _mapped(path: Path, segment: SegmentFile) -> pa.Buffer:
    _verify(path, segment)
    with pa.memory_map(str(path)) as mapped:
        mapped.seek(segment.position)
        return mapped.read_buffer(segment.bytes)


def _covering(
    segments: Sequence[Segment], from_: Offset, to: Offset
) -> list[tuple[Segment, Offset, Offset]]:
    """Return the segments with any of the offsets ``[from_, to)``, each with its part of them."""
    at, found = from_, []
    for segment in segments:
        if segment.range.end <= at or segment.range.first >= to:
            continue
        if segment.range.first > at:
            break
        end = min(segment.range.end, to)
        found.append((segment, at, end))
        at = end
    if at < to:
        raise HeadraceError(
            Code.CORRUPT,
            f"log has no segment for offset {at}",
            hint=f"Restore the data directory from a backup. {BACKUPS}",
        )
    return found


def _blocks(directory: Path, segment: Segment, first: Offset, end: Offset) -> Iterator[LogBlock]:
    """Yield the changes ``[first, end)`` of a segment in blocks."""
    begins = segment.range.first
    if not segment.file.footer:
        table = open_segment(directory, segment.file)
        at = int(segment.appended_at * _SECOND)
        for batch in table.slice(first - begins, end - first).to_batches():
            yield LogBlock(first, batch.num_rows, table.schema, {}, partial(_columns, batch, at))
            first = Offset(first + batch.num_rows)
        return
    file = _large(directory, segment.file)
    for group in file.overlapping(first - begins, end - begins):
        low, high = max(first - begins, group.first), min(end - begins, group.end)
        read = partial(_read_rows, file, group, low, high)
        schema = file.schema_of(group)
        yield LogBlock(Offset(begins + low), high - low, schema, group.bounds, read)


def _columns(rows: pa.RecordBatch, appended: int, names: Sequence[str]) -> pa.RecordBatch:
    """Return columns of rows of a small segment, which were appended at one time."""
    if APPENDED not in names:
        return rows.select(list(names))
    at = pa.repeat(pa.scalar(appended, pa.int64()), rows.num_rows)
    return rows.append_column(APPENDED, at).select(list(names))


def _read_rows(
    file: LargeFile, group: RowGroup, first: int, end: int, names: Sequence[str]
) -> pa.RecordBatch:
    found = _fetched(file.path, lambda _: _read_group(file, group, names))
    return found.slice(first - group.first, end - first)


def _large(directory: Path, segment: SegmentFile) -> LargeFile:
    """Return a large segment; only its footer is read."""

    def open_(path: Path) -> LargeFile:
        try:
            found = opened(path, segment)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise _failed(path, error) from error
        if found.rows < segment.rows:
            raise _corrupt(path, f"It holds {found.rows} rows instead of {segment.rows}.")
        return found

    return _fetched(directory / segment.name, open_)


def _whole_file(directory: Path, segment: SegmentFile) -> LargeFile:
    """Return a large segment, after verifying every byte."""

    def verify(path: Path) -> LargeFile:
        _verify(path, segment)
        return _large(directory, segment)

    return _fetched(directory / segment.name, verify)


def _read_group(file: LargeFile, group: RowGroup, names: Sequence[str]) -> pa.RecordBatch:
    """Return columns of a row group, which is verified once per process."""
    try:
        _require_checksum(file.path, group.checksum, group.position, group.bytes)
        return file.read(group, names)
    except (OSError, pa.ArrowException) as error:
        raise _failed(file.path, error) from error


def _failed(path: Path, error: Exception) -> HeadraceError:
    """Return the error that a segment could not be read; it may be whole if others take too much.

    Then it is UNAVAILABLE, else CORRUPT.
    """
    found = getattr(error, "errno", None)
    text = (isinstance(error, OSError) and error.strerror) or str(error)
    detail = f"{text.removesuffix('.')}."
    if isinstance(error, MemoryError) or found in _EXHAUSTED or os.strerror(errno.ENOMEM) in text:
        return HeadraceError(
            Code.UNAVAILABLE,
            f'segment "{path}" could not be read',
            detail,
            "Try again once this process has more memory, or fewer open files.",
        )
    return _corrupt(path, detail)


def verified(path: Path, checksum: str) -> None:
    """Record a segment's checksum as verified: this process has just written the segment."""
    with _verified_lock:
        _verified[str(path), checksum] = None
        while len(_verified) > _MOST_VERIFIED:
            _verified.popitem(last=False)


def keep_written(path: Path, segment: SegmentFile, rows: pa.Table) -> None:
    """Keep the rows of a segment that this process has just written, instead of older ones.

    They have the memory of no other rows.
    """
    with _verified_lock:
        _written.tables[str(path), segment.position] = segment, rows, segment.bytes
        _written.bytes += segment.bytes
        while _written.bytes > KEPT_BYTES:
            _, (_, _, size) = _written.tables.popitem(last=False)
            _written.bytes -= size


def forget_segments() -> None:
    """Read and verify all segments again, also those that this process has written."""
    with _verified_lock:
        _verified.clear()
        _written.tables.clear()
        _written.bytes = 0
    forget_footers()


def _verify(path: Path, segment: SegmentFile) -> None:
    try:
        size = path.stat().st_size
        if size < segment.position + segment.bytes:
            raise _too_short(path, segment, size)
        _require_checksum(path, segment.checksum, segment.position, segment.bytes)
    except OSError as error:
        raise _failed(path, error) from error


def _require_checksum(path: Path, expected: str, position: int, size: int) -> None:
    """Verify a part of a file, once per process."""
    if (str(path), expected) in _verified:
        return
    checksum = _checksum(path, position, size)
    if checksum != expected:
        raise _changed(path, expected, checksum)
    verified(path, expected)


def _checksum(path: Path, position: int, size: int) -> str:
    hashed, left = xxhash.xxh3_64(), size
    with path.open("rb") as file:
        file.seek(position)
        while piece := file.read(min(left, _HASHED_AT_ONCE)):
            hashed.update(piece)
            left -= len(piece)
    return hashed.hexdigest()


def _too_short(path: Path, segment: SegmentFile, size: int) -> HeadraceError:
    wanted = segment.position + segment.bytes
    return _corrupt(path, f"It has {size} bytes instead of at least {wanted}.")


def _changed(path: Path, expected: str, checksum: str) -> HeadraceError:
    return _corrupt(path, f"Its checksum is {checksum} instead of {expected}.")


def _corrupt(path: Path, detail: str) -> HeadraceError:
    return HeadraceError(
        Code.CORRUPT,
        f'segment "{path}" is damaged',
        detail,
        f"Restore this file from a backup; its rows exist nowhere else. {BACKUPS}",
    )
