"""Large segments: Parquet files into which many segments of one log are merged.

A file has the changes in the order of their offsets, in row groups of at most :data:`GROUP_ROWS`.
Its footer has the bytes, the checksum and the bounds of each row group, and the ledger has the
checksum of the footer. So whoever reads a part verifies just that part and the footer. A
further column says when each change was appended. Corrections of a stream's events are among the
events: these have the weight 1 then, and NULL in the other columns of corrections.
"""

from __future__ import annotations

import io
import json
import threading
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from headrace.algebra.spine import ChecksummedFile
from headrace.errors import not_written
from headrace.files import mounts
from headrace.storage.ledger import SegmentFile
from headrace.storage.log.share import bounds_of, merged_bounds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


SUFFIX: Final = ".parquet"
APPENDED: Final = "__appended"
"""The column of a large segment with the time at which a change was appended, in microseconds."""
WEIGHT: Final = "__weight"
AMENDED: Final = "__amended"
"""In a correction of a stream's events: the offset of the event that a change amends."""
CORRECTION: Final = "__correction"
"""In a correction of a stream's events: a number that is greater in every later correction."""
OF_CORRECTIONS: Final = (WEIGHT, AMENDED, CORRECTION)
"""The columns that corrections of a stream's events have, beyond those of events."""
GROUP_ROWS: Final = 65_536
"""The most rows of a row group."""
GROUP_BYTES: Final = 1 << 25
"""About the most bytes of the rows of a row group, in memory."""
_MOST_WAITING: Final = 1_024
"""Of so many batches one is made, until their row group is written."""
_GROUPS: Final = "headrace.groups"
"""The key in the footer of what is known of each row group."""
_ENDING_BYTES: Final = 8
"""What a Parquet file ends with: the length of its footer, and four letters."""
_LENGTH_BYTES: Final = 4
_FLOATS: Final = ("FLOAT", "DOUBLE")
_MOST_OPEN: Final = 64
"""The most footers that a process keeps."""


@dataclass(frozen=True, slots=True)
class _Encodings:
    """How the columns of a file are encoded, by path."""

    dictionary: tuple[str, ...]
    others: Mapping[str, str]


@lru_cache(maxsize=256)
def _encodings(schema: pa.Schema) -> _Encodings | None:
    """Return how rows are encoded; None if Parquet does not keep their types as they are."""
    whole = _with_times(schema)
    sink = io.BytesIO()
    try:
        pq.write_table(whole.empty_table(), sink)
    except pa.ArrowException:
        return None
    read = pq.ParquetFile(io.BytesIO(sink.getvalue()))
    if not read.schema_arrow.equals(whole):
        return None
    leaves = [read.schema.column(at) for at in range(len(read.schema))]
    others = {each.path: "BYTE_STREAM_SPLIT" for each in leaves if each.physical_type in _FLOATS}
    for name in {APPENDED, AMENDED, CORRECTION} & {*whole.names}:
        others[name] = "DELTA_BINARY_PACKED"
    return _Encodings(tuple(leaf.path for leaf in leaves if leaf.path not in others), others)


def keeps(schema: pa.Schema) -> bool:
    """Whether rows with a schema can be in a large segment: they are read just as they were."""
    return APPENDED not in schema.names and _encodings(schema) is not None


class LargeWriter:
    """Writes one large segment, a row group at a time. As a context, it removes what is unfinished.

    Errors of the disk are raised as ``unavailable``.
    """

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        encodings = _encodings(schema)
        if encodings is None:
            raise TypeError(f"Parquet does not keep the types of {schema}")
        self._directory = directory
        self.schema = schema
        self._schema = _with_times(schema)
        self._path = directory / f"{uuid4().hex}{SUFFIX}"
        self._parts: list[pa.RecordBatch] = []
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._written = 0
        self._groups: list[dict[str, Any]] = []
        self._finished = False
        try:
            self._file = _GroupedFile(self._path)
        except OSError as error:
            raise not_written(f'segment "{self._path}"', error) from error
        self._parquet = pq.ParquetWriter(
            pa.PythonFile(self._file, "w"),
            self._schema,
            compression="zstd",
            use_dictionary=list(encodings.dictionary),
            column_encoding=dict(encodings.others),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._finished:
            self._parquet.is_open = False  # it would write its footer
            self._file.close()
            mounts.discard(self._directory, [self._path.name])

    def write(self, rows: pa.RecordBatch, appended: pa.Array) -> None:
        """Write changes, with the time at which each one was appended, in microseconds."""
        each = max(1, rows.nbytes // max(1, rows.num_rows))
        whole = pa.RecordBatch.from_arrays([*rows.columns, appended], schema=self._schema)
        first = 0
        while first < rows.num_rows:
            room = min(GROUP_ROWS - self._rows, (GROUP_BYTES - self._bytes) // each)
            part = whole.slice(first, max(1, room))
            first += part.num_rows
            self._waiting.append(part)
            self._rows += part.num_rows
            self._bytes += part.num_rows * each
            if len(self._waiting) == _MOST_WAITING:
                self._gather()
            if self._rows == GROUP_ROWS or self._bytes >= GROUP_BYTES:
                self._write_group()

    def finish(self) -> SegmentFile:
        """Return the segment, which is on disk then."""
        try:
            if self._waiting:
                self._write_group()
            known = {_GROUPS: json.dumps(self._groups, separators=(",", ":"))}
            self._parquet.add_key_value_metadata(known)
            self._file.begin()
            self._parquet.close()
            self._file.sync()
            self._file.close()
            mounts.keep(self._path)
            mounts.sync_directory(self._directory)
        except OSError as error:
            raise not_written(f'segment "{self._path}"', error) from error
        self._finished = True
        bounds = self._groups[0]["bounds"]
        for group in self._groups[1:]:
            bounds = merged_bounds(bounds, group["bounds"])
        return SegmentFile(
            self._path.name,
            self._written,
            self._file.bytes,
            self._file.digest.hexdigest(),
            bounds=bounds,
            footer=self._file.part.hexdigest(),
        )

    def _gather(self) -> None:
        """Make one part of what waits: many of few rows would take many times their bytes."""
        table = pa.Table.from_batches(self._waiting, self._schema).combine_chunks()
        self._parts += table.to_batches()
        self._waiting = []

    def _write_group(self) -> None:
        waiting = [*self._parts, *self._waiting]
        table = pa.Table.from_batches(waiting, self._schema).combine_chunks()
        begins = self._file.begin()
        try:
            self._parquet.write_table(table, row_group_size=GROUP_ROWS)
        except OSError as error:
            raise not_written(f'segment "{self._path}"', error) from error
        self._groups.append(
            {
                "bytes": self._file.bytes - begins,
                "checksum": self._file.part.hexdigest(),
                "bounds": bounds_of(table),
                "amends": AMENDED in table.schema.names
                and table[AMENDED].null_count < table.num_rows,
            }
        )
        self._written += table.num_rows
        self._parts, self._waiting, self._rows, self._bytes = [], [], 0, 0


class _GroupedFile(ChecksummedFile):
    """A file that also computes the checksum of its last part."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.part = xxhash.xxh3_64()
        self._begun = False

    def begin(self) -> int:
        """Begin a part; return where. The first one has what was written before."""
        if self._begun:
            self.part = xxhash.xxh3_64()
        begins = self.bytes if self._begun else 0
        self._begun = True
        return begins

    def write(self, data: Any) -> int:
        """Write bytes; return their number."""
        with memoryview(data) as view:
            self.part.update(view)
            return super().write(view)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a large segment: the rows ``[first, end)``, and its place in the file."""

    number: int
    first: int
    end: int
    position: int
    bytes: int
    checksum: str
    bounds: Mapping[str, Any]
    amends: bool = False
    """Whether any of its changes amends an earlier event of a stream."""


@dataclass(frozen=True, slots=True)
class LargeFile:
    """A large segment whose footer was read and verified."""

    path: Path
    schema: pa.Schema
    """That of the changes, without :data:`APPENDED`."""
    groups: tuple[RowGroup, ...]
    _metadata: pq.FileMetaData

    @property
    def rows(self) -> int:
        """The number of changes."""
        return self.groups[-1].end if self.groups else 0

    def schema_of(self, group: RowGroup) -> pa.Schema:
        """Return the schema of the changes in a row group: of plain events if it has just these."""
        if group.amends or AMENDED not in self.schema.names:
            return self.schema
        return plain_events(self.schema)

    def overlapping(self, first: int, end: int) -> tuple[RowGroup, ...]:
        """Return the row groups with any of the rows ``[first, end)``, in order."""
        begins = [group.first for group in self.groups]
        low = max(0, bisect_right(begins, first) - 1)
        return tuple(group for group in self.groups[low:] if group.first < end)

    def read(self, group: RowGroup, names: Sequence[str]) -> pa.RecordBatch:
        """Return some columns of a row group, which was verified.

        Raises:
            OSError: the file cannot be read.
            pyarrow.ArrowException: it is damaged.
        """
        if not names:
            rows = pa.StructArray.from_buffers(pa.struct([]), group.end - group.first, [None])
            return pa.RecordBatch.from_struct_array(rows)
        with pa.memory_map(str(self.path)) as mapped:
            file = pq.ParquetFile(mapped, metadata=self._metadata)
            table = file.read_row_group(group.number, columns=list(names), use_threads=False)
        whole = _with_times(self.schema)
        columns = [table[name].combine_chunks() for name in names]
        fields = pa.schema([whole.field(name) for name in names])
        return pa.RecordBatch.from_arrays(columns, schema=fields)


@dataclass(slots=True)
class _Open:
    """The footers that were read last, by path and checksum."""

    files: OrderedDict[tuple[str, str], LargeFile]
    lock: threading.Lock


_open: Final = _Open(OrderedDict(), threading.Lock())


def opened(path: Path, segment: SegmentFile) -> LargeFile:
    """Return a large segment with its footer, which is read and verified once in a while.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged; the message says how.
    """
    key = (str(path), segment.footer)
    with _open.lock:
        known = _open.files.get(key)
        if known is not None:
            _open.files.move_to_end(key)
            return known
    found = _read_footer(path, segment)
    with _open.lock:
        _open.files[key] = found
        while len(_open.files) > _MOST_OPEN:
            _open.files.popitem(last=False)
    return found


def forget_footers() -> None:
    """Read all footers again."""
    with _open.lock:
        _open.files.clear()


def _read_footer(path: Path, segment: SegmentFile) -> LargeFile:
    with path.open("rb") as file:
        file.seek(segment.bytes - _ENDING_BYTES)
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        begins = segment.bytes - _ENDING_BYTES - length
        if begins < 0:
            raise ValueError("Its end is not that of a segment.")
        file.seek(begins)
        footer = file.read(segment.bytes - begins)
    checksum = xxhash.xxh3_64(footer).hexdigest()
    if checksum != segment.footer:
        raise ValueError(f"The checksum of its footer is {checksum} instead of {segment.footer}.")
    metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + footer))
    schema = metadata.schema.to_arrow_schema()
    names = [name for name in schema.names if name != APPENDED]
    plain = pa.schema([schema.field(name).remove_metadata() for name in names])
    known = json.loads(metadata.metadata[_GROUPS.encode()])
    counts = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
    ends = list(accumulate(counts))
    places = [0, *accumulate(each["bytes"] for each in known)]
    groups = tuple(
        RowGroup(
            at,
            end - count,
            end,
            places[at],
            of["bytes"],
            of["checksum"],
            of["bounds"],
            of.get("amends", False),
        )
        for at, (end, count, of) in enumerate(zip(ends, counts, known, strict=True))
    )
    return LargeFile(path, plain, groups, metadata)


def plain_events(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a stream's events, of one that corrections have, too."""
    return pa.schema([field for field in schema if field.name not in OF_CORRECTIONS])


def _with_times(schema: pa.Schema) -> pa.Schema:
    plain = [field.remove_metadata() for field in schema if field.name != APPENDED]
    return pa.schema([*plain, pa.field(APPENDED, pa.int64())])
