"""Arrow columns as integers of NumPy, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.catalyst.vectors.vector import DoubtError
from headrace.zset.equality import bit_width, valid, words

if TYPE_CHECKING:
    import numpy.typing as npt

    from headrace.catalyst.vectors.vector import Value
    from headrace.zset.equality import Bools, Ints


def present(*given: Value) -> Bools | None:
    """Return for each row whether no value is NULL; None if no value is."""
    found: Bools | None = None
    for each in given:
        if isinstance(each, pa.Scalar):
            if not each.is_valid:
                raise DoubtError
        elif each.null_count:
            found = valid(each) if found is None else found & valid(each)
    return found


def integers(value: Value) -> Ints:
    """Return the values of a fixed-width type of up to 64 bits as integers; 0 for NULL."""
    if isinstance(value, pa.Scalar):
        value = pa.repeat(value, 1)
    if not len(value):
        return np.zeros(0, np.int64)
    found = words(value, bit_width(value.type)).astype(np.int64, copy=False)
    return np.where(valid(value), found, 0) if value.null_count else found


def floats(value: Value) -> npt.NDArray[np.floating]:
    """Return the values of a type of floating-point numbers; 0 for NULL."""
    if isinstance(value, pa.Scalar):
        value = pa.repeat(value, 1)
    found: npt.NDArray[np.floating] = value.to_numpy(zero_copy_only=False)
    return np.where(valid(value), found, found.dtype.type(0)) if value.null_count else found


def made(found: npt.NDArray[np.generic], type_: pa.DataType, shown: Bools | None) -> pa.Array:
    """Return integers, floats or booleans as a column of a type of their width."""
    column = pa.array(found, mask=None if shown is None else ~shown)
    return column if column.type == type_ else column.view(type_)
