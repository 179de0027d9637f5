"""Files with typed columns: matched by name regardless of case, values converted exactly.

A value that its column cannot hold is rejected by the rule of :mod:`headrace.io.formats.fitting`. A
column whose type fits no value of the target column is an error of the whole file.

Parquet files are read by row groups, in batches of rows.

ORC files are read stripe by stripe.

A file says in which calendar its dates are: that of :mod:`headrace.io.formats.calendars`, in which
ORC's library for Java writes by default, or the proleptic Gregorian one. Arrow
refuses times before 1677.

Avro files: block by block, each record by the rules of :mod:`headrace.io.formats.avro`.
"""

from __future__ import annotations

import io
import json
import os
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from pyarrow import orc

from headrace.errors import Code, HeadraceError
from headrace.io.formats.avro import AvroRecords
from headrace.io.formats.blocks import Decoded, FilePosition, RecordBlock, together
from headrace.io.formats.calendars import SPARK, Calendar
from headrace.io.formats.fitting import fitted, is_of_kind, with_leaves
from headrace.io.formats.values import RejectedValueError, type_name
from headrace.storage.ledger import Reject

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from headrace.types import Schema


def matched(path: Path, found: pa.Schema, schema: Schema) -> list[str | None]:
    """Return the name in the file of each column; None where it is missing.

    Raises:
        HeadraceError: INVALID if the file has none of the columns, or one of an incompatible type.
    """
    by_name = {name.casefold(): name for name in found.names}
    columns = [by_name.get(column.name.casefold()) for column in schema.columns]
    for column, name in zip(schema.columns, columns, strict=True):
        if name is not None and not is_of_kind(found.field(name).type, column.type):
            raise HeadraceError(
                Code.INVALID,
                f'column "{column.name}" is {type_name(column.type)}, '
                f'but {found.field(name).type} in file "{path}"',
                hint="Declare the column with a type of that kind, or rewrite the file.",
            )
    if not any(columns) and schema.columns:
        raise HeadraceError(
            Code.INVALID,
            f'file "{path}" has none of the columns',
            f"Its columns are: {', '.join(found.names)}.",
        )
    return columns


def decoded(
    path: str, table: pa.Table, schema: Schema, names: list[str | None], first_row: int
) -> Decoded:
    """Convert rows of a file to a schema; return them and the rejects.

    ``names`` are the columns in the table, as :func:`matched` returns them; ``first_row`` is the
    number of the first row, from 1.
    """
    target = schema.arrow
    bad: dict[int, list[tuple[str, str]]] = {}
    cast: list[Any] = []
    for column, name, field in zip(schema.columns, names, target, strict=True):
        if name is None:
            values = pa.nulls(table.num_rows, field.type)
        else:
            values, refused = fitted(table.column(name), column.type)
            for row, why in refused.items():
                bad.setdefault(row, []).append((column.name, str(why)))
        if not column.nullable and values.null_count:
            for row in pc.indices_nonzero(pc.is_null(values)).to_pylist():
                if name is None or row not in refused:
                    bad.setdefault(row, []).append((column.name, "NULL in a NOT NULL column"))
        cast.append(values)
    rejects = [
        Reject(path, first_row + row, *together(bad[row]), str(table.slice(row, 1).to_pylist()[0]))
        for row in sorted(bad)
    ]
    rows = pa.table(cast, schema=target)
    if bad:
        keep = pa.array([row not in bad for row in range(table.num_rows)])
        rows = rows.filter(keep)
    return Decoded([rows] if rows.num_rows else [], rejects)


_BATCH_ROWS = 131_072


def parquet_chunks(
    path: Path, schema: Schema, start: FilePosition
) -> Iterator[tuple[RecordBlock, Decoded]]:
    """Yield a Parquet file's rows from ``start`` on; a line number is a row number, from 1.

    Raises:
        HeadraceError: INVALID if the file is damaged, or a column has an incompatible type;
            CONFLICT if its footer differs from that of the file that was read up to ``start``.
    """
    try:
        with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
            yield from _batches(path, file, schema, start)
    except (pa.ArrowException, OSError) as error:
        raise HeadraceError(
            Code.INVALID, f'file "{path}" is not a whole Parquet file', f"{error}"
        ) from error


def _batches(
    path: Path, file: pq.ParquetFile, schema: Schema, start: FilePosition
) -> Iterator[tuple[RecordBlock, Decoded]]:
    columns = matched(path, file.schema_arrow, schema)
    wanted = [name for name in columns if name is not None]
    total_rows, total_bytes = file.metadata.num_rows, path.stat().st_size
    checksum = _footer_checksum(path)
    start.require_same(path, checksum)
    calendars = _calendars(file)
    row = 0
    for group in range(file.metadata.num_row_groups):
        rows_of_group = file.metadata.row_group(group).num_rows
        if row + rows_of_group <= start.position:
            row += rows_of_group
            continue
        for batch in file.iter_batches(_BATCH_ROWS, [group], wanted):
            end = row + batch.num_rows
            skipped = max(0, start.position - row)
            if skipped < batch.num_rows:
                table = pa.table(batch.slice(skipped))
                for place, name in enumerate(table.column_names):
                    if name in calendars:
                        moved = _moved(table.column(place), calendars[name])
                        table = table.set_column(place, name, moved)
                rows = decoded(str(path), table, schema, columns, row + skipped + 1)
                done = total_bytes * end // max(1, total_rows)
                yield (
                    RecordBlock(b"", row + skipped + 1, FilePosition(end, end, checksum), done),
                    rows,
                )
            row = end


def _calendars(file: pq.ParquetFile) -> Mapping[str, Sequence[Calendar]]:
    """Return the calendar of each leaf of each column, if any may be in the former one."""
    stored = file.metadata.metadata or {}
    marks = {key.decode(): stored[key].decode() for key in stored if key.startswith(SPARK)}
    datetimes, int96 = Calendar.of_datetimes(marks), Calendar.of_int96(marks)
    found: dict[str, list[Calendar]] = {}
    if datetimes.is_former or int96.is_former:
        for leaf in map(file.schema.column, range(len(file.schema.names))):
            is_int96 = leaf.physical_type == "INT96"
            logical = json.loads(leaf.logical_type.to_json())
            is_moved = logical["Type"] == "Date" or logical.get("isAdjustedToUTC", False)
            calendar = int96 if is_int96 else datetimes if is_moved else Calendar(None)
            found.setdefault(leaf.path.partition(".")[0], []).append(calendar)
    return found


def _moved(values: pa.ChunkedArray, calendars: Sequence[Calendar]) -> pa.Array:
    leaves = iter(calendars)
    return with_leaves(values.combine_chunks(), lambda leaf: next(leaves).moved(leaf))


def _footer_checksum(path: Path) -> str:
    """Return the checksum of a footer, which locates each column of each row group."""
    with path.open("rb") as file:
        file.seek(-8, os.SEEK_END)
        footer = int.from_bytes(file.read(4), "little")
        file.seek(-8 - footer, os.SEEK_END)
        return xxhash.xxh3_64(file.read()).hexdigest()


_FOOTER, _CALENDAR, _PROLEPTIC = 2, 11, 2
"""Fields of ORC's file tail and footer, and the value of the latter for the present calendar."""
_FOOTER_BYTES = 1 << 16


def orc_chunks(
    path: Path, schema: Schema, start: FilePosition
) -> Iterator[tuple[RecordBlock, Decoded]]:
    """Yield an ORC file's rows from ``start`` on; a line number is a row number, from 1.

    One stripe is held in memory.

    Raises:
        HeadraceError: INVALID if the file is damaged, or a column has an incompatible type;
            CONFLICT if its end differs from that of the file that was read up to ``start``.
    """
    checksum = _end_checksum(path)
    start.require_same(path, checksum)
    try:
        with path.open("rb") as stored:
            yield from _orc_batches(path, orc.ORCFile(stored), schema, start, checksum)
    except (pa.ArrowException, OSError) as error:
        raise HeadraceError(
            Code.INVALID, f'file "{path}" is not a whole ORC file', f"{error}"
        ) from error


def _orc_batches(
    path: Path, file: orc.ORCFile, schema: Schema, start: FilePosition, checksum: str
) -> Iterator[tuple[RecordBlock, Decoded]]:
    columns = matched(path, file.schema, schema)
    wanted = [name for name in columns if name is not None]
    calendar = Calendar("UTC" if _is_in_former_calendar(file) else None)

    def moved(leaf: pa.Array) -> pa.Array:
        return calendar.moved(leaf) if pa.types.is_date32(leaf.type) else leaf

    total_rows, total_bytes = file.nrows, path.stat().st_size
    row = 0
    for number in range(file.nstripes):
        stripe = pa.table(file.read_stripe(number, columns=wanted))
        for first in range(0, stripe.num_rows, _BATCH_ROWS):
            batch = stripe.slice(first, _BATCH_ROWS)
            skipped = min(batch.num_rows, max(0, start.position - row))
            end = row + batch.num_rows
            if skipped < batch.num_rows:
                line = row + skipped + 1
                table = pa.table(
                    [with_leaves(c.combine_chunks(), moved) for c in batch.slice(skipped).columns],
                    names=batch.column_names,
                )
                rows = decoded(str(path), table, schema, columns, line)
                done = total_bytes * end // max(1, total_rows)
                yield RecordBlock(b"", line, FilePosition(end, end, checksum), done), rows
            row = end


def _is_in_former_calendar(file: orc.ORCFile) -> bool:
    footer = dict(_fields(dict(_fields(file.reader.serialized_file_tail()))[_FOOTER]))
    known = footer.get(_CALENDAR)
    return file.writer == "ORC_JAVA" if known is None else bool(known != _PROLEPTIC)


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the numbers and values of a message of Protobuf with numbers and bytes alone."""
    rest = iter(message)
    for key in rest:
        number = _varint(key, rest)
        field, is_bytes = number >> 3, number & 7 == 2  # noqa: PLR2004
        value = _varint(next(rest), rest)
        yield field, bytes(islice(rest, value)) if is_bytes else value


def _varint(first: int, rest: Iterator[int]) -> int:
    found, shift = first & 0x7F, 7
    while first & 0x80:
        first = next(rest)
        found |= (first & 0x7F) << shift
        shift += 7
    return found


def _end_checksum(path: Path) -> str:
    """Return the checksum of a file's last 64 KiB, which contain its footer."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _FOOTER_BYTES))
        return xxhash.xxh3_64(file.read()).hexdigest()


def avro_chunks(
    path: Path, schema: Schema, start: FilePosition
) -> Iterator[tuple[RecordBlock, Decoded]]:
    """Yield an Avro file's rows from ``start`` on; a line number is a record's number, from 1.

    Raises:
        HeadraceError: INVALID if the file is damaged, has none of the columns, or the library for
            Avro is not installed; CONFLICT if its header differs from that of the file that was
            read up to ``start``.
    """
    with path.open("rb") as stored:
        reader = _opened(path, stored)
        try:
            records = AvroRecords(reader.metadata["avro.schema"], schema)
        except RejectedValueError as refused:
            raise HeadraceError(Code.INVALID, f'file "{path}": {refused}') from refused
        checksum = _header_checksum(reader)
        start.require_same(path, checksum)
        calendar = Calendar.of_datetimes(reader.metadata)
        row = 0
        for values in _blocks(path, reader):
            end = row + len(values)
            skipped = max(0, start.position - row)
            if skipped < len(values):
                found = records.decode(values[skipped:])
                line = row + skipped + 1
                rejects = [
                    Reject(str(path), line + each.line, each.column, each.reason, each.raw)
                    for each in found.rejects
                ]
                tables = [_avro_files_moved(found.rows, calendar)] if found.rows.num_rows else []
                done = stored.tell()
                yield (
                    RecordBlock(b"", line, FilePosition(end, end, checksum), done),
                    Decoded(tables, rejects),
                )
            row = end


def _avro_files_moved(rows: pa.Table, calendar: Calendar) -> pa.Table:
    if not calendar.is_former:
        return rows

    def moved(leaf: pa.Array) -> pa.Array:
        is_local = pa.types.is_timestamp(leaf.type) and leaf.type.tz is None
        return leaf if is_local else calendar.moved(leaf)

    columns = [with_leaves(column.combine_chunks(), moved) for column in rows.columns]
    return pa.table(columns, schema=rows.schema)


def _opened(path: Path, stored: BinaryIO) -> Any:
    try:
        import fastavro  # noqa: PLC0415
    except ImportError as error:
        raise HeadraceError(
            Code.INVALID,
            "the library for Avro is not installed",
            f"{error}.",
            'Install it: pip install "headrace[avro]".',
        ) from error
    try:
        return fastavro.block_reader(stored)
    except (ValueError, EOFError, OSError, KeyError) as error:
        raise _damaged(path, error) from error


def _blocks(path: Path, reader: Any) -> Iterator[list[bytes]]:
    """Yield the encoded records of each block."""
    from fastavro import parse_schema, schemaless_reader  # noqa: PLC0415

    schema = parse_schema(json.loads(reader.metadata["avro.schema"]))
    try:
        for block in reader:
            stored = block.bytes_
            data = stored.getvalue() if isinstance(stored, io.BytesIO) else bytes(stored)
            buffer, ends = io.BytesIO(data), [0]
            for _ in range(block.num_records):
                schemaless_reader(buffer, schema, None)
                ends.append(buffer.tell())
            yield [data[first:end] for first, end in pairwise(ends)]
    except Exception as error:  # damaged bytes fail anywhere in the library
        if "install" in str(error):
            raise HeadraceError(
                Code.INVALID,
                f'file "{path}" is compressed by {reader.codec}, whose library is not installed',
                f"{error}.",
                "Install it, or write the file with deflate.",
            ) from error
        raise _damaged(path, error) from error


def _header_checksum(reader: Any) -> str:
    """Return the checksum of a file's header, which contains 16 bytes unique to the file."""
    header = reader._header  # noqa: SLF001 (the reader has no other way to it)
    return xxhash.xxh3_64(bytes(header["sync"])).hexdigest()


def _damaged(path: Path, error: Exception) -> HeadraceError:
    return HeadraceError(
        Code.INVALID,
        f'file "{path}" is not a whole Avro file',
        f"{type(error).__name__}: {error}.",
        "Write it again; rows read before the damage stay.",
    )
