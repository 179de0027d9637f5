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
import pyarrow as pa

from headrace.spine.narrowing import pairs_of
from headrace.zset import ZSet, same_pairs
from headrace.zset.zset import fresh, numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.spine.run import Run
    from headrace.zset import Layout
    from headrace.zset.equality import Bools, Ints

FIRST_READ = 32
"""The most rows of a key that are read from a run at first."""

_LAST = "__last"
"""The number of runs whose last read row is this one, though their block has more rows."""


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


def heads(runs: Sequence[Run], layout: Layout, hashes: Ints, most: int) -> tuple[Ints, ZSet, int]:
    """Return the sum of the first ``most`` rows of each hash in each run, as far as it is complete.

    ``hashes`` ascends. Returns for each row the position of its hash, ascending; the rows, in
    order; and the number of rows read. The sums include ``__last``: it is not 0 in the last row of
    a hash whose rows were not all read. Rows whose other sums are all zero are left out, except
    that last one.
    """
    counted = layout.with_summed(pa.field(_LAST, pa.int64()))
    parts = []
    for run in runs:
        starts, stops = run.blocks(hashes)
        counts = np.minimum(stops - starts, most)
        probes, rows = pairs_of(starts, counts)
        if len(rows) == 0:
            continue
        last = np.zeros(len(rows), np.int64)
        last[np.cumsum(counts)[(stops - starts) > most] - 1] = 1
        columns = [pa.array(probes), *run.take(rows).columns[1:], pa.array(last)]
        parts.append(ZSet(counted, pa.Table.from_arrays(columns, schema=counted.schema)))
    read = sum(part.rows for part in parts)
    # Rows are grouped by the position of the hash instead of the hash, which may occur twice in
    # ``hashes``. The rows of a single run are consolidated already.
    found = parts[0] if len(parts) == 1 else ZSet.sum_of(counted, parts).consolidated()
    probes = found.hashes
    certain = _before(fresh(probes), numbers(found.table, _LAST)) == 0
    found = found.filter(certain)
    return probes[certain], found, read


def ranked(
    layout: Layout, probes: Ints, found: ZSet, keys: Sequence[pa.Array], rank: Rank, count: int
) -> tuple[Ranked, Ints]:
    """Rank the rows that :func:`heads` returned; return those of rank ``count`` or less.

    ``keys`` are the keys to look up, by probe; rows of other keys are left out. Also returns the
    probes, ascending, for which more rows have to be read.
    """
    own = same_pairs(found.keys, None, keys, probes)
    # Clipping weights to the count changes no rank up to it, and keeps sums from overflowing.
    copies = np.where(own, found.weights.clip(0, count), 0)
    ranks = _ranks(probes, found, copies, rank)
    reached = ranks + copies if rank is Rank.ROW_NUMBER else ranks
    more = numbers(found.table, _LAST) > 0
    short = probes[more & (reached <= count)]
    rows = ZSet(layout, found.table.drop_columns([_LAST]))
    # The last row read of a hash may have been kept only to carry ``__last``.
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
    sums = np.cumsum(values) - values
    starts = np.flatnonzero(first)
    return np.asarray(sums - np.repeat(sums[starts], np.diff(starts, append=len(values))))
