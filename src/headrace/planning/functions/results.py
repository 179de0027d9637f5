"""Check that the results of functions have the declared types.

PySpark turns a Python value of another type into NULL, or truncates it. Here that is an error.
Whole numbers are accepted as floats and decimals, NumPy's scalars as Python's, and decimals are
rounded half up to the declared scale, as in PySpark.

A user's function, pickled for other processes, and called there; errors name the function.
"""

from __future__ import annotations

import decimal
import sys
import sysconfig
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark import cloudpickle
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

if TYPE_CHECKING:
    from headrace.planning.functions.function import Function


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


_COPIES = count(1)


@dataclass(frozen=True, slots=True)
class Call:
    """A function by name, its pickled code, and the type of its results."""

    name: str
    code: bytes
    type: DataType
    hint: str = "Correct the data, or let the function return None for such arguments."
    copy: int = 0
    """The number of the unpickled copy to call: each is loaded once per process."""

    def run(self, arguments: tuple[Any, ...], shown: str) -> Any:
        """Call the function; raise its exceptions as ``invalid``, with their place and ``shown``.

        ``shown`` describes the arguments.
        """
        try:
            return self.parts()(*arguments)
        except Exception as error:
            raise self.raised(error, shown) from error

    def parts(self) -> Any:
        """Return the unpickled function; for a fold, all of its functions."""
        return _loaded(self.code, self.copy)

    def fresh(self) -> Call:
        """Return the call with a copy of the function that was never called."""
        return replace(self, copy=next(_COPIES))

    def raised(self, error: Exception, shown: str) -> HeadraceError:
        """Return the error of an exception that the function has raised, with its place."""
        name = type(error).__name__
        message = f"{name}: {error}" if str(error) else name
        return self.failed(f"{message}{_place(error)}{shown}")

    def failed(self, why: str) -> HeadraceError:
        """Return the error of a call; its detail is one line."""
        return HeadraceError(
            Code.INVALID,
            f'function "{self.name}" failed',
            detail=" ".join(why.split()),
            hint=self.hint,
        )


@lru_cache(maxsize=64)
def _loaded(code: bytes, _copy: int) -> Any:
    return cloudpickle.loads(code)


def pickled(function: Function, value: Any) -> bytes:
    """Pickle a function, or parts of it, for other processes.

    By value, unless it is in an installed package, which other processes have too.

    Raises:
        HeadraceError: ``invalid`` if it cannot be sent to another process.
    """
    module = sys.modules.get(getattr(function.body, "__module__", None) or "")
    by_value = module is not None and not _is_installed(module)
    try:
        if by_value and module is not None:
            cloudpickle.register_pickle_by_value(module)
        try:
            code: bytes = cloudpickle.dumps(value)
        finally:
            if by_value and module is not None:
                cloudpickle.unregister_pickle_by_value(module)
    except Exception as error:
        raise HeadraceError(
            Code.INVALID,
            f'function "{function.name}" cannot be sent to Spark\'s workers',
            detail=f"{type(error).__name__}: {error}",
            hint="It must not refer to locks, files, connections or other unpicklable objects.",
        ) from error
    return code


def _is_installed(module: Any) -> bool:
    path = getattr(module, "__file__", None)
    if path is None:
        return bool(module.__name__ != "__main__")
    folders = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    return any(folder is not None and Path(path).is_relative_to(folder) for folder in folders)


def _place(error: Exception) -> str:
    """Return the line that raised an error, unless it is in this module."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    return f" (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else ""
