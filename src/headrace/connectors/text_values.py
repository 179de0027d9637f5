"""Values read back from the texts that :func:`headrace.serving.text_columns.text_column` writes."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError
from headrace.formats.values import Refused, cast_texts, from_json, from_text, parse_json
from headrace.types import to_arrow

if TYPE_CHECKING:
    from headrace.types import Column, Schema

_NESTED: Final = (t.ArrayType, t.MapType, t.StructType)


def require_readable(schema: Schema, what: str) -> None:
    """Refuse columns whose values could not be read back from ``what``, and so not be compared.

    Raises:
        HeadraceError: ``unsupported``, with the first such column.
    """
    for column in schema.columns:
        read = from_json if isinstance(column.type, (*_NESTED, t.BinaryType)) else from_text
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
    """Return the values of a column whose texts these are; NULL for a text that is of none."""
    target = to_arrow(column.type)
    if not isinstance(column.type, (*_NESTED, t.BinaryType)):
        with suppress(pa.ArrowException):
            return cast_texts(texts, column.type, target)
    return pa.array([_value(text, column) for text in texts.to_pylist()], target)


def _value(text: str | None, column: Column) -> Any:
    if text is None:
        return None
    try:
        if isinstance(column.type, (*_NESTED, t.BinaryType)):
            json = f'"{text}"' if isinstance(column.type, t.BinaryType) else text
            return from_json(column)(parse_json(json))
        return from_text(column)(text)
    except (Refused, ValueError):
        return None
