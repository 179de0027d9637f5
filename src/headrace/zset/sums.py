"""Exact sums of the groups of a sorted column: a sum that does not fit its type is an error.

Integers add in two halves and decimals in four limbs of 32 bits, each in its own int64, so that
no intermediate sum can wrap below 2**31 rows; only the total has to fit its type.

Where the total itself may leave 64 bits, as that of a BIGINT column may, the two halves of the
values are summed as columns of their own: see :func:`halves`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import Code, HeadraceError
from headrace.zset.decimals import decimal_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.zset.equality import Ints

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
