"""Window functions whose values depend on rows nearby: ``lag``, ``lead``, frames that are bounded.

Algebra: not linear. ``f`` of a row depends on the rows of its *frame*: some rows before and after
it, or those whose value in the order is within a distance. So a change reaches only the rows that
have it in their frame, and their values only need the rows of these frames::

    Δ f(a) = f(slice of a + Δa) - f(slice of a), at the rows that Δa reaches

This operator emits, of each group, the slices around the changes, before and after the epoch, and
marks the rows that are reached. Spark evaluates ``f`` on the slices of both versions, and the
output delta is the difference of the results at the marked rows.

Functions that count or add up from the first row of a group on, such as ``row_number`` and a
running sum, are *running*: a change reaches all rows after it, which get other values.
Their slices go to the end of the group, and come with what is before them: the number of rows, and
the sums of columns. So a change at the end reads a few rows, however many there are.

State: the input, by the key of its group, in the order of the functions.
Cost per epoch: O(|Δ| log n), plus the rows that are reached and those of their frames.
NULL: the NULLs of a key are one group; in the order, NULL is where the layout puts it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.algebra.operators.protocol import VERSION, StatefulOperator, StepResult
from headrace.algebra.spine import pairs_of, sums_between, weights_between
from headrace.algebra.spine.rows_around import ALL, MORE, RowsAround
from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet
from headrace.algebra.zset.zset import column, fresh
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from headrace.algebra.spine import Spine
    from headrace.algebra.zset.order import Bools, Ints


SLICE = "__slice"
"""The output column with the number of a slice; slices of all groups are numbered together."""

REACHED = "__reached"
"""The output column that is true for the rows whose values the changes may have changed."""

BEFORE = "__before"
"""The output column with the number of rows of the group that are before the slice."""

ORDERS = "__orders"
"""The output column with the number of values of the order that these rows have."""

_SOME = 16
"""How many rows are read at first on each side, if frames are bounded by value."""


@dataclass(frozen=True, slots=True)
class FrameReach:
    """The rows on which the values of functions may depend: the union of their frames.

    ``before`` and ``after`` count rows. ``lowers`` and ``uppers`` are columns with values of the
    first column of the order: frames begin at the least value that is not before one in ``lowers``,
    and end with the greatest value that is not after one in ``uppers``. If functions are
    ``running``, a value also depends on all rows before it, by their number and by the sums of the
    columns ``sums``, and with ``peers`` on the rows that are equal to it in so many columns of the
    order. With ``dense``, it depends on how many values of these columns the rows before it have.
    """

    before: int = 0
    after: int = 0
    lowers: tuple[str, ...] = ()
    uppers: tuple[str, ...] = ()
    running: bool = False
    peers: int = 0
    sums: tuple[str, ...] = ()
    dense: bool = field(default=False, metadata={"digest": False})
    """The arrangement of these values says so too."""


@dataclass(frozen=True)
class NearRows(StatefulOperator):
    """Emit the slices of groups around changed rows, before and after the epoch.

    ``layout``: the key is that of the group, the order that of the functions. Each row of a slice
    is emitted as often as its weight. The output has ``__hash``, the columns of the layout,
    ``__version`` (0 before the epoch, 1 after it), ``__slice``, ``__reached`` and, if functions are
    running, ``__before``, with ``dense`` ``__orders``, and for each of ``sums`` its sum over the
    rows before the slice and the number of its values that are not NULL there; see
    :func:`sums_of`. It has no weights.
    """

    layout: Layout
    reach: FrameReach

    def __post_init__(self) -> None:
        if self.layout.summed.names != [WEIGHT]:
            raise HeadraceError(Code.INTERNAL, "the rows of a group have accumulators")
        if not self.layout.order:
            raise HeadraceError(Code.INTERNAL, "an input without order has no rows nearby")

    @property
    def is_global(self) -> bool:
        """Whether there is a result over an empty input: never."""
        return False

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """The rows by group, in order; where they are counted, the values of the order too."""
        return (self.layout, self._orders) if self.reach.dense else (self.layout,)

    @cached_property
    def _orders(self) -> Layout:
        """The layout of the values of the order, each with the weight 1."""
        by, own = self.layout.order[: self.reach.peers], self.layout
        names = dict.fromkeys((*own.key, *(each.name for each in by)))
        columns = pa.schema([own.columns.field(name) for name in names])
        return Layout(own.key, columns, own.summed, by)

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the output."""
        marks = [pa.field(VERSION, pa.int64()), pa.field(SLICE, pa.int64())]
        marks.append(pa.field(REACHED, pa.bool_()))
        if self.reach.running:
            marks.append(pa.field(BEFORE, pa.int64()))
        if self.reach.dense:
            marks.append(pa.field(ORDERS, pa.int64()))
        for i, name in enumerate(self.reach.sums):
            total, seen = sums_of(i)
            marks.append(pa.field(total, _total_of(self.layout.columns.field(name).type)))
            marks.append(pa.field(seen, pa.int64()))
        return pa.schema([self.layout.schema.field(HASH), *self.layout.columns, *marks])

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:
        """Return both versions of the slices around the changes, and the consolidated input."""
        change = ZSet.of(self.layout, inputs[0]).consolidated()
        orders: list[ZSet] = []
        reach = self.reach
        block = np.cumsum(fresh(change.hashes)) - 1
        some = reach.before + reach.after + (_SOME if reach.lowers else 2)
        most = np.full(int(block.max(initial=-1)) + 1, some)
        pending, parts, slices = np.arange(change.rows), [], 0
        while len(pending):
            probes = change.take(pending)
            back = most[block[pending]]
            ahead = np.full_like(back, ALL) if reach.running else back
            read = before[0].near(probes, back, ahead)
            around = RowsAround.of(probes, read)
            if around.mixed:
                # Rows of several keys with one hash are in one order: only all of them will do.
                read = before[0].near(probes, np.full_like(back, ALL), np.full_like(back, ALL))
                around = RowsAround.of(probes, read)
            found, short = self._sliced(around)
            unanswered = np.isin(probes.hashes, probes.hashes[short])
            answered = found.of(~unanswered[found.probes])
            parts += self._versions(around, answered, slices, before)
            if self.reach.dense:
                orders.append(self._new_orders(around, answered))
            slices += len(pending)
            most[np.unique(block[pending[unanswered]])] *= MORE
            pending = pending[unanswered]
        output = pa.concat_tables([self.schema.empty_table(), *parts])
        more = (ZSet.sum_of(self._orders, orders).consolidated(),) if self.reach.dense else ()
        return StepResult(output, (change, *more))

    def _new_orders(self, around: RowsAround, slices: _Slices) -> ZSet:
        """Return which values of the order came, and which went, among all rows that have them."""
        if not len(slices.probes):
            return ZSet.empty(self._orders)
        heads = around.starts_of_ties(self.layout, self.reach.peers)
        tied = np.unique(heads[around.probes[slices.probes]])
        of_value = np.searchsorted(tied, heads[:-1])
        own = (of_value < len(tied)) & (tied[np.minimum(of_value, len(tied) - 1)] == heads[:-1])
        there = np.zeros((2, len(tied)), np.int64)
        for found, weights in zip(there, (around.old, around.new), strict=True):
            np.add.at(found, of_value[own], weights[own])
        came = (there[1] > 0).astype(np.int64) - (there[0] > 0)
        return self._order_values(around.source.take(around.at[tied]), came)

    def _order_values(self, rows: ZSet, weights: Ints) -> ZSet:
        """Return the values of the order of rows, with some weights."""
        columns = [column(rows.table, name) for name in (HASH, *self._orders.columns.names)]
        table = pa.Table.from_arrays([*columns, pa.array(weights)], schema=self._orders.schema)
        return ZSet(self._orders, table)

    def _sliced(self, around: RowsAround) -> tuple[_Slices, Bools]:
        """Return the slice of each probe, and for which of them more rows have to be read."""
        reach, at = self.reach, around.probes
        by_value = (
            around.by_value(self.layout, reach.lowers, reach.uppers) if reach.lowers else None
        )
        first, last = around.back(at, reach.after), around.ahead(at + 1, reach.before)
        if by_value is not None:
            values, lowers, uppers = by_value
            first = np.minimum(first, uppers.searchsorted(values[at]))
            last = np.maximum(last, lowers.searchsorted(values[at], "right"))
        ties = around.starts_of_ties(self.layout, reach.peers) if reach.peers else None
        if ties is not None:
            first = ties[first]
        if reach.running:
            last = around.stops
        begin, end = around.back(first, reach.before), around.ahead(last, reach.after)
        if by_value is not None:
            begin = np.minimum(begin, values.searchsorted(lowers[first]))
            end = np.maximum(end, values.searchsorted(uppers[last - 1], "right"))
        if ties is not None:
            begin = ties[begin]
        if around.mixed:
            begin, end = around.starts, around.stops
        short = (around.open_left & (begin <= around.low)) | (
            around.open_right & (end > around.high)
        )
        return _Slices(np.arange(len(at)), begin, first, last, end), short

    def _versions(
        self, around: RowsAround, slices: _Slices, numbered: int, before: tuple[Spine, ...]
    ) -> list[pa.Table]:
        """Return the rows of both versions of the slices; those that overlap become one."""
        if not len(slices.probes):
            return []
        slices = slices.of(np.argsort(slices.begin, kind="stable"))
        reached = np.zeros(len(around.at) + 1, np.int64)
        np.add.at(reached, slices.first, 1)
        np.add.at(reached, slices.last, -1)
        ends = np.maximum.accumulate(slices.end)
        heads = np.concatenate([[True], slices.begin[1:] >= ends[:-1]]).nonzero()[0]
        ends = ends[np.append(heads[1:], len(ends)) - 1]
        which, rows = pairs_of(slices.begin[heads], ends - slices.begin[heads])
        marks = {SLICE: which + numbered, REACHED: (np.cumsum(reached)[:-1] > 0)[rows]}
        if self.reach.running:
            marks |= self._before(around, slices.of(heads), which, before)
        weights = around.old[rows], around.new[rows]
        if any((each < 0).any() for each in weights):
            raise HeadraceError(
                Code.INTERNAL,
                "a row of a group has a negative weight",
                detail="The input of the view deletes a row that was never inserted.",
            )
        return [
            self._version(around.source, around.at[rows], marks, copies, version)
            for version, copies in enumerate(weights)
        ]

    def _before(
        self, around: RowsAround, slices: _Slices, which: Ints, before: tuple[Spine, ...]
    ) -> dict[str, np.ndarray | pa.Array]:
        """Return what is before slices in their groups, for rows by the number of their slice."""
        places = around.before(slices.probes, slices.begin)
        count = np.zeros(len(slices.probes), np.int64)
        for run, starts, stops in places:
            count += weights_between(run, starts, stops)
        found: dict[str, np.ndarray | pa.Array] = {BEFORE: count[which]}
        if self.reach.dense:
            heads = around.source.take(around.at[slices.begin])
            values = self._order_values(heads, np.zeros(heads.rows, np.int64))
            # Of rows of several keys with one hash, slices begin where their groups do.
            counted = np.zeros_like(count) if around.mixed else before[1].count_before(values)
            found[ORDERS] = counted[which]
        for i, name in enumerate(self.reach.sums):
            sums = np.zeros((3, len(slices.probes)), np.int64)
            for run, starts, stops in places:
                more, read = sums_between(run, name, starts, stops)
                sums += more
                before[0].reads.rows += read
            total, seen = sums_of(i)
            found[total] = _whole(sums, self.schema.field(total).type).take(pa.array(which))
            found[seen] = sums[2][which]
        return found

    def _version(
        self,
        source: ZSet,
        at: Ints,
        marks: dict[str, np.ndarray | pa.Array],
        copies: Ints,
        version: int,
    ) -> pa.Table:
        """Return rows, each as often as it has copies, with the marks of one version."""
        kept = np.repeat(np.arange(len(at)), copies)
        rows, schema = source.take(at[kept]).table, self.schema
        taken = pa.array(kept)
        own = {name: pa.array(values).take(taken) for name, values in marks.items()}
        own[VERSION] = pa.array(np.full(len(kept), version, np.int64))
        columns = [own[name] if name in own else column(rows, name) for name in schema.names]
        return pa.Table.from_arrays(columns, schema=schema)


def sums_of(index: int) -> tuple[str, str]:
    """Return the output columns of one of ``sums``: the sum, a DECIMAL, and how many it adds up."""
    return f"__sum{index}", f"__seen{index}"


def _total_of(type_: pa.DataType) -> pa.DataType:
    return pa.decimal128(38, type_.scale if pa.types.is_decimal(type_) else 0)


def _whole(halves: np.ndarray, type_: pa.DataType) -> pa.Array:
    """Return the sums of upper and of lower halves of 64 bits as decimals."""
    upper, lower = halves[0], halves[1]
    carried = upper + (lower >> np.int64(32))
    low = (carried << np.int64(32)) | (lower & np.int64(0xFFFFFFFF))
    words = np.ascontiguousarray(np.stack([low, carried >> np.int64(32)], axis=1))
    return pa.Array.from_buffers(type_, len(low), [None, pa.py_buffer(words)])


@dataclass(frozen=True, slots=True)
class _Slices:
    """The slice of each probe, ``[begin, end)``; the rows ``[first, last)`` of it are reached."""

    probes: Ints
    begin: Ints
    first: Ints
    last: Ints
    end: Ints

    def of(self, kept: Ints | Bools) -> _Slices:
        """Return the slices of some probes."""
        return _Slices(
            self.probes[kept],
            self.begin[kept],
            self.first[kept],
            self.last[kept],
            self.end[kept],
        )
