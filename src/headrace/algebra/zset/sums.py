"""Exact sums of the groups of a sorted column: a sum that does not fit its type is an error.

Integers add in two halves and decimals in four limbs of 32 bits, each in its own int64, so that
no intermediate sum can wrap below 2**31 rows; only the total has to fit its type.

Where the total itself may leave 64 bits, as that of a BIGINT column may, the two halves of the
values are summed as columns of their own: see :func:`halves`.

Decimals of up to 38 digits, converted and rounded in 256 bits.

Arrow's own conversion to ``decimal128`` multiplies by a power of ten in 128 bits, where a number
that does not fit becomes another one without an error; so do its readers of texts, JSON and CSV.
Its ``round`` returns 0 for a number that gets one digit more, unless that is in the last row, and
its truncation errs in the last digit of numbers of more than 128 bits.

Exact sums of floats: each value as a few digits of a large whole number, which add up exactly.

A float is a whole number of units of 2**-1074. Its *digits* are of 32 bits, each with its *place*:
the number is the sum of ``digit * 2**(32 * place)``. Digits of one place add up in 64 bits below
2**31 rows, so a sum is exact in any order, and retracting a value takes back just what it added.
The sum as a float is the one that is nearest to it, as that of Python's ``math.fsum`` is.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.algebra.zset.order import Ints


_DIGITS: Final = 38
"""The most digits of a decimal."""
_WIDEST: Final = 76
"""The most digits of Arrow's wide decimals, which take any decimal at any scale."""
_EXACT: Final = 2**53
"""Up to here, whole numbers are floats; so are the powers of ten up to the 22nd."""
_MARGIN: Final = 1.5
"""By how much a number is too large at least if it does not fit 256 bits, or even 128."""


def decimal_words(column: pa.Array) -> npt.NDArray[np.int64]:
    """View a decimal128 array as an ``(n, 2)`` array: the low 64 bits, the high 64 bits."""
    data = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)
    return data[column.offset : column.offset + len(column)]


def wide(type_: pa.DataType) -> pa.DataType:
    """Return a type with decimals of 256 bits in place of those of 128, in all its parts.

    Texts of numbers with up to 38 digits before the point can be read as these.
    """
    if pa.types.is_decimal128(type_):
        return pa.decimal256(_WIDEST, type_.scale)
    if pa.types.is_struct(type_):
        return pa.struct([each.with_type(wide(each.type)) for each in type_])
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(wide(type_.value_type)))
    return type_


def exactly(values: Any, type_: pa.DataType) -> Any:
    """Return decimals, integers or texts as decimals; other values are cast.

    The values are a scalar, an array or a chunked array.

    Raises:
        pa.ArrowException: a value does not fit the type, or would lose digits.
    """
    given = values.type
    if given == type_ or not pa.types.is_decimal128(type_):
        return values.cast(type_)
    if pa.types.is_integer(given):
        values = values.cast(pa.decimal256(_WIDEST, 0))
    elif pa.types.is_string(given) or pa.types.is_large_string(given):
        _require_size(values, type_)
    elif pa.types.is_decimal(given):
        fitting = type_.precision - type_.scale + given.scale
        values = values.cast(pa.decimal256(min(max(fitting, 1), _WIDEST), given.scale))
    return values.cast(wide(type_)).cast(type_)


def rounded(values: Any, type_: pa.Decimal128Type) -> Any:
    """Return decimals as ones of another type, rounded half up, away from zero.

    Raises:
        pa.ArrowException: a value does not fit the type, or has more than 39 digits.
    """
    scale = values.type.scale
    if scale <= type_.scale:
        return exactly(values, type_)
    values = values.cast(pa.decimal256(_DIGITS + 1, scale))
    half = pa.scalar(Decimal(5).scaleb(-type_.scale - 1), values.type)
    is_below = pc.less(values, pa.scalar(0, values.type))
    moved = pc.if_else(is_below, pc.subtract_checked(values, half), pc.add_checked(values, half))
    return moved.cast(wide(type_), safe=False).cast(type_)  # the first cast truncates


def _require_size(texts: Any, type_: pa.Decimal128Type) -> None:
    """Refuse numbers that may not fit 256 bits, as long ones and those with exponents may not."""
    long = pc.greater(pc.binary_length(texts), _DIGITS)
    if not pc.any(pc.or_(long, pc.match_substring_regex(texts, "[eE]"))).as_py():
        return
    most = 10.0 ** (type_.precision - type_.scale) * _MARGIN
    if pc.any(pc.greater(pc.abs(texts.cast(pa.float64())), most)).as_py():
        raise pa.ArrowInvalid(f"a number has too many digits for {type_}")


def nearest_floats(column: pa.Array) -> npt.NDArray[np.float64]:
    """Return the floats nearest to integers, floats or decimals of up to 18 digits; NULL is NaN."""
    values = column.fill_null(0) if column.null_count else column
    if pa.types.is_decimal(values.type):
        units, scale = decimal_words(values)[:, 0], values.type.scale
        found = units / np.float64(10**scale)
        # A quotient of two floats is the nearest one if both are exact.
        for i in np.flatnonzero(np.abs(units) > _EXACT):
            found[i] = float(values[int(i)].as_py())
    else:
        found = values.to_numpy(zero_copy_only=False).astype(np.float64)
    return np.where(column.is_null(), np.nan, found) if column.null_count else found


if TYPE_CHECKING:
    Floats = npt.NDArray[np.float64]

NAN: Final = 100
"""The place at which NaNs are counted, ..."""
POSITIVE: Final = 101
"""... and that of infinities, ..."""
NEGATIVE: Final = 102
"""... and of negative ones."""

_READ = 3
"""How many digits decide which float is the nearest; of the others, whether there are any."""
_BITS = np.uint64(32)
_DIGIT = np.uint64(0xFFFFFFFF)
_FRACTION = 52
_EXPONENT = 0x7FF
_UNIT = -1074
_ONE: Final = 1 << -_UNIT
"""1 as a number of units."""
_FEW = 128
"""Up to how many digits are added up one by one."""
_AT_ONCE = 1 << 14
"""How many sums are made of their digits together."""


def digits_of(values: Floats) -> tuple[Ints, Ints, Ints]:
    """Return the digits of floats: the positions of their values, their places and themselves.

    A zero has none.
    """
    bits = values.view(np.uint64)
    exponent = (bits >> np.uint64(_FRACTION)).astype(np.int64) & _EXPONENT
    fraction = bits & np.uint64((1 << _FRACTION) - 1)
    sign = np.where(bits >> np.uint64(63), -1, 1)
    whole = fraction | np.where(exponent > 0, np.uint64(1 << _FRACTION), np.uint64(0))
    place, shift = np.divmod(np.maximum(exponent - 1, 0), 32)
    shift = shift.astype(np.uint64)
    low, high = (whole & _DIGIT) << shift, (whole >> _BITS) << shift
    parts = (low & _DIGIT, (low >> _BITS) + (high & _DIGIT), high >> _BITS)
    finite = exponent != _EXPONENT
    rows = np.arange(len(values))
    found = [
        (rows[finite], place[finite] + i, (part.astype(np.int64) * sign)[finite])
        for i, part in enumerate(parts)
    ]
    special = np.flatnonzero(~finite)
    if len(special):
        kind = np.where(fraction[special], NAN, np.where(sign[special] > 0, POSITIVE, NEGATIVE))
        found.append((special, kind, np.ones(len(special), np.int64)))
    rows, places, digits = (np.concatenate(each) for each in zip(*found, strict=True))
    kept = digits != 0
    return rows[kept], places[kept], digits[kept]


def float_sums(count: int, of: Ints, places: Ints, digits: Ints) -> Floats:
    """Return so many sums as floats, from their digits: ``of`` has the number of the sum of each.

    A sum without digits is 0. One beyond all floats is infinite.
    """
    finite = places < NAN
    if len(of) <= _FEW and finite.all():
        return _few_sums(count, of, places, digits)
    found = np.zeros(count)
    own, place, digit = of[finite], places[finite], digits[finite]
    if len(own):
        lowest = int(place.min())
        width = int(place.max()) - lowest + 3
        order = np.argsort(own, kind="stable")
        own, place, digit = own[order], place[order] - lowest, digit[order]
        for begin in range(0, count, _AT_ONCE):
            part = slice(*own.searchsorted([begin, begin + _AT_ONCE]))
            sums = np.zeros((min(_AT_ONCE, count - begin), width), np.int64)
            np.add.at(sums, (own[part] - begin, place[part]), digit[part])
            found[begin : begin + len(sums)] = _nearest(sums, lowest)
    seen = np.zeros((3, count), np.bool_)
    for i, special in enumerate((NAN, POSITIVE, NEGATIVE)):
        totals = np.bincount(of[places == special], digits[places == special], count)
        seen[i] = totals > 0
    nan, positive, negative = seen
    found[positive] = np.inf
    found[negative] = -np.inf
    found[nan | (positive & negative)] = np.nan
    return found


def _few_sums(count: int, of: Ints, places: Ints, digits: Ints) -> Floats:
    """Return :func:`float_sums` of few finite digits, whose totals Python has as whole numbers."""
    totals = [0] * count
    for own, place, digit in zip(of.tolist(), places.tolist(), digits.tolist(), strict=True):
        totals[own] += digit << (32 * place)
    return np.array([_as_float(total) for total in totals], np.float64)


def _as_float(units: int) -> float:
    """Return the float that is nearest to a number of units."""
    try:
        return units / _ONE  # Python's division of whole numbers rounds once
    except OverflowError:
        return math.inf if units > 0 else -math.inf


def _nearest(sums: Ints, lowest: int) -> Floats:
    """Return the floats nearest to sums of digits by place, from the lowest place on."""
    _carried(sums)
    negative = sums[:, -1] < 0
    sums[negative] = -sums[negative]
    _carried(sums)
    count, width = sums.shape
    rows = np.arange(count)
    top = width - 1 - np.argmax(sums[:, ::-1] != 0, axis=1)
    digits = sums.astype(np.uint64)

    def below(steps: int) -> npt.NDArray[np.uint64]:
        return np.where(top >= steps, digits[rows, np.maximum(top - steps, 0)], np.uint64(0))

    head = (below(0) << _BITS) | below(1)
    third = below(2)
    before = np.cumsum(sums != 0, axis=1)
    more = (top >= _READ) & (before[rows, np.maximum(top - _READ, 0)] > 0)
    shift = _leading_zeros(head)
    lost = (third << shift) & _DIGIT
    head = (head << shift) | ((third << shift) >> _BITS)
    head |= ((lost != 0) | more).astype(np.uint64)  # it decides only which float is nearest
    with np.errstate(over="ignore"):
        scale = 32 * (top - 1 + lowest) + _UNIT - shift.astype(np.int64)
        found = np.ldexp(head.astype(np.float64), scale.astype(np.int32))
    return np.asarray(np.where(negative, -found, found) + 0.0)


def _carried(sums: Ints) -> None:
    """Carry what exceeds a digit to the next place, in place; the last one keeps the sign."""
    for i in range(sums.shape[1] - 1):
        sums[:, i + 1] += sums[:, i] >> 32
        sums[:, i] &= 0xFFFFFFFF


def _leading_zeros(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return by how much words of at least 33 bits can be shifted to the left; 0 for 0."""
    found = np.zeros(len(words), np.uint64)
    for step in (16, 8, 4, 2, 1):
        room = (words >> np.uint64(64 - step)) == 0
        found += np.where(room & (words != 0), np.uint64(step), np.uint64(0))
        words = np.where(room, words << np.uint64(step), words)
    return found


_LOW = np.int64(0xFFFFFFFF)
_HALF = np.int64(32)


def segment_sums(column: pa.Array, starts: Ints) -> pa.Array:
    """Sum the stretches ``[starts[i], starts[i + 1])`` of an int64 or decimal128 column.

    ``starts`` ascends strictly from 0; the column has no NULL. Raises ``invalid`` if a sum does
    not fit the type of the column.
    """
    if len(starts) == len(column):
        return column
    if pa.types.is_int64(column.type):
        return pa.array(segment_sums_int64(column.to_numpy(), starts))
    words = decimal_words(column)
    low, high = words[:, 0], words[:, 1]
    small = low >> np.int64(63)
    if np.array_equal(high, small) and _fits(low, starts):
        low = np.add.reduceat(low, starts)
        sums = np.stack([low, low >> np.int64(63)], axis=1)
    else:
        sums = _limb_sums(low, high, starts)
    _check_digits(sums, column.type)
    return pa.Array.from_buffers(
        column.type, len(sums), [None, pa.py_buffer(np.ascontiguousarray(sums))]
    )


def sums_at(columns: Sequence[pa.Array], order: Ints, starts: Ints) -> list[pa.Array]:
    """Return :func:`segment_sums` of columns whose rows are at the positions ``order``."""
    if len(columns) == 1 and pa.types.is_int64(columns[0].type):
        return [pa.array(segment_sums_int64(columns[0].to_numpy()[order], starts))]
    if all(pa.types.is_int64(each.type) for each in columns):
        values = np.stack([each.to_numpy() for each in columns]).take(order, axis=1)
        if _fits(values, starts):
            return [pa.array(sums) for sums in np.add.reduceat(values, starts, axis=1)]
    positions = pa.array(order)
    return [segment_sums(each.take(positions), starts) for each in columns]


def segment_sums_int64(values: Ints, starts: Ints) -> Ints:
    """Sum the stretches of an array of int64; see :func:`segment_sums`."""
    if len(starts) == 0:
        return np.zeros(0, np.int64)
    if _fits(values, starts):
        return np.asarray(np.add.reduceat(values, starts))
    low = np.add.reduceat(values & _LOW, starts)
    high = np.add.reduceat(values >> _HALF, starts) + (low >> _HALF)
    if high.min() < -(2**31) or high.max() >= 2**31:
        raise overflowed("bigint")
    return np.asarray((high << _HALF) | (low & _LOW))


def halves(values: Ints) -> tuple[Ints, Ints]:
    """Return the upper and the lower 32 bits of integers: ``upper * 2**32 + lower`` each.

    The lower half is not negative. Sums of either half are the halves of the sum, though the lower
    one may then be of more than 32 bits, and fit 64 bits for up to 2**31 values.
    """
    return values >> _HALF, values & _LOW


def negated(column: pa.Array, where: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return a column of sums with all values negated, or only those ``where`` the mask is true.

    Raises ``invalid`` for the least integer, whose negative does not fit the type.
    """
    if where is not None and not where.all():
        zero, selected = pa.scalar(0, column.type), pa.array(where)
        return pc.if_else(selected, negated(pc.if_else(selected, column, zero)), column)
    try:
        return pc.negate_checked(column)
    except pa.ArrowInvalid as error:
        raise overflowed(str(column.type)) from error


def is_zero(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return for each position whether a column of sums is zero."""
    if pa.types.is_int64(column.type):
        return np.asarray(column.to_numpy() == 0)
    if len(column) == 0:
        return np.zeros(0, np.bool_)
    words = decimal_words(column)
    return np.asarray((words[:, 0] | words[:, 1]) == 0)


def overflowed(kind: str) -> HeadraceError:
    """Return the error for a sum that does not fit its type."""
    hint = "Cast the argument to a wider type, such as decimal(38, 0)."
    if kind.startswith("decimal"):
        hint = "A DECIMAL has at most 38 digits: round the argument, or cast it to DOUBLE."
    return HeadraceError(
        Code.INVALID,
        f"a sum of type {kind} overflowed",
        detail="The exact sum, or the amount by which one epoch changes it, does not fit the type.",
        hint=hint,
    )


def _fits(values: Ints, starts: Ints) -> bool:
    """Whether all sums of the stretches, and their intermediate sums, are sure to fit int64.

    The last axis of the values is that of the rows.
    """
    largest, rows = max(int(values.max()), -int(values.min())), values.shape[-1]
    if largest * rows < 2**63:
        return True
    longest = int(np.diff(starts, append=rows).max())
    return largest * longest < 2**63


def _limb_sums(low: Ints, high: Ints, starts: Ints) -> npt.NDArray[np.int64]:
    # The shift of the low word is signed, so its upper half is masked to 32 bits again.
    limbs = (low & _LOW, (low >> _HALF) & _LOW, high & _LOW, high >> _HALF)
    carry = np.zeros(len(starts), np.int64)
    kept = []
    for limb in limbs:
        total = np.add.reduceat(limb, starts) + carry
        kept.append(total & _LOW)
        carry = total >> _HALF
        top = total
    if top.min() < -(2**31) or top.max() >= 2**31:
        raise overflowed("decimal(38)")
    return np.stack([kept[0] | (kept[1] << _HALF), kept[2] | (kept[3] << _HALF)], axis=1)


def _check_digits(sums: npt.NDArray[np.int64], kind: pa.DataType) -> None:
    limit = 10**kind.precision
    low, high = sums[:, 0].astype(np.uint64), sums[:, 1]
    if _at_least(low, high, limit).any() or not _at_least(low, high, 1 - limit).all():
        raise overflowed(f"decimal({kind.precision},{kind.scale})")


def _at_least(
    low: npt.NDArray[np.uint64], high: npt.NDArray[np.int64], bound: int
) -> npt.NDArray[np.bool_]:
    bound_high, bound_low = bound >> 64, np.uint64(bound & (2**64 - 1))
    return np.asarray((high > bound_high) | ((high == bound_high) & (low >= bound_low)))
