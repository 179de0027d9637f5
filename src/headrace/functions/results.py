"""Check that the results of functions have the declared types.

PySpark turns a Python value of another type into NULL, or truncates it. Here that is an error.
Whole numbers are accepted as floats and decimals, NumPy's scalars as Python's, and decimals are
rounded half up to the declared scale, as in PySpark.
"""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from headrace.errors import Code, HeadraceError, shortened
from headrace.types import holds, require_kept

_BITS = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_MICROSECONDS = 6
"""The fractional digits of a second that Python supports."""
_EXACT = decimal.Context(prec=100, rounding=decimal.ROUND_HALF_UP)
_SCALARS: dict[type[DataType], type] = {
    BooleanType: bool,
    StringType: str,
    TimestampType: datetime,
    TimestampNTZType: datetime,
    DayTimeIntervalType: timedelta,
    TimeType: time,
}


class UnfitError(Exception):
    """Raised for a value that is not of the declared type; the message has the value and why."""


def require_returnable(name: str, type_: DataType) -> None:
    """Raise ``unsupported`` for a result type whose values cannot be checked."""
    match type_:
        case ArrayType():
            require_returnable(name, type_.elementType)
        case MapType():
            require_returnable(name, type_.keyType)
            require_returnable(name, type_.valueType)
        case StructType():
            for field in type_.fields:
                require_returnable(name, field.dataType)
        case TimeType():
            require_kept(type_)
        case _ if type(type_) not in {
            *_BITS,
            *_SCALARS,
            FloatType,
            DoubleType,
            DecimalType,
            BinaryType,
            DateType,
        }:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'function "{name}" cannot return {type_.simpleString().upper()}',
                hint="Return STRING, and cast the result in the query.",
            )


def require_returnable_together(name: str, type_: DataType) -> None:
    """Raise ``unsupported`` for a type that pandas and Arrow functions cannot return.

    Spark accepts any array of times of day as TIME(6), even with more digits.
    """
    if holds(type_, (TimeType,)):
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'function "{name}" cannot return {type_.simpleString().upper()} for many rows at once',
            hint="Declare it with kind = 'python', or return STRING and cast it in the query.",
        )


def fitted(value: Any, type_: DataType) -> Any:
    """Return a value in the form that PySpark expects for the type.

    Raises:
        UnfitError: if it is of another type, or out of range.
    """
    if value is None:
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(type_, ArrayType | MapType | StructType):
        return _nested(value, type_)
    match type_:
        case ByteType() | ShortType() | IntegerType() | LongType():
            return _whole(value, type_)
        case FloatType() | DoubleType():
            if isinstance(value, int | float) and not isinstance(value, bool):
                return float(value)
        case DecimalType():
            if isinstance(value, int | Decimal) and not isinstance(value, bool):
                return _decimal(Decimal(value), type_)
        case BinaryType():
            if isinstance(value, bytes | bytearray):
                return bytearray(value)
        case DateType():
            if isinstance(value, date) and not isinstance(value, datetime):
                return value
        case TimeType() if isinstance(value, time):
            return _time_of_day(value, type_)
        case TimestampNTZType() if isinstance(value, datetime) and value.tzinfo is not None:
            raise UnfitError(f"{value!r} has a time zone, and TIMESTAMP_NTZ has none")
        case _ if isinstance(value, _SCALARS[type(type_)]):
            return value
    raise _of_other_type(value, type_)


def _nested(value: Any, type_: ArrayType | MapType | StructType) -> Any:
    match type_:
        case ArrayType():
            if isinstance(value, list | tuple | np.ndarray):
                return [fitted(each, type_.elementType) for each in value]
        case MapType():
            if isinstance(value, Mapping) and None not in value:
                return {
                    fitted(k, type_.keyType): fitted(v, type_.valueType) for k, v in value.items()
                }
        case StructType():
            return _struct(value, type_)
    raise _of_other_type(value, type_)


def _whole(value: Any, type_: DataType) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _of_other_type(value, type_)
    bound = 1 << (_BITS[type(type_)] - 1)
    if not -bound <= value < bound:
        raise UnfitError(f"{value} is out of the range of {type_.simpleString().upper()}")
    return value


def _decimal(value: Decimal, type_: DecimalType) -> Decimal:
    shown = type_.simpleString().upper()
    if not value.is_finite():
        raise UnfitError(f"{value} is no value of {shown}")
    try:
        rounded = value.quantize(Decimal(1).scaleb(-type_.scale), context=_EXACT)
    except decimal.InvalidOperation as error:
        raise UnfitError(f"{value} has too many digits for {shown}") from error
    if rounded.adjusted() >= type_.precision - type_.scale and rounded != 0:
        raise UnfitError(f"{value} has too many digits for {shown}")
    return rounded


def _time_of_day(value: time, type_: TimeType) -> time:
    if value.tzinfo is not None:
        raise UnfitError(f"{value!r} has a time zone, and TIME has none")
    unit = 10 ** (_MICROSECONDS - type_.precision)
    return value.replace(microsecond=value.microsecond // unit * unit)


def _struct(value: Any, type_: StructType) -> tuple[Any, ...]:
    if isinstance(value, Mapping):
        unknown = set(value) - set(type_.names)
        if unknown:
            raise UnfitError(f"the field {min(unknown, key=str)!r} is not declared")
        parts: tuple[Any, ...] = tuple(value.get(name) for name in type_.names)
    elif isinstance(value, tuple | list):
        parts = tuple(value)
    else:
        raise _of_other_type(value, type_)
    if len(parts) != len(type_.fields):
        raise UnfitError(
            f"{len(parts)} fields were returned where {len(type_.fields)} are declared"
        )
    return tuple(fitted(part, f.dataType) for part, f in zip(parts, type_.fields, strict=True))


def _of_other_type(value: Any, type_: DataType) -> UnfitError:
    shown = shortened(repr(value), _LONGEST)
    return UnfitError(
        f"{shown} is a Python {type(value).__name__}, not a value of {type_.simpleString().upper()}"
    )


_LONGEST = 60
