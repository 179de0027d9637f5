"""Find the first rows of each key, in the order of the layout, without reading all of them.

Every run sorts the rows of one hash in that order. So the sum of the first ``m`` rows of each run
is complete up to the least of the last rows read: every unread row is after it. If more rows are
needed, ``m`` is doubled, so all reads together cost about twice as much as the last one.

Answer which rows of some keys are the first, from a place in the order on, if one is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.algebra.spine.near_rows import first_not_before, pairs_of
from headrace.algebra.spine.pack import in_blocks_of_runs
from headrace.algebra.spine.run import Run, take_of
from headrace.algebra.zset import ZSet, same_pairs
from headrace.algebra.zset.sums import segment_sums_int64
from headrace.algebra.zset.zset import fresh, in_one_piece, take

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.algebra.spine.run import Pairs
    from headrace.algebra.zset import Layout
    from headrace.algebra.zset.order import Bools, Ints


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
class FirstOf:
    """The weights and ranks of the rows of :class:`Around` before or after the change.

    ``weights`` are 0 where a row is not among the first ones; only there a rank has no meaning.
    """

    weights: Ints
    ranks: Ints

    def at(self, rows: Ints | Bools) -> FirstOf:
        """Return the weights and ranks at some positions."""
        return FirstOf(self.weights[rows], self.ranks[rows])

    def plus(self, other: FirstOf) -> FirstOf:
        """Return these weights and ranks, then others."""
        return FirstOf(
            np.concatenate([self.weights, other.weights]), np.concatenate([self.ranks, other.ranks])
        )


@dataclass(frozen=True, slots=True)
class Around:
    """Rows of several keys that are among the first of their key before a change, or after it.

    ``probes`` ascends: the position of each row's key. The rows of each key are different rows, in
    order, at the positions ``at`` of ``source``, whose own weights have no meaning.
    """

    probes: Ints
    source: ZSet
    at: Ints
    before: FirstOf
    after: FirstOf

    def ranked(self, state: FirstOf) -> Ranked:
        """Return the first rows before the change, or after it."""
        shown = state.weights.nonzero()[0]
        rows = self.source.take(self.at[shown]).with_weights(state.weights[shown])
        return Ranked(self.probes[shown], rows, state.ranks[shown])

    def weighed(self, layout: Layout, weights: Ints) -> ZSet:
        """Return the rows as a consolidated Z-set with other weights.

        ``layout`` has the same columns.
        """
        kept = weights.nonzero()[0]
        found = ZSet(self.source.layout, take(self.source.table, self.at[kept]))
        found = found.with_weights(weights[kept])
        hashes = found.hashes
        first = fresh(self.probes[kept])
        # Rows of one key are in order; those of different keys with one hash may not be.
        if (fresh(hashes) | ~first).all() or not layout.order:
            return ZSet(layout, found.table)
        return found.consolidated()

    def where(self, kept: Bools) -> Around:
        """Return the rows where the mask is true."""
        return Around(
            self.probes[kept],
            self.source,
            self.at[kept],
            self.before.at(kept),
            self.after.at(kept),
        )

    def plus(self, other: Around) -> Around:
        """Return the union with the rows of other keys, by ascending probe."""
        if len(self.probes) == 0 or len(other.probes) == 0:
            return other if len(self.probes) == 0 else self
        probes = np.concatenate([self.probes, other.probes])
        order = np.argsort(probes, kind="stable")
        at = np.concatenate([self.at, other.at + self.source.rows])
        return Around(
            probes[order],
            self.source.plus(other.source),
            at[order],
            self.before.plus(other.before).at(order),
            self.after.plus(other.after).at(order),
        )


@dataclass(frozen=True, slots=True)
class Heads:
    """The first rows of each hash in one or several runs, one run after the other.

    ``probes`` has the position of each row's hash, and ``runs`` the number of its run. The rows of
    one hash and run are in order, and hashes ascend in each run. ``last`` is not 0 in the last row
    read of a run whose block has more rows.
    """

    probes: Ints
    rows: ZSet
    last: Ints
    runs: Ints

    def of(self, hashes: Ints) -> Heads:
        """Return the rows of some hashes, by position; a hash may be asked for several times.

        All rows must be of one run.
        """
        starts = self.probes.searchsorted(hashes)
        probes, rows = pairs_of(starts, self.probes.searchsorted(hashes, "right") - starts)
        return Heads(probes, self.rows.take(rows), self.last[rows], self.runs[rows])

    def then(self, other: Heads) -> Heads:
        """Return these rows, then those of further runs; their runs get the next numbers."""
        next_ = self.runs[-1:] + 1 if len(self.runs) else 0
        rows = ZSet.sum_of(self.rows.layout, [self.rows, other.rows])
        return Heads(
            np.concatenate([self.probes, other.probes]),
            ZSet(rows.layout, in_one_piece(rows.table)),
            np.concatenate([self.last, other.last]),
            np.concatenate([self.runs, other.runs + next_]),
        )


def heads_of(
    layout: Layout,
    runs: Sequence[Run],
    hashes: Ints,
    most: int,
    blocks: Sequence[Pairs] | None = None,
) -> Heads:
    """Return the first ``most`` rows of each hash in each run; ``hashes`` ascends.

    ``blocks`` are the start and the stop of the rows of each hash that are wanted, by run; by
    default all.
    """
    nothing = np.zeros(0, np.int64)
    if not runs or not len(hashes):
        return Heads(nothing, ZSet.empty(layout), nothing, nothing)
    if blocks is None:
        blocks = [run.blocks(hashes) for run in runs]
    starts = np.concatenate([start for start, _ in blocks])
    sizes = np.concatenate([stop for _, stop in blocks]) - starts
    counts = np.minimum(sizes, most)
    which, rows = pairs_of(starts, counts)
    last = np.zeros(len(rows), np.int64)
    more = sizes > most
    if more.any():
        last[counts.cumsum()[more] - 1] = 1
    number, probes = np.divmod(which, len(hashes))
    bounds = which.searchsorted(np.arange(len(runs) + 1) * len(hashes))
    positions = [rows[bounds[i] : bounds[i + 1]] for i in range(len(runs))]
    return Heads(probes, ZSet(layout, take_of(layout, runs, positions)), last, number)


def complete(found: Heads) -> Heads:
    """Return the sum of the first rows of several runs, as far as it is complete.

    Rows whose sums are all zero are left out, except those where ``last`` is not 0.
    """
    if len(found.runs) and found.runs[0] != found.runs[-1]:
        found = _added(found)
    if not found.last.any():
        return found
    certain = _before(fresh(found.probes), found.last) == 0
    return Heads(
        found.probes[certain], found.rows.filter(certain), found.last[certain], found.runs[certain]
    )


def _added(read: Heads) -> Heads:
    order, first = in_blocks_of_runs(read.rows, read.probes, read.runs)
    heads, total = read.rows.added(order, first, zeros=True)
    last = np.add.reduceat(read.last[order], first.nonzero()[0])
    kept = (last != 0) | total.any_sum
    probes = read.probes[heads][kept]
    return Heads(probes, total.filter(kept), last[kept], np.zeros(len(probes), np.int64))


def ranked(found: Heads, keys: Sequence[pa.Array], rank: Rank, count: int) -> tuple[Ranked, Ints]:
    """Rank the rows of :func:`complete`; return those of rank ``count`` or less.

    ``keys`` are the keys to look up, by probe; rows of other keys are left out. Also returns the
    probes, ascending, for which more rows have to be read.
    """
    probes, rows = found.probes, found.rows
    own = same_pairs(rows.keys, None, keys, probes)
    # Clipping weights to the count changes no rank up to it, and keeps sums from overflowing.
    copies = np.where(own, rows.weights.clip(0, count), 0)
    ties = None if rank is Rank.ROW_NUMBER else rows.starts_of_ties()
    ranks = _ranks(probes, ties, copies, rank)
    reached = ranks + copies if rank is Rank.ROW_NUMBER else ranks
    short = probes[(found.last > 0) & (reached <= count)]
    # The last row read of a hash may have been kept only for that.
    kept = own & (ranks <= count) & rows.any_sum
    return Ranked(probes, rows, ranks).where(kept), short


def around(
    read: Heads, changed: Bools, keys: Sequence[pa.Array], rank: Rank, count: int
) -> tuple[Around, Ints]:
    """Return the rows of rank ``count`` or less before or after a change, and what is unanswered.

    ``read`` are rows of several runs; ``changed`` marks those of the change. They have no sums but
    the weight. ``keys`` are the keys to look up, by probe. Also returns the probes, ascending, for
    which more rows have to be read; no row of these is returned.
    """
    source, last, weights = read.rows, read.last, read.rows.weights
    if len(read.runs) and read.runs[0] != read.runs[-1]:
        order, first = in_blocks_of_runs(source, read.probes, read.runs)
        starts = first.nonzero()[0]
        weights, last, changed = weights[order], last[order], changed[order]
        at = order[starts]
    else:
        starts = at = np.arange(len(changed))
    probes = read.probes[at]
    own = same_pairs(source.keys, at, keys, probes)
    new_key = fresh(probes)
    ties = None if rank is Rank.ROW_NUMBER else source.take(at).starts_of_ties()
    found, short = [], []
    for counts, ends in (
        (np.where(changed, 0, weights), np.where(changed, 0, last)),
        (weights, last),
    ):
        totals = segment_sums_int64(counts, starts)
        copies = np.where(own, totals.clip(0, count), 0)
        ranks = _ranks(probes, ties, copies, rank)
        shown = own & (ranks <= count)
        if ends.any():
            ended = np.add.reduceat(ends, starts)
            certain = _before(new_key, ended) == 0
            reached = ranks + copies if rank is Rank.ROW_NUMBER else ranks
            short.append(probes[(ended > 0) & certain & (reached <= count)])
            shown &= certain
        found.append(FirstOf(np.where(shown, totals, 0), ranks))
    before, after = found
    kept = (before.weights != 0) | (after.weights != 0)
    unanswered = np.unique(np.concatenate(short)) if short else probes[:0]
    if len(unanswered):
        kept &= ~np.isin(probes, unanswered)
    return Around(probes, source, at, before, after).where(kept), unanswered


def _ranks(probes: Ints, ties: Bools | None, copies: Ints, rank: Rank) -> Ints:
    """Return the rank of the first copy of each row; ``ties`` marks where the order differs."""
    first = fresh(probes)
    if ties is None or len(probes) == 0:
        return _before(first, copies) + 1
    heads_of_ties = np.flatnonzero(first | ties)
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
