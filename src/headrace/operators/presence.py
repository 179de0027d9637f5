"""Which rows have a partner, and how that changes: the rule of outer, semi and anti joins.

With ``n(k)`` the number of rows that the other side has with key ``k``, the rows of ``L`` with and
without a partner are ``L[n > 0]`` and ``L[n = 0]``. When both sides change, the left by the rows
``L⁺`` that come and the rows ``L⁻`` that go::

    Δ L[p(n)] = L⁺[p(n + Δn)] - L⁻[p(n)] + (L - L⁻)[p(n + Δn)] - (L - L⁻)[p(n)]

so besides the changed rows, only those move whose key goes from ``n = 0`` to ``n > 0`` or back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.zset import HASH, WEIGHT, Layout, ZSet

if TYPE_CHECKING:
    from headrace.spine import Spine
    from headrace.zset.equality import Ints


def counts_layout(side: Layout) -> Layout:
    """Return how the number of a side's rows is kept by key."""
    columns = pa.schema([side.columns.field(name) for name in dict.fromkeys(side.key)])
    return Layout(side.key, columns, side.summed)


def counted(rows: ZSet) -> ZSet:
    """Return how rows of a side change the number of rows by key, consolidated."""
    layout = counts_layout(rows.layout)
    return ZSet(layout, rows.table.select([HASH, *layout.columns.names, WEIGHT])).consolidated()


@dataclass(frozen=True, slots=True)
class Moved:
    """How the rows with a partner change, and those without; neither is consolidated."""

    matched: ZSet
    unmatched: ZSet


def moved(change: ZSet, rows: Spine, counts_change: ZSet, counts: Spine) -> Moved:
    """Return how one side's rows move as it changes, and as the other side's counts change.

    ``change`` and ``counts_change`` are consolidated; ``rows`` and ``counts`` are what was before.
    The other side must not have a negative number of rows under any key.
    """
    comes, goes = change.by_sign()
    matched, unmatched = [], []
    for changed, seen in ((comes, counts.plus(counts_change)), (goes, counts)):
        present = _weights(seen, changed) > 0
        matched.append(changed.filter(present))
        unmatched.append(changed.filter(~present))
    # Those that stay move where the count of their key crosses zero.
    old = _weights(counts, counts_change)
    new = old + counts_change.weights
    if (new < 0).any():
        raise HeadraceError(
            Code.INTERNAL,
            "a side of a join has a negative number of rows",
            detail="The input of the join deletes a row that was never inserted.",
        )
    crossing = np.flatnonzero((old > 0) != (new > 0))
    touched = counts_change.take(crossing)
    probes, there = rows.plus(goes).lookup(touched.hashes, touched.keys)
    present = new[crossing][probes] > 0
    matched += [there.filter(present), there.filter(~present).negated()]
    unmatched += [there.filter(~present), there.filter(present).negated()]
    layout = change.layout
    return Moved(ZSet.sum_of(layout, matched), ZSet.sum_of(layout, unmatched))


def _weights(counts: Spine, rows: ZSet) -> Ints:
    """Return the number of rows that the other side has with the key of each row."""
    found = np.zeros(rows.rows, np.int64)
    probes, there = counts.lookup(rows.hashes, rows.keys)
    found[probes] = there.weights
    return found
