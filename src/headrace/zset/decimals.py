"""Decimals of up to 38 digits, converted and rounded in 256 bits.

Arrow's own conversion to ``decimal128`` multiplies by a power of ten in 128 bits, where a number
that does not fit becomes another one without an error; so do its readers of texts, JSON and CSV.
Its ``round`` returns 0 for a number that gets one digit more, unless that is in the last row, and
its truncation errs in the last digit of numbers of more than 128 bits.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
