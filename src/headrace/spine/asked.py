"""Answer which rows of some keys are the first, from a place in the order on, if one is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.spine.first_rows import FIRST_READ, Heads, Rank, Ranked, complete, heads_of, ranked
from headrace.spine.narrowing import first_not_before

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.spine.run import Run
    from headrace.zset import Layout
    from headrace.zset.equality import Ints


@dataclass(slots=True)
class Reads:
    """The cost of lookups so far: the number of physical rows they read from runs."""

    rows: int = 0


@dataclass(frozen=True, slots=True)
class CountedRuns:
    """The runs that rows are read from, and what counts them."""

    layout: Layout
    runs: Sequence[Run]
    reads: Reads

    def first(self, hashes: Ints, most: int, since: Ints | None = None) -> Heads:
        """Return the first rows of hashes, which ascend, reading ``most`` of each run."""
        blocks = None
        if since is not None:
            blocks = []
            for run in self.runs:
                starts, stops = run.blocks(hashes)
                starts, read = first_not_before(run, self.layout.order[0], starts, stops, since)
                self.reads.rows += read
                blocks.append((starts, stops))
        heads = heads_of(self.layout, self.runs, hashes, most, blocks)
        self.reads.rows += len(heads.probes)
        return complete(heads)


@dataclass(frozen=True, slots=True)
class AskedRows:
    """Keys whose first rows are asked for, by ascending hash.

    ``order`` is the order of the keys by hash; None if they were sorted. ``within`` are the
    positions of those in the range of the spine. ``since`` are the values of the order from which
    rows are wanted.
    """

    hashes: Ints
    keys: Sequence[pa.Array]
    order: Ints | None
    within: Ints
    count: int
    rank: Rank
    since: Ints | None = None

    @property
    def most(self) -> int:
        """The number of rows to read at first of each key and run.

        One row more than needed: it shows whether rows tie, and replaces one retracted row.
        """
        return min(self.count + 1, FIRST_READ)

    def keys_of(self, pending: Ints) -> Sequence[pa.Array]:
        """Return the keys at some positions, which ascend."""
        if len(pending) == len(self.hashes):
            return self.keys
        return [values.take(pa.array(pending)) for values in self.keys]

    def read(self, source: CountedRuns, pending: Ints, most: int) -> Heads:
        """Return the first rows of the keys at some positions."""
        since = None if self.since is None else self.since[pending]
        return source.first(self.hashes[pending], most, since)


def answered(source: CountedRuns, asked: AskedRows) -> Ranked:
    """Return the first rows of each key; if those read at first are too few, twice as many."""
    found, most, pending = Ranked.none(source.layout), asked.most, asked.within
    while len(pending):
        heads = asked.read(source, pending, most)
        part, short = ranked(heads, asked.keys_of(pending), asked.rank, asked.count)
        if len(short):
            unanswered = np.zeros(len(pending), np.bool_)
            unanswered[short] = True
            part = part.where(~unanswered[part.probes])
        found = found.plus(Ranked(pending[part.probes], part.rows, part.ranks))
        pending, most = pending[short], 2 * most
    probes = found.probes if asked.order is None else asked.order[found.probes]
    return Ranked(probes, found.rows, found.ranks)
