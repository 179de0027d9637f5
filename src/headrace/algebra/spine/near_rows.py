"""Find the rows near others in the order of the layout, without reading the rest of their keys.

Every run sorts the rows of one hash in that order. So the place of a row in a run is found by
binary search, and the sum of the rows around it is complete between the greatest of the first rows
read and the least of the last ones: every unread row is outside.

Find single rows in large blocks of one hash, by the order of the layout.

A few rows are found by binary search. If so many rows of a block are wanted that reading the whole
block costs less, it is read once, and its rows are matched with the wanted ones by row codes.

Find the rows of each key whose values are within bounds, without reading the rest of the key.

Every run sorts the rows of one hash by the order of the layout, whose first column is a number, a
date or a timestamp: bounds are searched in a run by halving.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.algebra.spine.run import Run, take_of
from headrace.algebra.zset import WEIGHT, Layout, ZSet, row_codes
from headrace.algebra.zset.order import bit_width, valid
from headrace.algebra.zset.sums import decimal_words
from headrace.algebra.zset.zset import column, fresh
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from headrace.algebra.spine.run import Pairs
    from headrace.algebra.zset import OrderBy
    from headrace.algebra.zset.order import Bools, Ints


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


_DIGITS = 18
"""The most digits of decimals that fit 64 bits."""
_BLOCK = 64
"""After so many rows of a run, its sums up to there are kept."""
_HALF, _LOW = np.int64(32), np.int64(0xFFFFFFFF)


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


def counted_before(runs: Sequence[Run], probes: ZSet) -> tuple[Ints, int]:
    """Return how many rows of the same hash are before each probe, and the number of rows read."""
    found = np.zeros(probes.rows, np.int64)
    runs = tuple(run for run in runs if run.rows)
    if not runs:
        return found, 0
    bounds = [run.blocks(probes.hashes) for run in runs]
    lows, highs = (np.stack([each[i] for each in bounds]) for i in (0, 1))
    read = searched(runs, probes, lows.reshape(-1), highs.reshape(-1))
    for run, (starts, _), low, high in zip(runs, bounds, lows, highs, strict=True):
        which, rows = pairs_of(low, high - low)
        left = ZSet(probes.layout, run.take(rows)).compared(probes.take(which)) < 0
        stops = low.copy()
        np.add.at(stops, which, left)
        found += weights_between(run, starts, stops)
        read += len(rows)
    return found, read


def is_summable(type_: pa.DataType) -> bool:
    """Whether :func:`sums_between` adds up values of a type."""
    if pa.types.is_decimal128(type_):
        return bool(type_.precision <= _DIGITS)
    return bool(pa.types.is_signed_integer(type_))


def sums_between(
    run: Run, name: str, starts: Ints, stops: Ints
) -> tuple[npt.NDArray[np.int64], int]:
    """Return sums of a column over the rows at the positions ``[start, stop)`` of a run.

    One for each range, times the weights: of the upper 32 bits of the values, or of the digits of
    decimals, of the lower ones, and of 1 for each value that is not NULL. Values that are not
    summable count as 0. The column is read once for each run; then at most some rows at both ends
    of a range, whose number is returned too.
    """
    field = run.layout.columns.field(name)
    layout = Layout((), pa.schema([field]), pa.schema([run.layout.summed.field(WEIGHT)]))
    only = run.excerpt(layout, (name,))
    if name not in run.running:
        parts = [_summands(batch.column(name), batch.column(WEIGHT)) for batch in only.batches]
        sums = np.concatenate([np.zeros((3, 1), np.int64), *parts], axis=1).cumsum(axis=1)
        run.running[name] = sums[:, ::_BLOCK].copy()
    blocks = run.running[name]

    def up_to(positions: Ints) -> tuple[npt.NDArray[np.int64], int]:
        block, rest = np.divmod(positions, _BLOCK)
        which, rows = pairs_of(block * _BLOCK, rest)
        found = blocks[:, block]
        if len(rows):
            order = np.argsort(rows, kind="stable")
            taken = ZSet(layout, only.take(rows[order])).table.combine_chunks()
            more = _summands(taken.column(name).chunk(0), taken.column(WEIGHT).chunk(0))
            for total, added in zip(found, more, strict=True):
                np.add.at(total, which[order], added)
        return found, len(rows)

    (last, read), (first, more) = up_to(stops), up_to(starts)
    return last - first, read + more


def _summands(values: pa.Array, weights: pa.Array) -> npt.NDArray[np.int64]:
    """Return what each row adds to the sums of :func:`sums_between`."""
    copies, shown = weights.to_numpy(), valid(values)
    found = np.zeros((3, len(copies)), np.int64)
    found[2] = shown * copies
    if is_summable(values.type):
        if pa.types.is_decimal(values.type):
            numbers = decimal_words(values)[:, 0]
        else:
            numbers = values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        numbers = np.where(shown, numbers, 0)
        found[0], found[1] = (numbers >> _HALF) * copies, (numbers & _LOW) * copies
    return found


def weights_between(run: Run, starts: Ints, stops: Ints) -> Ints:
    """Return the sums of the weights of the rows at the positions ``[start, stop)`` of a run."""
    repeated = run.repeated
    if not len(repeated):
        return stops - starts
    more = np.zeros(len(repeated) + 1, np.int64)
    weights = run.take(repeated).column(WEIGHT).to_numpy()
    np.cumsum(weights - 1, out=more[1:])
    return stops - starts + more[repeated.searchsorted(stops)] - more[repeated.searchsorted(starts)]


_LEAST, _GREATEST = np.int64(-(2**63)), np.int64(2**63 - 1)
_WHOLE = 32
"""The most rows of a key in a run that are read without a search, if all within limits are."""


@dataclass(frozen=True, slots=True)
class KeyLimit:
    """A bound of the rows asked for: those whose column ``name`` is not before, or not after, it.

    ``values`` has it for each key, as :func:`ordinals`; the column is the first of the order of the
    layout. An ``is_open`` bound that is NULL does not bound.
    """

    name: str
    values: Ints
    is_null: Bools
    is_low: bool
    is_open: bool = False

    @classmethod
    def of(
        cls, by: OrderBy, values: pa.Array, shift: int, *, is_low: bool, is_open: bool
    ) -> KeyLimit:
        """Return the limit at values, each plus a number, of the first column of an order."""
        found = ordinals(values)
        if shift:
            moved = found + np.int64(shift)
            wrapped = (moved > found) if shift < 0 else (moved < found)
            found = np.where(wrapped, _LEAST if shift < 0 else _GREATEST, moved)
        is_null = ~valid(values)
        return cls(by.name, _risen(found, is_null, by), is_null, is_low, is_open)

    def at(self, keys: Ints) -> KeyLimit:
        """Return the limit of some keys."""
        return replace(self, values=self.values[keys], is_null=self.is_null[keys])


def ordinals(values: pa.Array) -> Ints:
    """Return integers, days of dates or microseconds of timestamps, as numbers; 0 for NULL."""
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    return np.asarray(values.cast(pa.int64()).fill_null(0).to_numpy())


def in_order(values: pa.Array, by: OrderBy) -> Ints:
    """Return numbers that rise with an order of values, in which NULL is first."""
    return _risen(ordinals(values), ~valid(values), by)


def _risen(values: Ints, is_null: Bools, by: OrderBy) -> Ints:
    return np.where(is_null, _LEAST, ~values if by.descending else values)


@dataclass(frozen=True, slots=True)
class InRange:
    """Rows found, one run after the other: the number of the key, and of the run of each.

    ``cut`` marks the keys some of whose first rows were left out, for each run.
    """

    probes: Ints
    runs: Ints
    rows: ZSet
    cut: Bools
    first: Ints
    """For each run and key, the position of the first row among ``rows``; only where it is cut."""


def in_range(
    layout: Layout,
    runs: Sequence[Run],
    hashes: Ints,
    limits: Sequence[KeyLimit],
    last: Ints | None,
) -> tuple[InRange, int]:
    """Return the rows of ascending hashes within limits; also how many rows were read.

    With ``last``, only so many of the last ones of each run, by key.
    """
    read, offset = 0, 0
    positions: list[Ints] = []
    probes: list[Ints] = []
    which: list[Ints] = []
    cut = np.zeros((len(runs), len(hashes)), np.bool_)
    first = np.zeros((len(runs), len(hashes)), np.int64)
    for i, run in enumerate(runs):
        starts, stops = (each.copy() for each in run.blocks(hashes))
        for limit in limits:
            wide = np.flatnonzero(stops - starts > (_WHOLE if last is None else 0))
            if not len(wide):
                break
            by = layout.order[0]
            found, more = _searched(run, starts[wide], stops[wide], limit.at(wide), by)
            (starts if limit.is_low else stops)[wide] = found
            read += more
        stops = np.maximum(starts, stops)
        if last is not None:
            begun = np.maximum(starts, stops - last)
            cut[i] = begun > starts
            starts = begun
        probe, rows = pairs_of(starts, stops - starts)
        first[i] = offset + np.cumsum(stops - starts) - (stops - starts)
        positions.append(rows)
        probes.append(probe)
        which.append(np.full(len(rows), i))
        offset += len(rows)
    none = [np.zeros(0, np.int64)]
    taken = ZSet(layout, take_of(layout, runs, positions)) if runs else ZSet.empty(layout)
    every = InRange(np.concatenate(none + probes), np.concatenate(none + which), taken, cut, first)
    return every, read + offset


def _searched(
    run: Run, starts: Ints, stops: Ints, limit: KeyLimit, by: OrderBy
) -> tuple[Ints, int]:
    """Return where the rows within a limit begin, or end, in ranges of a run; and the rows read."""
    field = run.layout.columns.field(limit.name)
    layout = Layout((), pa.schema([field]), pa.schema([run.layout.summed.field(WEIGHT)]))
    only, values = run.excerpt(layout, (limit.name,)), limit.values
    lows, highs, read = starts.copy(), stops.copy(), 0
    live = np.flatnonzero(lows < highs)
    while len(live):
        middles = (lows[live] + highs[live]) // 2
        there = in_order(column(only.take(middles), limit.name), by)
        before = there < values[live] if limit.is_low else there <= values[live]
        lows[live] = np.where(before, middles + 1, lows[live])
        highs[live] = np.where(before, highs[live], middles)
        read += len(live)
        live = live[lows[live] < highs[live]]
    if limit.is_open:
        unbounded = limit.is_null
        lows[unbounded] = (starts if limit.is_low else stops)[unbounded]
    return lows, read
