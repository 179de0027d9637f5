"""The rows of runs near some probes, added up and put in order, and where rows are missing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.algebra.zset import Layout, ZSet, row_codes, same_pairs
from headrace.algebra.zset.order import order_keys, ordered
from headrace.algebra.zset.sums import segment_sums_int64
from headrace.algebra.zset.zset import column, fresh, in_one_piece

if TYPE_CHECKING:
    from headrace.algebra.spine.near_rows import Neighbours
    from headrace.algebra.spine.run import Run
    from headrace.algebra.zset.order import Bools, Ints


ALL = np.int64(2**40)
"""More rows than any group has."""
MORE = 4
"""How many times more rows are read where those read were too few."""


@dataclass(frozen=True, slots=True)
class RowsAround:
    """The rows around changed rows, the *probes*, each once: group by group, in order.

    Their positions are ``at`` in ``source``; ``old`` and ``new`` are their weights before and after
    the epoch. Of each probe, ``probes`` has the index among these rows, ``starts`` and ``stops``
    the bounds of its group, ``low`` and ``high`` the first and the last index between which no row
    is missing. Its group has more rows before ``low`` if it is ``open_left``, and after ``high``
    if it is ``open_right``. If rows are ``mixed``, those of one hash are of several keys.
    """

    source: ZSet
    near: Neighbours
    at: Ints
    entries: Ints
    """For each row of ``source``, its index."""
    groups: Ints
    old: Ints
    new: Ints
    probes: Ints
    starts: Ints
    stops: Ints
    low: Ints
    high: Ints
    open_left: Bools
    open_right: Bools
    mixed: bool

    @classmethod
    def of(cls, probes: ZSet, near: Neighbours) -> RowsAround:
        """Add the rows that were read near probes to these."""
        count = probes.rows
        source = ZSet(probes.layout, in_one_piece(probes.plus(near.rows).table))
        heads = fresh(probes.hashes).nonzero()[0]
        codes = probes.hashes[heads].searchsorted(source.hashes)
        mixed = not same_pairs(source.keys, None, probes.keys, heads[codes]).all()
        if mixed:
            codes = row_codes([pa.array(codes), *source.keys], source.rows)
            codes = np.unique(codes, return_inverse=True)[1]
        order, first = source.in_blocks(codes)
        starts = first.nonzero()[0]
        entries = np.empty(source.rows, np.int64)
        entries[order] = np.cumsum(first) - 1
        weights, at = source.weights[order], order[starts]
        new = segment_sums_int64(weights, starts)
        old = segment_sums_int64(np.where(order < count, 0, weights), starts)
        groups = codes[at]
        index, rows = entries[:count], len(at)
        bounds = np.append(fresh(groups).nonzero()[0], rows)
        group = bounds.searchsorted(index, "right") - 1
        read = entries[count:]
        low = _at(near.left, read, 0).max(axis=0, initial=0)
        high = _at(near.right, read, rows - 1).min(axis=0, initial=rows - 1)
        return cls(
            source,
            near,
            at,
            entries,
            groups,
            old,
            new,
            index,
            bounds[group],
            bounds[group + 1],
            low,
            high,
            np.asarray((near.left >= 0).any(axis=0)),
            np.asarray((near.right >= 0).any(axis=0)),
            mixed,
        )

    def back(self, index: Ints, count: int) -> Ints:
        """Return indexes so many rows before others, in both versions, in the group."""
        if not count:
            return index
        found = index
        for sums in self._sums:
            before = sums.searchsorted(sums[index] - count, "right") - 1
            found = np.minimum(found, before)
        return np.maximum(found, self.starts)

    def ahead(self, index: Ints, count: int) -> Ints:
        """Return indexes so many rows after others, in both versions, in the group."""
        if not count:
            return index
        found = index
        for sums in self._sums:
            found = np.maximum(found, sums.searchsorted(sums[index] + count))
        return np.minimum(found, self.stops)

    @property
    def _sums(self) -> tuple[Ints, Ints]:
        """The number of rows before each index, in both versions."""
        before, after = np.zeros((2, len(self.at) + 1), np.int64)
        np.cumsum(self.old.clip(0), out=before[1:])
        np.cumsum(self.new.clip(0), out=after[1:])
        return before, after

    def by_value(
        self, layout: Layout, lowers: tuple[str, ...], uppers: tuple[str, ...]
    ) -> tuple[Ints, Ints, Ints]:
        """Return numbers that compare as the values of rows and the bounds of their frames do.

        All ascend, group by group. The bounds are columns; of several, it is the outermost.
        """
        by, rows = layout.order[0], len(self.at)
        names = (by.name, *lowers, *uppers)
        at = pa.array(self.at)
        columns = [column(self.source.table, name).take(at) for name in names]
        every = pa.concat_arrays(columns)
        order, codes = ordered(np.zeros(len(every), np.int64), order_keys(every, by))
        numbers = np.empty(len(every), np.int64)
        numbers[order] = codes
        numbers = numbers.reshape(len(names), rows) + self.groups * (int(codes[-1]) + 1)
        bounds = 1 + len(lowers)
        return numbers[0], numbers[1:bounds].min(axis=0), numbers[bounds:].max(axis=0)

    def starts_of_ties(self, layout: Layout, columns: int) -> Ints:
        """Return for each row the index of the first one that is equal by some order columns.

        For the index after the last row, that is itself.
        """
        by = replace(layout, order=layout.order[:columns])
        taken = ZSet(by, self.source.take(self.at).table)
        first = taken.starts_of_ties() | fresh(self.groups)
        places = np.where(first, np.arange(len(first)), 0)
        return np.append(np.maximum.accumulate(places), len(first))

    def before(self, probes: Ints, begin: Ints) -> list[tuple[Run, Ints, Ints]]:
        """Return where the rows of the groups of probes are that are before an index, by run.

        What is after the index is read to the end of each group.
        """
        if self.mixed:
            return []  # their groups are read whole
        found, read, near = [], self.entries[len(self.probes) :], self.near
        for i, run in enumerate(near.runs):
            own = read[near.offsets[i] : near.offsets[i + 1]]
            starts, stops = near.starts[i, probes], near.stops[i, probes]
            places = own.searchsorted(begin)
            positions = np.append(near.positions[i], 0)[places]
            inside = (places < len(own)) & (positions < stops) & (positions >= starts)
            found.append((run, starts, np.where(inside, positions, stops)))
        return found


def _at(places: Ints, entries: Ints, absent: int) -> Ints:
    """Return the indexes of rows that were read, by run and probe; -1 stands for no row."""
    if not len(entries):
        return np.full(places.shape, absent)
    return np.where(places >= 0, entries[places], absent)
