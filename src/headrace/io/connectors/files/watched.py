"""Directories as sources: each file is read once, when it is complete.

A note for each file records its state when it was read, and how far: it is stored in the same
transaction as the rows. So files may appear in any order, and nothing is read twice. A file that
changes after it was read, or that cannot be read, is reported as a reject.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t

from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.ports import Part
from headrace.io.connectors.files.directories import GROWING, FilePattern, FoundFile, end_of, grown
from headrace.io.connectors.files.source import (
    CHUNK_BYTES,
    CHUNK_ROWS,
    FileFormat,
    FileOptions,
    FilePosition,
    character,
    read_file,
)
from headrace.io.connectors.options import Given, option, seconds
from headrace.io.formats.blocks import COMPRESSED
from headrace.io.formats.values import RejectedValueError, from_text
from headrace.storage.ledger import Reject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.types import Column, Schema


_PART_SECONDS: Final = 0.25
_MOST_FILES: Final = 1000
_PARTITION: Final = "partition."
_TYPES: Final[dict[str, tuple[tuple[type[t.DataType], ...], str]]] = {
    "file.path": ((t.StringType,), "STRING"),
    "file.name": ((t.StringType,), "STRING"),
    "file.size": ((t.LongType,), "BIGINT"),
    "file.modification-time": ((t.TimestampType, t.TimestampNTZType), "TIMESTAMP"),
}
METADATA: Final = (*_TYPES, _PARTITION)


class FileStartup(StrEnum):
    """Whether files that existed when the relation was created are read."""

    EARLIEST = "earliest-offset"
    LATEST = "latest-offset"


class FileMode(StrEnum):
    """Whether a file is read once, when it is complete, or continuously as it is appended to."""

    WHOLE = "whole"
    APPEND = "append"


def _absolute(path: str) -> str:
    """Return an absolute path, independent of the process's working directory."""
    return path if "://" in path else os.path.abspath(path)  # noqa: PTH100 (keeps links)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a source; a file is complete if it is unchanged for ``settle`` seconds."""

    path: str = option(convert=_absolute)
    format: FileFormat | None = option("format", "value.format", "value_format", default=None)
    header: bool | None = option("header", "csv.header", default=None)
    delimiter: str | None = option(
        "delimiter", "csv.field-delimiter", "value_delimiter", default=None, convert=character
    )
    quote: str | None = option("quote", "csv.quote-character", default=None, convert=character)
    null: str | None = option("null", "csv.null-literal", default=None)
    startup: FileStartup = option("scan.startup.mode", default=FileStartup.EARLIEST)
    mode: FileMode = option("scan.file-mode", default=FileMode.WHOLE)
    settle: float = option("scan.settle", default=2.0, convert=seconds)
    interval: float = option("source.monitor-interval", default=1.0, convert=seconds)

    def of_file(self, path: Path) -> FileOptions:
        """Return the options for reading one file.

        Raises:
            HeadraceError: ``invalid`` if its format is unknown, or if ``mode`` is append and its
                format does not allow that.
        """
        named = {"format": self.format, "delimiter": self.delimiter}
        named |= {"quote": self.quote, "null": self.null}
        named["header"] = None if self.header is None else str(self.header).lower()
        given = [Given(key, value) for key, value in named.items() if value is not None]
        found = FileOptions.of(path, given)
        if self.mode is FileMode.APPEND and found.format not in GROWING:
            raise HeadraceError(
                Code.INVALID,
                f"files of format {found.format} are not appended to",
                hint="Leave out scan.file-mode, or use CSV or JSON lines.",
            )
        if self.mode is FileMode.APPEND and path.suffix.lower() in COMPRESSED:
            raise HeadraceError(
                Code.INVALID,
                f'"{path}" is compressed, and such files are not appended to',
                hint="Leave out scan.file-mode, or use files that are not compressed.",
            )
        return found


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The columns of a relation: all, and those in the files' contents.

    ``metadata`` are pairs of a further column and its key in :data:`METADATA`.
    """

    all: Schema
    value: Schema
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of a file: its rows, its rejects, and the file's note after it."""

    found: FoundFile
    note: list[Any]
    rows: pa.Table | None = None
    rejects: tuple[Reject, ...] = ()


@dataclass(slots=True)
class _Batch:
    """Pieces of files that become one part."""

    tables: list[pa.Table] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    begun: float = field(default_factory=time.monotonic)
    rows: int = 0
    bytes: int = 0

    def add(self, piece: _Piece) -> None:
        self.notes[piece.found.name] = piece.note
        self.rejects += piece.rejects
        if piece.rows is not None and piece.rows.num_rows:
            self.tables.append(piece.rows)
            self.paths.append(piece.found.path)
            self.rows += piece.rows.num_rows
            self.bytes += piece.rows.nbytes

    @property
    def full(self) -> bool:
        """Whether it has enough rows, bytes, files or age to become a part."""
        return (
            max(self.rows, len(self.rejects)) >= CHUNK_ROWS
            or self.bytes >= CHUNK_BYTES
            or len(self.notes) >= _MOST_FILES
            or time.monotonic() - self.begun > _PART_SECONDS
        )

    def origins(self) -> Callable[[int], tuple[str, int]]:
        """Return a function from a row's index to its file; the line is unknown, and 0."""
        ends = list(accumulate(table.num_rows for table in self.tables))
        paths = [str(path) for path in self.paths]
        return lambda row: (paths[bisect_right(ends, row)], 0)


@dataclass(slots=True)
class DirectorySource:
    """The files of one relation, read until it is closed.

    ``notes`` returns the notes of all stored parts. A note is ``[size, modified_ns, progress]``:
    the state of a file when it was read, and the position up to which it was; None for its end.
    """

    options: Options
    columns: FileColumns
    notes: Callable[[str], Mapping[str, Any]]
    _closed: threading.Event = field(default_factory=threading.Event)
    _known: dict[str, Any] = field(default_factory=dict)
    _seen: dict[str, tuple[int, int, float]] = field(default_factory=dict)
    """For incomplete files: size, modification time, and the time since which these are unchanged.

    The first is in bytes, the second in ns since 1970, the last in s of the monotonic clock.
    """

    @property
    def identity(self) -> str:
        """The path in the options."""
        return f"filesystem|{self.options.path}"

    def close(self) -> None:
        """Make :meth:`parts` end soon."""
        self._closed.set()

    def check(self) -> None:
        """Raise if the directory cannot be read, or its first file does not fit the columns.

        Raises:
            HeadraceError: as :meth:`parts`, and ``invalid`` for options or columns that do not fit.
        """
        for name, key in self.columns.metadata:
            _require_type(next(c for c in self.columns.all.columns if c.name == name), key)
        first = min(FilePattern.of(self.options.path).files(), key=_order, default=None)
        if self.options.format is not None:
            self.options.of_file(Path(f"x.{self.options.format}"))
        if first is not None and first.outside is None and first.size:
            options = self.options.of_file(first.path)
            if self.options.mode is FileMode.WHOLE:
                next(read_file(first.path, self.columns.value, options), None)

    def parts(self, position: Mapping[str, Any] | None) -> Iterator[Part]:
        """Yield the rows of complete files; a part may be empty.

        Raises:
            HeadraceError: ``unavailable`` if the directory, or a file in it, cannot be read now.
        """
        place = FilePattern.of(self.options.path)
        self._known = dict(self.notes(self.identity))
        if position is None:
            yield self._part(self._beginning(place), 0)
        while not self._closed.is_set():
            begun = time.monotonic()
            found = sorted(place.files(), key=_order)
            lost = self._lost(found)
            ready = [each for each in found if self._is_to_be_read(each)]
            looked = time.monotonic() - begun
            yield from self._read(lost, ready)
            # Listing a huge directory takes at most a tenth of the time.
            self._closed.wait(max(self.options.interval, 0.0 if ready else 9 * looked))

    # -- which files -----------------------------------------------------------------------

    def _beginning(self, place: FilePattern) -> _Batch:
        """Return the notes for the existing contents of files, which startup ``latest`` skips."""
        batch = _Batch()
        if self.options.startup is FileStartup.EARLIEST:
            return batch
        for found in place.files():
            state = [found.size, found.modified_ns]
            if self.options.mode is FileMode.WHOLE:
                if self._is_settled(found):
                    self._take(_Piece(found, [*state, None]), batch)
                continue
            try:
                end = end_of(found.path, self.columns.value, self.options.of_file(found.path))
                self._take(_Piece(found, [*state, end.to_json()]), batch)
            except HeadraceError as error:
                self._take(_refused(found, _reason(error)), batch)
        return batch

    def _is_to_be_read(self, found: FoundFile) -> bool:
        """Whether a file now has rows to read or is to be reported as a reject."""
        note = self._known.get(found.name)
        appended = self.options.mode is FileMode.APPEND
        if note is not None and note[:2] == [found.size, found.modified_ns]:
            self._seen.pop(found.name, None)
            return note[2] is not None and not appended  # its reading was interrupted
        if found.size == 0 and note is None and found.outside is None:
            return False  # it is still empty
        if appended:
            return note is None or note[2] is not None
        if self._is_settled(found):
            self._seen.pop(found.name, None)
            return True
        return False

    def _is_settled(self, found: FoundFile) -> bool:
        """Whether a file is unchanged for ``settle`` seconds, by its own time or this clock."""
        size, modified, since = self._seen.get(found.name, (-1, -1, 0.0))
        if (size, modified) != (found.size, found.modified_ns):
            since = time.monotonic()
            self._seen[found.name] = (found.size, found.modified_ns, since)
        age = (time.time_ns() - found.modified_ns) / 1e9
        return max(age, time.monotonic() - since) >= self.options.settle

    def _lost(self, found: list[FoundFile]) -> _Batch:
        """Return rejects for files that were removed before they were read to their end."""
        batch = _Batch()
        names = {each.name for each in found}
        self._seen = {name: seen for name, seen in self._seen.items() if name in names}
        if self.options.mode is FileMode.APPEND:
            return batch
        root = FilePattern.of(self.options.path).root
        for name in [name for name, note in self._known.items() if note[2] is not None]:
            if name not in names:
                size, modified, progress = self._known[name]
                gone = FoundFile(root / name, name, size, modified, 0)
                line = FilePosition.of_json(progress).line
                self._take(_refused(gone, "it was removed while it was read", line), batch)
        return batch

    # -- reading ---------------------------------------------------------------------------

    def _read(self, batch: _Batch, ready: list[FoundFile]) -> Iterator[Part]:
        """Yield a batch and the rows of files, in at least one part.

        A file that cannot be read now does not delay the others: its error is raised at the end.
        """
        waiting, failed = len(ready) + len(self._seen), None
        for done, found in enumerate(ready, 1):
            try:
                for piece in self._pieces(found):
                    self._take(piece, batch)
                    if batch.full:
                        yield self._part(batch, waiting - done)
                        batch = _Batch()
                    if self._closed.is_set():
                        return
            except HeadraceError as error:
                if error.code is not Code.UNAVAILABLE:
                    raise
                failed = failed or error
        yield self._part(batch, waiting - len(ready))
        if failed is not None:
            raise failed

    def _take(self, piece: _Piece, batch: _Batch) -> None:
        self._known[piece.found.name] = piece.note
        batch.add(piece)

    def _pieces(self, found: FoundFile) -> Iterator[_Piece]:
        """Yield the pieces of a file; stop if it changes after it was found."""
        state = [found.size, found.modified_ns]
        note = self._known.get(found.name)
        if found.outside is not None:
            yield _refused(found, f"it is a link out of the directory, to {found.outside}")
            return
        if note is not None and self.options.mode is FileMode.WHOLE and note[:2] != state:
            line = 0 if note[2] is None else FilePosition.of_json(note[2]).line
            when = "after" if note[2] is None else "while"
            then = f"it changed {when} it was read, from {note[0]:,} to {found.size:,} bytes"
            yield _refused(found, f"{then}: its new contents are not read", line)
            return
        if not _is_readable(found):
            return
        start = None if note is None else FilePosition.of_json(note[2])
        line = 0 if start is None else start.line
        try:
            complete = self._completion(found)
            for rows, rejects, after in self._contents(found, start):
                if self.options.mode is FileMode.WHOLE and not _is_same(found):
                    return
                line = after.line
                yield _Piece(found, [*state, after.to_json()], complete(rows), rejects)
            if self.options.mode is FileMode.WHOLE and _is_same(found):
                yield _Piece(found, [*state, None])
        except HeadraceError as error:
            if error.code is Code.UNAVAILABLE:
                raise
            yield _refused(found, _reason(error), line)

    def _contents(
        self, found: FoundFile, start: FilePosition | None
    ) -> Iterator[tuple[pa.Table, tuple[Reject, ...], FilePosition]]:
        """Yield the rows, rejects and progress of a file after ``start``."""
        options, schema = self.options.of_file(found.path), self.columns.value
        if self.options.mode is FileMode.WHOLE:
            for chunk in read_file(found.path, schema, options, start):
                yield chunk.table, chunk.rejects, chunk.progress
            return
        end = start or FilePosition()
        for decoded, after in grown(found.path, schema, options, end):
            rows = pa.concat_tables([schema.arrow.empty_table(), *decoded.tables])
            yield rows, tuple(decoded.rejects), after
            end = after
        yield schema.arrow.empty_table(), (), end

    def _completion(self, found: FoundFile) -> Callable[[pa.Table], pa.Table]:
        """Return a function that adds metadata columns to a file's rows, in the relation's order.

        Raises:
            HeadraceError: ``invalid`` if a column cannot hold the path's value.
        """
        values: dict[str, pa.Scalar] = {}
        for name, key in self.columns.metadata:
            column = next(each for each in self.columns.all.columns if each.name == name)
            type_ = self.columns.all.arrow.field(name).type
            values[name] = pa.scalar(_metadata(found, key, column), type_)

        def complete(rows: pa.Table) -> pa.Table:
            columns = [
                pa.repeat(values[name], rows.num_rows) if name in values else rows[name]
                for name in self.columns.all.names
            ]
            return pa.table(columns, schema=self.columns.all.arrow)

        return complete

    def _part(self, batch: _Batch, waiting: int) -> Part:
        """Return a batch as a part; ``waiting`` is the number of files that are not read yet."""
        rows = pa.concat_tables([self.columns.all.arrow.empty_table(), *batch.tables])
        rows = rows.append_column(WEIGHT, pa.array(np.ones(rows.num_rows, np.int64)))
        rejects, at = tuple(batch.rejects), {"begun": True}
        origin, notes = batch.origins(), batch.notes
        return Part(rows, rejects, at, 0, waiting, origin, _no_partitions, notes=notes)


def _no_partitions(_place: str) -> str:
    """Return one partition for all files: they have a common event time."""
    return ""


def _order(found: FoundFile) -> tuple[int, str]:
    """Return the sort key of files in the order of reading: modification time, then name."""
    return found.modified_ns, found.name


def _is_same(found: FoundFile) -> bool:
    """Whether a file is unchanged since it was found."""
    try:
        now = found.path.stat()
    except FileNotFoundError:
        return False
    return (now.st_size, now.st_mtime_ns, now.st_ino) == (
        found.size,
        found.modified_ns,
        found.inode,
    )


def _is_readable(found: FoundFile) -> bool:
    """Whether a file exists.

    Raises:
        HeadraceError: ``unavailable`` if it cannot be read now.
    """
    try:
        with found.path.open("rb"):
            return True
    except FileNotFoundError:
        return False
    except OSError as error:
        raise HeadraceError(
            Code.UNAVAILABLE,
            f'file "{found.path}" cannot be read',
            f"{error.strerror}.",
            "Allow this process to read it, or move it elsewhere.",
        ) from error


def _refused(found: FoundFile, reason: str, line: int = 0) -> _Piece:
    """Return a reject for a file, with the note that its current state is not to be read again."""
    reject = Reject(str(found.path), line, None, reason, "")
    return _Piece(found, [found.size, found.modified_ns, None], rejects=(reject,))


def _reason(error: HeadraceError) -> str:
    return f"{error.primary}. {error.detail}".removesuffix(" ") if error.detail else error.primary


def _require_type(column: Column, key: str) -> None:
    """Refuse a column whose type cannot hold the metadata of a key.

    Raises:
        HeadraceError: ``invalid``, or ``unsupported`` for a type that cannot be parsed from text.
    """
    if key.startswith(_PARTITION):
        from_text(column)
        return
    kinds, declared = _TYPES[key]
    if not isinstance(column.type, kinds):
        raise HeadraceError(
            Code.INVALID,
            f'column "{column.name}" of type {column.sql} cannot have the {key}',
            hint=f"Declare it as {declared}.",
        )


def _metadata(found: FoundFile, key: str, column: Column) -> Any:
    """Return the value of a metadata column from a file's path or status."""
    match key:
        case "file.path":
            return str(found.path)
        case "file.name":
            return found.path.name
        case "file.size":
            return found.size
        case "file.modification-time":
            return found.modified_ns // 1000
    name = key.removeprefix(_PARTITION)
    known = {each.lower(): value for each, value in found.partitions().items()}
    value = known.get(name.lower())
    if value is None:
        if column.nullable:
            return None
        why = f'its path has no directory "{name}=", and column "{column.name}" is NOT NULL'
        raise HeadraceError(Code.INVALID, why)
    try:
        return from_text(column)(value)
    except RejectedValueError as refused:
        raise HeadraceError(Code.INVALID, f'directory "{name}=" in its path: {refused}') from None
