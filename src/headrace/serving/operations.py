"""Deltas as changelogs: a retraction and an insertion of one key are an update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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

CHANGE_COLUMNS: Final = ("headrace_op", "headrace_weight", "headrace_epoch")
"""The columns of a table of changes besides those of the view: operation, weight and epoch."""


def with_operations(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the rows of an epoch's delta, ordered, with their weights and ``__op``.

    The retracted rows of a key precede its inserted rows. Without a unique key there are no
    updates, and all retracted rows precede all inserted ones.
    """
    weights = numbers(changes, WEIGHT)
    retracted, inserted = np.flatnonzero(weights < 0), np.flatnonzero(weights > 0)
    rows = np.concatenate([retracted, inserted])
    gone = np.arange(len(rows)) < len(retracted)
    codes = row_codes([column(changes, name) for name in key], changes.num_rows)
    _, first, group = np.unique(codes[rows], return_index=True, return_inverse=True)
    order = np.argsort(first[group], kind="stable")
    both = np.bincount(group, gone) * np.bincount(group, ~gone) > 0
    update = both[group] if key else np.zeros(len(rows), bool)
    signs = np.where(gone, np.where(update, "-U", "-D"), np.where(update, "+U", "+I"))
    operations = pa.array(signs[order], pa.string())
    return take(changes, rows[order]).append_column(OPERATION, operations)


def by_key(changes: pa.Table, key: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Return the new row of each key, and the keys to delete.

    ``changes`` has all changes of each of its keys, which are unique, with ``__weight``. The rows
    have all columns but the weight; the deleted keys have the key's columns.
    """
    weights = numbers(changes, WEIGHT)
    codes = row_codes([column(changes, name) for name in key], changes.num_rows)
    inserted = np.flatnonzero(weights > 0)
    gone = np.flatnonzero((weights < 0) & ~np.isin(codes, codes[inserted]))
    return (
        take(changes, inserted).drop_columns([WEIGHT]),
        take(changes.select(list(key)), gone),
    )
