"""``percentile``, ``median``: the values at places of a group that is sorted by value.

Each part keeps the values by group, in order, and a *mark* for each of its places: the values that
are shown, and how many come before them. A change moves a mark by at most as many values as
it adds or removes, so these are found from where it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.operators.aggregate_parts import (
    OfOne,
    PartStep,
    check_counts,
    counted,
    leftover,
)
from headrace.algebra.spine import Spine
from headrace.algebra.spine.rows_around import ALL, MORE, RowsAround
from headrace.algebra.zset import HASH, WEIGHT, Layout, OrderBy, ZSet
from headrace.algebra.zset.sums import nearest_floats
from headrace.algebra.zset.zset import column, fresh, numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.algebra.zset.order import Ints
    from headrace.algebra.zset.sums import Floats


_ROWS = "__counted"
"""The number of values of a group."""
_WEIGHTS = pa.schema([pa.field(WEIGHT, pa.int64(), nullable=False)])
_NEXT = 2
"""How many more values are read on each side than a mark is known to move by."""


@dataclass(frozen=True)
class Quantile:
    """A place in a sorted group: ``at`` is 0 for the first value, and 1 for the last one.

    Between two values it is on the line from one to the other; if ``discrete``, it is the first
    value with at least that share of the group up to it. With ``descending``, the last value is the
    first one.
    """

    at: float
    discrete: bool = False
    descending: bool = False

    def places(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the places of the two values that matter, ascending from 0, of so many rows."""
        if self.discrete:
            first = np.maximum(np.ceil(rows * self.at).astype(np.int64) - 1, 0)
            second = first
        else:
            position = (rows - 1) * self.at
            first, second = (each(position).astype(np.int64) for each in (np.floor, np.ceil))
        return (rows - 1 - second, rows - 1 - first) if self.descending else (first, second)

    def between(self, rows: Ints, low: Floats, high: Floats) -> Floats:
        """Return the values of so many rows, given those at both places; as Spark computes them."""
        first, second = (high, low) if self.descending else (low, high)
        position = (rows - 1) * self.at
        share = position - np.floor(position)
        with np.errstate(invalid="ignore", over="ignore"):
            found = first + share * (second - first)
        found = np.where(self.discrete | (share == 0) | (first == second), first, found)
        return np.where(np.isnan(found), np.nan, found)


@dataclass(frozen=True)
class QuantileColumn:
    """An output column: one of the quantiles, by position, or a list of several."""

    name: str
    of: tuple[int, ...]
    is_list: bool


@dataclass(frozen=True)
class Quantiles(OfOne):
    """``percentile(a, p)``: values at places of the group, in the order of ``argument``.

    That is an input column of integers, floats or decimals of at most 18 digits; ``weight`` is the
    input column with the weight of a row for this part.

    Cost per epoch: O(log n) per group and value touched, and as many rows next to a mark as it may
    move by: at most the values that were added and removed.
    """

    argument: pa.Field
    weight: str
    quantiles: tuple[Quantile, ...]
    shown: tuple[QuantileColumn, ...]

    @cached_property
    def fields(self) -> tuple[pa.Field, ...]:
        """The output columns: NULL if no row of the group counts."""
        lists, single = pa.list_(pa.field("element", pa.float64(), nullable=False)), pa.float64()
        return tuple(pa.field(each.name, lists if each.is_list else single) for each in self.shown)

    def layout(self, groups: Layout) -> Layout:
        """Return the layout of the values: by group, in order."""
        columns = pa.schema([*groups.columns, self.argument])
        return Layout(groups.key, columns, _WEIGHTS, (OrderBy(self.argument.name),))

    def further(self, groups: Layout) -> tuple[Layout]:
        """Return the layout of the marks of a group: its values, and how many come before them."""
        type_, count = self.argument.type, range(len(self.quantiles))
        values = [pa.field(name, type_) for i in count for name in _names(i)[:2]]
        sums = [pa.field(name, pa.int64(), nullable=False) for i in count for name in _names(i)[2:]]
        rows = pa.field(_ROWS, pa.int64(), nullable=False)
        columns = pa.schema([*groups.columns, *values])
        return (Layout(groups.key, columns, pa.schema([*_WEIGHTS, rows, *sums])),)

    def change(self, given: ZSet, groups: ZSet, before: Sequence[Spine]) -> PartStep:
        """Return the deltas of the values and of the marks, and the results."""
        values, kept = before
        change = counted(values.layout, self.weight, given)
        retracted = change.filter(change.weights < 0)
        check_counts(values.weights_of(retracted) + retracted.weights)
        of, own = Spine(values.layout).plus(change).lookup(groups.hashes, groups.keys)
        at, marks = kept.lookup(groups.hashes, groups.keys)
        old = np.zeros(groups.rows, np.int64)
        old[at] = numbers(marks.table, _ROWS)
        rows = old.copy()
        np.add.at(rows, of, own.weights)
        check_counts(rows)
        full = np.unique(of)
        full = full[rows[full] > 0]
        kept_own = rows[of] > 0
        found = self._marked(
            values.plus(change),
            groups,
            full,
            rows,
            (of[kept_own], own.filter(kept_own)),
            (at, marks),
        )
        gone = np.isin(at, of)
        delta = found.plus(marks.filter(gone).negated()).consolidated()
        after = found.plus(marks.filter(~gone))
        return PartStep(
            (change, delta),
            self._results(groups.rows, at, marks),
            self._results(groups.rows, np.concatenate([full, at[~gone]]), after),
        )

    def _marked(
        self,
        values: Spine,
        groups: ZSet,
        full: Ints,
        rows: Ints,
        changed: tuple[Ints, ZSet],
        marked: tuple[Ints, ZSet],
    ) -> ZSet:
        """Return the marks of the ``full`` groups, which have values and a change of them.

        ``changed`` and ``marked`` are rows of the change, and the marks before it, each with their
        groups; ``rows`` are the numbers of the values of all groups, after it.
        """
        layout = marked[1].layout
        name, own = self.argument.name, changed[1]
        of = full.searchsorted(changed[0])
        first = np.full(len(full), len(of))
        np.minimum.at(first, of, np.arange(len(of)))
        place = np.full(groups.rows, -1, np.int64)
        place[marked[0]] = np.arange(len(marked[0]))
        place = place[full]
        heads = own.take(first).with_weights(np.zeros(len(full), np.int64))
        columns = {each: column(heads.table, each) for each in heads.table.schema.names}
        found = {each: columns[each] for each in (HASH, *groups.layout.columns.names)}
        found |= {WEIGHT: pa.array(np.ones(len(full), np.int64)), _ROWS: pa.array(rows[full])}
        known = place >= 0
        for i, quantile in enumerate(self.quantiles):
            low, high, before = _names(i)
            former = column(marked[1].table, low).take(pa.array(place, mask=~known))
            columns[name] = pc.if_else(pa.array(known), former, column(heads.table, name))
            start = pa.Table.from_arrays(list(columns.values()), schema=heads.table.schema)
            count = np.zeros(len(full), np.int64)
            count[known] = numbers(marked[1].table, before)[place[known]]
            starts = _Starts.of(ZSet(heads.layout, start), count, own, of)
            both = _found(values, name, starts, *quantile.places(rows[full]))
            found |= {low: both.low, high: both.high, before: pa.array(both.before)}
        arrays = [found[each] for each in layout.schema.names]
        return ZSet(layout, pa.Table.from_arrays(arrays, schema=layout.schema))

    def _results(self, groups: int, at: Ints, marks: ZSet) -> tuple[pa.Array, ...]:
        """Return the results of groups from the marks of those that have values."""
        rows = numbers(marks.table, _ROWS)
        floats = []
        for i, quantile in enumerate(self.quantiles):
            low, high = (nearest_floats(column(marks.table, name)) for name in _names(i)[:2])
            floats.append(quantile.between(rows, low, high))
        place = np.full(groups, -1, np.int64)
        place[at] = np.arange(len(at))
        taken, none = pa.array(place, mask=place < 0), place < 0
        results = []
        for each, own in zip(self.shown, self.fields, strict=True):
            if not each.is_list:
                results.append(pa.array(floats[each.of[0]]).take(taken))
                continue
            of = np.stack([floats[i] for i in each.of], axis=1)[place[~none]]
            ends = np.cumsum(np.where(none, 0, len(each.of)))
            offsets = pa.array(np.append(0, ends), pa.int32(), mask=np.append(none, False))
            values = pa.array(of.reshape(-1))
            results.append(pa.ListArray.from_arrays(offsets, values, type=own.type))
        return tuple(results)


@dataclass(frozen=True, slots=True)
class _Starts:
    """A value of each of some groups, with weight 0, and how many values come before it."""

    rows: ZSet
    before: Ints

    @classmethod
    def of(cls, marked: ZSet, before: Ints, changed: ZSet, of: Ints) -> _Starts:
        """Return values with those before them counted again after a change.

        ``of`` has the position of the value, that is the group, of each of the ``changed`` ones.
        """
        every = marked.plus(changed)
        codes = np.concatenate([np.arange(marked.rows), of])
        order, first = every.in_blocks(codes)
        sums = np.append(0, np.cumsum(every.weights[order]))
        start_of_value = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
        start_of_group = np.maximum.accumulate(
            np.where(fresh(codes[order]), np.arange(len(order)), 0)
        )
        less = np.empty(len(order), np.int64)
        less[order] = sums[start_of_value] - sums[start_of_group]
        return cls(marked, before + less[: marked.rows])


@dataclass(frozen=True, slots=True)
class _Found:
    """The values at two places of each group, and how many come before the first one."""

    low: pa.Array
    high: pa.Array
    before: Ints


def _found(values: Spine, name: str, starts: _Starts, lows: Ints, highs: Ints) -> _Found:
    """Return the values at places of groups, each looked for from a value of its group.

    Rows are read around that value: as many as it is away, then more if values are missing.
    """
    pending = np.arange(starts.rows.rows)
    back = np.maximum(starts.before - lows, 0) + _NEXT
    ahead = np.maximum(highs - starts.before, 0) + _NEXT
    parts: list[tuple[Ints, pa.Array, pa.Array, Ints]] = []
    while len(pending):
        order, _ = starts.rows.take(pending).in_blocks(starts.rows.hashes[pending])
        at = pending[order]
        probes = starts.rows.take(at)
        around = RowsAround.of(probes, values.near(probes, back[at], ahead[at]))
        if around.mixed:
            # Rows of several keys with one hash are in one order: only all of them will do.
            everything = np.full_like(at, ALL)
            around = RowsAround.of(probes, values.near(probes, everything, everything))
        counts = np.append(0, np.cumsum(around.new.clip(0)))
        shift = counts[around.probes] - starts.before[at]
        low, high = (counts[1:].searchsorted(each[at] + shift, "right") for each in (lows, highs))
        short = (around.open_left & (low < around.low)) | (around.open_right & (high > around.high))
        beyond = (low < around.starts) | (high >= around.stops)
        if (beyond & ~short).any():
            raise leftover("the marks of a group are not those of its values")
        known = ~short
        source = column(around.source.table, name)
        low, high = low[known], high[known]
        both = [source.take(pa.array(around.at[each])) for each in (low, high)]
        parts.append((at[known], both[0], both[1], counts[low] - shift[known]))
        pending = at[short]
        back[pending] *= MORE
        ahead[pending] *= MORE
    of = np.concatenate([np.zeros(0, np.int64), *(part[0] for part in parts)])
    back_in_order = pa.array(np.argsort(of))
    type_ = values.layout.columns.field(name).type
    low_values, high_values = (
        pa.concat_arrays([pa.array([], type_), *(part[i] for part in parts)]) for i in (1, 2)
    )
    before = np.concatenate([of[:0], *(part[3] for part in parts)])
    return _Found(
        low_values.take(back_in_order), high_values.take(back_in_order), before[np.argsort(of)]
    )


def _names(place: int) -> tuple[str, str, str]:
    """Return the columns of a mark: both values, and how many come before the first one."""
    return f"__low{place}", f"__high{place}", f"__before{place}"
