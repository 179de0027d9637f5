"""Contents: the sum of deltas, the last change of each key, and keys that are unique.

The contents of a view or a stream, as the sum of its deltas.

Algebra: the identity; the state is the integral of the input::

    Δ output = Δ input

State: the rows, arranged by the key of the layout.
Cost per epoch: O(|Δ| log |Δ|).
NULL: a value like any other.

``CREATE TABLE ... PRIMARY KEY (...)``: the last change of each key wins.

Algebra: not linear. For each key changed, with the current row ``old`` and the last change ``new``
(a row, or nothing if it is a deletion)::

    Δ = new - old

State: the current row, by primary key.
Cost per epoch: O(|Δ| log n).
NULL: a NULL in the key is a value like any other.

``PRIMARY KEY`` of a view: at most one row for each key, and no NULL in it.

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
import pyarrow as pa

from headrace.algebra.operators.protocol import StatefulOperator, StepResult
from headrace.algebra.zset import WEIGHT, Layout, ZSet, row_codes, same_pairs
from headrace.algebra.zset.zset import numbers
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from headrace.algebra.spine import Spine
    from headrace.algebra.zset.order import Ints


@dataclass(frozen=True)
class Integrate(StatefulOperator):
    """Store the input. The output is the consolidated input, in the order of the layout.

    Rows whose total is negative are stored as they are: this operator does not check for them.
    """

    layout: Layout

    @property
    def layouts(self) -> tuple[Layout]:
        """The rows of all inputs so far."""
        return (self.layout,)

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:  # noqa: ARG002
        """Return the consolidated delta, as output and as update."""
        change = ZSet.of(self.layout, inputs[0]).consolidated()
        return StepResult(change.table, (change,))


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
