"""Text files as blocks of whole records, decoded in parallel and returned in order.

Arrow decodes a block at once. If that fails, the block is split until the bad rows are nearly
isolated: a bad row costs a logarithm of the block, not the whole block.

Collects rows into tables, and checks tables as a whole.
"""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.offenders import divided

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from io import BufferedIOBase
    from pathlib import Path

    from numpy.typing import NDArray

    from headrace.storage.ledger import Reject
    from headrace.types import Schema


class Rows:
    """Collects rows into a table."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._columns: list[list[Any]] = [[] for _ in schema]
        self._count = 0

    def add(self, values: Sequence[Any]) -> None:
        """Add one row: a converted value per column."""
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)
        self._count += 1

    def into(self, tables: list[pa.Table]) -> None:
        """Append the collected rows, if there are any, as one table."""
        if self._count:
            arrays = [
                pa.array(values, field.type)
                for values, field in zip(self._columns, self._schema, strict=True)
            ]
            tables.append(pa.table(arrays, schema=self._schema))


def together(wrong: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Combine the rejected columns of a row, and their reasons, into one of each."""
    if len(wrong) == 1:
        return wrong[0]
    columns = ", ".join(column for column, _ in wrong)
    return columns, "; ".join(f"{column}: {reason}" for column, reason in wrong)


def misses_required(table: pa.Table, schema: Schema) -> bool:
    """Return whether a NOT NULL column has a NULL."""
    return any(
        not column.nullable and values.null_count
        for column, values in zip(schema.columns, table.columns, strict=True)
    )


def require_precision(table: pa.Table) -> None:
    """Raise Arrow's error if a decimal has too many digits, which some Arrow readers accept."""
    for values in table.columns:
        if pa.types.is_decimal(values.type) or pa.types.is_nested(values.type):
            values.validate(full=True)


def holds_infinity(table: pa.Table) -> bool:
    """Return whether a floating-point column has an infinity, written or from an overflow."""
    return any(
        pa.types.is_floating(values.type) and pc.any(pc.is_inf(values)).as_py()
        for values in table.columns
    )


COMPRESSED: Final = (".gz", ".zst")
"""The endings of compressed text."""
BLOCK_BYTES: Final = 8 << 20
LONGEST_RECORD: Final = 64 << 20
_MARK: Final = b"\xef\xbb\xbf"
_AHEAD: Final = 6
"""The number of blocks that are decoded while earlier ones are written."""
_ALONE: Final = 16
"""The number of records below which a block is decoded row by row instead of being split."""
_PIECE_BYTES: Final = 1 << 18
"""The number of bytes that one vector operation processes."""
_PARTS: Final = 16
"""The number of parts into which records with bad rows are split: three rounds find a bad row."""

R = TypeVar("R")

Text: TypeAlias = bytes | bytearray
"""The text read from a file, which is not modified after reading."""


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A position in a file; everything before it has been delivered.

    ``position`` counts bytes of text, after decompression, or rows of a Parquet file; ``line``
    counts the lines, or rows, before it. ``checksum`` covers all text before ``position``, or a
    Parquet file's footer; empty if nothing has been read.
    """

    position: int = 0
    line: int = 0
    checksum: str = ""

    def to_json(self) -> dict[str, int | str]:
        """Return a value that ``json`` can write and :meth:`of_json` reads."""
        return {"position": self.position, "line": self.line, "checksum": self.checksum}

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> FilePosition:
        """Return the progress that :meth:`to_json` wrote."""
        return cls(int(value["position"]), int(value["line"]), str(value.get("checksum", "")))

    def require_same(self, path: Path, checksum: str) -> None:
        """Raise if the file's ``checksum`` up to this position differs.

        Raises:
            HeadraceError: CONFLICT if it differs.
        """
        if self.checksum not in ("", checksum):
            raise HeadraceError(
                Code.CONFLICT, f'file "{path}" has changed since its first part was copied'
            )


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Whole records, the number of their first line, and the position in the file after them."""

    data: Text
    line: int
    progress: FilePosition
    bytes_done: int


class RecordSpan(NamedTuple):
    """A record's bytes ``[start, end)`` in its block, and the line it starts at."""

    start: int
    end: int
    line: int


@dataclass(slots=True)
class Decoded:
    """The rows of a block, and its rejects."""

    tables: list[pa.Table] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)


@contextmanager
def opened(path: Path) -> Iterator[tuple[BufferedIOBase, BufferedIOBase]]:
    """Open a file as text bytes, decompressed if it ends in ``.gz`` or ``.zst``, and as stored."""
    with path.open("rb") as stored:
        ending = path.suffix.lower()
        if ending not in COMPRESSED:
            yield stored, stored
            return
        if ending == ".zst":
            try:
                yield pa.CompressedInputStream(stored, "zstd"), stored
            except (OSError, pa.ArrowException) as error:
                raise HeadraceError(
                    Code.INVALID,
                    f'file "{path}" is not a whole zstd file',
                    f"{error}.",
                    "Compress it again; rows read before the damage stay.",
                ) from error
            return
        with gzip.GzipFile(fileobj=stored) as text:
            try:
                yield text, stored
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise HeadraceError(
                    Code.INVALID,
                    f'file "{path}" is not a whole gzip file',
                    f"{error}.",
                    "Compress it again; rows read before the damage stay.",
                ) from error


def blocks(
    path: Path, start: FilePosition, cut: Callable[[Text, bool], int], newline: bytes = b"\n"
) -> Iterator[RecordBlock]:
    """Read a file from ``start`` as blocks that end at the end of a record, found by ``cut``.

    ``cut(data, at_end)`` returns the end of the last whole record in ``data``, or 0. Lines are
    counted by ``newline``, one byte.

    Raises:
        HeadraceError: INVALID for a record longer than 64 MiB, or a damaged gzip file; CONFLICT if
            the text before ``start`` has changed since it was read.
    """
    with opened(path) as (text, stored):
        read_before = xxhash.xxh3_64()
        left = start.position
        while piece := text.read(min(BLOCK_BYTES, left)):
            read_before.update(piece)
            left -= len(piece)
        start.require_same(path, read_before.hexdigest())
        done, rest = start, b""
        size = BLOCK_BYTES if text is not stored else min(BLOCK_BYTES, path.stat().st_size + 1)
        while True:
            data = bytearray(len(rest) + size)
            data[: len(rest)] = rest
            read = text.readinto(memoryview(data)[len(rest) :])
            del data[len(rest) + read :]
            if not data:
                return
            end = cut(data, not read)
            if end == 0 and len(data) > LONGEST_RECORD:
                raise HeadraceError(
                    Code.INVALID,
                    f'file "{path}" holds a record longer than 64 MiB from line {done.line + 1}',
                    hint="A quote may be unclosed there, or the file may have another format.",
                )
            rest = bytes(data[end:])
            del data[end:]
            if not data:
                continue
            line = done.line + 1
            newlines = count_of(data, lambda characters: characters == newline[0])
            read_before.update(data)
            done = FilePosition(done.position + end, done.line + newlines, read_before.hexdigest())
            yield RecordBlock(
                data, line, done, stored.tell() - (len(rest) if text is stored else 0)
            )


def count_of(data: Text, which: Callable[[NDArray[np.uint8]], NDArray[np.bool_]]) -> int:
    """Count the bytes that meet a condition, in pieces that fit the CPU cache."""
    characters = np.frombuffer(data, np.uint8)
    pieces = range(0, len(characters), _PIECE_BYTES)
    return sum(int(np.count_nonzero(which(characters[p : p + _PIECE_BYTES]))) for p in pieces)


def side_by_side(
    blocks: Iterator[RecordBlock], decode: Callable[[RecordBlock], Decoded]
) -> Iterator[tuple[RecordBlock, Decoded]]:
    """Decode blocks on all cores, and yield them in order.

    Arrow's decoders release the interpreter's lock. Only a few blocks are read ahead.
    """
    first, second = next(blocks, None), next(blocks, None)
    if first is None:
        return
    if second is None:  # most files are small: no threads for them
        yield first, decode(first)
        return
    workers = min(8, len(os.sched_getaffinity(0)))
    waiting: deque[tuple[RecordBlock, Future[Decoded]]] = deque()
    with ThreadPoolExecutor(workers, "decode") as pool:
        for block in chain((first, second), blocks):
            waiting.append((block, pool.submit(decode, block)))
            if len(waiting) > workers + _AHEAD:
                oldest, result = waiting.popleft()
                yield oldest, result.result()
        while waiting:
            oldest, result = waiting.popleft()
            yield oldest, result.result()


def salvage(
    records: Sequence[R],
    whole: Callable[[Sequence[R]], pa.Table | None],
    one_by_one: Callable[[Sequence[R], Decoded], None],
) -> Decoded:
    """Decode records, isolating bad ones by bisection.

    ``whole`` decodes records at once, or returns None if any is bad; ``one_by_one`` adds the good
    rows and the rejects of a few records. Rows and rejects keep their order.
    """
    found = Decoded()

    def attempt(start: int, stop: int) -> pa.Table | None:
        return None if stop - start <= _ALONE else whole(records[start:stop])

    pieces = divided(len(records), attempt, lambda t: t is None, alone=_ALONE, into=_PARTS)
    for piece, table in pieces:
        if table is None:
            one_by_one(records[piece.start : piece.stop], found)
        else:
            found.tables.append(table)
    return found


def after_mark(beginning: bytes) -> FilePosition:
    """Return the position in a file where its text begins: after a byte order mark, if any."""
    return FilePosition(len(_MARK)) if beginning.startswith(_MARK) else FilePosition()


def lines_of(data: Text, first_line: int) -> list[RecordSpan]:
    """Return the lines of a block that are not blank."""
    spans: list[RecordSpan] = []
    start, line = 0, first_line
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        if data[start:end].strip():
            spans.append(RecordSpan(start, end, line))
        start, line = end, line + 1
    return spans


def last_line_end(data: Text, at_end: bool) -> int:  # noqa: FBT001 (the shape of a cut)
    """Return the end of the last line; at the end of the file, the end of the data."""
    return len(data) if at_end else data.rfind(b"\n") + 1


def is_utf8(data: Text) -> bool:
    """Return whether bytes are valid UTF-8."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def size_of(path: Path) -> int:
    """Return the size in bytes of a file that can be read repeatedly from its beginning.

    Raises:
        HeadraceError: INVALID if the file does not exist or cannot be read, or is a directory,
            pipe, socket or device: opening one of these may wait forever.
    """
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise HeadraceError(
                Code.INVALID, f'file "{path}" is a directory', hint="Name one file in it."
            )
        if not stat.S_ISREG(found.st_mode):
            raise HeadraceError(
                Code.INVALID,
                f'file "{path}" is a pipe, a socket or a device',
                detail="COPY goes back to the beginning of a file, and resumes where it stopped.",
                hint="Write its contents to a file, and COPY the file.",
            )
        with path.open("rb"):
            return found.st_size
    except FileNotFoundError as error:
        raise HeadraceError(Code.INVALID, f'file "{path}" does not exist') from error
    except OSError as error:
        raise HeadraceError(
            Code.INVALID, f'file "{path}" could not be read', f"{error.strerror}."
        ) from error
