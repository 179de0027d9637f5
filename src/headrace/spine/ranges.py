"""Partitions of the hash space: contiguous ranges of signed 64-bit integers of about equal size.

The same formula runs in SQL, with long arithmetic and a signed shift: ``hash`` belongs to
``((hash >> 32) + 2147483648) * partitions >> 32``. The product fits for up to 2**31 partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from headrace.zset.equality import Ints

LOWEST = -(2**63)
"""The least hash."""

HIGHEST = 2**63 - 1
"""The greatest hash."""

_HALF = 32
_BIAS = 2**31


def partition_of(hashes: Ints, partitions: int) -> Ints:
    """Return the partition, from 0, that owns each hash."""
    upper = (hashes >> np.int64(_HALF)) + np.int64(_BIAS)
    return np.asarray((upper * np.int64(partitions)) >> np.int64(_HALF))


def ranges(partitions: int) -> list[tuple[int, int]]:
    """Return the lowest and highest hash, both inclusive, of each partition in order."""
    # The least upper half u with u * n >> 32 >= p, for n partitions, is p * 2**32 / n rounded up.
    lows = [(-(-(p << _HALF) // partitions) - _BIAS) << _HALF for p in range(partitions)]
    return list(zip(lows, [low - 1 for low in lows[1:]] + [HIGHEST], strict=True))
