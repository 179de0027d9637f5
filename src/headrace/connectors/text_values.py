"""The inverse of :func:`headrace.serving.text_columns.text_column`: texts parsed into values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError
from headrace.formats.fitted import of_texts
from headrace.formats.values import cast_texts, from_json, from_text, parse_json
from headrace.types import to_arrow

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.formats.values import Converter
    from headrace.types import Column, Schema


def require_readable(schema: Schema, what: str) -> None:
    """Refuse columns whose text in the system ``what`` could not be parsed back and compared.

    Raises:
        HeadraceError: ``unsupported``, with the first such column.
    """
    for column in schema.columns:
        read = from_json if _has_json(column) else from_text
        try:
            read(column)
        except HeadraceError as error:
            given = f'column "{column.name}" of type {column.sql.upper()}'
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"{given} cannot be written into {what}",
                hint="CAST it to STRING in the query.",
            ) from error


def values_of(texts: pa.StringArray, column: Column) -> pa.Array:
    """Parse texts into values of a column; a text that does not fit becomes NULL."""
    target = to_arrow(column.type)
    if _has_json(column):
        return of_texts(texts, target, None, lambda: _from_json_text(column)).values

    def whole(texts: pa.Array) -> pa.Array:
        return cast_texts(texts, column.type, target)

    return of_texts(texts, target, whole, lambda: from_text(column)).values


def _has_json(column: Column) -> bool:
    """Whether values have the text of their JSON form: JSON, or base64 for BINARY."""
    kinds = t.ArrayType | t.MapType | t.StructType | t.VariantType | t.BinaryType
    return isinstance(column.type, kinds)


def _from_json_text(column: Column) -> Converter:
    convert = from_json(column)
    if isinstance(column.type, t.BinaryType):
        return lambda text: convert(parse_json(f'"{text}"'))
    return lambda text: convert(parse_json(text))
