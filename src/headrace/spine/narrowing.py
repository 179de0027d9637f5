"""Finding single rows in large blocks of one hash, by the order of the layout.

A few rows are found by binary search. Where so many are looked for in a block that reading all of
it costs less, it is read once, and its rows are numbered together with those looked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.zset import ZSet, row_codes
from headrace.zset.zset import fresh

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.spine.run import Pairs, Run
    from headrace.zset.equality import Ints

NARROW = 8
"""A block of up to as many rows is read rather than searched."""


def narrowed(runs: Sequence[Run], rows: ZSet) -> tuple[list[Pairs], int]:
    """Return for each run pairs of a position in ``rows`` and a row of the run that may be it.

    ``rows`` ascend by hash, and their layout has an order. Each row has at most ``NARROW`` such
    pairs per run, after O(log n) comparisons. Pairs ascend. Also returns how many rows were read,
    which is at most that many per row and run.
    """
    bounds = [run.blocks(rows.hashes) for run in runs]
    lows = np.stack([low for low, _ in bounds])
    highs = np.stack([high for _, high in bounds])
    read = _read_whole(runs, rows, lows, highs)
    read += _search(runs, rows, lows.reshape(-1), highs.reshape(-1))
    return [pairs_of(*both) for both in zip(lows, highs - lows, strict=True)], read


def pairs_of(firsts: Ints, counts: Ints) -> Pairs:
    """Pair each position with the ``counts`` rows from its first one on."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    probes = np.repeat(np.arange(len(counts)), counts)
    return probes, np.arange(total) + np.repeat(firsts - (ends - counts), counts)


def _read_whole(runs: Sequence[Run], rows: ZSet, lows: Ints, highs: Ints) -> int:
    """Find rows in the blocks that are read as a whole; return how many rows that took."""
    sizes = highs - lows
    starts = fresh(rows.hashes)
    block = np.cumsum(starts) - 1
    asked = np.bincount(block)[block]
    whole = (sizes > NARROW) & (asked * np.log2(np.maximum(sizes, 1)) >= sizes)
    read = 0
    for run, dense, low, high in zip(runs, whole, lows, highs, strict=True):
        if not dense.any():
            continue
        heads = np.flatnonzero(dense & starts)
        _, positions = pairs_of(low[heads], high[heads] - low[heads])
        wanted = np.flatnonzero(dense)
        there = ZSet(rows.layout, run.take(positions))
        found = _places(rows.take(wanted), there)
        low[wanted] = np.where(found < 0, 0, positions[found])
        high[wanted] = low[wanted] + (found >= 0)
        read += len(positions)
    return read


def _places(wanted: ZSet, there: ZSet) -> Ints:
    """Return where each wanted row is among the others, of which no two are the same; else -1."""
    pairs = zip(wanted.identity, there.identity, strict=True)
    codes = row_codes([pa.concat_arrays(both) for both in pairs], wanted.rows + there.rows)
    asked, given = codes[: wanted.rows], codes[wanted.rows :]
    order = np.argsort(given)
    place = order[np.minimum(np.searchsorted(given, asked, sorter=order), len(given) - 1)]
    return np.where(given[place] == asked, place, -1)


def _search(runs: Sequence[Run], rows: ZSet, lows: Ints, highs: Ints) -> int:
    """Narrow ranges in place, those of one run after the other; return how many rows it took."""
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
    return read


def _taken(runs: Sequence[Run], rows: ZSet, which: Ints, positions: Ints) -> ZSet:
    """Return rows of several runs; ``which`` run each one is of ascends."""
    bounds = np.searchsorted(which, np.arange(len(runs) + 1))
    tables = [
        run.take(positions[bounds[i] : bounds[i + 1]])
        for i, run in enumerate(runs)
        if bounds[i] < bounds[i + 1]
    ]
    return ZSet(rows.layout, pa.concat_tables(tables))
