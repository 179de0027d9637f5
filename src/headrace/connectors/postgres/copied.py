"""Rows as CSV for PostgreSQL's COPY: every value is quoted, NULL is empty without quotes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from headrace.serving.python_values import beyond_python
from headrace.serving.text_columns import text_column
from headrace.serving.values import column_values

if TYPE_CHECKING:
    from collections.abc import Callable

_YEAR: Final = re.compile(r"([+-]\d+|0000)(?=-)")
"""A year outside of 1 to 9999, which Python's dates do not support."""

_FORM = pcsv.WriteOptions(include_header=False, quoting_style="all_valid")


def copied(cursor: Any, into: str, rows: pa.Table) -> None:
    """Copy rows into a table; ``into`` is its quoted name, optionally with a list of columns."""
    with cursor.copy(f"COPY {into} FROM STDIN (FORMAT csv)") as copy:
        copy.write(csv_of(rows))


def csv_of(rows: pa.Table) -> bytes:
    """Return rows as CSV in UTF-8, without a header."""
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
        text = _moment if _is_moment(_leaf(type_)) else str
        return pa.array([None if v is None else _array(v, text) for v in column_values(column)])
    if _is_moment(type_) and any(pc.any(beyond_python(each)).as_py() for each in column.chunks):
        # Arrow's CSV writer truncates years to 16 bits.
        texts = text_column(column).to_pylist()
        return pa.array([None if v is None else _moment(v) for v in texts], pa.string())
    return column


def _is_moment(type_: pa.DataType) -> bool:
    return bool(pa.types.is_date(type_) or pa.types.is_timestamp(type_))


def _leaf(type_: pa.DataType) -> pa.DataType:
    return _leaf(type_.value_type) if pa.types.is_list(type_) else type_


def _moment(value: Any) -> str:
    """Return the text of a date or timestamp for PostgreSQL, with BC for years before 1."""
    text = str(value)
    found = _YEAR.match(text)
    if found is None:
        return text
    year, rest = int(found[1]), text[found.end() :]
    return f"{year:04}{rest}" if year > 0 else f"{1 - year:04}{rest} BC"


def _array(values: list[Any], text: Callable[[Any], str]) -> str:
    """Return PostgreSQL's text of an array; ``text`` returns the text of an element."""
    return "{" + ",".join("NULL" if v is None else _element(v, text) for v in values) + "}"


def _element(value: Any, text: Callable[[Any], str]) -> str:
    if isinstance(value, list):
        return _array(value, text)
    found = f"\\x{value.hex()}" if isinstance(value, bytes) else text(value)
    return '"' + found.replace("\\", "\\\\").replace('"', '\\"') + '"'
