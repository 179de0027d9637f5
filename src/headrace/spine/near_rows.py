"""Find the rows near others in the order of the layout, without reading the rest of their keys.

Every run sorts the rows of one hash in that order. So the place of a row in a run is found by
binary search, and the sum of the rows around it is complete between the greatest of the first rows
read and the least of the last ones: every unread row is outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.spine.narrowing import NARROW, pairs_of, searched
from headrace.spine.run import Run, take_of
from headrace.zset import WEIGHT, ZSet
from headrace.zset.zset import fresh

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.zset.equality import Ints


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Rows of several runs near some probes, one run after the other, each row of a run once.

    ``positions`` has, by run, their positions in it, which ascend. By run and probe, ``left`` and
    ``right`` are the first and the last of ``rows`` that were read for a probe, -1 on a side on
    which nothing was left out, and ``starts`` and ``stops`` are the bounds of its hash in the run.
    """

    runs: tuple[Run, ...]
    rows: ZSet
    positions: tuple[Ints, ...]
    left: Ints
    right: Ints
    starts: Ints
    stops: Ints

    @property
    def offsets(self) -> Ints:
        """Where the rows of each run begin among all."""
        sizes = [len(each) for each in self.positions]
        return np.cumsum([0, *sizes])


def near(runs: Sequence[Run], probes: ZSet, back: Ints, ahead: Ints) -> tuple[Neighbours, int]:
    """Return the rows of the same hash up to ``back`` before each probe and ``ahead`` after it.

    The probes, which need not be in the runs, are consolidated. A few more rows may be read, and
    all rows of a hash with many probes. Also returns the number of rows read.
    """
    none = np.zeros((0, probes.rows), np.int64)
    runs = tuple(run for run in runs if run.rows)
    if not runs:
        return Neighbours((), ZSet.empty(probes.layout), (), none, none, none, none), 0
    bounds = [run.blocks(probes.hashes) for run in runs]
    starts = np.stack([low for low, _ in bounds])
    stops = np.stack([high for _, high in bounds])
    sizes = stops - starts
    block = np.cumsum(fresh(probes.hashes)) - 1
    asked = np.bincount(block)[block]
    few = np.minimum(back, ahead) + NARROW  # what is unlimited is a large number
    whole = (sizes <= few) | (asked * np.log2(np.maximum(sizes, 1)) >= sizes)
    lows, highs = np.where(whole, 0, starts), np.where(whole, 0, stops)
    read = searched(runs, probes, lows.reshape(-1), highs.reshape(-1))
    first = np.where(whole, starts, np.maximum(starts, lows - np.minimum(lows, back)))
    last = np.where(whole, stops, np.minimum(stops, highs + np.minimum(sizes, ahead)))
    positions, left, right, offset = [], np.full_like(first, -1), np.full_like(first, -1), 0
    for i in range(len(runs)):
        # Probes ascend, and so do their ranges: each begins where the ranges before it end.
        begun = np.maximum(first[i], np.concatenate([[0], np.maximum.accumulate(last[i])[:-1]]))
        own = pairs_of(begun, np.maximum(last[i] - begun, 0))[1]
        more = first[i] > starts[i]
        left[i, more] = offset + own.searchsorted(first[i, more])
        more = last[i] < stops[i]
        right[i, more] = offset + own.searchsorted(last[i, more] - 1)
        positions.append(own)
        offset += len(own)
    rows = ZSet(probes.layout, take_of(probes.layout, runs, positions))
    return Neighbours(runs, rows, tuple(positions), left, right, starts, stops), read + offset


def weights_between(run: Run, starts: Ints, stops: Ints) -> Ints:
    """Return the sums of the weights of the rows at the positions ``[start, stop)`` of a run."""
    repeated = run.repeated
    if not len(repeated):
        return stops - starts
    more = np.zeros(len(repeated) + 1, np.int64)
    weights = run.take(repeated).column(WEIGHT).to_numpy()
    np.cumsum(weights - 1, out=more[1:])
    return stops - starts + more[repeated.searchsorted(stops)] - more[repeated.searchsorted(starts)]
