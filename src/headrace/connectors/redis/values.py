"""Values in fields of Redis's hashes and in JSON, in both directions.

A field contains the text of a value, or the bytes of a binary one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import types as t

from headrace.connectors.text_values import values_of
from headrace.formats.messages import JsonMessages
from headrace.serving.text_columns import text_column
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.types import Column, Schema

MAPPING: Final = {
    "BOOLEAN": "`true`, `false`",
    "TINYINT, SMALLINT, INT, BIGINT": "decimal digits",
    "FLOAT, DOUBLE": "shortest decimal; `NaN`, `Infinity`, `-Infinity`",
    "DECIMAL": "decimal digits; in JSON, as text",
    "STRING": "the text",
    "BINARY": "the bytes; in JSON, base64",
    "DATE": "`2026-01-31`",
    "TIME": "`10:15:00.500000`",
    "TIMESTAMP": "`2026-01-31T10:15:00.500000Z`",
    "TIMESTAMP_NTZ": "`2026-01-31T10:15:00.500000`",
    "ARRAY, MAP, STRUCT": "JSON",
}
"""The documented form of each type in a field of a hash, and in JSON where that differs."""


def cells(column: Any) -> Any:
    """Convert a column into fields of hashes, a binary column."""
    return column if pa.types.is_binary(column.type) else text_column(column).cast(pa.binary())


def rows_of_cells(
    items: Sequence[Mapping[bytes, bytes]], schema: Schema, epoch: str | None
) -> tuple[pa.Table, list[int]]:
    """Return the rows of hashes that have the field ``epoch``, and their indices.

    With None for ``epoch``, all are returned. A text that is not a value of its column's type
    becomes NULL.
    """
    needed = None if epoch is None else epoch.encode()
    kept = [at for at, item in enumerate(items) if needed is None or needed in item]
    columns = [
        _column([items[at].get(column.name.encode()) for at in kept], column)
        for column in schema.columns
    ]
    return pa.Table.from_arrays(columns, schema=schema.arrow), kept


def rows_of_json(
    items: Sequence[bytes | None], schema: Schema, epoch: str
) -> tuple[pa.Table, list[int]]:
    """Return the rows of JSON objects that end with the member ``epoch``, and their indices."""
    ends = f'"{epoch}":'.encode()
    candidates = [at for at, item in enumerate(items) if item is not None and ends in item[-40:]]
    messages = JsonMessages(schema).decode([items[at] or b"" for at in candidates])
    return messages.rows, [candidates[at] for at in messages.kept]


def _column(values: Sequence[bytes | None], column: Column) -> pa.Array:
    found = pa.array(values, pa.binary())
    if isinstance(column.type, t.BinaryType):
        return found.cast(to_arrow(column.type))
    return values_of(_texts(found), column)


def _texts(values: pa.BinaryArray) -> pa.StringArray:
    """Decode bytes as UTF-8, with replacement characters for invalid bytes."""
    try:
        return values.cast(pa.string())
    except pa.ArrowException:
        listed = values.to_pylist()
        decoded = [None if v is None else v.decode("utf-8", "replace") for v in listed]
        return pa.array(decoded, pa.string())
