"""Arithmetic and comparisons of integers and floats, as Java and Spark define them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DecimalType, DoubleType

from headrace.planning.catalyst.allowed import INTEGERS, keeps_all_digits
from headrace.planning.catalyst.resolved import type_of
from headrace.planning.catalyst.scala import items, node_name
from headrace.planning.catalyst.vectors import decimals
from headrace.planning.catalyst.vectors.decimals import FIRST_PLAIN, LAST_PLAIN
from headrace.planning.catalyst.vectors.reader import (
    FLOATS,
    child_of,
    children_of,
    int_argument,
    known_type,
    require,
)
from headrace.planning.catalyst.vectors.vector import DoubtError, floats, integers, made, present
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt
    from pyspark.sql.types import DataType

    from headrace.algebra.zset.order import Bools
    from headrace.planning.catalyst.vectors.reader import ExpressionReader, Known
    from headrace.planning.catalyst.vectors.vector import Value, Vector


_OF_FLOATS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}


_MOST_DIGITS: Final = 22
"""All powers of ten up to this one are exact as floats."""
_WHOLE = {"Ceil": np.ceil, "Floor": np.floor}


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


def rounded(value: Value, digits: int, type_: pa.DataType) -> Value:
    """Return floats of 64 bits rounded to some digits; see :func:`decimals.rounded_floats`."""
    given = floats(value)
    finite = np.isfinite(given)
    units = decimals.rounded_floats(np.where(finite, given, 0.0), digits)
    return made(np.where(finite, units / 10.0**digits, given), type_, present(value))


def written(value: Value, type_: pa.DataType) -> Value:
    """Return floats of 64 bits as text; one that Java writes with an exponent is a doubt."""
    given = np.abs(floats(value))
    if not is_plain(given).all():
        raise DoubtError
    found = pc.cast(value, type_)
    return pc.if_else(
        pc.match_substring(found, "."), found, pc.binary_join_element_wise(found, ".0", "")
    )


def is_plain(given: npt.NDArray[np.floating]) -> Bools:
    """Return which floats, without signs, Java writes without an exponent."""
    return np.asarray((given == 0) | ((given >= FIRST_PLAIN) & (given < LAST_PLAIN)))


def whole_near(value: Value, name: str) -> Value:
    """Return floats rounded down or up to integers; what may not fit is a doubt."""
    return _whole(_WHOLE[name](floats(value)), pa.int64(), present(value))


def root(value: Value) -> Value:
    """Return square roots; NaN is a doubt."""
    with np.errstate(all="ignore"):
        found = np.sqrt(floats(value))
    _refuse_nan(found)
    return made(found, pa.float64(), present(value))


def sign(value: Value) -> Value:
    """Return 1.0, -1.0, or a zero or NaN as it is."""
    given = floats(value)
    found = np.where((given == 0) | np.isnan(given), given, np.sign(given))
    return made(found, pa.float64(), present(value))


def absolute_float(value: Value, type_: pa.DataType) -> Value:
    """Return floats without their signs."""
    return made(np.abs(floats(value)), type_, present(value))


def is_nan(value: Value) -> Value:
    """Return whether floats are NaN; NULL is not."""
    return made(np.isnan(floats(value)), pa.bool_(), None)


def greater(left: Value, right: Value, type_: pa.DataType, *, least: bool) -> Value:
    """Return the greater, or lesser, of two floats; of equal ones the first, of NULL the other."""
    less = compared(right, left, "less") if least else compared(left, right, "less")
    found = pc.if_else(less, right, left)
    return pc.coalesce(found, left, right).cast(type_)


def quotient(left: Value, right: Value) -> Value:
    """Return quotients of integers, rounded towards zero, as BIGINT."""
    a, b = integers(left), _divisors(right)
    if ((a == np.iinfo(np.int64).min) & (b == -1)).any():
        raise DoubtError
    whole, rest = np.divmod(a, b)
    return made(whole + ((rest != 0) & ((a < 0) != (b < 0))), pa.int64(), present(left, right))


def float_remainder(left: Value, right: Value, type_: pa.DataType) -> Value:
    """Return remainders of floats, which have the sign of the dividend; NaN is a doubt."""
    shown, a = present(left, right), floats(left)
    b = _without_zeros(floats(right), shown)
    with np.errstate(all="ignore"):
        found = np.fmod(a, b)
    _refuse_nan(found)
    return made(found, type_, shown)


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
    for given, other in ((left, right), (right, left)):
        if isinstance(given, pa.Scalar) and not given.is_valid:
            return pa.nulls(len(other), pa.bool_())
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
    return _whole(floats(value), type_, present(value))


def _whole(found: npt.NDArray[np.floating], type_: pa.DataType, shown: Bools | None) -> Value:
    found = found.astype(np.float64)
    if not (np.abs(found) < 2.0 ** (type_.bit_width - 1)).all():
        raise DoubtError
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
    if type(of) in FLOATS:
        return reader.call(absolute_float, arrow, value, type_=arrow)
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
    source, most = known_type(value), int_argument(handle, digits)
    arrow = to_arrow(of)
    if isinstance(source, DoubleType) and 0 <= most <= _MOST_DIGITS:
        return reader.call(rounded, arrow, reader.vector(value), digits=most, type_=arrow)
    require(handle, when=isinstance(source, DecimalType) and most >= 0, of=source)
    return reader.call(decimals.rescaled, arrow, reader.vector(value), type_=arrow)


def _whole_near(reader: ExpressionReader, handle: Any) -> Vector:
    source, arrow = known_type(handle.child()), to_arrow(known_type(handle))
    value, kind = child_of(reader, handle), node_name(handle)
    if isinstance(source, DecimalType):
        function = decimals.whole_below if kind == "Floor" else decimals.whole_above
        return reader.call(function, arrow, value, type_=arrow)
    if type(source) in INTEGERS:
        return value
    require(handle, when=isinstance(source, DoubleType), of=source)
    return reader.call(whole_near, arrow, value, name=kind)


def _remainder(reader: ExpressionReader, handle: Any) -> Vector:
    of = known_type(handle)
    if type(of) in FLOATS:
        arrow = to_arrow(of)
        return reader.call(float_remainder, arrow, *children_of(reader, handle), type_=arrow)
    if isinstance(of, DecimalType):
        require(handle, when=_is_rounded(handle, of), of=of)
        arrow = to_arrow(of)
        return reader.call(decimals.remainder, arrow, *children_of(reader, handle), type_=arrow)
    return _of_integers(remainder)(reader, handle)


def _quotient(reader: ExpressionReader, handle: Any) -> Vector:
    of = known_type(handle.left())
    require(handle, when=type(of) in INTEGERS, of=of)
    return reader.call(quotient, pa.int64(), *children_of(reader, handle))


def _of_double(function: Callable[..., Value]) -> Known:
    def read(reader: ExpressionReader, handle: Any) -> Vector:
        of = known_type(handle.child())
        require(handle, when=isinstance(of, DoubleType), of=of)
        return reader.call(function, pa.float64(), child_of(reader, handle))

    return read


def _is_nan(reader: ExpressionReader, handle: Any) -> Vector:
    of = known_type(handle.child())
    require(handle, when=type(of) in FLOATS, of=of)
    return reader.call(is_nan, pa.bool_(), child_of(reader, handle))


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
    "Ceil": _whole_near,
    "CheckOverflow": _overflow_checked,
    "CheckOverflowInSum": _overflow_checked,
    "DecimalDivideWithOverflowCheck": _divide,
    "Divide": _divide,
    "Floor": _whole_near,
    "IntegralDivide": _quotient,
    "IsNaN": _is_nan,
    "MakeDecimal": _units,
    "Multiply": _arithmetic("multiply"),
    "NormalizeNaNAndZero": _normalised,
    "Pmod": _of_integers(modulus),
    "Remainder": _remainder,
    "Round": _round,
    "ShiftLeft": _shift("left"),
    "ShiftRight": _shift("right"),
    "Signum": _of_double(sign),
    "Sqrt": _of_double(root),
    "Subtract": _arithmetic("subtract"),
    "UnaryMinus": _minus,
    "UnscaledValue": _units,
}
