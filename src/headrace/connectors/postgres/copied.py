"""Rows as CSV that PostgreSQL's COPY reads: every value between quotes, and NULL as nothing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv

from headrace.serving.values import column_values

_FORM = pcsv.WriteOptions(include_header=False, quoting_style="all_valid")


def copied(cursor: Any, into: str, rows: pa.Table) -> None:
    """Copy rows into a table, named as SQL has it, with its columns if these are not all."""
    with cursor.copy(f"COPY {into} FROM STDIN (FORMAT csv)") as copy:
        copy.write(csv_of(rows))


def csv_of(rows: pa.Table) -> bytes:
    """Return rows as CSV."""
    names = [str(place) for place in range(rows.num_columns)]
    columns = [_writable(column) for column in rows.columns]
    sink = pa.BufferOutputStream()
    pcsv.write_csv(pa.Table.from_arrays(columns, names=names), sink, _FORM)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _writable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    type_ = column.type
    if pa.types.is_binary(type_):
        return pa.array([None if v is None else f"\\x{v.hex()}" for v in column.to_pylist()])
    if pa.types.is_list(type_):
        return pa.array([None if v is None else _array(v) for v in column_values(column)])
    return column


def _array(values: list[Any]) -> str:
    """Return PostgreSQL's text of an array."""
    return "{" + ",".join("NULL" if v is None else _element(v) for v in values) + "}"


def _element(value: Any) -> str:
    if isinstance(value, list):
        return _array(value)
    text = f"\\x{value.hex()}" if isinstance(value, bytes) else str(value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
