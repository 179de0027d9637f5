"""The delta of the rows with and without a partner: the rule of outer, semi and anti joins.

With ``n(k)`` the number of rows of the other side with key ``k``, the rows of ``L`` with and
without a partner are ``L[n > 0]`` and ``L[n = 0]``. If both sides change, the left by the inserted
rows ``L⁺`` and the retracted rows ``L⁻``, then for either predicate ``p``::

    Δ L[p(n)] = L⁺[p(n + Δn)] - L⁻[p(n)] + (L - L⁻)[p(n + Δn)] - (L - L⁻)[p(n)]

so besides the changed rows, only those rows change whose key gains its first partner (``n`` goes
from 0 to more) or loses its last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.spine import Spine
from headrace.zset import HASH, WEIGHT, Layout, ZSet

if TYPE_CHECKING:
    from headrace.zset.equality import Ints


def counts_layout(side: Layout) -> Layout:
    """Return the layout of the number of a side's rows by key."""
    columns = pa.schema([side.columns.field(name) for name in dict.fromkeys(side.key)])
    return Layout(side.key, columns, side.summed)


def counted(rows: ZSet, layout: Layout) -> ZSet:
    """Return the delta of the number of rows by key, consolidated, for the delta of a side.

    ``layout`` is the :func:`counts_layout` of the side.
    """
    if not rows.rows:
        return ZSet.empty(layout)
    return ZSet(layout, rows.table.select([HASH, *layout.columns.names, WEIGHT])).consolidated()


@dataclass(frozen=True, slots=True)
class PartnerDeltas:
    """The deltas of the rows with and without a partner; neither is consolidated."""

    matched: ZSet
    unmatched: ZSet


def partner_deltas(
    change: ZSet, rows: Spine, counts_change: ZSet, counts: Spine, seen: Ints | None = None
) -> PartnerDeltas:
    """Return the deltas of one side's rows with and without a partner.

    ``change`` is the delta of the side, ``counts_change`` that of the other side's row counts by
    key, both consolidated; ``rows`` and ``counts`` are the state before. ``seen`` are the counts of
    the partners of the changed rows, if they are known. Raises ``internal`` if
    the other side would have a negative number of rows for a key.
    """
    _, retracted = change.by_sign()
    if seen is None:
        seen = _partners(change, counts_change, counts)
    present = seen > 0
    matched, unmatched = [change.filter(present)], [change.filter(~present)]
    # The other rows are affected only if the count of their key becomes zero or positive.
    old = counts.weights_under(counts_change.hashes, counts_change.keys)
    new = old + counts_change.weights
    if (new < 0).any():
        raise HeadraceError(
            Code.INTERNAL,
            "a side of a join has a negative number of rows",
            detail="The input of the join deletes a row that was never inserted.",
        )
    crossing = np.flatnonzero((old > 0) != (new > 0))
    touched = counts_change.take(crossing)
    probes, stored = rows.plus(retracted).lookup(touched.hashes, touched.keys)
    present = new[crossing][probes] > 0
    matched += [stored.filter(present), stored.filter(~present).negated()]
    unmatched += [stored.filter(~present), stored.filter(present).negated()]
    layout = change.layout
    return PartnerDeltas(ZSet.sum_of(layout, matched), ZSet.sum_of(layout, unmatched))


def _partners(change: ZSet, counts_change: ZSet, counts: Spine) -> Ints:
    """Return the number of partners of each row: after the change if inserted, else before."""
    seen = counts.weights_under(change.hashes, change.keys)
    if counts_change.rows:
        added = Spine(counts.layout).plus(counts_change)
        seen += np.where(change.weights > 0, added.weights_under(change.hashes, change.keys), 0)
    return seen
