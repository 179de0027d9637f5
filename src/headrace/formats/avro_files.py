"""Avro files: block by block, each record by the rules of :mod:`headrace.formats.avro`."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import xxhash

from headrace.errors import Code, HeadraceError
from headrace.formats.avro import AvroRecords
from headrace.formats.blocks import Decoded, FilePosition, RecordBlock
from headrace.formats.calendars import Calendar
from headrace.formats.fitting import with_leaves
from headrace.formats.values import RejectedValueError
from headrace.ledger import Reject

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.types import Schema


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
                tables = [_moved(found.rows, calendar)] if found.rows.num_rows else []
                done = stored.tell()
                yield (
                    RecordBlock(b"", line, FilePosition(end, end, checksum), done),
                    Decoded(tables, rejects),
                )
            row = end


def _moved(rows: pa.Table, calendar: Calendar) -> pa.Table:
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
