"""Arithmetic and comparisons of integers and floats, as Java and Spark define them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DecimalType

from headrace.catalyst.exact import INTEGERS, keeps_all_digits
from headrace.catalyst.resolved import type_of
from headrace.catalyst.scala import items, node_name
from headrace.catalyst.vectors import decimals
from headrace.catalyst.vectors.arrays import floats, integers, made, present
from headrace.catalyst.vectors.reader import (
    FLOATS,
    child_of,
    children_of,
    int_argument,
    known_type,
    require,
)
from headrace.catalyst.vectors.vector import DoubtError
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql.types import DataType

    from headrace.catalyst.vectors.reader import ExpressionReader, Known
    from headrace.catalyst.vectors.vector import Value, Vector

_OF_FLOATS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}


def of_floats(left: Value, right: Value, name: str, type_: pa.DataType) -> Value:
    """Return arithmetic on floats; NaN is a doubt, since its bits may differ, and so is 1/0."""
    shown, a, b = present(left, right), floats(left), floats(right)
    if name == "divide":
        b = _without_zeros(b, shown)
    with np.errstate(all="ignore"):
        found = np.broadcast_to(_OF_FLOATS[name](a, b), np.broadcast_shapes(a.shape, b.shape))
    _refuse_nan(found)
    return made(found, type_, shown)


def negated_float(value: Value, type_: pa.DataType) -> Value:
    """Return the negatives of floats."""
    found = -floats(value)
    _refuse_nan(found)
    return made(found, type_, present(value))


def normalised(value: Value, type_: pa.DataType) -> Value:
    """Return floats with one NaN, and without -0.0."""
    found = floats(value)
    found = np.where(np.isnan(found), found.dtype.type(np.nan), found + found.dtype.type(0))
    return made(found, type_, present(value))


def remainder(left: Value, right: Value, type_: pa.DataType) -> Value:
    """Return remainders of integers, which have the sign of the dividend."""
    a, b = integers(left), _divisors(right)
    found = np.fmod(a, b).astype(type_.to_pandas_dtype(), copy=False)  # it fits
    return made(found, type_, present(left, right))


def modulus(left: Value, right: Value, type_: pa.DataType) -> Value:
    """Return Spark's ``pmod`` of integers: not negative for a positive divisor."""
    a, b = integers(left), _divisors(right)
    if (b < 0).any():
        raise DoubtError
    found = np.mod(a, b).astype(type_.to_pandas_dtype(), copy=False)  # it fits
    return made(found, type_, present(left, right))


def compared(left: Value, right: Value, name: str) -> Value:
    """Compare floats: NaN equals NaN and is greater than other values; -0.0 equals 0.0."""
    a, b = floats(left), floats(right)
    a_nan, b_nan = np.isnan(a), np.isnan(b)
    match name:
        case "equal":
            found = (a == b) | (a_nan & b_nan)
        case "less":
            found = (a < b) | (~a_nan & b_nan)
        case _:
            found = (a <= b) | b_nan
    return made(found, pa.bool_(), present(left, right))


def whole_of_floats(value: Value, type_: pa.DataType) -> Value:
    """Return floats as integers, rounded towards zero; what may not fit is a doubt."""
    found, bits = floats(value).astype(np.float64), type_.bit_width - 1
    if not (np.abs(found) < 2.0**bits).all():
        raise DoubtError
    shown = present(value)
    whole = np.trunc(found).astype(np.int64)
    return pa.array(whole, mask=None if shown is None else ~shown).cast(type_)


def other_float(value: Value, type_: pa.DataType) -> Value:
    """Return floats in another width."""
    with np.errstate(all="ignore"):
        found = floats(value).astype(type_.to_pandas_dtype())
    _refuse_nan(found)
    return made(found, type_, present(value))


def floats_of_integers(value: Value, type_: pa.DataType) -> Value:
    """Return the nearest floats to integers."""
    return made(integers(value).astype(type_.to_pandas_dtype()), type_, present(value))


def shifted(value: Value, bits: int, name: str, type_: pa.DataType) -> Value:
    """Shift integers by a number of bits that is less than their width."""
    found = integers(value)
    found = found >> np.int64(bits) if name == "right" else found << np.int64(bits)
    return made(found.astype(type_.to_pandas_dtype()), type_, present(value))


def _divisors(value: Value) -> np.ndarray:
    found = integers(value)
    return _without_zeros(found, present(value))


def _without_zeros(found: np.ndarray, shown: np.ndarray | None) -> np.ndarray:
    """Return divisors; 0 is a doubt, except for NULL."""
    zero = found == 0
    if not zero.any():
        return found
    if (zero if shown is None else zero & shown).any():
        raise DoubtError
    return np.where(zero, found.dtype.type(1), found)


def _refuse_nan(found: np.ndarray) -> None:
    if np.isnan(found).any():
        raise DoubtError


def _arithmetic(name: str) -> Known:
    of_integers = {
        "add": pc.add_checked,
        "multiply": pc.multiply_checked,
        "subtract": pc.subtract_checked,
    }[name]
    of_decimals = {
        "add": decimals.added,
        "multiply": decimals.multiplied,
        "subtract": decimals.subtracted,
    }[name]

    def read(reader: ExpressionReader, handle: Any) -> Vector:
        of = known_type(handle)
        if type(of) in FLOATS:
            return _of_floats(reader, handle, name)
        exact = keeps_all_digits(handle) or (name == "multiply" and _is_rounded(handle, of))
        require(handle, when=exact, of=of)
        arrow, sides = to_arrow(of), children_of(reader, handle)
        if isinstance(of, DecimalType):
            return reader.call(of_decimals, arrow, *sides, type_=arrow)
        return reader.call(of_integers, arrow, *sides)

    return read


def _is_rounded(handle: Any, of: DataType) -> bool:
    """Whether a result is a decimal that may be rounded, with sides that are decimals."""
    sides = map(type_of, items(handle.children()))
    return isinstance(of, DecimalType) and all(isinstance(each, DecimalType) for each in sides)


def _of_floats(reader: ExpressionReader, handle: Any, name: str) -> Vector:
    arrow = to_arrow(known_type(handle))
    return reader.call(of_floats, arrow, *children_of(reader, handle), name=name, type_=arrow)


def _divide(reader: ExpressionReader, handle: Any) -> Vector:
    of = known_type(handle)
    if type(of) in FLOATS:
        return _of_floats(reader, handle, "divide")
    require(handle, when=_is_rounded(handle, of), of=of)
    function = decimals.divided if node_name(handle) == "Divide" else decimals.average
    return reader.call(function, to_arrow(of), *children_of(reader, handle), type_=to_arrow(of))


def _minus(reader: ExpressionReader, handle: Any) -> Vector:
    of = known_type(handle)
    arrow, value = to_arrow(of), child_of(reader, handle)
    if type(of) in FLOATS:
        return reader.call(negated_float, arrow, value, type_=arrow)
    if isinstance(of, DecimalType):
        return reader.call(decimals.negated, arrow, value, type_=arrow)
    require(handle, when=type(of) in INTEGERS, of=of)
    return reader.call(pc.negate_checked, arrow, value)


def _absolute(reader: ExpressionReader, handle: Any) -> Vector:
    of = known_type(handle)
    arrow, value = to_arrow(of), child_of(reader, handle)
    if isinstance(of, DecimalType):
        return reader.call(decimals.absolute, arrow, value, type_=arrow)
    require(handle, when=type(of) in INTEGERS, of=of)
    return reader.call(pc.abs_checked, arrow, value)


def _units(reader: ExpressionReader, handle: Any) -> Vector:
    source, arrow = known_type(handle.child()), to_arrow(known_type(handle))
    value = child_of(reader, handle)
    if isinstance(source, DecimalType):
        return reader.call(decimals.units_of, arrow, value)
    return reader.call(decimals.of_units, arrow, value, type_=arrow)


def _of_integers(function: Callable[..., Value]) -> Known:
    def read(reader: ExpressionReader, handle: Any) -> Vector:
        of = known_type(handle)
        require(handle, when=type(of) in INTEGERS, of=of)
        arrow = to_arrow(of)
        return reader.call(function, arrow, *children_of(reader, handle), type_=arrow)

    return read


def _bitwise(function: Callable[..., Value]) -> Known:
    def read(reader: ExpressionReader, handle: Any) -> Vector:
        of = known_type(handle)
        require(handle, when=type(of) in INTEGERS, of=of)
        return reader.call(function, to_arrow(of), *children_of(reader, handle))

    return read


def _shift(name: str) -> Known:
    def read(reader: ExpressionReader, handle: Any) -> Vector:
        of, (value, by) = known_type(handle), items(handle.children())
        arrow = to_arrow(of)
        require(handle, when=type(of) in INTEGERS, of=of)
        bits = int_argument(handle, by)
        require(handle, when=0 <= bits < arrow.bit_width)
        return reader.call(shifted, arrow, reader.vector(value), bits=bits, name=name, type_=arrow)

    return read


def _normalised(reader: ExpressionReader, handle: Any) -> Vector:
    of, value = known_type(handle), child_of(reader, handle)
    require(handle, when=type(of) in FLOATS, of=of)
    return reader.call(normalised, value.type, value, type_=value.type)


def _round(reader: ExpressionReader, handle: Any) -> Vector:
    of, (value, digits) = known_type(handle), items(handle.children())
    source = known_type(value)
    require(handle, when=isinstance(source, DecimalType), of=source)
    require(handle, when=int_argument(handle, digits) >= 0)
    arrow = to_arrow(of)
    return reader.call(decimals.rescaled, arrow, reader.vector(value), type_=arrow)


def _overflow_checked(reader: ExpressionReader, handle: Any) -> Vector:
    source, target = known_type(handle.child()), known_type(handle)
    require(handle, when=isinstance(source, DecimalType), of=source)
    arrow, value = to_arrow(target), child_of(reader, handle)
    if node_name(handle) == "CheckOverflowInSum":  # a NULL is an overflow there
        return reader.call(decimals.rescaled_sum, arrow, value, type_=arrow)
    return reader.call(decimals.rescaled, arrow, value, type_=arrow)


KNOWN: Final[Mapping[str, Known]] = {
    "Abs": _absolute,
    "Add": _arithmetic("add"),
    "BitwiseAnd": _bitwise(pc.bit_wise_and),
    "BitwiseNot": _bitwise(pc.bit_wise_not),
    "BitwiseOr": _bitwise(pc.bit_wise_or),
    "BitwiseXor": _bitwise(pc.bit_wise_xor),
    "CheckOverflow": _overflow_checked,
    "CheckOverflowInSum": _overflow_checked,
    "DecimalDivideWithOverflowCheck": _divide,
    "Divide": _divide,
    "MakeDecimal": _units,
    "Multiply": _arithmetic("multiply"),
    "NormalizeNaNAndZero": _normalised,
    "Pmod": _of_integers(modulus),
    "Remainder": _of_integers(remainder),
    "Round": _round,
    "ShiftLeft": _shift("left"),
    "ShiftRight": _shift("right"),
    "Subtract": _arithmetic("subtract"),
    "UnaryMinus": _minus,
    "UnscaledValue": _units,
}
