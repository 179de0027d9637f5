"""Columns and rows as JSON, column-wise, with the values of :func:`json_value`.

Scalars are formatted by Arrow. Text with escapes, binary, durations, lists and maps are written
value by value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.serving.python_values import beyond_python
from headrace.serving.values import column_values, json_text
from headrace.types import is_variant, variant_texts

if TYPE_CHECKING:
    from collections.abc import Mapping

_NULL: Final = "null"
_ESCAPED: Final = r'["\\\x00-\x1f]'
"""Characters that must be escaped in a JSON string."""


def json_column(column: pa.Array | pa.ChunkedArray) -> pa.StringArray:
    """Return the values of a column as JSON texts, ``null`` for NULL."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # zero or several chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return pc.fill_null(_texts(array), _NULL).cast(pa.string())


def json_objects(columns: Mapping[str, pa.Array | pa.ChunkedArray], rows: int) -> pa.StringArray:
    """Return a JSON object for each of ``rows`` rows; ``columns`` are its fields, by name.

    A column that :func:`json_column` has encoded is passed as :class:`Encoded`.
    """
    if not columns:
        return pa.array(["{}"] * rows, pa.string())
    parts: list[Any] = []
    for at, (name, column) in enumerate(columns.items()):
        parts += [pa.scalar(f"{',' if at else '{'}{json_text(name)}:"), _encoded(column)]
    return pc.binary_join_element_wise(*parts, pa.scalar("}"), "")


class Encoded:
    """A column whose values are already JSON, as a field of :func:`json_objects`."""

    def __init__(self, texts: pa.StringArray) -> None:
        self.texts = texts


def _encoded(column: Any) -> pa.StringArray:
    return column.texts if isinstance(column, Encoded) else json_column(column)


def _texts(array: pa.Array) -> pa.Array:
    """Return the JSON text of each value; NULL stays."""
    kind = array.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return array.cast(pa.string())
    if pa.types.is_floating(kind):
        return _floats(array)
    if pa.types.is_decimal(kind):
        return _decimals(array)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _strings(array)
    if pa.types.is_timestamp(kind) and kind.tz in (None, "UTC"):
        texts = pc.replace_substring(array.cast(pa.string()), " ", "T", max_replacements=1)
        return _times(pc.replace_substring(texts, ".000000", ""), array)
    if pa.types.is_time64(kind):
        texts = array.cast(pa.time64("us"), safe=False).cast(pa.string())
        return _quoted(pc.replace_substring(texts, ".000000", ""))
    if pa.types.is_date(kind):
        return _times(array.cast(pa.string()), array)
    if is_variant(kind):
        return pa.array(variant_texts(array), pa.string())
    if pa.types.is_struct(kind):
        return _structs(array)
    return _one_by_one(array)


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _times(texts: pa.Array, array: pa.Array) -> pa.Array:
    """Return dates or times in quotes, with a sign where the year has one."""
    beyond, quoted = beyond_python(array), _quoted(texts)
    return _replaced(quoted, beyond, array) if pc.any(beyond).as_py() else quoted


def _floats(array: pa.Array) -> pa.Array:
    """Return the shortest decimals, always as numbers with a fraction or exponent."""
    texts = pc.replace_substring_regex(array.cast(pa.string()), r"^(-?[0-9]+)$", r"\1.0")
    finite = pc.is_finite(array)
    if pc.all(finite).as_py() is not False:
        return texts
    return _replaced(texts, pc.invert(finite), array)


def _decimals(array: pa.Array) -> pa.Array:
    texts = array.cast(pa.string())
    with_exponent = pc.match_substring(texts, "E")
    quoted = _quoted(texts)
    return _replaced(quoted, with_exponent, array) if pc.any(with_exponent).as_py() else quoted


def _strings(array: pa.Array) -> pa.Array:
    escaped = pc.match_substring_regex(array, _ESCAPED)
    quoted = _quoted(array)
    return _replaced(quoted, escaped, array) if pc.any(escaped).as_py() else quoted


def _structs(array: pa.StructArray) -> pa.Array:
    fields = {field.name: child for field, child in zip(array.type, array.flatten(), strict=True)}
    texts = json_objects(fields, len(array))
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string()))


def _replaced(texts: pa.Array, where: pa.BooleanArray, array: pa.Array) -> pa.Array:
    """Return texts, with those where the mask is true rewritten value by value."""
    mask = pc.fill_null(where, False)  # noqa: FBT003 - the value of missing ones
    return pc.replace_with_mask(texts, mask, _one_by_one(array.filter(mask)).cast(texts.type))


def _one_by_one(array: pa.Array) -> pa.StringArray:
    values = [None if value is None else json_text(value) for value in column_values(array)]
    return pa.array(values, pa.string())
