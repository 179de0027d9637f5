"""Finding single rows in large blocks of one hash: a binary search by the order of the layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.zset import ZSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.spine.run import Pairs, Run
    from headrace.zset.equality import Ints

NARROW = 8
"""A block of up to as many rows is read rather than searched."""


def narrowed(runs: Sequence[Run], rows: ZSet) -> tuple[list[Pairs], int]:
    """Return for each run pairs of a position in ``rows`` and a row of the run that may be it.

    ``rows`` ascend by hash, and their layout has an order. Each row has at most ``NARROW`` such
    pairs per run, after O(log n) comparisons. Pairs ascend. Also returns the number of rows read.
    """
    bounds = [run.blocks(rows.hashes) for run in runs]
    lows = np.concatenate([low for low, _ in bounds])
    highs = np.concatenate([high for _, high in bounds])
    read = 0
    wide = np.flatnonzero(highs - lows > NARROW)
    while len(wide):
        middles = (lows[wide] + highs[wide]) // 2
        found = _taken(runs, rows, wide // rows.rows, middles)
        order = found.compared(rows.take(wide % rows.rows))
        # A row that is found is all that is left.
        lows[wide] = np.where(order <= 0, middles, lows[wide])
        highs[wide] = np.where(order < 0, highs[wide], middles + (order == 0))
        read += len(wide)
        wide = wide[highs[wide] - lows[wide] > NARROW]
    counts = (highs - lows).reshape(len(runs), rows.rows)
    firsts = lows.reshape(len(runs), rows.rows)
    pairs = [_pairs(firsts[i], counts[i]) for i in range(len(runs))]
    return pairs, read


def _taken(runs: Sequence[Run], rows: ZSet, which: Ints, positions: Ints) -> ZSet:
    """Return rows of several runs; ``which`` run each one is of ascends."""
    bounds = np.searchsorted(which, np.arange(len(runs) + 1))
    tables = [
        run.take(positions[bounds[i] : bounds[i + 1]])
        for i, run in enumerate(runs)
        if bounds[i] < bounds[i + 1]
    ]
    return ZSet(rows.layout, pa.concat_tables(tables))


def _pairs(firsts: Ints, counts: Ints) -> Pairs:
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    probes = np.repeat(np.arange(len(counts)), counts)
    return probes, np.arange(total) + np.repeat(firsts - (ends - counts), counts)
