"""The target table of a sink in PostgreSQL: the types of its columns, and its unique index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as t

from headrace.connectors.postgres.types import Types
from headrace.errors import Code, HeadraceError, nearest
from headrace.formats.values import type_name
from headrace.serving import CHANGE_COLUMNS
from headrace.sql.keywords import double_quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.connectors.postgres.tables import Reference
    from headrace.connectors.postgres.types import PgType
    from headrace.types import Column, DataType, Schema

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
