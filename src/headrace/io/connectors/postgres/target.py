"""The target table of a sink in PostgreSQL: the types of its columns, and its unique index.

Rows as CSV for PostgreSQL's COPY: every value is quoted, NULL is empty without quotes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError, nearest
from headrace.execution.serving import CHANGE_COLUMNS
from headrace.execution.serving.values import beyond_python, column_values, text_column
from headrace.io.connectors.postgres.access import Types
from headrace.io.formats.values import type_name
from headrace.planning.sql.lexer import double_quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.io.connectors.postgres.access import PgType
    from headrace.io.connectors.postgres.tables import Reference
    from headrace.types import Column, DataType, Schema


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


MAPPING: Final[dict[str, str]] = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INT": "integer",
    "BIGINT": "bigint",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "DECIMAL(p, s)": "numeric(p, s)",
    "STRING": "text",
    "BINARY": "bytea",
    "DATE": "date",
    "TIME(p)": "time(p) without time zone",
    "TIMESTAMP": "timestamp with time zone",
    "TIMESTAMP_NTZ": "timestamp without time zone",
    "ARRAY<type>": "type[]",
}
"""PostgreSQL's type for each type of column in tables created by ``create_table``."""

_CHANGE_TYPES: Final = ("text", "bigint", "bigint")

_WHOLE_NUMBERS: Final = (21, 23, 20, 1700)
_TAKES: Final[dict[type[t.DataType], tuple[int, ...]]] = {
    t.BooleanType: (16,),
    t.ByteType: _WHOLE_NUMBERS,
    t.ShortType: _WHOLE_NUMBERS,
    t.IntegerType: _WHOLE_NUMBERS,
    t.LongType: _WHOLE_NUMBERS,
    t.FloatType: (700, 701),
    t.DoubleType: (701,),
    t.DecimalType: (1700,),
    t.StringType: (25, 1043, 2950, 114, 3802),
    t.BinaryType: (17,),
    t.DateType: (1082,),
    t.TimeType: (1083,),
    t.TimestampType: (1184,),
    t.TimestampNTZType: (1114,),
}
"""PostgreSQL's types, by oid, that keep each value of a column's type exactly, or refuse it."""
_MICROSECONDS: Final = 6
_NUMERIC: Final = 1700
_TIMES: Final = (1114, 1184)

_COLUMNS: Final = """
SELECT a.attname, a.atttypid::int8, a.atttypmod FROM pg_attribute a
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
"""
_UNIQUE: Final = """
SELECT array_agg(a.attname::text) FROM pg_index i, pg_attribute a
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL AND i.indisvalid
  AND i.indexprs IS NULL AND a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int2[])
GROUP BY i.indexrelid
"""


def type_of(column: Column) -> str:
    """Return PostgreSQL's type for a column.

    Raises:
        HeadraceError: ``unsupported`` if PostgreSQL has no such type.
    """
    return _type_of(column.type, column.name)


def _type_of(type_: DataType, name: str) -> str:
    if isinstance(type_, t.DecimalType):
        return f"numeric({type_.precision}, {type_.scale})"
    if isinstance(type_, t.TimeType):
        return f"time({type_.precision}) without time zone"
    if isinstance(type_, t.ArrayType) and not isinstance(type_.elementType, t.ArrayType):
        return f"{_type_of(type_.elementType, name)}[]"
    found = MAPPING.get(type_name(type_))
    if found is None:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'column "{name}" of type {type_name(type_)} has no type in PostgreSQL',
            hint="Select to_json(column), or its elements.",
        )
    return found


def create_sql(
    table: Reference, schema: Schema, key: Sequence[str], *, changes: bool = False
) -> str:
    """Return the statement that creates a missing table; with ``changes``, a table of changes."""
    columns = [f"{double_quoted(column.name)} {type_of(column)}" for column in schema.columns]
    if changes:
        columns += map(" ".join, zip(CHANGE_COLUMNS, _CHANGE_TYPES, strict=True))
    if key:
        columns.append(f"PRIMARY KEY ({', '.join(map(double_quoted, key))})")
    return f"CREATE TABLE IF NOT EXISTS {table.sql} ({', '.join(columns)})"


def require_table(
    session: Any, table: Reference, schema: Schema, key: Sequence[str], *, changes: bool = False
) -> None:
    """Raise unless a table's columns keep all values, and it has a unique index on ``key``.

    Raises:
        HeadraceError: ``invalid``, with what is missing.
    """
    rows = session.execute(_COLUMNS, (table.sql,)).fetchall()
    if not rows:
        raise HeadraceError(
            Code.INVALID,
            f'table "{table}" does not exist in PostgreSQL, or has no columns',
            hint="Create it, or add create_table = true. Its statement would be: "
            + create_sql(table, schema, key, changes=changes),
        )
    types = Types(session)
    found = {name: types.find(oid, modifier) for name, oid, modifier in rows}
    for name in (*schema.names, *(CHANGE_COLUMNS if changes else ())):
        if name not in found:
            near = nearest(name, tuple(found))
            raise HeadraceError(
                Code.INVALID,
                f'table "{table}" in PostgreSQL has no column "{name}"',
                hint=f'It has "{near}": select AS {near}.' if near else "Add it.",
            )
    for column in schema.columns:
        if not keeps(found[column.name], column.type):
            raise HeadraceError(
                Code.INVALID,
                f'column "{column.name}" is {type_name(column.type)}, which'
                f" {found[column.name].name} in PostgreSQL does not keep exactly",
                hint=f"Make it {type_of(column)}, or CAST in the view.",
            )
    unique = session.execute(_UNIQUE, (table.sql,)).fetchall()
    if key and not any(set(names) == set(key) for (names,) in unique):
        listed = ", ".join(map(double_quoted, key))
        raise HeadraceError(
            Code.INVALID,
            f'table "{table}" in PostgreSQL has no unique index on ({", ".join(key)})',
            detail="Rows are written by key.",
            hint=f"CREATE UNIQUE INDEX ON {table.sql} ({listed}), or make it the primary key.",
        )


def keeps(found: PgType, type_: DataType) -> bool:
    """Whether a type of PostgreSQL keeps each value of ``type_`` exactly, or refuses it."""
    if isinstance(type_, t.ArrayType):
        return found.element is not None and keeps(found.element, type_.elementType)
    if isinstance(type_, t.StringType) and found.enumerated:
        return True
    if found.element is not None or found.oid not in _TAKES.get(type(type_), ()):
        return False
    if isinstance(type_, t.DecimalType) and found.oid == _NUMERIC and found.modifier >= 0:
        return bool((found.modifier - 4) & 0x7FF >= type_.scale)
    if found.oid == _NUMERIC and found.modifier >= 0:
        return not (found.modifier - 4) & 0x400  # a scale below zero rounds
    if isinstance(type_, t.TimeType):
        return found.modifier == -1 or found.modifier >= type_.precision
    if found.oid in _TIMES:
        return found.modifier in (-1, _MICROSECONDS)
    return True
