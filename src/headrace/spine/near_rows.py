"""Find the rows near others in the order of the layout, without reading the rest of their keys.

Every run sorts the rows of one hash in that order. So the place of a row in a run is found by
binary search, and the sum of the rows around it is complete between the greatest of the first rows
read and the least of the last ones: every unread row is outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.spine.narrowing import NARROW, pairs_of, searched
from headrace.spine.run import Run, take_of
from headrace.zset import WEIGHT, Layout, ZSet
from headrace.zset.decimals import decimal_words
from headrace.zset.equality import valid
from headrace.zset.zset import fresh

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from headrace.zset.equality import Ints


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
