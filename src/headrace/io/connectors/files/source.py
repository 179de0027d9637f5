"""Files in CSV, JSON lines, Parquet, Avro and ORC as chunks of rows and rejects.

Memory is bounded by a few blocks. Each chunk has the progress from which to resume after it; a file
that is read in several passes gives the same rows as in one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headrace.errors import Code, HeadraceError, nearest
from headrace.execution.runtime.ports import Part
from headrace.io.connectors.options import Given, option, read_options
from headrace.io.formats.blocks import (
    COMPRESSED,
    Decoded,
    FilePosition,
    RecordBlock,
    after_mark,
    blocks,
    opened,
    side_by_side,
    size_of,
)
from headrace.io.formats.columnar import avro_chunks, orc_chunks, parquet_chunks
from headrace.io.formats.csv_text import CsvDecoder, CsvReader, Dialect
from headrace.io.formats.json_lines import JsonDecoder, require_lines
from headrace.io.formats.json_lines import cut as cut_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from headrace.storage.ledger import Reject
    from headrace.types import Schema


__all__ = [
    "Chunk",
    "Dialect",
    "FileFormat",
    "FileOptions",
    "FilePosition",
    "FileSource",
    "identity",
    "place",
    "read_file",
]

CHUNK_ROWS: Final = 262_144
CHUNK_BYTES: Final = 64 << 20
_HEADER_BYTES: Final = 1 << 20


class FileFormat(StrEnum):
    """The formats of files that can be read."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    AVRO = "avro"
    ORC = "orc"


ENDINGS: Final = {
    ".csv": FileFormat.CSV,
    ".tsv": FileFormat.CSV,
    ".json": FileFormat.JSON,
    ".jsonl": FileFormat.JSON,
    ".ndjson": FileFormat.JSON,
    ".parquet": FileFormat.PARQUET,
    ".pq": FileFormat.PARQUET,
    ".avro": FileFormat.AVRO,
    ".orc": FileFormat.ORC,
}


def character(value: str) -> str:
    """Return a delimiter or quote, which is one ASCII character."""
    text = {"\\t": "\t", "tab": "\t"}.get(value.lower(), value)
    if len(text) != 1 or not text.isascii() or text in "\r\n":
        raise HeadraceError(
            Code.INVALID,
            f"'{value}' is not one character",
            hint='Write one ASCII character, or "\\t" for a tab.',
        )
    return text


@dataclass(frozen=True, slots=True)
class _Given:
    """The options of a COPY as written in the statement; None for those left out."""

    format: FileFormat | None = None
    header: bool | None = None
    delimiter: str | None = option(convert=character, default=None)
    quote: str | None = option(convert=character, default=None)
    null: str | None = None
    restart: bool = False
    once: bool | None = None


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Options for reading a file; ``header`` and ``dialect`` apply to CSV only.

    With ``restart``, an interrupted COPY begins again at the start of the file. With ``once``, a
    file that was copied before is skipped; None if the statement does not specify it.
    """

    format: FileFormat
    header: bool = True
    dialect: Dialect = field(default_factory=Dialect)
    restart: bool = False
    once: bool | None = None

    @classmethod
    def of(cls, path: Path, options: Iterable[Given] = ()) -> FileOptions:
        """Parse the options of a statement; defaults depend on the file's extension.

        Raises:
            HeadraceError: ``invalid`` for an unknown option or value.
        """
        given = read_options(_Given, options, "a file")
        ending = Path(path.stem).suffix if path.suffix.lower() in COMPRESSED else path.suffix
        ending = ending.lower()
        file_format = given.format or _format(path, ending)
        of_csv = [
            n for n in ("header", "delimiter", "quote", "null") if getattr(given, n) is not None
        ]
        if of_csv and file_format is not FileFormat.CSV:
            raise HeadraceError(
                Code.INVALID, f'option "{of_csv[0]}" does not apply to {file_format} files'
            )
        dialect = Dialect(
            given.delimiter or ("\t" if ending == ".tsv" else ","),
            given.quote or '"',
            given.null or "",
        )
        if dialect.delimiter == dialect.quote:
            raise HeadraceError(Code.INVALID, 'options "delimiter" and "quote" are the same')
        return cls(file_format, given.header is not False, dialect, given.restart, given.once)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of a file with columns ``schema.arrow``, and rejects with their lines.

    ``progress`` is the position after this chunk; ``bytes_done`` of ``bytes_total`` stored bytes
    are read.
    """

    table: pa.Table
    rejects: tuple[Reject, ...]
    progress: FilePosition
    bytes_done: int
    bytes_total: int


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file as a source of rows of a schema; each part is a chunk."""

    path: Path
    schema: Schema
    options: FileOptions

    @property
    def identity(self) -> str:
        """The identity of the file's current state; see :func:`identity`."""
        return identity(self.path)

    def parts(self, position: Mapping[str, Any] | None) -> Iterator[Part]:
        """Yield the file's chunks after a position; see :func:`read_file` for errors."""
        resume = None if position is None else FilePosition.of_json(position)
        for chunk in read_file(self.path, self.schema, self.options, resume):
            at = chunk.progress.to_json()
            yield Part(chunk.table, chunk.rejects, at, chunk.bytes_done, chunk.bytes_total)


def identity(path: Path) -> str:
    """Return the identity of a file's current state: its path, size and modification time."""
    found = path.stat()
    return f"{place(path)}{found.st_size}|{found.st_mtime_ns}"


def place(path: Path) -> str:
    """Return the common prefix of the identities of all states of a file."""
    return f"{path.resolve()}|"


def read_file(
    path: Path, schema: Schema, options: FileOptions, resume: FilePosition | None = None
) -> Iterator[Chunk]:
    """Return an iterator over a file's rows in chunks of about 260,000, or fewer if rows are long.

    The file is opened, and its header read, before this returns.

    Raises:
        HeadraceError: ``invalid`` for a missing or damaged file, or one that does not fit the
            schema; ``unsupported`` for a type that the format cannot hold.
    """
    total = size_of(path)
    start = resume or FilePosition()
    if total == 0:
        return iter(())
    match options.format:
        case FileFormat.PARQUET:
            parts = parquet_chunks(path, schema, start)
        case FileFormat.AVRO:
            parts = avro_chunks(path, schema, start)
        case FileFormat.ORC:
            parts = orc_chunks(path, schema, start)
        case FileFormat.JSON:
            beginning = _beginning(path, 4096)
            require_lines(f'file "{path}"', beginning)
            json = JsonDecoder(str(path), schema)
            first = start if start.position else after_mark(beginning)
            parts = side_by_side(blocks(path, first, cut_lines), json.decode)
        case FileFormat.CSV:
            csv, reader, header = csv_decoder(path, schema, options)
            first = start if start.position >= header.position else header
            parts = side_by_side(blocks(path, first, reader.cut, reader.newline), csv.decode)
    return _chunks(parts, schema.arrow, total)


def csv_decoder(
    path: Path, schema: Schema, options: FileOptions
) -> tuple[CsvDecoder, CsvReader, FilePosition]:
    """Return the decoder and the record reader of a CSV file, and the position of its first row.

    Raises:
        HeadraceError: ``invalid`` for a header that does not fit the schema.
    """
    beginning = _beginning(path, _HEADER_BYTES)
    dialect = options.dialect.in_file(beginning)
    reader = CsvReader(dialect)
    fields, header = _fields(path, schema, options, reader, beginning)
    return CsvDecoder(str(path), schema, dialect, fields), reader, header


def _chunks(
    parts: Iterator[tuple[RecordBlock, Decoded]], schema: pa.Schema, total: int
) -> Iterator[Chunk]:
    tables: list[pa.Table] = []
    rejects: list[Reject] = []
    rows = size = 0
    last: RecordBlock | None = None
    for block, decoded in parts:
        tables += decoded.tables
        rejects += decoded.rejects
        rows += sum(table.num_rows for table in decoded.tables)
        size += sum(table.nbytes for table in decoded.tables)
        last = block
        if rows >= CHUNK_ROWS or size >= CHUNK_BYTES or len(rejects) >= CHUNK_ROWS:
            yield _chunk(tables, rejects, schema, block, total)
            tables, rejects, rows, size, last = [], [], 0, 0, None
    if last is not None:
        yield _chunk(tables, rejects, schema, last, total)


def _chunk(
    tables: list[pa.Table], rejects: list[Reject], schema: pa.Schema, block: RecordBlock, total: int
) -> Chunk:
    table = pa.concat_tables(tables) if tables else schema.empty_table()
    return Chunk(table, tuple(rejects), block.progress, block.bytes_done, total)


def _delimiter(names: Sequence[str], columns: Collection[str]) -> str | None:
    """Return another delimiter at which the first line has names of columns; None without one."""
    line = ",".join(names)
    for delimiter, shown in ((";", ";"), ("\t", "TAB"), ("|", "|"), (",", ",")):
        parts = (part.strip().strip('"').casefold() for part in line.split(delimiter))
        if any(part in columns for part in parts):
            return shown
    return None


def _fields(
    path: Path, schema: Schema, options: FileOptions, reader: CsvReader, beginning: bytes
) -> tuple[list[int | None], FilePosition]:
    """Return the column index of each CSV field, None to skip it, and the first row's position."""
    mark = after_mark(beginning).position
    if not options.header:
        return list(range(len(schema.columns))), FilePosition(mark, 0)
    record = reader.record(beginning, mark)
    names = [text.decode("utf-8", "replace").strip() for text, _ in record.fields]
    columns = {column.name.casefold(): i for i, column in enumerate(schema.columns)}
    fields = [columns.get(name.casefold()) for name in names]
    found = [index for index in fields if index is not None]
    if not found:
        other = _delimiter(names, columns)
        raise HeadraceError(
            Code.INVALID,
            f'file "{path}" has none of the columns in its header',
            f"Its first line is: {', '.join(names)[:200]}.",
            'Set the option "header" to false if that line is data.'
            if other is None
            else f"It has columns between {other}: set the option delimiter = '{other}'.",
        )
    missing = [c.name for i, c in enumerate(schema.columns) if i not in found]
    unknown = [name for name, index in zip(names, fields, strict=True) if index is None]
    if missing and unknown:
        close = nearest(missing[0], unknown)
        meant = f' Is it "{close}" there?' if close else ""
        raise HeadraceError(
            Code.INVALID,
            f'file "{path}" has no column "{missing[0]}" in its header, but "{unknown[0]}"',
            hint=f"Name the columns to write: COPY t (a, b) FROM ...{meant}",
        )
    twice = [name for name in names if fields.count(columns.get(name.casefold(), -1)) > 1]
    if twice:
        raise HeadraceError(Code.INVALID, f'file "{path}" has two columns "{twice[0]}"')
    return fields, FilePosition(record.end, beginning.count(reader.newline, 0, record.end))


def _beginning(path: Path, size: int) -> bytes:
    with opened(path) as (text, _):
        return text.read(size)


def _format(path: Path, ending: str) -> FileFormat:
    if ending not in ENDINGS:
        known = ", ".join(FileFormat)
        raise HeadraceError(
            Code.INVALID,
            f'format of file "{path}" does not show in its name',
            hint=f'Set the option "format" to one of: {known}.',
        )
    return ENDINGS[ending]
