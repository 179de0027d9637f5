"""Converts Python objects to values of a column, by the rule of :mod:`headrace.formats.fitting`.

Texts in a column of numbers, BOOLEAN, dates or times are read as in JSON
(:mod:`headrace.formats.values`): a program has them from there.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t

from headrace.formats.fitted import Fitted, of_texts, scattered
from headrace.formats.fitting import fitted, list_array, offsets_of
from headrace.formats.values import RejectedValueError, from_json, out_of_range, refuse
from headrace.types import Column, to_arrow, variant_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_NATURAL: Final[dict[type[t.DataType], type]] = {
    t.ByteType: int,
    t.ShortType: int,
    t.IntegerType: int,
    t.LongType: int,
    t.DoubleType: float,
    t.StringType: str,
    t.BinaryType: bytes,
    t.BooleanType: bool,
}
"""By column type: the Python type that Arrow converts exactly, or fails to."""

_READ_FROM_TEXT: Final = (
    t.NumericType,
    t.BooleanType,
    t.DateType,
    t.TimestampType,
    t.TimestampNTZType,
    t.TimeType,
)
"""The types whose values are read from text; the others take a text as it is, or not at all."""


def fitted_objects(values: Sequence[Any], data_type: t.DataType) -> Fitted:
    """Convert Python objects to a type, independently: no value widens the type of another."""
    natural = _NATURAL.get(type(data_type))
    if natural is not None and {type(value) for value in values} <= {natural, type(None)}:
        try:
            return Fitted(pa.array(values, to_arrow(data_type)), {})
        except (pa.ArrowException, OverflowError, ValueError):
            pass  # to find the value that does not fit
    match data_type:
        case t.ArrayType():
            return _lists(values, data_type)
        case t.MapType():
            return _maps(values, data_type)
        case t.StructType():
            return _structs(values, data_type)
        case t.VariantType():
            return _variants(values, data_type)
    return scattered(len(values), _groups(values, data_type), data_type)


def _groups(values: Sequence[Any], data_type: t.DataType) -> Iterable[tuple[list[int], Fitted]]:
    """Return the positions and fitted values of the objects of each Python type."""
    if len(values) == 1 and values[0] is not None:
        yield [0], _of_one_type([values[0]], data_type)
        return
    places: dict[object, list[int]] = {}
    for place, value in enumerate(values):
        if value is not None:
            zoned = isinstance(value, datetime) and value.tzinfo is not None
            places.setdefault((type(value), zoned), []).append(place)
    for found in places.values():
        yield found, _of_one_type([values[place] for place in found], data_type)


def _of_one_type(values: list[Any], data_type: t.DataType) -> Fitted:
    if type(values[0]) is str and isinstance(data_type, _READ_FROM_TEXT):
        return _read(values, data_type)
    try:
        return fitted(pa.array(values), data_type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        if len(values) == 1:
            return _of_one(values[0], data_type)
    each = [_of_one_type([value], data_type) for value in values]
    refused = {place: one.refused[0] for place, one in enumerate(each) if one.refused}
    return Fitted(pa.concat_arrays([one.values for one in each]), refused)


def _read(texts: list[str], data_type: t.DataType) -> Fitted:
    """Read texts as the field of a JSON object is read; see :mod:`headrace.formats.values`."""
    wanted = to_arrow(data_type)
    try:
        given = pa.array(texts, pa.string())
    except UnicodeEncodeError:  # half of a surrogate pair, which is no number and no time
        refused = {at: refuse(text, data_type) for at, text in enumerate(texts)}
        return Fitted(pa.nulls(len(texts), wanted), refused)
    return of_texts(given, wanted, None, lambda: from_json(Column("", data_type)))


def _of_one(value: Any, data_type: t.DataType) -> Fitted:
    """Convert a value without an Arrow type: an integer of more than 64 bits is a decimal."""
    nothing = pa.nulls(1, to_arrow(data_type))
    if not isinstance(value, int):
        return Fitted(nothing, {0: refuse(value, data_type)})
    try:
        return fitted(pa.array([Decimal(value)]), data_type)
    except pa.ArrowException:
        return Fitted(nothing, {0: out_of_range(value, data_type)})


def _variants(values: Sequence[Any], data_type: t.VariantType) -> Fitted:
    made: list[dict[str, bytes] | None] = []
    refused: dict[int, RejectedValueError] = {}
    for place, value in enumerate(values):
        made.append(None)
        if value is not None:
            try:
                made[place] = variant_of(value)
            except ValueError:
                refused[place] = refuse(value, data_type)
    return Fitted(pa.array(made, to_arrow(data_type)), refused)


def _lists(values: Sequence[Any], data_type: t.ArrayType) -> Fitted:
    rows = [_listed(value) for value in values]
    inner = fitted_objects([item for row in rows for item in row or ()], data_type.elementType)
    lengths = [len(row or ()) for row in rows]
    made = list_array(offsets_of(lengths), _missing(rows), [inner.values], to_arrow(data_type))
    return Fitted(made, _refused_rows(values, rows, data_type) | _owners(inner, lengths))


def _maps(values: Sequence[Any], data_type: t.MapType) -> Fitted:
    rows = [list(value.items()) if isinstance(value, dict) else _pairs(value) for value in values]
    pairs = [pair for row in rows for pair in row or ()]
    keys = fitted_objects([key for key, _ in pairs], data_type.keyType)
    items = fitted_objects([item for _, item in pairs], data_type.valueType)
    lengths = [len(row or ()) for row in rows]
    missing = {
        place: refuse(None, data_type.keyType)
        for place, (key, _) in enumerate(pairs)
        if key is None
    }
    bad = _owners(items, lengths) | _owners(keys, lengths)
    bad |= _owners(Fitted(keys.values, missing), lengths)
    refused = _refused_rows(values, rows, data_type) | bad
    if bad:  # a map has no NULL for a key that was refused
        return Fitted(pa.nulls(len(values), to_arrow(data_type)), refused)
    made = list_array(
        offsets_of(lengths), _missing(rows), [keys.values, items.values], to_arrow(data_type)
    )
    return Fitted(made, refused)


def _structs(values: Sequence[Any], data_type: t.StructType) -> Fitted:
    refused: dict[int, RejectedValueError] = {}
    rows: list[list[Any] | None] = []
    for place, value in enumerate(values):
        row = _fields(value, data_type.names)
        if row is None and value is not None:
            refused[place] = refuse(value, data_type)
        rows.append(row)
    parts = []
    for at, field in enumerate(data_type.fields):
        part = fitted_objects([row and row[at] for row in rows], field.dataType)
        refused = part.refused | refused
        parts.append(part.values)
    wanted = to_arrow(data_type)
    made = pa.StructArray.from_arrays(parts, fields=list(wanted), mask=_missing(rows))
    return Fitted(made, refused)


def _listed(value: Any) -> list[Any] | None:
    return list(value) if isinstance(value, list | tuple | np.ndarray) else None


def _pairs(value: Any) -> list[tuple[Any, Any]] | None:
    """Return the pairs of a map, in the form that Arrow returns."""
    rows = _listed(value)
    if rows is None or not all(isinstance(row, tuple) and len(row) == 2 for row in rows):  # noqa: PLR2004
        return None
    return rows


def _fields(value: Any, names: Sequence[str]) -> list[Any] | None:
    if isinstance(value, dict):
        given = {str(name).lower(): item for name, item in value.items()}
        if not set(given) <= {name.lower() for name in names}:
            return None
        return [given.get(name.lower()) for name in names]
    if isinstance(value, tuple) and len(value) == len(names):
        return list(value)
    return None


def _missing(rows: Sequence[Any]) -> pa.Array:
    return pa.array([row is None for row in rows], pa.bool_())


def _refused_rows(
    values: Sequence[Any], rows: Sequence[Any], data_type: t.DataType
) -> dict[int, RejectedValueError]:
    return {
        place: refuse(value, data_type)
        for place, (value, row) in enumerate(zip(values, rows, strict=True))
        if row is None and value is not None
    }


def _owners(inner: Fitted, lengths: Sequence[int]) -> dict[int, RejectedValueError]:
    """Return the reasons by the index of the row that contains each rejected element."""
    ends = np.cumsum(lengths)
    return {
        int(np.searchsorted(ends, place, side="right")): reason
        for place, reason in reversed(inner.refused.items())
    }
