"""The least and greatest values of a segment's columns, stored to skip segments when reading.

They are JSON values: numbers, days and microseconds since 1970, text. Columns of other types, and
those with long text, have no bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.zset import Bounds

if TYPE_CHECKING:
    from collections.abc import Mapping

_OWN: Final = "__"
"""The prefix of columns that are not the relation's."""
_MOST_COLUMNS: Final = 32
_LONGEST: Final = 64
"""Texts of this length or more are not stored as bounds."""


def bounds_of(rows: pa.Table) -> dict[str, Any]:
    """Return the bounds of the columns of rows, by name; both are None if all values are NULL."""
    found: dict[str, Any] = {}
    for field in rows.schema:
        number = _as_number(field.type)
        if field.name.startswith(_OWN) or len(found) == _MOST_COLUMNS:
            continue
        if number is None and not pa.types.is_string(field.type):
            continue
        both = pc.min_max(rows[field.name])
        ends = [both["min"], both["max"]]
        values = [e if number is None else e.cast(number) for e in ends]
        low, high = (value.as_py() for value in values)
        if not isinstance(low, str) or max(len(low), len(high)) < _LONGEST:
            found[field.name] = [low, high]
    return found


def merged_bounds(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bounds of the union of two sets of rows."""
    found = {}
    for name in first.keys() & second.keys():
        ends = [end for both in (first[name], second[name]) for end in both if end is not None]
        found[name] = [min(ends), max(ends)] if ends else [None, None]
    return found


def read_bounds(known: Mapping[str, Any], schema: pa.Schema) -> dict[str, Bounds]:
    """Decode bounds from :func:`bounds_of` to values of a relation's columns."""
    found = {}
    for name, both in known.items():
        if name not in schema.names:
            continue
        type_ = schema.field(name).type
        number = _as_number(type_)
        stored = type_ if number is None else number
        low, high = (pa.scalar(value, stored).cast(type_) for value in both)
        found[name] = Bounds(low, high) if low.is_valid else Bounds(None, None)
    return found


def _as_number(type_: pa.DataType) -> pa.DataType | None:
    """Return the integer type in which values of a type are stored, or None."""
    if pa.types.is_integer(type_):
        return type_
    if pa.types.is_date32(type_):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(type_) or pa.types.is_time64(type_) else None
