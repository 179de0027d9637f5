"""Files of changes in each format, and files partitioned into directories by column values.

Files of captured changes: each line is a message as in a topic.

Rows written to one file: CSV, JSON lines or Parquet, in the form that COPY ... FROM reads.

The file is written under a hidden name in the same directory, synced, and renamed: a reader sees
the previous file or the complete new one.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol, Self
from urllib.parse import quote
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from headrace.algebra.spine import sync_directory
from headrace.algebra.zset import WEIGHT, row_codes
from headrace.algebra.zset.zset import column
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.ports import Part, RefusedRow
from headrace.execution.serving import with_operations
from headrace.execution.serving.values import beyond_python, json_objects, text_column
from headrace.io.connectors.files.source import ENDINGS, character
from headrace.io.connectors.options import option, read_options
from headrace.io.connectors.sinks import json_lines
from headrace.io.formats.blocks import (
    COMPRESSED,
    FilePosition,
    after_mark,
    blocks,
    lines_of,
    size_of,
)
from headrace.io.formats.json_lines import cut, require_lines
from headrace.io.formats.messages import payload
from headrace.types import is_variant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headrace.io.connectors.options import Given
    from headrace.io.formats.blocks import RecordBlock
    from headrace.io.formats.upserts import ChangeDecoder
    from headrace.types import Epoch


def read_changes(
    path: Path, decoder: ChangeDecoder, resume: FilePosition | None = None
) -> Iterator[tuple[Part, int]]:
    """Yield the changes in a file after a position, in parts.

    Each part is yielded with the number of its lines that contain a change.

    Raises:
        HeadraceError: ``invalid`` if the file does not exist or is damaged.
    """
    total = size_of(path)
    with path.open("rb") as file:
        beginning = file.read(4096)
    require_lines(f'file "{path}"', beginning)
    for block in blocks(path, resume or after_mark(beginning), cut):
        part, taken = _part(str(path), block, decoder)
        yield replace(part, done=block.bytes_done, total=total), taken


def _part(path: str, block: RecordBlock, decoder: ChangeDecoder) -> tuple[Part, int]:
    spans = lines_of(block.data, block.line)
    lines = [bytes(block.data[span.start : span.end]) for span in spans]
    found = decoder.changes([None] * len(lines), lines)
    rejects = (replace(r, file=path, line=spans[r.line].line) for r in found.rejects)
    messages: Sequence[int] = found.messages.tolist()
    part = Part(
        found.rows.append_column(WEIGHT, pa.array(found.weights)),
        tuple(rejects),
        block.progress.to_json(),
        origin=lambda row: (path, spans[messages[row]].line),
        unchanged=found.unchanged,
        emptied=found.emptied,
        payload=lambda row: payload(lines[messages[row]]),
    )
    return part, len(set(messages)) + len(found.emptied)


class OutputFormat(StrEnum):
    """The formats of written files."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"

    @property
    def ending(self) -> str:
        """The file name extension, without a dot."""
        return "jsonl" if self is OutputFormat.JSON else self.value


_OPEN: Final = 128
"""The most files of partitions that are open at the same time."""
_LONGEST_NAME: Final = 250
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Hive's directory name for a NULL or empty value."""


def require_format(schema: pa.Schema, form: OutputFormat) -> None:
    """Refuse columns that files of a format cannot hold.

    Raises:
        HeadraceError: ``unsupported``, with the first such column.
    """
    for field in schema:
        try:
            if form is OutputFormat.CSV:
                pa_csv.write_csv(pa.schema([field]).empty_table(), pa.BufferOutputStream())
            elif form is OutputFormat.PARQUET:
                pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([field])).close()
        except pa.ArrowException as error:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'column "{field.name}" of type'
                f" {'VARIANT' if is_variant(field.type) else field.type} cannot be written as"
                f" {form.value.upper() if form is OutputFormat.CSV else 'Parquet'}",
                hint="Use format = 'json'; or select to_json(column), or its elements.",
            ) from error


class _Writer(Protocol):
    def write(self, rows: pa.Table) -> None: ...

    def close(self) -> None: ...


class _Lines:
    """Writes lines of JSON."""

    def __init__(self, file: BinaryIO, epoch: Epoch, key: Sequence[str]) -> None:
        self._file, self._epoch, self._key = file, epoch, key

    def write(self, rows: pa.Table) -> None:
        self._file.writelines(
            f"{line}\n".encode() for line in json_lines(self._epoch, rows, self._key)
        )

    def close(self) -> None:
        pass


def csv_columns(rows: pa.Table) -> pa.Table:
    """Convert columns of dates beyond the range of Arrow's CSV writer into text."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_date(field.type) or pa.types.is_timestamp(field.type):
            given = rows.column(at)
            if any(pc.any(beyond_python(chunk)).as_py() for chunk in given.chunks):
                rows = rows.set_column(at, field.name, text_column(given))
    return rows


class _Csv:
    """Writes CSV, with a header even without rows; ``schema`` is that of the changes."""

    def __init__(self, file: BinaryIO, key: Sequence[str], schema: pa.Schema) -> None:
        self._file, self._key, self._schema, self._begun = file, key, schema, False

    def write(self, rows: pa.Table) -> None:
        options = pa_csv.WriteOptions(include_header=not self._begun)
        pa_csv.write_csv(csv_columns(with_operations(rows, self._key)), self._file, options)
        self._begun = True

    def close(self) -> None:
        if not self._begun:
            self.write(self._schema.empty_table())


class _Parquet:
    """Writes Parquet; ``schema`` is that of the changes, without the column of operations."""

    def __init__(self, file: BinaryIO, key: Sequence[str], schema: pa.Schema) -> None:
        self._key = key
        self._schema = with_operations(schema.empty_table(), key).schema
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")

    def write(self, rows: pa.Table) -> None:
        ordered = with_operations(rows, self._key).select(self._schema.names)
        self._writer.write_table(ordered.cast(self._schema))

    def close(self) -> None:
        self._writer.close()


class ChangeFile:
    """One new file of changes, durable once closed; an existing file or link is an error.

    ``schema`` is that of the changes.
    """

    def __init__(
        self, place: Path, form: OutputFormat, epoch: Epoch, key: Sequence[str], schema: pa.Schema
    ) -> None:
        self._file = place.open("xb")
        made: dict[OutputFormat, Callable[[], _Writer]] = {
            OutputFormat.JSON: lambda: _Lines(self._file, epoch, key),
            OutputFormat.CSV: lambda: _Csv(self._file, key, schema),
            OutputFormat.PARQUET: lambda: _Parquet(self._file, key, schema),
        }
        self._writer = made[form]()

    def write(self, rows: pa.Table) -> None:
        """Write changes: rows with weights."""
        self._writer.write(rows)

    def close(self) -> None:
        """Finish, sync and close the file."""
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def write_all(self, parts: Iterable[pa.Table]) -> None:
        """Write all parts and close the file; if that fails, abandon it."""
        try:
            for part in parts:
                self.write(part)
            self.close()
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Close the file without syncing it."""
        self._writer.close()
        self._file.close()


class Partitions:
    """Files of changes in directories named by column values: ``country=DE/0.parquet``.

    The number of open files is bounded: if it is reached, all are closed, and further rows of a
    directory go to another file.
    """

    def __init__(
        self, directory: Path, by: Sequence[str], opened: Callable[[Path], ChangeFile], ending: str
    ) -> None:
        self._directory = directory
        self._by = by
        self._opened = opened
        self._ending = ending
        self._open: dict[str, ChangeFile] = {}
        self._files: dict[str, int] = {}

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        """Write all changes of an epoch; return those whose directory name would be too long."""
        refused: list[RefusedRow] = []
        try:
            for part in parts:
                for row, why in sorted(self._write(part).items()):
                    (line,) = json_lines(epoch, part.slice(row, 1), ())
                    refused.append(RefusedRow(line, why))
            self._close()
        except BaseException:
            self._abandon()
            raise
        return refused

    def _write(self, rows: pa.Table) -> dict[int, str]:
        codes = row_codes([column(rows, name) for name in self._by], rows.num_rows)
        order = np.argsort(codes, kind="stable")
        bounds = np.flatnonzero(np.diff(codes[order], prepend=codes[order][:1] - 1))
        refused: dict[int, str] = {}
        for places in np.split(order, bounds[1:]) if len(order) else []:
            some = rows.take(pa.array(places))
            name = self._name(some.slice(0, 1))
            if max(map(len, name.split("/"))) > _LONGEST_NAME:
                why = f"the value of {', '.join(self._by)} is too long for the name of a directory"
                refused |= dict.fromkeys(places.tolist(), why)
                continue
            self._file(name).write(some)
        return refused

    def _close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()
        found = {self._directory, *(place.parent for place in self._directory.rglob("*"))}
        for directory in found:
            sync_directory(directory)

    def _abandon(self) -> None:
        for file in self._open.values():
            file.abandon()

    def _file(self, name: str) -> ChangeFile:
        if name not in self._open:
            if len(self._open) >= _OPEN:
                for file in self._open.values():
                    file.close()
                self._open.clear()
            number = self._files.get(name, 0)
            self._files[name] = number + 1
            directory = self._directory / name
            directory.mkdir(parents=True, exist_ok=True)
            self._open[name] = self._opened(directory / f"{number}.{self._ending}")
        return self._open[name]

    def _name(self, row: pa.Table) -> str:
        values: list[Any] = [text_column(row[name])[0].as_py() for name in self._by]
        return "/".join(
            f"{quote(name, safe='')}={quote(value, safe='') if value else _NO_VALUE}"
            for name, value in zip(self._by, values, strict=True)
        )


_LINES: Final = 10_000
"""The number of JSON lines that are encoded at a time."""


@dataclass(frozen=True, slots=True)
class _Written:
    format: OutputFormat | None = None
    header: bool | None = None
    delimiter: str | None = option(convert=character, default=None)
    null: str | None = None


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options for writing a file; ``header``, ``delimiter`` and ``null`` apply to CSV only.

    ``compression`` is ``gzip``, ``zstd``, or None.
    """

    format: OutputFormat
    header: bool = True
    delimiter: str = ","
    compression: str | None = None
    null: str = ""

    @classmethod
    def of(cls, path: Path, options: Iterable[Given] = ()) -> Self:
        """Parse the options of a statement; defaults depend on the file's extension.

        Raises:
            HeadraceError: ``invalid`` for an unknown option or value; ``unsupported`` for a format
                that can only be read.
        """
        given = read_options(_Written, options, "a file")
        suffix = path.suffix.lower()
        compression = {".gz": "gzip", ".zst": "zstd"}[suffix] if suffix in COMPRESSED else None
        ending = (Path(path.stem).suffix if compression else path.suffix).lower()
        form = given.format or _format(path, ending)
        for name in ("header", "delimiter", "null"):
            if form is not OutputFormat.CSV and getattr(given, name) is not None:
                raise HeadraceError(
                    Code.INVALID, f'option "{name}" does not apply to {form.value} files'
                )
        if form is OutputFormat.PARQUET and compression:
            raise HeadraceError(
                Code.INVALID,
                f'file "{path}" of format parquet cannot be compressed as a whole',
                hint="Leave the ending out: Parquet compresses its columns by itself.",
            )
        delimiter = given.delimiter or ("\t" if ending == ".tsv" else ",")
        null = given.null or ""
        if any(each in null for each in (delimiter, '"', "\r", "\n")):
            raise HeadraceError(
                Code.INVALID,
                'option "null" contains what separates fields or rows',
                hint="Choose a word, such as null = 'NULL'.",
            )
        return cls(form, given.header is not False, delimiter, compression, null)


def _format(path: Path, ending: str) -> OutputFormat:
    known = ENDINGS.get(ending)
    if known is not None and known.value in [each.value for each in OutputFormat]:
        return OutputFormat(known.value)
    raise HeadraceError(
        Code.INVALID if known is None else Code.UNSUPPORTED,
        f'format of file "{path}" does not show in its name'
        if known is None
        else f"writing files of format {known.value} is not supported",
        hint=f'Set the option "format" to one of: {", ".join(OutputFormat)}.',
    )


def write_file(
    path: Path,
    schema: pa.Schema,
    parts: Iterable[pa.Table],
    options: ExportOptions,
    written: Callable[[int], None],
) -> int:
    """Write rows of ``schema`` to a file; return their number.

    ``written`` is called after each part with the number of rows so far; if it raises, the file is
    left unchanged.

    Raises:
        HeadraceError: ``invalid`` if the file cannot be written, or two columns have the same
            name; ``unsupported`` for columns that the format cannot hold.
    """
    for at, name in enumerate(schema.names):
        if name in schema.names[:at]:
            raise HeadraceError(
                Code.INVALID,
                f'column "{name}" appears twice, which a file cannot have',
                hint="Give the columns different names with AS.",
            )
    require_format(schema, options.format)
    rows = 0
    try:
        with _replaced(path) as raw, _compressed(raw, options.compression) as file:
            write, close = _writer(file, schema, options)
            try:
                for part in parts:
                    write(part)
                    rows += part.num_rows
                    written(rows)
            finally:
                close()
    except OSError as error:
        raise HeadraceError(
            Code.INVALID, f'file "{path}" could not be written', f"{error.strerror or error}."
        ) from error
    return rows


@contextmanager
def _replaced(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file that replaces the one at a path, unless an exception is raised."""
    if path.exists() and not path.is_file():
        what = "a directory" if path.is_dir() else "a pipe, a socket or a device"
        raise HeadraceError(Code.INVALID, f'file "{path}" is {what}', hint="Name another file.")
    draft = path.with_name(f".{path.name[:200]}.{uuid4().hex}")
    try:
        with draft.open("xb") as file:
            yield file
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(path)
        sync_directory(path.parent)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _compressed(file: BinaryIO, compression: str | None) -> Iterator[BinaryIO]:
    if compression is None:
        yield file
        return
    with pa.CompressedOutputStream(pa.PythonFile(file, "w"), compression) as stream:
        yield stream


def _writer(
    file: BinaryIO, schema: pa.Schema, options: ExportOptions
) -> tuple[Callable[[pa.Table], None], Callable[[], None]]:
    """Return the functions that write rows to a file and that finish it."""
    match options.format:
        case OutputFormat.PARQUET:
            parquet = pq.ParquetWriter(file, schema, compression="zstd")
            return lambda rows: parquet.write_table(rows.cast(schema)), parquet.close
        case OutputFormat.JSON:
            return lambda rows: _write_lines(file, rows), lambda: None
        case OutputFormat.CSV:
            form = pa_csv.WriteOptions(include_header=False, delimiter=options.delimiter)
            if options.header:
                header = pa_csv.WriteOptions(delimiter=options.delimiter)
                pa_csv.write_csv(schema.empty_table(), file, header)
            if options.null or any(pa.types.is_binary(each.type) for each in schema):
                return lambda rows: _write_records(file, rows, options), lambda: None
            return lambda rows: pa_csv.write_csv(csv_columns(rows), file, form), lambda: None


def _write_records(file: BinaryIO, rows: pa.Table, options: ExportOptions) -> None:
    """Write CSV records with raw bytes in binary fields, and a text for NULL.

    Arrow's writer supports UTF-8 and empty NULLs only.
    """
    fields: list[Any] = []
    for each in rows.columns:
        is_text = pa.types.is_binary(each.type) or pa.types.is_string(each.type)
        field = (each if is_text else text_column(each)).cast(pa.binary())
        if is_text or options.null:
            doubled = pc.replace_substring(field, b'"', b'""')
            field = pc.binary_join_element_wise(b'"', doubled, b'"', b"")
        fields.append(pc.fill_null(field, options.null.encode()))
    joined = pc.binary_join_element_wise(*fields, options.delimiter.encode())
    file.writelines(each + b"\n" for each in joined.to_pylist())


def _write_lines(file: BinaryIO, rows: pa.Table) -> None:
    for at in range(0, rows.num_rows, _LINES):
        some = rows.slice(at, _LINES)
        columns = dict(zip(some.column_names, some.columns, strict=True))
        lines = json_objects(columns, some.num_rows).to_pylist()
        file.write("".join(f"{line}\n" for line in lines).encode())
