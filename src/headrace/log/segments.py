"""Reading segments of the embedded log: immutable Arrow IPC files, or parts of files.

A table's segment has :data:`WEIGHT` as its last column: +1 for an insert or upsert, -1 for a
delete. :mod:`headrace.log.writer` writes them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import xxhash

from headrace.errors import BACKUPS, Code, HeadraceError
from headrace.spine import mounts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from headrace.ledger import Segment, SegmentFile
    from headrace.types import Offset

WEIGHT: Final = "__weight"
AMENDED: Final = "__amended"
"""In a correction of a stream's events: the offset of the event that a change amends."""
CORRECTION: Final = "__correction"
"""In a correction of a stream's events: a number that is greater in every later correction."""
_HASHED_AT_ONCE: Final = 16 << 20

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


def open_segment(directory: Path, segment: SegmentFile) -> pa.Table:
    """Return a segment's rows, mapped into memory; its checksum is verified once per process.

    The newest ones that this process has written are in memory.

    Raises:
        HeadraceError: CORRUPT if the file is missing, short or changed.
    """
    kept = _written.tables.get((f"{directory}/{segment.name}", segment.position))
    if kept is not None and kept[0] == segment:
        return kept[1]
    path = directory / segment.name
    try:
        return _opened(path, segment)
    except HeadraceError as error:
        if error.code is not Code.CORRUPT or not mounts.fetch(str(path)):
            raise
    return _opened(path, segment)


def _opened(path: Path, segment: SegmentFile) -> pa.Table:
    _verify(path, segment)
    try:
        with pa.memory_map(str(path)) as mapped:
            mapped.seek(segment.position)
            table = pa.ipc.open_file(mapped.read_buffer(segment.bytes)).read_all()
    except (OSError, pa.ArrowException) as error:
        raise _corrupt(path, f"{error}.") from error
    if table.num_rows != segment.rows:
        raise _corrupt(path, f"It holds {table.num_rows} rows instead of {segment.rows}.")
    return table


def read_range(
    directory: Path,
    segments: Sequence[Segment],
    from_: Offset,
    to: Offset,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the changes ``[from_, to)`` in order, without copying; by default all columns.

    Raises:
        HeadraceError: CORRUPT if a file is damaged, or the segments leave a gap.
    """
    at = from_
    for segment in segments:
        if segment.range.end <= at or segment.range.first >= to:
            continue
        if segment.range.first > at:
            break
        table = open_segment(directory, segment.file)
        chosen = table if columns is None else table.select(list(columns))
        end = min(segment.range.end, to)
        yield from chosen.slice(at - segment.range.first, end - at).to_batches()
        at = end
    if at < to:
        raise HeadraceError(
            Code.CORRUPT,
            f"log has no segment for offset {at}",
            hint=f"Restore the data directory from a backup. {BACKUPS}",
        )


def verified(path: Path, checksum: str) -> None:
    """Record a segment's checksum as verified: this process has just written the segment."""
    with _verified_lock:
        _verified[str(path), checksum] = None
        while len(_verified) > _MOST_VERIFIED:
            _verified.popitem(last=False)


def keep_written(path: Path, segment: SegmentFile, data: pa.Buffer) -> None:
    """Keep the bytes of a segment that this process has just written, instead of older ones."""
    table = pa.ipc.open_file(data).read_all()
    with _verified_lock:
        _written.tables[str(path), segment.position] = segment, table, data.size
        _written.bytes += data.size
        while _written.bytes > KEPT_BYTES:
            _, (_, _, size) = _written.tables.popitem(last=False)
            _written.bytes -= size


def forget_segments() -> None:
    """Read and verify all segments again, also those that this process has written."""
    with _verified_lock:
        _verified.clear()
        _written.tables.clear()
        _written.bytes = 0


def _verify(path: Path, segment: SegmentFile) -> None:
    try:
        size = path.stat().st_size
        if size < segment.position + segment.bytes:
            wanted = segment.position + segment.bytes
            raise _corrupt(path, f"It has {size} bytes instead of at least {wanted}.")
        if (str(path), segment.checksum) in _verified:
            return
        checksum = _checksum(path, segment)
    except OSError as error:
        raise _corrupt(path, f"{error.strerror}.") from error
    if checksum != segment.checksum:
        raise _corrupt(path, f"Its checksum is {checksum} instead of {segment.checksum}.")
    verified(path, segment.checksum)


def _checksum(path: Path, segment: SegmentFile) -> str:
    hashed, left = xxhash.xxh3_64(), segment.bytes
    with path.open("rb") as file:
        file.seek(segment.position)
        while piece := file.read(min(left, _HASHED_AT_ONCE)):
            hashed.update(piece)
            left -= len(piece)
    return hashed.hexdigest()


def _corrupt(path: Path, detail: str) -> HeadraceError:
    return HeadraceError(
        Code.CORRUPT,
        f'segment "{path}" is damaged',
        detail,
        f"Restore this file from a backup; its rows exist nowhere else. {BACKUPS}",
    )
