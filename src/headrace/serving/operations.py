"""The delta of one epoch as a changelog: a retraction and an insertion of one key are an update."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.zset import WEIGHT, row_codes
from headrace.zset.zset import column, numbers, take

if TYPE_CHECKING:
    from collections.abc import Sequence

OPERATIONS = {"+I": "INSERT", "-U": "UPDATE_BEFORE", "+U": "UPDATE_AFTER", "-D": "DELETE"}
"""The signs of the operations of a changelog, and their names."""

OPERATION = "__op"
"""The column with the sign of the operation."""


def with_operations(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the rows of an epoch's delta, ordered, with their weights and ``__op``.

    The retracted rows of a key precede its inserted rows. Without a unique key there are no
    updates, and all retracted rows precede all inserted ones.
    """
    keys = zip(*(changes[name].to_pylist() for name in key), strict=True)
    texts = map(repr, keys) if key else [""] * changes.num_rows
    retracted: dict[str, list[int]] = defaultdict(list)
    inserted: dict[str, list[int]] = defaultdict(list)
    weights = changes[WEIGHT].to_pylist()
    for position, (text, weight) in enumerate(zip(texts, weights, strict=True)):
        (inserted if weight > 0 else retracted)[text].append(position)
    positions: list[int] = []
    operations: list[str] = []
    for text in dict.fromkeys([*retracted, *inserted]):
        is_update = bool(key) and text in retracted and text in inserted
        for by_key, single, update in ((retracted, "-D", "-U"), (inserted, "+I", "+U")):
            rows = by_key.get(text, [])
            positions += rows
            operations += [update if is_update else single] * len(rows)
    ordered = changes.take(pa.array(positions, pa.int64()))
    return ordered.append_column(OPERATION, pa.array(operations, pa.string()))


def by_key(changes: pa.Table, key: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Return the rows to write, one per key in its new state, and the keys to delete.

    ``changes`` has all changes of each of its keys, which are unique, with ``__weight``. The rows
    have all columns but that; the keys have those of the key.
    """
    weights = numbers(changes, WEIGHT)
    codes = row_codes([column(changes, name) for name in key], changes.num_rows)
    inserted = np.flatnonzero(weights > 0)
    gone = np.flatnonzero((weights < 0) & ~np.isin(codes, codes[inserted]))
    return (
        take(changes, inserted).drop_columns([WEIGHT]),
        take(changes.select(list(key)), gone),
    )
