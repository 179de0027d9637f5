"""``PRIMARY KEY`` of a view: at most one row for each key, and no NULL in it.

Algebra: a condition on the view's rows ``a``, which has no output of its own. If it holds before a
step, a key without an inserted row cannot break it, so with ``K`` the keys of the rows that ``Δa``
inserts::

    holds(a + Δa)  if  holds(a)  and  holds((a + Δa) at K)

State: none of its own; it reads the view's contents, arranged by the key.
Cost per epoch: O(|Δ| log n).
NULL: not allowed in a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from headrace.spine import Spine
    from headrace.zset import ZSet


@dataclass(frozen=True, slots=True)
class Violation:
    """Rows that violate a key: two with the same key, or one with NULL in it; by column."""

    key: tuple[Any, ...]
    rows: tuple[dict[str, Any], ...]


def violation(before: Spine, change: ZSet) -> Violation | None:
    """Return the first rows of the contents after a change that violate their key, or None.

    ``before`` are the contents by key, which satisfy it; ``change`` is consolidated.
    """
    inserted = change.filter(change.weights > 0)
    for values in inserted.keys:
        if values.null_count:
            absent = values.is_null().to_numpy(zero_copy_only=False)
            return _violation(inserted, np.flatnonzero(absent)[:1])
    first, _ = inserted.keyed()
    touched = inserted.take(first)
    probes, rows = before.plus(change).lookup(touched.hashes, touched.keys)
    copies = np.bincount(probes, weights=rows.weights.clip(0), minlength=touched.rows)
    several = np.flatnonzero(copies > 1)
    if not len(several):
        return None
    mine = np.flatnonzero((probes == several[0]) & (rows.weights > 0))
    return _violation(rows, np.repeat(mine, rows.weights[mine].clip(0, 2))[:2])


def _violation(rows: ZSet, places: np.ndarray[Any, np.dtype[np.int64]]) -> Violation:
    names = rows.layout.columns.names
    shown = tuple(rows.take(places).table.select(names).to_pylist())
    return Violation(tuple(shown[0][name] for name in rows.layout.key), shown)
