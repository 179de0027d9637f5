"""Arithmetic on decimals of up to 38 digits. A result of more digits is a doubt.

Values of up to 64 bits are computed as integers; wider ones by Arrow, in 256 bits, if no digit is
lost. Digits are rounded half up, away from zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.zset.order import valid
from headrace.algebra.zset.sums import decimal_words, exactly, rounded
from headrace.planning.catalyst.allowed import SIGNED_DIGITS
from headrace.planning.catalyst.vectors.vector import DoubtError, floats, integers, made, present

if TYPE_CHECKING:
    import numpy.typing as npt

    from headrace.algebra.zset.order import Bools, Ints
    from headrace.planning.catalyst.vectors.vector import Value


FIRST_PLAIN: Final = 1e-3
LAST_PLAIN: Final = 1e7
"""Java writes floats of 64 bits in between without an exponent, by the fewest digits that tell a
float from its neighbours, as Arrow and Python do."""
_LIMIT: Final = 1 << 63
_NEAR: Final = 10**38
"""Quotients by less than this, times the power of ten of their scale, are rounded only once."""
_EXACT: Final = 1 << 53
"""All integers up to this one are exact as floats."""
_EXACT_POWER: Final = 22
"""All powers of ten up to this one are exact as floats."""
_PLAIN: Final = 6
"""Decimals with so many digits after the point are never written with an exponent."""
_NEXT: Final = 1 << 21
"""A float of 64 bits below 2**31 is the next integer only for a number that is nearer to it than
by one part of so many."""
_SHORT: Final = 18
"""Every number with so many digits fits 64 bits."""


@dataclass(frozen=True, slots=True)
class _Scaled:
    """Decimals as integers: each is the value times a power of ten."""

    units: Ints
    scale: int

    @property
    def most(self) -> int:
        """The largest absolute value."""
        if not len(self.units):
            return 0
        return max(int(self.units.max()), -int(self.units.min()))

    def at(self, scale: int) -> _Scaled | None:
        """Return the values at a larger scale; None if one does not fit 64 bits."""
        factor = 10 ** (scale - self.scale)
        if factor == 1 or self.most == 0:
            return _Scaled(self.units, scale)
        if self.most * factor >= _LIMIT:
            return None
        return _Scaled(self.units * np.int64(factor), scale)


def added(left: Value, right: Value, type_: pa.Decimal128Type) -> Value:
    """Return sums of decimals; the type has the larger of their scales."""
    a, b = _scaled(left, type_.scale), _scaled(right, type_.scale)
    if a is None or b is None or a.most + b.most >= _LIMIT:
        return _narrow(pc.add_checked(_wide(left), _wide(right)), type_)
    return _made(a.units + b.units, type_, present(left, right))


def subtracted(left: Value, right: Value, type_: pa.Decimal128Type) -> Value:
    """Return differences of decimals; see :func:`added`."""
    a, b = _scaled(left, type_.scale), _scaled(right, type_.scale)
    if a is None or b is None or a.most + b.most >= _LIMIT:
        return _narrow(pc.subtract_checked(_wide(left), _wide(right)), type_)
    return _made(a.units - b.units, type_, present(left, right))


def multiplied(left: Value, right: Value, type_: pa.Decimal128Type) -> Value:
    """Return products of decimals; the type has at most the sum of their scales."""
    a, b = _scaled(left), _scaled(right)
    if a is None or b is None or a.most * b.most >= _LIMIT:
        if left.type.scale + right.type.scale != type_.scale:
            raise DoubtError
        # Arrow multiplies numbers that together have at most 75 digits.
        return _narrow(pc.multiply_checked(_wide(left), _wide(right, 37)), type_)
    units = _rounded(a.units * b.units, a.scale + b.scale - type_.scale)
    return _made(units, type_, present(left, right))


def divided(left: Value, right: Value, type_: pa.Decimal128Type) -> Value:
    """Return quotients of decimals.

    Spark rounds a quotient to 38 digits after the point, and then to the scale of the type. Both
    together are one rounding if no quotient is so near to the middle between two results that the
    first rounding reaches it.
    """
    a, b, shown = _scaled(left), _scaled(right), present(left, right)
    if a is None or b is None or max(a.most, b.most) >= _LIMIT:
        raise DoubtError
    zero, digits = b.units == 0, type_.scale - a.scale + b.scale
    if (zero if shown is None else zero & shown).any():
        raise DoubtError
    divisor = _Scaled(np.where(zero, 1, np.abs(b.units)), 0).at(max(-digits, 0))
    if divisor is None or divisor.most * 10 ** max(type_.scale, 1) >= _NEAR:
        raise DoubtError
    largest = (np.abs(a.units) / divisor.units).max(initial=0) * 10.0 ** max(digits, 0)
    if divisor.most * 10 >= _LIMIT or largest >= _LIMIT / 2:
        raise DoubtError
    found, rest = np.divmod(np.abs(a.units), divisor.units)
    for _ in range(digits):
        digit, rest = np.divmod(rest * 10, divisor.units)
        found = found * 10 + digit
    found = found + (2 * rest >= divisor.units)
    negative = (a.units < 0) != (b.units < 0)
    return _made(np.where(negative, -found, found), type_, shown)


def remainder(left: Value, right: Value, type_: pa.Decimal128Type) -> Value:
    """Return remainders of decimals, which have the sign of the dividend."""
    scale, shown = max(left.type.scale, right.type.scale), present(left, right)
    a, b = _scaled(left, scale), _scaled(right, scale)
    if a is None or b is None or scale != type_.scale:
        raise DoubtError
    zero = b.units == 0
    if (zero if shown is None else zero & shown).any():
        raise DoubtError
    return _made(np.fmod(a.units, np.where(zero, 1, b.units)), type_, shown)


def average(left: Value, right: Value, type_: pa.Decimal128Type) -> Value:
    """Return sums divided by counts; a NULL is a sum that overflowed."""
    if present(left, right) is not None:
        raise DoubtError
    return divided(left, right, type_)


def negated(value: Value, type_: pa.Decimal128Type) -> Value:
    """Return the negatives of decimals; see :func:`_require_signed`."""
    _require_signed(value)
    return _narrow(pc.negate_checked(value), type_)


def rescaled(value: Value, type_: pa.Decimal128Type) -> Value:
    """Return decimals as ones of another type."""
    if value.type == type_:
        return value
    lost = value.type.scale - type_.scale
    found = _scaled(value, max(value.type.scale, type_.scale))
    if found is None or lost > _SHORT or (lost > 0 and found.most >= _LIMIT):
        return rounded(value, type_)
    return _made(_rounded(found.units, max(lost, 0)), type_, present(value))


def rescaled_sum(value: Value, type_: pa.Decimal128Type) -> Value:
    """Return sums as decimals of another type; a NULL is one that overflowed."""
    if present(value) is not None:
        raise DoubtError
    return rescaled(value, type_)


def nearest(value: Value, type_: pa.DataType) -> Value:
    """Return the nearest floats of 64 bits; decimals of more than 53 bits are a doubt.

    Then integer and power of ten are exact, so that their quotient is rounded once.
    """
    found = _scaled(value)
    if found is None or found.most > _EXACT or found.scale > _EXACT_POWER or type_ != pa.float64():
        raise DoubtError
    return made(found.units / np.float64(10**found.scale), type_, present(value))


def whole(value: Value, type_: pa.DataType) -> Value:
    """Return decimals as integers, rounded towards zero.

    Where Spark rounds a float instead, and that may be the next integer, it is a doubt.
    """
    found = _scaled(value)
    if found is None:
        raise DoubtError
    power = 10**found.scale
    if power >= _LIMIT:
        whole, near = np.zeros_like(found.units), found.most > power - power // _NEXT
    else:
        whole, rest = np.divmod(found.units, np.int64(power))
        below = (rest != 0) & (found.units < 0)
        whole = whole + below
        near = (np.where(below, power - rest, rest) > power - power // _NEXT).any()
    if near and type_ != pa.int64():
        raise DoubtError
    return made(whole, pa.int64(), present(value)).cast(type_)


def whole_below(value: Value, type_: pa.Decimal128Type) -> Value:
    """Return decimals rounded down to integers, as decimals without a fraction."""
    found = _scaled(value)
    if found is None or 10**found.scale >= _LIMIT:
        raise DoubtError
    return _made(found.units // np.int64(10**found.scale), type_, present(value))


def whole_above(value: Value, type_: pa.Decimal128Type) -> Value:
    """Return decimals rounded up to integers, as decimals without a fraction."""
    found = _scaled(value)
    if found is None or 10**found.scale >= _LIMIT:
        raise DoubtError
    whole, rest = np.divmod(found.units, np.int64(10**found.scale))
    return _made(whole + (rest != 0), type_, present(value))


def written(value: Value, type_: pa.DataType) -> Value:
    """Return decimals as text; one that might be written with an exponent is a doubt."""
    found = pc.cast(value, type_)
    if value.type.scale > _PLAIN and pc.any(pc.match_substring(found, "E")).as_py():
        raise DoubtError
    return found


def of_floats(value: Value, type_: pa.Decimal128Type) -> Value:
    """Return floats of 64 bits as decimals; see :func:`rounded_floats`."""
    return _made(rounded_floats(floats(value), type_.scale), type_, present(value))


def rounded_floats(given: npt.NDArray[np.floating], scale: int) -> Ints:
    """Return the units of floats that are rounded to some digits after the point.

    Spark rounds the decimal that Java writes for a float. It is within an error of 2**-52 of the
    float, relatively. So only a float that is very near to the middle between two results needs
    that decimal, which is known of floats that Java writes without an exponent; else it is a doubt.
    """
    with np.errstate(all="ignore"):
        scaled = np.abs(given) * 10.0**scale
        below = np.floor(scaled)
        rest, error = scaled - below, scaled * 2.0**-50
        sure = np.abs(rest - 0.5) > error
    if scale > _EXACT_POWER or not (scaled < 2.0**50).all():
        raise DoubtError
    found = (below + (rest > 0.5)).astype(np.int64)  # noqa: PLR2004
    found = np.asarray(np.where(given < 0, -found, found))
    for place in np.flatnonzero(~sure).tolist():
        found[place] = _rounded_float(float(given[place]), scale)
    return found


def _rounded_float(given: float, scale: int) -> int:
    if not FIRST_PLAIN <= abs(given) < LAST_PLAIN:
        raise DoubtError
    return int(Decimal(repr(given)).scaleb(scale).quantize(Decimal(1), ROUND_HALF_UP))


def units_of(value: Value) -> Value:
    """Return decimals without their points, as BIGINT; more than 64 bits are a doubt."""
    found = _scaled(value)
    if found is None:
        raise DoubtError
    return made(found.units, pa.int64(), present(value))


def of_units(value: Value, type_: pa.Decimal128Type) -> Value:
    """Return the decimals of integers without points; the inverse of :func:`units_of`."""
    return _made(integers(value), type_, present(value))


def absolute(value: Value, type_: pa.Decimal128Type) -> Value:
    """Return decimals without their signs; see :func:`_require_signed`."""
    _require_signed(value)
    return _narrow(pc.abs_checked(value), type_)


def of_integers(value: Value, type_: pa.Decimal128Type) -> Value:
    """Return integers as decimals."""
    found = _Scaled(integers(value), 0).at(type_.scale)
    if found is None:
        return exactly(value, type_)
    return _made(found.units, type_, present(value))


def _scaled(value: Value, scale: int | None = None) -> _Scaled | None:
    """Return decimals as integers, at a larger scale if one is given; None if they do not fit."""
    if isinstance(value, pa.Scalar):
        value = pa.repeat(value, 1)
    own = value.type.scale
    if not len(value):
        return _Scaled(np.zeros(0, np.int64), own if scale is None else scale)
    low, high = decimal_words(value).T
    shown = valid(value) if value.null_count else None
    if value.type.precision > _SHORT:
        fits = high == low >> np.int64(63)
        if not (fits if shown is None else fits | ~shown).all():
            return None
    low = np.ascontiguousarray(low) if shown is None else np.where(shown, low, 0)
    found = _Scaled(low, own)
    return found if scale is None else found.at(scale)


def _made(units: Ints, type_: pa.Decimal128Type, shown: Bools | None) -> pa.Array:
    """Return integers as decimals of a type that has their scale."""
    if type_.precision <= _SHORT and _Scaled(units, 0).most >= 10**type_.precision:
        raise DoubtError
    data = np.empty((len(units), 2), np.int64)
    data[:, 0] = units
    np.right_shift(units, np.int64(63), out=data[:, 1])
    bitmap = None if shown is None else pa.array(shown).buffers()[1]
    return pa.Array.from_buffers(type_, len(units), [bitmap, pa.py_buffer(data)])


def _rounded(units: Ints, digits: int) -> Ints:
    """Return integers without their last digits, rounded."""
    if digits == 0:
        return units
    if digits > _SHORT or (units == np.iinfo(np.int64).min).any():
        raise DoubtError
    power = np.int64(10**digits)
    found, rest = np.divmod(np.abs(units), power)
    return np.asarray(np.sign(units) * (found + (2 * rest >= power)))


def _wide(value: Value, most: int = 38) -> Value:
    """Return decimals in 256 bits; more than so many digits are an error of Arrow."""
    kind = value.type
    if pa.types.is_decimal256(kind):
        return value
    return value.cast(pa.decimal256(min(kind.precision, most), kind.scale))


def _require_signed(value: Value) -> None:
    """Leave values of more than 34 digits to Spark, which rounds them as it changes their sign."""
    if value.type.precision > SIGNED_DIGITS:
        value.cast(pa.decimal128(SIGNED_DIGITS, value.type.scale))


def _narrow(value: Value, type_: pa.Decimal128Type) -> Value:
    return value.cast(type_)
