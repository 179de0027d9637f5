"""Parquet files: columns matched by name regardless of case, values converted exactly.

A value that its column cannot hold is rejected by the rule of :mod:`headrace.formats.fitting`. A
column whose type fits no value of the target column is an error of the whole file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from headrace.errors import Code, HeadraceError
from headrace.formats.blocks import Block, Decoded, Progress
from headrace.formats.fitting import fitted, is_of_kind
from headrace.formats.rows import together
from headrace.formats.values import type_name
from headrace.ledger import Reject

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.types import Schema

_BATCH_ROWS = 131_072


def parquet_chunks(path: Path, schema: Schema, start: Progress) -> Iterator[tuple[Block, Decoded]]:
    """Yield a Parquet file's rows from ``start`` on; a line number is a row number, from 1.

    Raises:
        HeadraceError: INVALID if the file is damaged, or a column is of another kind; CONFLICT if
            its footer is not the one that it had when it was read up to ``start``.
    """
    try:
        with pq.ParquetFile(path) as file:
            yield from _batches(path, file, schema, start)
    except (pa.ArrowException, OSError) as error:
        raise HeadraceError(
            Code.INVALID, f'file "{path}" is not a whole Parquet file', f"{error}"
        ) from error


def _batches(
    path: Path, file: pq.ParquetFile, schema: Schema, start: Progress
) -> Iterator[tuple[Block, Decoded]]:
    columns = _matched(path, file.schema_arrow, schema)
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
                decoded = _decoded(str(path), table, schema, columns, row + skipped + 1)
                done = total_bytes * end // max(1, total_rows)
                yield Block(b"", row + skipped + 1, Progress(end, end, checksum), done), decoded
            row = end


def _footer_checksum(path: Path) -> str:
    """Return the checksum of a footer, which has the position of each column of each row group."""
    with path.open("rb") as file:
        file.seek(-8, os.SEEK_END)
        footer = int.from_bytes(file.read(4), "little")
        file.seek(-8 - footer, os.SEEK_END)
        return xxhash.xxh3_64(file.read()).hexdigest()


def _matched(path: Path, found: pa.Schema, schema: Schema) -> list[str | None]:
    """Return the name in the file of each column; None where it is missing."""
    by_name = {name.casefold(): name for name in found.names}
    columns = [by_name.get(column.name.casefold()) for column in schema.columns]
    for column, name in zip(schema.columns, columns, strict=True):
        if name is not None and not is_of_kind(found.field(name).type, column.type):
            raise HeadraceError(
                Code.INVALID,
                f'column "{column.name}" is {type_name(column.type)}, '
                f'but {found.field(name).type} in file "{path}"',
                hint="Declare the column with a type of that kind, or write the file anew.",
            )
    if not any(columns) and schema.columns:
        raise HeadraceError(
            Code.INVALID,
            f'file "{path}" has none of the columns',
            f"Its columns are: {', '.join(found.names)}.",
        )
    return columns


def _decoded(
    path: str, table: pa.Table, schema: Schema, names: list[str | None], first_row: int
) -> Decoded:
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
