"""Values of the type VARIANT: in Arrow a struct of two binary values, outside JSON.

The encoding is that of Spark's and Parquet's variants: a value, and metadata with the names of its
fields. Two variants are the same row if both parts have the same bytes.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.variant_utils import VariantUtils

if TYPE_CHECKING:
    from collections.abc import Callable


def is_variant(kind: pa.DataType) -> bool:
    """Whether an Arrow type is that of a VARIANT, as Spark marks it."""
    return pa.types.is_struct(kind) and any(
        (kind.field(at).metadata or {}).get(b"variant") == b"true" for at in range(kind.num_fields)
    )


def variant_texts(column: pa.Array | pa.ChunkedArray) -> list[str | None]:
    """Return the JSON texts of variants, as ``to_json`` writes them; None for NULL."""
    return _each(column, VariantUtils.to_json)


def variant_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return variants as Python objects: dictionaries, lists and scalars.

    NULL and the ``null`` of JSON are both None.
    """
    return _each(column, VariantUtils.to_python)


def for_spark(rows: pa.Table) -> pa.Table:
    """Return rows for ``createDataFrame``, which wants parts of a variant even where it is NULL."""
    for at, field in enumerate(rows.schema):
        if is_variant(field.type):
            column = rows.column(at).combine_chunks()
            nothing = pa.scalar(b"", pa.binary())
            parts = [part.fill_null(nothing) for part in column.flatten()]
            fields = [part.with_nullable(nullable=False) for part in field.type]
            values = pa.StructArray.from_arrays(parts, fields=fields, mask=column.is_null())
            rows = rows.set_column(at, pa.field(field.name, values.type), values)
    return rows


def _each(column: pa.Array | pa.ChunkedArray, read: Callable[[bytes, bytes], Any]) -> list[Any]:
    parts = column.to_pylist()
    return [None if part is None else read(part["value"], part["metadata"]) for part in parts]


def variant_of(value: object) -> dict[str, bytes]:
    """Return the two parts of the variant with a value of JSON, whose fractions are decimals.

    Raises:
        ValueError: it is not a value of JSON, or too large.
    """
    try:
        encoded, metadata = VariantUtils.parse_json(_json(value))
    except (PySparkException, RecursionError) as error:
        raise ValueError(str(error)) from error
    return {"value": encoded, "metadata": metadata}


def _json(value: object) -> str:
    match value:
        case None | bool() | int() | str():
            return json.dumps(value, ensure_ascii=False)
        case Decimal() if value.is_finite():
            return str(value) if value.adjusted() > 0 and "E" in str(value) else format(value, "f")
        case float():
            return json.dumps(value, allow_nan=False)
        case dict():
            fields = (f"{_json(str(name))}:{_json(inner)}" for name, inner in value.items())
            return "{" + ",".join(fields) + "}"
        case list() | tuple():
            return "[" + ",".join(map(_json, value)) + "]"
    raise ValueError(f"{value!r} is no value of JSON")
