"""The embedded log's files: one Arrow IPC file per segment, immutable once it is written.

A segment and its directory are synced before the ledger names it, so every segment in the ledger
has its bytes on disk. A table's segment has :data:`WEIGHT` as its last column: +1 for an
insert or upsert, -1 for a delete.
"""

from __future__ import annotations

import os
import threading
import uuid
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import xxhash

from headrace.errors import Code, HeadraceError, not_written
from headrace.ledger import SegmentFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from headrace.ledger import Segment
    from headrace.types import Offset

WEIGHT: Final = "__weight"
BATCH_ROWS: Final = 65_536
_HASHED_AT_ONCE: Final = 16 << 20

_verified: set[tuple[str, str]] = set()
_verified_lock = threading.Lock()


def write_segment(directory: Path, rows: pa.Table | Iterable[pa.RecordBatch]) -> SegmentFile:
    """Write rows as a new segment in ``directory``, which is on disk when this returns.

    Raises:
        HeadraceError: UNAVAILABLE if the disk is full or fails; nothing is left behind.
    """
    batches = rows.to_batches(BATCH_ROWS) if isinstance(rows, pa.Table) else list(rows)
    schema = rows.schema if isinstance(rows, pa.Table) else batches[0].schema
    name = f"{uuid.uuid4().hex}.arrow"
    path = directory / name
    try:
        with path.open("xb") as file:
            with pa.ipc.new_file(file, schema) as writer:
                for batch in batches:
                    for start in range(0, batch.num_rows, BATCH_ROWS):
                        writer.write_batch(batch.slice(start, BATCH_ROWS))
            file.flush()
            os.fsync(file.fileno())
        checksum, size = _checksum(path)
        _sync_directory(directory)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise not_written(f'segment "{path}"', error) from error
    with _verified_lock:
        _verified.add((str(path), checksum))
    return SegmentFile(name, sum(batch.num_rows for batch in batches), size, checksum)


def open_segment(directory: Path, segment: SegmentFile) -> pa.Table:
    """Return a segment's rows, mapped into memory; its checksum is verified once per process.

    Raises:
        HeadraceError: CORRUPT if the file is missing, short or changed.
    """
    path = directory / segment.name
    _verify(path, segment)
    try:
        with pa.memory_map(str(path)) as mapped:
            table = pa.ipc.open_file(mapped).read_all()
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
            hint="Restore the data directory from a backup.",
        )


def _verify(path: Path, segment: SegmentFile) -> None:
    known = (str(path), segment.checksum)
    try:
        size = path.stat().st_size
        if size != segment.bytes:
            raise _corrupt(path, f"It has {size} bytes instead of {segment.bytes}.")
        if known in _verified:
            return
        checksum, _ = _checksum(path)
    except OSError as error:
        raise _corrupt(path, f"{error.strerror}.") from error
    if checksum != segment.checksum:
        raise _corrupt(path, f"Its checksum is {checksum} instead of {segment.checksum}.")
    with _verified_lock:
        _verified.add(known)


def _checksum(path: Path) -> tuple[str, int]:
    hashed, size = xxhash.xxh3_64(), 0
    with path.open("rb") as file:
        while piece := file.read(_HASHED_AT_ONCE):
            hashed.update(piece)
            size += len(piece)
    return hashed.hexdigest(), size


def _sync_directory(directory: Path) -> None:
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _corrupt(path: Path, detail: str) -> HeadraceError:
    return HeadraceError(
        Code.CORRUPT,
        f'segment "{path}" is damaged',
        detail,
        "Restore this file from a backup; its rows exist nowhere else.",
    )
