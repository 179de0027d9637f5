"""Times as microseconds UTC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from headrace.zset.equality import Ints

_PER_DAY: Final = 86_400_000_000
_PER_UNIT: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_NANOS: Final = 1_000


def is_time(kind: pa.DataType) -> bool:
    """Whether values of a type are points in time: timestamps, with or without a zone, or dates."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def micros(times: pa.Array) -> Ints:
    """Return points in time in microseconds since 1970 UTC, rounded down; 0 for NULL.

    A timestamp without a zone is UTC, and a date is its midnight in UTC.

    Raises:
        OverflowError: if one is further from 1970 than 64 bits of microseconds.
    """
    kind = times.type
    if pa.types.is_date(kind):
        times, unit = times.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), _PER_DAY
    elif kind.unit == "ns":
        found = pc.fill_null(times.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        return np.asarray(found // _NANOS)
    else:
        times, unit = times.cast(pa.int64()), _PER_UNIT[kind.unit]
    found = pc.fill_null(times, 0).to_numpy(zero_copy_only=False)
    if unit > 1 and len(found) and np.abs(found).max() > np.iinfo(np.int64).max // unit:
        raise OverflowError
    return np.asarray(found * unit)
