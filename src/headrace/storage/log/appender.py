"""Group commit: writers that wait together share one sync and one ledger transaction.

A writer that finds no commit running commits for all waiting writers; writers that arrive meanwhile
wait for the next turn. So the busier the log, the larger the groups. Small appends to one relation
become one segment. No writer ever waits for an epoch.

Writes segments: small ones consecutively into a shared file, large ones into their own.

Bytes are synced before the ledger names them, so every segment in the ledger is on disk. A file per
insert would cost a file and a sync of its directory each.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
import xxhash

from headrace.algebra.spine import ChecksummedFile
from headrace.algebra.spine.pack import ALIGNMENT
from headrace.errors import Code, HeadraceError, not_written
from headrace.files import mounts
from headrace.storage.ledger import AppendRecord, OffsetRange, SegmentFile
from headrace.storage.log.segments import keep_written, verified
from headrace.storage.log.share import bounds_of
from headrace.types import Offset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from headrace.storage.ledger import (
        Correction,
        DeliveryRecord,
        Ledger,
        LoadProgress,
        ProducerPosition,
        Reject,
    )
    from headrace.types import RelationId


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


_GATHER_SECONDS = 0.002
_GATHERED_ROWS = 4096
"""Appends with at most this many rows are gathered with others to the same relation."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Rows that a log admits, and the outcome of the others of the same append.

    ``left_out`` counts the others by reason; ``newest`` has the newest event time of each source
    partition that has advanced, in microseconds.
    """

    rows: pa.Table
    rejects: Sequence[Reject] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    newest: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Append:
    """Changes to append to one relation's log, and the outcome.

    ``placed`` returns the rows to write if they depend on the offset of the first row. ``guard`` is
    called with the log's end before the append, and prevents it by raising.
    """

    relation: RelationId
    rows: pa.Table
    load: LoadProgress | None = None
    producer: ProducerPosition | None = None
    rejects: Sequence[Reject] = ()
    placed: Callable[[Offset], Admitted] | None = None
    guard: Callable[[Offset], None] | None = None
    outcome: OffsetRange | HeadraceError | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    newest: Mapping[str, int] = field(default_factory=dict)
    correction: Correction | None = None
    apart: bool = False
    """Whether the relation's segments are in files of their own."""
    staged: tuple[SegmentFile, ...] = ()
    """Segments written before, in order, which are appended if there are no rows."""
    delivered: DeliveryRecord | None = None
    """The record of the sink that has these rows written, to be stored with them."""

    @property
    def owner(self) -> RelationId | None:
        """The relation, if its segments do not share files with other relations."""
        return self.relation if self.apart else None

    @property
    def is_plain(self) -> bool:
        """Whether the append can share a segment with other appends."""
        alone = self.load or self.rejects or self.placed or self.guard or self.correction
        parts = self.staged or self.delivered
        return not (alone or parts) and self.rows.num_rows <= _GATHERED_ROWS

    def take(self, admitted: Admitted) -> None:
        """Add admitted rows, and the counts of the others."""
        self.rows, self.rejects = admitted.rows, (*self.rejects, *admitted.rejects)
        counts = Counter(self.left_out)
        counts.update(admitted.left_out)
        self.left_out, self.newest = counts, {**self.newest, **admitted.newest}


@dataclass(slots=True)
class Appender:
    """Appends to the logs of one database. Thread-safe."""

    segments: SegmentWriter
    ledger: Ledger
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _waiting: list[Append] = field(default_factory=list)
    _committing: bool = False
    _usual: int = 1
    """The number of appends of the last turn."""
    _closed: dict[RelationId, int] = field(default_factory=dict)
    """The relations that only one thread may append to now, with that thread's id."""

    def append(self, asked: Append) -> OffsetRange:
        """Append changes durably; return their offsets, an empty range for a repeated producer.

        Raises:
            HeadraceError: as ``Ledger.log.append``, or by the guard; UNAVAILABLE if the disk fails.
                Nothing is appended then.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._may_append(asked.relation))
            self._waiting.append(asked)
            if len(self._waiting) == self._usual:
                self._changed.notify_all()
            self._changed.wait_for(lambda: asked.outcome is not None or not self._committing)
            group = self._turn() if asked.outcome is None else []
        if group:
            try:
                self._commit(group)
            finally:
                with self._changed:
                    for each in group:
                        each.outcome = each.outcome or _interrupted()
                    self._committing = False
                    self._changed.notify_all()
        if isinstance(asked.outcome, OffsetRange):
            return asked.outcome
        raise asked.outcome or _interrupted()

    def append_together(self, staged: Sequence[AppendRecord], appends: Sequence[Append]) -> None:
        """Append changes to several logs in one transaction, all or none; first staged segments.

        Raises:
            HeadraceError: as ``Ledger.log.append``; UNAVAILABLE if the disk fails.
        """
        present = [each for each in appends if each.rows.num_rows]
        written = iter(self.segments.write([a.rows for a in present], [a.owner for a in present]))
        records = list(staged)
        for each in appends:
            file = next(written) if each.rows.num_rows else None
            if isinstance(file, HeadraceError):
                raise file
            records.append(_record([each], file))
        with self._settled(records):
            self.ledger.log.append_together(records)

    @contextmanager
    def _settled(self, records: Sequence[AppendRecord]) -> Iterator[None]:
        """Run a block that names segments in the ledger; they stay if it may have without saying.

        That is, if the ledger does not answer.
        """
        written = [each.segment for each in records if each.segment is not None]
        try:
            yield
        except HeadraceError as error:
            if error.code is not Code.UNAVAILABLE:
                self.segments.settle(written)
            raise
        self.segments.settle(written)

    def _turn(self) -> list[Append]:
        """Start a turn of this thread; return all waiting appends.

        Writers that have just received their outcome usually write again. A turn that started
        without them would need another sync soon, so it waits for them briefly.
        """
        self._committing = True
        if self._usual > 1:
            self._changed.wait_for(lambda: len(self._waiting) >= self._usual, _GATHER_SECONDS)
        group, self._waiting = self._waiting, []
        self._usual = len(group)
        return group

    @contextmanager
    def closed(self, relation: RelationId) -> Iterator[None]:
        """Make other threads that append to one relation wait while the block runs."""
        with self._changed:
            self._changed.wait_for(lambda: self._may_append(relation) and not self._committing)
            before = self._closed.get(relation)
            self._closed[relation] = threading.get_ident()
        try:
            yield
        finally:
            with self._changed:
                if before is None:
                    del self._closed[relation]
                self._changed.notify_all()

    def _may_append(self, relation: RelationId) -> bool:
        return self._closed.get(relation) in (None, threading.get_ident())

    # -- one turn --------------------------------------------------------------------------

    def _commit(self, group: list[Append]) -> None:
        plain: dict[RelationId, list[Append]] = {}
        alone = []
        for each in group:
            if each.is_plain:
                plain.setdefault(each.relation, []).append(each)
            else:
                alone.append(each)
        if plain:
            self._together(self._gathered(plain))
        for each in alone:
            try:
                end = self.ledger.head.log_end(each.relation)
                if each.guard is not None:
                    each.guard(end)
                if each.placed is not None:
                    each.take(each.placed(end))
            except HeadraceError as error:
                each.outcome = error
            else:
                self._together([[each]])

    def _gathered(self, plain: dict[RelationId, list[Append]]) -> list[list[Append]]:
        """Group appends by segment: those to one relation, without repeated ones of a producer."""
        asked = [
            (each.relation, each.producer.producer)
            for appends in plain.values()
            for each in appends
            if each.producer is not None and len(appends) > 1  # the ledger leaves out one alone
        ]
        known = self.ledger.producers.all_last(asked) if asked else {}
        found: list[list[Append]] = []
        for relation, appends in plain.items():
            by_schema: dict[pa.Schema, list[Append]] = {}
            for each in appends:
                if each.producer is not None and len(appends) > 1:
                    key = (relation, each.producer.producer)
                    if each.producer.sequence <= known.get(key, each.producer.sequence - 1):
                        end = self.ledger.head.log_end(relation)
                        each.outcome = OffsetRange(end, end)
                        continue
                    known[key] = each.producer.sequence
                by_schema.setdefault(each.rows.schema, []).append(each)
            found += by_schema.values()
        return found

    def _together(self, groups: list[list[Append]]) -> None:
        """Write one segment for each group, all with one sync, and append them in one transaction.

        An error of one group does not affect the others.
        """
        tables = [_rows(appends) for appends in groups]
        owners = [appends[0].owner for appends in groups]
        present = [pair for pair in zip(tables, owners, strict=True) if pair[0].num_rows]
        written = self.segments.write([rows for rows, _ in present], [own for _, own in present])
        files = iter(written)
        kept: list[tuple[list[Append], SegmentFile | None]] = []
        for appends, table in zip(groups, tables, strict=True):
            file = next(files) if table.num_rows else None
            if isinstance(file, HeadraceError):
                _settle(appends, file)
            else:
                kept.append((appends, file))
        records = [_record(appends, file) for appends, file in kept]
        try:
            with self._settled(records):
                outcomes = self.ledger.log.append_all(records) if records else ()
        except HeadraceError as error:
            for appends, _ in kept:
                _settle(appends, error)
            return
        for (appends, _), outcome in zip(kept, outcomes, strict=True):
            _settle(appends, outcome)


def _rows(appends: list[Append]) -> pa.Table:
    """Return the rows of a segment."""
    if len(appends) == 1:
        return appends[0].rows
    return pa.concat_tables([each.rows for each in appends])


def _record(appends: list[Append], file: SegmentFile | None) -> AppendRecord:
    first = appends[0]
    newest = {each.producer.producer: each.producer for each in appends if each.producer}
    return AppendRecord(
        first.relation,
        file,
        first.load,
        tuple(newest.values()),
        first.rejects,
        first.left_out,
        first.newest,
        first.correction,
        first.staged,
        first.delivered,
    )


def _settle(appends: list[Append], outcome: OffsetRange | HeadraceError) -> None:
    """Give each append of a segment its part of the segment's offsets, or the error."""
    if isinstance(outcome, HeadraceError):
        for each in appends:
            each.outcome = outcome
        return
    at = outcome.first
    if len(appends) == 1:
        appends[0].outcome = outcome
        return
    for each in appends:
        end = Offset(at + each.rows.num_rows) if outcome.rows else at
        each.outcome, at = OffsetRange(at, end), end


def _interrupted() -> HeadraceError:
    return HeadraceError(
        Code.UNAVAILABLE,
        "the write was interrupted",
        detail="Whether the rows are stored is not known.",
        hint="Write as a producer with sequence numbers: a repeated write then takes effect once.",
    )
