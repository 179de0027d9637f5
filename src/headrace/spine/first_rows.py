"""The first rows of each key, in the order of the layout, without reading all rows of the key.

The rows of one hash stand in order in every run. So the first ``m`` rows of each run, added up, are
certain up to the least of the last rows read: whatever was not read comes after it. Where that is
not enough, twice as many are read, which makes the cost of all readings twice that of the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.spine.narrowing import pairs_of
from headrace.zset import ZSet, same_rows
from headrace.zset.zset import fresh, numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.spine.run import Run
    from headrace.zset import Layout
    from headrace.zset.equality import Bools, Ints

FIRST_READ = 32
"""The most rows of a key that are taken out of a run at first."""

_LAST = "__last"
"""How many runs were read just up to this row, and have more of the block."""


class Rank(Enum):
    """What the copies of the rows of one key are numbered by, as the functions of SQL do it."""

    ROW_NUMBER = auto()
    """Each copy has a number of its own."""
    RANK = auto()
    """Copies that tie in the order have the number of the first of them."""
    DENSE_RANK = auto()
    """Copies that tie have one number, and the next ones have the next."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """Rows of several keys, each key's in order, and where each row starts.

    ``probes`` ascends and says which key each row has; ``ranks`` is the rank of its first copy.
    Only rows with a positive weight count; others are there with the rank that they would have.
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
        """Return the rows where the mask is true, with the ranks that they have."""
        if kept.all():
            return self
        return Ranked(self.probes[kept], self.rows.filter(kept), self.ranks[kept])

    def plus(self, other: Ranked) -> Ranked:
        """Return the rows of other keys as well, in ascending order."""
        if len(self.probes) == 0 or len(other.probes) == 0:
            return other if len(self.probes) == 0 else self
        probes = np.concatenate([self.probes, other.probes])
        order = np.argsort(probes, kind="stable")
        ranks = np.concatenate([self.ranks, other.ranks])
        return Ranked(probes[order], self.rows.plus(other.rows).take(order), ranks[order])


def heads(runs: Sequence[Run], layout: Layout, hashes: Ints, most: int) -> tuple[Ints, ZSet, int]:
    """Add up the first ``most`` rows of each ascending hash in each run, as far as that is certain.

    Returns the position of its hash for each row, ascending, the rows in order, and how many rows
    were read. The sums include ``__last``, which is not 0 in the last certain row of a hash, if
    not all of its rows are there. Rows whose sums are all zero are left out, but for the last.
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
    # The position of the hash stands in for it: a hash may be asked for twice. One run comes
    # consolidated as it is.
    found = parts[0] if len(parts) == 1 else ZSet.sum_of(counted, parts).consolidated()
    probes = found.hashes
    certain = _before(fresh(probes), numbers(found.table, _LAST)) == 0
    found = found.filter(certain)
    return probes[certain], found, read


def ranked(
    layout: Layout, probes: Ints, found: ZSet, keys: Sequence[pa.Array], rank: Rank, count: int
) -> tuple[Ranked, Ints]:
    """Number the rows that :func:`heads` found; return those of rank ``count`` or less.

    ``keys`` are those asked for, by position; rows with other keys are left out. Also returns the
    probes for which more has to be read, ascending: their rows are not all there.
    """
    positions = pa.array(probes)
    own = same_rows(found.keys, [values.take(positions) for values in keys], found.rows)
    # A weight above the count changes no rank up to it, and could overflow when added up.
    copies = np.where(own, found.weights.clip(0, count), 0)
    ranks = _ranks(probes, found, copies, rank)
    reached = ranks + copies if rank is Rank.ROW_NUMBER else ranks
    more = numbers(found.table, _LAST) > 0
    short = probes[more & (reached <= count)]
    rows = ZSet(layout, found.table.drop_columns([_LAST]))
    # The last row may be there for its mark alone.
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
    there = (np.add.reduceat(copies, heads_of_ties) > 0).astype(np.int64)
    return np.asarray(_before(first[heads_of_ties], there)[tie] + 1)


def _before(first: Bools, values: Ints) -> Ints:
    """Add up the values before each one, starting again where it is ``first``."""
    if len(values) == 0:
        return values
    sums = np.cumsum(values) - values
    starts = np.flatnonzero(first)
    return np.asarray(sums - np.repeat(sums[starts], np.diff(starts, append=len(values))))
