"""Find the first rows of each key, in the order of the layout, without reading all of them.

Every run sorts the rows of one hash in that order. So the sum of the first ``m`` rows of each run
is complete up to the least of the last rows read: every unread row is after it. If more rows are
needed, ``m`` is doubled, so all reads together cost about twice as much as the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

import numpy as np

from headrace.spine.blocks import in_blocks_of_runs
from headrace.spine.narrowing import pairs_of
from headrace.zset import ZSet, same_pairs
from headrace.zset.zset import fresh

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from headrace.spine.run import Run
    from headrace.zset import Layout
    from headrace.zset.equality import Bools, Ints

FIRST_READ = 32
"""The most rows of a key that are read from a run at first."""


class Rank(Enum):
    """How the copies of the rows of one key are numbered, as in SQL's functions of these names."""

    ROW_NUMBER = auto()
    """Each copy has its own number."""
    RANK = auto()
    """Copies that tie in the order have the row number of the first of them."""
    DENSE_RANK = auto()
    """Copies that tie have the same number; the following copies have the next number."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """Rows of several keys, each key's rows in order, with their ranks.

    ``probes`` ascends: the position of each row's key. ``ranks`` has the rank of each row's first
    copy. Only rows with a positive weight count; other rows have the rank they would have had.
    """

    probes: Ints
    rows: ZSet
    ranks: Ints

    @classmethod
    def none(cls, layout: Layout) -> Ranked:
        """Return no rows."""
        nothing = np.zeros(0, np.int64)
        return cls(nothing, ZSet.empty(layout), nothing)

    def where(self, kept: Bools) -> Ranked:
        """Return the rows where the mask is true; their ranks stay."""
        if kept.all():
            return self
        return Ranked(self.probes[kept], self.rows.filter(kept), self.ranks[kept])

    def plus(self, other: Ranked) -> Ranked:
        """Return the union with the rows of other keys, by ascending probe."""
        if len(self.probes) == 0 or len(other.probes) == 0:
            return other if len(self.probes) == 0 else self
        probes = np.concatenate([self.probes, other.probes])
        order = np.argsort(probes, kind="stable")
        ranks = np.concatenate([self.ranks, other.ranks])
        return Ranked(probes[order], self.rows.plus(other.rows).take(order), ranks[order])


@dataclass(frozen=True, slots=True)
class Heads:
    """The first rows of each hash in one or several runs, each hash's rows in order.

    ``probes`` ascends: the position of each row's hash. ``last`` is not 0 in the last row read of a
    run whose block has more rows.
    """

    probes: Ints
    rows: ZSet
    last: Ints


def heads_of(run: Run, hashes: Ints, most: int) -> Heads:
    """Return the first ``most`` rows of each hash in a run; ``hashes`` ascends."""
    starts, stops = run.blocks(hashes)
    sizes = stops - starts
    counts = np.minimum(sizes, most)
    probes, rows = pairs_of(starts, counts)
    last = np.zeros(len(rows), np.int64)
    if (sizes > most).any():
        last[np.cumsum(counts)[sizes > most] - 1] = 1
    return Heads(probes, ZSet(run.layout, run.take(rows)), last)


def complete(layout: Layout, parts: Sequence[Heads]) -> Heads:
    """Return the sum of the first rows of several runs, as far as it is complete.

    Rows whose sums are all zero are left out, except those where ``last`` is not 0.
    """
    parts = [part for part in parts if len(part.probes)]
    if not parts:
        nothing = np.zeros(0, np.int64)
        return Heads(nothing, ZSet.empty(layout), nothing)
    found = parts[0] if len(parts) == 1 else _added(layout, parts)
    if not found.last.any():
        return found
    certain = _before(fresh(found.probes), found.last) == 0
    return Heads(found.probes[certain], found.rows.filter(certain), found.last[certain])


def _added(layout: Layout, parts: Sequence[Heads]) -> Heads:
    probes, last = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("probes", "last")
    )
    rows = ZSet.sum_of(layout, [part.rows for part in parts])
    runs = np.repeat(np.arange(len(parts)), [len(part.probes) for part in parts])
    order, first = in_blocks_of_runs(rows, probes, runs)
    heads, total = rows.added(order, first, zeros=True)
    last = np.add.reduceat(last[order], first.nonzero()[0])
    kept = (last != 0) | total.any_sum
    return Heads(probes[heads][kept], total.filter(kept), last[kept])


def ranked(found: Heads, keys: Sequence[pa.Array], rank: Rank, count: int) -> tuple[Ranked, Ints]:
    """Rank the rows of :func:`complete`; return those of rank ``count`` or less.

    ``keys`` are the keys to look up, by probe; rows of other keys are left out. Also returns the
    probes, ascending, for which more rows have to be read.
    """
    probes, rows = found.probes, found.rows
    own = same_pairs(rows.keys, None, keys, probes)
    # Clipping weights to the count changes no rank up to it, and keeps sums from overflowing.
    copies = np.where(own, rows.weights.clip(0, count), 0)
    ranks = _ranks(probes, rows, copies, rank)
    reached = ranks + copies if rank is Rank.ROW_NUMBER else ranks
    short = probes[(found.last > 0) & (reached <= count)]
    # The last row read of a hash may have been kept only for that.
    kept = own & (ranks <= count) & rows.any_sum
    return Ranked(probes, rows, ranks).where(kept), short


def _ranks(probes: Ints, found: ZSet, copies: Ints, rank: Rank) -> Ints:
    """Return the rank of the first copy of each row."""
    first = fresh(probes)
    if rank is Rank.ROW_NUMBER or len(probes) == 0:
        return _before(first, copies) + 1
    heads_of_ties = np.flatnonzero(first | found.starts_of_ties())
    tie = np.zeros(len(probes), np.int64)
    tie[heads_of_ties[1:]] = 1
    tie = np.cumsum(tie)
    if rank is Rank.RANK:
        return np.asarray(_before(first, copies)[heads_of_ties][tie] + 1)
    present = (np.add.reduceat(copies, heads_of_ties) > 0).astype(np.int64)
    return np.asarray(_before(first[heads_of_ties], present)[tie] + 1)


def _before(first: Bools, values: Ints) -> Ints:
    """Return for each value the sum of those before it, restarting where ``first`` is true."""
    if len(values) == 0:
        return values
    sums = values.cumsum() - values
    return np.asarray(sums - sums[first][first.cumsum() - 1])
