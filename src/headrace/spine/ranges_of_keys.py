"""Find the rows of each key whose values are within bounds, without reading the rest of the key.

Every run sorts the rows of one hash by the order of the layout, whose first column is a number, a
date or a timestamp: bounds are searched in a run by halving.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.spine.narrowing import pairs_of
from headrace.spine.run import Run, take_of
from headrace.zset import WEIGHT, Layout, ZSet
from headrace.zset.equality import valid
from headrace.zset.zset import column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.zset import OrderBy
    from headrace.zset.equality import Bools, Ints

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
