"""Casts that keep a value, or round it as Spark does; a value that does not fit is a doubt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DateType, FloatType, StringType

from headrace.planning.catalyst.allowed import INTEGERS, is_plain_text
from headrace.planning.catalyst.resolved import type_of
from headrace.planning.catalyst.scala import node_name
from headrace.planning.catalyst.vectors import decimals, numbers, parsed, texts, times
from headrace.planning.catalyst.vectors.reader import (
    FLOATS,
    TIMES,
    UnprovedError,
    child_of,
    known_type,
    require_utc,
)
from headrace.planning.catalyst.vectors.vector import Failure
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql.types import DataType

    from headrace.planning.catalyst.vectors.reader import ExpressionReader, Known
    from headrace.planning.catalyst.vectors.vector import Value, Vector


def _cast(reader: ExpressionReader, handle: Any) -> Vector:
    source = type_of(handle.child())
    if node_name(handle.child()) == "RaiseError":
        return Failure(to_arrow(known_type(handle)))
    target = known_type(handle)
    value = child_of(reader, handle)
    if source == target:
        return value
    arrow = to_arrow(target)
    if is_plain_text(source):
        read = parsed.from_text(reader, handle, _kind(target), target)
        if read is not None:
            return read
    function = _CASTS.get((_kind(source), _kind(target)))
    if function is None or (isinstance(source, FloatType) and function in _OF_DOUBLES):
        raise UnprovedError(f"Cast of {source.simpleString()} to {target.simpleString()}")
    if isinstance(source, (DateType, *TIMES)):
        require_utc(handle)
    return reader.call(function, arrow, value, type_=arrow)


def _kind(type_: DataType) -> str:
    """Return the name of a type in the table of casts."""
    if type(type_) in INTEGERS:
        return "integer"
    if type(type_) in FLOATS:
        return "float"
    if isinstance(type_, TIMES):
        return "instant"  # TIME calls itself "time"
    if isinstance(type_, StringType) and not is_plain_text(type_):
        return "other text"
    return str(type_.typeName())


def _converted(value: Value, type_: pa.DataType) -> Value:
    return value.cast(type_)


def _is_not_zero(value: Value, type_: pa.DataType) -> Value:
    return pc.not_equal(value, pa.scalar(0, value.type)).cast(type_)


def _written_date(value: Value, type_: pa.DataType) -> Value:
    midnights = times.midnight_of(value, pa.timestamp("us"))
    return times.written(midnights, "%Y-%m-%d").cast(type_)


_CASTS: Final[Mapping[tuple[str, str], Callable[..., Value]]] = {
    ("binary", "string"): _converted,
    ("boolean", "integer"): _converted,
    ("boolean", "string"): texts.of_booleans,
    ("date", "string"): _written_date,
    ("date", "instant"): times.midnight_of,
    ("decimal", "decimal"): decimals.rescaled,
    ("decimal", "float"): decimals.nearest,
    ("decimal", "integer"): decimals.whole,
    ("decimal", "string"): decimals.written,
    ("float", "boolean"): _is_not_zero,
    ("float", "decimal"): decimals.of_floats,
    ("float", "float"): numbers.other_float,
    ("float", "integer"): numbers.whole_of_floats,
    ("float", "string"): numbers.written,
    ("integer", "boolean"): _is_not_zero,
    ("integer", "decimal"): decimals.of_integers,
    ("integer", "float"): numbers.floats_of_integers,
    ("integer", "instant"): times.of_units,
    ("integer", "integer"): _converted,
    ("integer", "string"): _converted,
    ("instant", "date"): times.day_of,
    ("instant", "float"): times.as_fraction,
    ("instant", "instant"): times.of_number,
    ("instant", "integer"): times.as_seconds,
    ("instant", "string"): times.written_exactly,
    ("string", "binary"): _converted,
}
"""The casts that keep a value, or round it as Spark does; what does not fit is a doubt."""
_OF_DOUBLES: Final = (decimals.of_floats, numbers.written)
"""The casts of floats that are known for 64 bits alone."""


KNOWN: Final[Mapping[str, Known]] = {
    "Cast": _cast,
}
