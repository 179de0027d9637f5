"""Writes segments: small ones consecutively into a shared file, large ones into their own.

Bytes are synced before the ledger names them, so every segment in the ledger is on disk. A file per
insert would cost a file and a sync of its directory each.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
import xxhash

from headrace.errors import HeadraceError, not_written
from headrace.ledger import SegmentFile
from headrace.log.bounds import bounds_of
from headrace.log.segments import keep_written, verified
from headrace.spine import ChecksummedFile, mounts
from headrace.spine.pack import ALIGNMENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

BATCH_ROWS: Final = 65_536
_SMALL_BYTES: Final = 1 << 20
_LITTLE_BYTES: Final = 1 << 10
_PACK_BYTES: Final = 4 << 20
"""A pack is deleted when all its segments have been merged into others: a large one would wait."""

Written = SegmentFile | HeadraceError


@dataclass(slots=True)
class SegmentWriter:
    """Writes the segments of one directory. Thread-safe.

    A *pack* is a file that collects small segments until it is large; each process starts new ones.
    One pack is shared by all logs, except that a log with retention has its own: a file is deleted
    once none of its segments is retained. Whoever writes says with :meth:`settle` that the ledger
    names what was written, or never will: until then it may not be deleted.
    """

    directory: Path
    _unsettled: Counter[str] = field(default_factory=Counter)
    """How many segments were written to each file that the ledger may not name yet."""
    _packs: dict[int | None, _Pack] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(
        self, tables: Sequence[pa.Table], owners: Sequence[int | None] = ()
    ) -> tuple[Written, ...]:
        """Write tables as segments, which are on disk when this returns.

        For each table, return its segment, or the error (UNAVAILABLE) of the disk. ``owners`` has,
        for each table, the log whose segments do not share files with other logs; None for a log
        that shares, the default.
        """
        with self._lock:
            found: dict[int, Written] = {}
            small = [at for at, rows in enumerate(tables) if _is_small(rows)]
            for at in set(range(len(tables))) - set(small):
                found[at] = _written(lambda rows=tables[at]: self.write_alone(rows))
            packs: dict[int | None, list[int]] = {}
            for at in small:
                packs.setdefault(owners[at] if owners else None, []).append(at)
            for owner, places in packs.items():
                packed = self._packed(owner, [tables[at] for at in places])
                found |= zip(places, packed, strict=True)
            written = tuple(found[at] for at in range(len(tables)))
            self._unsettled.update(each.name for each in written if isinstance(each, SegmentFile))
            return written

    def settle(self, written: Iterable[SegmentFile]) -> None:
        """Note that the ledger names some segments, or never will."""
        with self._lock:
            for each in written:
                self._unsettled[each.name] -= 1
                if self._unsettled[each.name] <= 0:
                    del self._unsettled[each.name]

    def close_pack(self, names: frozenset[str]) -> frozenset[str]:
        """Close the current packs that are among these files: nothing is appended to them.

        Return those of the files with segments that the ledger may not name yet.
        """
        with self._lock:
            for owner, pack in list(self._packs.items()):
                if pack.path.name in names:
                    self._close_pack(owner)
            return names.intersection(self._unsettled)

    def close(self) -> None:
        """Close the current packs."""
        with self._lock:
            for owner in list(self._packs):
                self._close_pack(owner)

    def _close_pack(self, owner: int | None) -> None:
        pack = self._packs.pop(owner, None)
        if pack is not None:
            with suppress(OSError):
                pack.file.close()

    def write_alone(self, rows: pa.Table) -> SegmentFile:
        """Write a table as the only segment of a file, which is on disk when this returns.

        Raises:
            HeadraceError: UNAVAILABLE if the disk fails.
        """
        path = self.directory / f"{uuid4().hex}.arrow"
        try:
            with ChecksummedFile(path) as file, pa.PythonFile(file, "w") as sink:
                _serialise(rows, sink)
                sink.flush()
                file.sync()
            mounts.keep(path)
            mounts.sync_directory(self.directory)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise not_written(f'segment "{path}"', error) from error
        except HeadraceError:
            path.unlink(missing_ok=True)
            raise
        checksum = file.digest.hexdigest()
        verified(path, checksum)
        return SegmentFile(path.name, rows.num_rows, file.bytes, checksum, bounds=bounds_of(rows))

    def _packed(self, owner: int | None, tables: list[pa.Table]) -> list[Written]:
        """Write small tables into a pack, with one sync: all, or none if the disk fails."""
        pack = self._packs.get(owner)
        try:
            if pack is not None and pack.end >= _PACK_BYTES:
                self._close_pack(owner)
                pack = None
            if pack is None:
                pack = self._packs[owner] = _Pack.create(self.directory, owner)
            placed = [pack.add(rows) for rows in tables]
            if mounts.mount_of(self.directory) is None:
                os.fdatasync(pack.file.fileno())
            else:  # an object is never added to
                self._close_pack(owner)
                mounts.keep(pack.path)
            pack.synced = pack.end
        except (OSError, HeadraceError) as error:
            path = self.directory if pack is None else pack.path
            if pack is not None and not pack.synced:
                path.unlink(missing_ok=True)
            self._close_pack(owner)  # its contents after the last segment are unknown
            failed = (
                not_written(f'segment "{path}"', error) if isinstance(error, OSError) else error
            )
            return [failed for _ in tables]
        for file, kept in placed:
            verified(pack.path, file.checksum)
            keep_written(pack.path, file, kept)
        return [file for file, _ in placed]


@dataclass(slots=True)
class _Pack:
    path: Path
    file: Any
    end: int = 0
    synced: int = 0

    @classmethod
    def create(cls, directory: Path, owner: int | None) -> _Pack:
        path = directory / mounts.new_name(directory, uuid4().hex, owner)
        file = path.open("xb", buffering=0)
        try:
            mounts.sync_directory(directory)
        except OSError:
            file.close()
            path.unlink(missing_ok=True)
            raise
        return cls(path, file)

    def add(self, rows: pa.Table) -> tuple[SegmentFile, pa.Table]:
        """Write a segment at the end, without a sync; return its rows too, in their own memory."""
        # Into a file, Arrow would make many small writes and reacquire Python's lock after each:
        # with many writers, that takes most of the time.
        buffer = pa.BufferOutputStream()
        _serialise(rows, buffer)
        data = buffer.getvalue()
        position = -(-self.end // ALIGNMENT) * ALIGNMENT
        self.file.seek(position)
        left = memoryview(data)
        while left:
            left = left[self.file.write(left) :]
        self.end = position + data.size
        checksum = xxhash.xxh3_64(data).hexdigest()
        name, size = self.path.name, data.size
        file = SegmentFile(name, rows.num_rows, size, checksum, position, bounds_of(rows))
        # A part of a larger table would keep all of that in memory.
        own = rows.get_total_buffer_size() <= max(size, _LITTLE_BYTES)
        return file, rows if own else pa.ipc.open_file(data).read_all()


def _is_small(rows: pa.Table) -> bool:
    # All memory, also of the rows that are no part of this table, is counted faster.
    return bool(rows.get_total_buffer_size() <= _SMALL_BYTES or rows.nbytes <= _SMALL_BYTES)


def write_segment(directory: Path, rows: pa.Table) -> SegmentFile:
    """Write rows as one new segment, which is on disk when this returns.

    Raises:
        HeadraceError: UNAVAILABLE if the disk is full or fails; the ledger does not name it then.
    """
    return SegmentWriter(directory).write_alone(rows)


def _written(write: Any) -> Written:
    try:
        return write()  # type: ignore[no-any-return]
    except HeadraceError as error:
        return error


def _serialise(rows: pa.Table, sink: pa.NativeFile) -> None:
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows, BATCH_ROWS)
