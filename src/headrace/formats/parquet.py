"""Parquet files: row groups in batches of rows; see :mod:`headrace.formats.columnar`."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from headrace.errors import Code, HeadraceError
from headrace.formats.blocks import Decoded, FilePosition, RecordBlock
from headrace.formats.calendars import SPARK, Calendar
from headrace.formats.columnar import decoded, matched
from headrace.formats.fitting import with_leaves

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from headrace.types import Schema

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
