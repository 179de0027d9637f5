"""Find single rows in large blocks of one hash, by the order of the layout.

A few rows are found by binary search. If so many rows of a block are wanted that reading the whole
block costs less, it is read once, and its rows are matched with the wanted ones by row codes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.zset import ZSet, row_codes
from headrace.zset.equality import bit_width
from headrace.zset.zset import fresh

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.spine.run import Pairs, Run
    from headrace.zset import OrderBy
    from headrace.zset.equality import Ints

_WORD = 64
NARROW = 8
"""A block of at most this many rows is read without a search."""


def narrowed(runs: Sequence[Run], rows: ZSet) -> tuple[list[Pairs], int]:
    """Return for each run pairs of a position in ``rows`` and the position of a candidate row.

    ``rows`` ascend by hash, and their layout has an order. Each row has at most ``NARROW``
    candidates per run, found with O(log n) comparisons. Pairs ascend. Also returns the number of
    rows read: O(log n) per row and run.
    """
    bounds = [run.blocks(rows.hashes) for run in runs]
    lows = np.stack([low for low, _ in bounds])
    highs = np.stack([high for _, high in bounds])
    read = 0
    if (highs - lows > NARROW).any():
        read = _read_whole(runs, rows, lows, highs)
        read += searched(runs, rows, lows.reshape(-1), highs.reshape(-1))
    return [pairs_of(*both) for both in zip(lows, highs - lows, strict=True)], read


def first_not_before(
    run: Run, by: OrderBy, starts: Ints, stops: Ints, bounds: Ints
) -> tuple[Ints, int]:
    """Return the position of the first row of each block that is not before a bound.

    Blocks are given by their start and stop position; bounds are values of the first column of the
    order, a whole number or a time. Also returns the number of rows read: O(log n) per block.
    """
    return _end_of(run, by, starts, stops, bounds, np.greater if by.descending else np.less)


def first_after(run: Run, by: OrderBy, starts: Ints, stops: Ints, bounds: Ints) -> tuple[Ints, int]:
    """Return the position of the first row of each block that is after a bound.

    Otherwise like :func:`first_not_before`.
    """
    upto = np.greater_equal if by.descending else np.less_equal
    return _end_of(run, by, starts, stops, bounds, upto)


def _end_of(
    run: Run, by: OrderBy, starts: Ints, stops: Ints, bounds: Ints, precedes: np.ufunc
) -> tuple[Ints, int]:
    """Return where the rows of each block end that precede a bound, and the rows read."""
    kind = run.layout.columns.field(by.name).type
    if bit_width(kind) != _WORD or pa.types.is_floating(kind):
        raise HeadraceError(Code.INTERNAL, "an order has bounds that are not numbers or times")
    lows, highs, read = starts.copy(), stops.copy(), 0
    wide = np.flatnonzero(lows < highs)
    while len(wide):
        middles = (lows[wide] + highs[wide]) // 2
        earlier = precedes(run.numbers_at(by.name, middles), bounds[wide])
        lows[wide] = np.where(earlier, middles + 1, lows[wide])
        highs[wide] = np.where(earlier, highs[wide], middles)
        read += len(wide)
        wide = wide[lows[wide] < highs[wide]]
    return lows, read


def pairs_of(firsts: Ints, counts: Ints) -> Pairs:
    """Return pairs of each position and its ``counts`` consecutive rows, starting at ``firsts``."""
    given = counts.nonzero()[0]
    firsts, counts = firsts[given], counts[given]
    if not (counts > 1).any():
        return given, firsts
    ends = counts.cumsum()
    places = np.arange(ends[-1]) + np.repeat(firsts - (ends - counts), counts)
    return np.repeat(given, counts), places


def _read_whole(runs: Sequence[Run], rows: ZSet, lows: Ints, highs: Ints) -> int:
    """Narrow the ranges of blocks that are read as a whole, in place; return the rows read."""
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
        stored = ZSet(rows.layout, run.take(positions))
        found = _positions_of(rows.take(wanted), stored)
        low[wanted] = np.where(found < 0, 0, positions[found])
        high[wanted] = low[wanted] + (found >= 0)
        read += len(positions)
    return read


def _positions_of(wanted: ZSet, stored: ZSet) -> Ints:
    """Return the position of each wanted row in the stored rows, which are distinct; -1 if none."""
    pairs = zip(wanted.identity, stored.identity, strict=True)
    codes = row_codes([pa.concat_arrays(both) for both in pairs], wanted.rows + stored.rows)
    wanted_codes, stored_codes = codes[: wanted.rows], codes[wanted.rows :]
    order = np.argsort(stored_codes)
    nearest = np.searchsorted(stored_codes, wanted_codes, sorter=order)
    positions = order[np.minimum(nearest, len(stored_codes) - 1)]
    return np.where(stored_codes[positions] == wanted_codes, positions, -1)


def searched(runs: Sequence[Run], rows: ZSet, lows: Ints, highs: Ints) -> int:
    """Narrow ranges by binary search, in place, and return the number of rows read.

    ``lows`` and ``highs`` have the ranges of all rows in the first run, then in the second, ... A
    range of more than ``NARROW`` rows becomes one with the row, or with the place where it would
    be: what is before the range is not after the row, and what is after it is not before the row.
    """
    read = 0
    wide = np.flatnonzero(highs - lows > NARROW)
    while len(wide):
        middles = (lows[wide] + highs[wide]) // 2
        found = _taken(runs, rows, wide // rows.rows, middles)
        order = found.compared(rows.take(wide % rows.rows))
        # Where the row itself is found, the range becomes that row.
        lows[wide] = np.where(order <= 0, middles, lows[wide])
        highs[wide] = np.where(order < 0, highs[wide], middles + (order == 0))
        read += len(wide)
        wide = wide[highs[wide] - lows[wide] > NARROW]
    return read


def _taken(runs: Sequence[Run], rows: ZSet, which: Ints, positions: Ints) -> ZSet:
    """Return rows by run and position; ``which``, the index of each row's run, ascends."""
    bounds = np.searchsorted(which, np.arange(len(runs) + 1))
    tables = [
        run.take(positions[bounds[i] : bounds[i + 1]])
        for i, run in enumerate(runs)
        if bounds[i] < bounds[i + 1]
    ]
    return ZSet(rows.layout, pa.concat_tables(tables))
