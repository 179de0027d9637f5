"""Rows written to one file: CSV, JSON lines or Parquet, in the form that COPY ... FROM reads.

The file is written under a hidden name in the same directory, synced, and renamed: a reader sees
the previous file or the complete new one.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from headrace.connectors.files.change_files import OutputFormat, csv_columns, require_format
from headrace.connectors.files.source import ENDINGS, character
from headrace.connectors.options import option, read_options
from headrace.errors import Code, HeadraceError
from headrace.formats.blocks import COMPRESSED
from headrace.serving.json_columns import json_objects
from headrace.serving.text_columns import text_column
from headrace.spine import sync_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.connectors.options import Given

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
    for column in rows.columns:
        is_text = pa.types.is_binary(column.type) or pa.types.is_string(column.type)
        field = (column if is_text else text_column(column)).cast(pa.binary())
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
