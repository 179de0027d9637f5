"""Parquet files: row groups in batches of rows; see :mod:`headrace.formats.columnar`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from headrace.errors import Code, HeadraceError
from headrace.formats.blocks import Decoded, FilePosition, RecordBlock
from headrace.formats.columnar import decoded, matched

if TYPE_CHECKING:
    from collections.abc import Iterator
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
        with pq.ParquetFile(path) as file:
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
                rows = decoded(str(path), table, schema, columns, row + skipped + 1)
                done = total_bytes * end // max(1, total_rows)
                yield (
                    RecordBlock(b"", row + skipped + 1, FilePosition(end, end, checksum), done),
                    rows,
                )
            row = end


def _footer_checksum(path: Path) -> str:
    """Return the checksum of a footer, which locates each column of each row group."""
    with path.open("rb") as file:
        file.seek(-8, os.SEEK_END)
        footer = int.from_bytes(file.read(4), "little")
        file.seek(-8 - footer, os.SEEK_END)
        return xxhash.xxh3_64(file.read()).hexdigest()
