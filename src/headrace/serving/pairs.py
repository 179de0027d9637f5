"""Pairs the changes of each key: the row before, and the row after."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headrace.zset import WEIGHT, row_codes
from headrace.zset.zset import column, numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray


def paired(changes: pa.Table, key: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return, for each change, the indexes of the row before and of the row after; -1 for none.

    ``changes`` are rows with ``__weight``, with all changes of each of their keys, which are
    unique. Without a key no row is paired, and deletions come first.
    """
    weights = numbers(changes, WEIGHT)
    gone, added = np.flatnonzero(weights < 0), np.flatnonzero(weights > 0)
    if not key:
        return (
            np.concatenate([gone, np.full(len(added), -1)]),
            np.concatenate([np.full(len(gone), -1), added]),
        )
    codes = row_codes([column(changes, name) for name in key], changes.num_rows)
    _, among_gone, among_added = np.intersect1d(codes[gone], codes[added], return_indices=True)
    before = np.full(len(added), -1)
    before[among_added] = gone[among_gone]
    alone = np.delete(gone, among_gone)
    return (
        np.concatenate([alone, before]),
        np.concatenate([np.full(len(alone), -1), added]),
    )
