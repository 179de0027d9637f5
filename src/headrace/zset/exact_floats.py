"""Exact sums of floats: each value as a few digits of a large whole number, which add up exactly.

A float is a whole number of units of 2**-1074. Its *digits* are of 32 bits, each with its *place*:
the number is the sum of ``digit * 2**(32 * place)``. Digits of one place add up in 64 bits below
2**31 rows, so a sum is exact in any order, and retracting a value takes back just what it added.
The sum as a float is the one that is nearest to it, as that of Python's ``math.fsum`` is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from headrace.zset.equality import Ints

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
