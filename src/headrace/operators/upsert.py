"""``CREATE TABLE ... PRIMARY KEY (...)``: the last change of each key wins.

Algebra: not linear. For each key changed, with the current row ``old`` and the last change ``new``
(a row, or nothing if it is a deletion)::

    Δ = new - old

State: the current row, by primary key.
Cost per epoch: O(|Δ| log n).
NULL: a NULL in the key is a value like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.operators.protocol import StatefulOperator, StepResult
from headrace.zset import WEIGHT, Layout, ZSet, row_codes, same_pairs
from headrace.zset.zset import numbers

if TYPE_CHECKING:
    from headrace.spine import Spine
    from headrace.zset.equality import Ints

OFFSET = "__offset"
"""The input column with the position of a change in the log (int64)."""


@dataclass(frozen=True)
class Upsert(StatefulOperator):
    """Keep the last row of each key.

    ``layout``: the key is the primary key, the identity columns are the whole row, ``__weight`` is
    the only sum. The input has the columns of the layout and ``__offset``; ``__weight`` is +1 to
    insert or replace, -1 to delete by key, which ignores all other columns. Of the changes of one
    key, the one with the highest offset wins; among equal offsets, the last one in the table.
    The output has the physical schema of the layout and is consolidated: -1 for the old row, +1
    for the new one, nothing if they are the same or if an absent key is deleted.
    """

    layout: Layout

    def __post_init__(self) -> None:
        if self.layout.summed.names != [WEIGHT]:
            raise HeadraceError(Code.INTERNAL, "a table with a primary key has accumulators")
        if self.layout.order:
            raise HeadraceError(Code.INTERNAL, "a table with a primary key has an order")

    @property
    def layouts(self) -> tuple[Layout]:
        """The current rows, by primary key."""
        return (self.layout,)

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:
        """Return the delta of the table, as output and as update."""
        changes = ZSet.of(self.layout, inputs[0])
        if (np.abs(changes.weights) != 1).any():
            raise HeadraceError(Code.INTERNAL, "a change by key neither upserts nor deletes")
        last = _last_by_key(changes, numbers(inputs[0], OFFSET))
        asked = pa.array(last)
        keys = [key.take(asked) for key in changes.keys]
        probes, old = before[0].lookup(changes.hashes[last], keys)
        if (old.weights != 1).any() or (probes[1:] == probes[:-1]).any():
            raise HeadraceError(Code.INTERNAL, "a primary key has more than one row")
        inserted = changes.weights[last] > 0
        replaced = inserted[probes].nonzero()[0]
        identity = changes.identity
        same = same_pairs(old.identity, replaced, identity, last[probes[replaced]])
        inserted[probes[replaced[same]]] = False
        retracted = np.ones(old.rows, np.bool_)
        retracted[replaced[same]] = False
        rows = np.concatenate([last[inserted], changes.rows + retracted.nonzero()[0]])
        both = changes.plus(old.negated())
        change = both.take(rows[both.hashes[rows].argsort(kind="stable")])
        return StepResult(change.table, (change,))


def _last_by_key(changes: ZSet, offsets: Ints) -> Ints:
    """Return the position of the last change of each key, sorted by hash."""
    hashes = changes.hashes
    codes, keys = hashes, changes.keys
    order = _by_offset(codes, offsets)
    same = (codes[order][1:] == codes[order][:-1]).nonzero()[0]
    if not same_pairs(keys, order[same], keys, order[same + 1]).all():
        # Different keys have one hash.
        codes = row_codes(keys, changes.rows)
        order = _by_offset(codes, offsets)
    ascending = codes[order]
    differs = ascending[1:] != ascending[:-1]
    last = order[np.append(differs, np.ones(min(1, len(order)), np.bool_))]
    return last if codes is hashes else np.asarray(last[hashes[last].argsort(kind="stable")])


def _by_offset(codes: Ints, offsets: Ints) -> Ints:
    """Return an order by code, then by offset, then by position."""
    if (offsets[1:] >= offsets[:-1]).all():
        return codes.argsort(kind="stable")
    return np.lexsort((offsets, codes))
