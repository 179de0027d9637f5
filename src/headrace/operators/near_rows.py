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

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.operators.protocol import StatefulOperator, StepResult
from headrace.operators.row_kinds import VERSION
from headrace.spine import pairs_of, sums_between, weights_between
from headrace.zset import HASH, WEIGHT, Layout, ZSet, row_codes, same_pairs
from headrace.zset.order import order_keys, ordered
from headrace.zset.sums import segment_sums_int64
from headrace.zset.zset import column, fresh, in_one_piece

if TYPE_CHECKING:
    from headrace.spine import Neighbours, Run, Spine
    from headrace.zset.equality import Bools, Ints

SLICE = "__slice"
"""The output column with the number of a slice; slices of all groups are numbered together."""

REACHED = "__reached"
"""The output column that is true for the rows whose values the changes may have changed."""

BEFORE = "__before"
"""The output column with the number of rows of the group that are before the slice."""

ALL = np.int64(2**40)
"""More rows than any group has."""
_SOME = 16
"""How many rows are read at first on each side, if frames are bounded by value."""
MORE = 4
"""How many times more rows are read where those read were too few."""


@dataclass(frozen=True, slots=True)
class FrameReach:
    """The rows on which the values of functions may depend: the union of their frames.

    ``before`` and ``after`` count rows. ``lowers`` and ``uppers`` are columns with values of the
    first column of the order: frames begin at the least value that is not before one in ``lowers``,
    and end with the greatest value that is not after one in ``uppers``. If functions are
    ``running``, a value also depends on all rows before it, by their number and by the sums of the
    columns ``sums``, and with ``peers`` on the rows that are equal to it in so many columns of the
    order.
    """

    before: int = 0
    after: int = 0
    lowers: tuple[str, ...] = ()
    uppers: tuple[str, ...] = ()
    running: bool = False
    peers: int = 0
    sums: tuple[str, ...] = ()


@dataclass(frozen=True)
class NearRows(StatefulOperator):
    """Emit the slices of groups around changed rows, before and after the epoch.

    ``layout``: the key is that of the group, the order that of the functions. Each row of a slice
    is emitted as often as its weight. The output has ``__hash``, the columns of the layout,
    ``__version`` (0 before the epoch, 1 after it), ``__slice``, ``__reached`` and, if functions are
    running, ``__before`` and, for each of ``sums``, its sum over the rows before the slice and the
    number of its values that are not NULL there; see :func:`sums_of`. It has no weights.
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
    def layouts(self) -> tuple[Layout]:
        """The rows by group, in order."""
        return (self.layout,)

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the output."""
        marks = [pa.field(VERSION, pa.int64()), pa.field(SLICE, pa.int64())]
        marks.append(pa.field(REACHED, pa.bool_()))
        if self.reach.running:
            marks.append(pa.field(BEFORE, pa.int64()))
        for i, name in enumerate(self.reach.sums):
            total, seen = sums_of(i)
            marks.append(pa.field(total, _total_of(self.layout.columns.field(name).type)))
            marks.append(pa.field(seen, pa.int64()))
        return pa.schema([self.layout.schema.field(HASH), *self.layout.columns, *marks])

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:
        """Return both versions of the slices around the changes, and the consolidated input."""
        change = ZSet.of(self.layout, inputs[0]).consolidated()
        if not change.rows:
            return StepResult(self.schema.empty_table(), (change,))
        reach = self.reach
        block = np.cumsum(fresh(change.hashes)) - 1
        some = reach.before + reach.after + (_SOME if reach.lowers else 2)
        most = np.full(int(block[-1]) + 1, some)
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
            parts += self._versions(around, answered, slices, before[0])
            slices += len(pending)
            most[np.unique(block[pending[unanswered]])] *= MORE
            pending = pending[unanswered]
        return StepResult(pa.concat_tables([self.schema.empty_table(), *parts]), (change,))

    def _sliced(self, around: RowsAround) -> tuple[_Slices, Bools]:
        """Return the slice of each probe, and for which of them more rows have to be read."""
        reach, at = self.reach, around.probes
        by_value = around.by_value(self.layout, reach)
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
        self, around: RowsAround, slices: _Slices, numbered: int, spine: Spine
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
            marks |= self._before(around, slices.of(heads), which, spine)
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
        self, around: RowsAround, slices: _Slices, which: Ints, spine: Spine
    ) -> dict[str, np.ndarray | pa.Array]:
        """Return what is before slices in their groups, for rows by the number of their slice."""
        places = around.before(slices)
        count = np.zeros(len(slices.probes), np.int64)
        for run, starts, stops in places:
            count += weights_between(run, starts, stops)
        found: dict[str, np.ndarray | pa.Array] = {BEFORE: count[which]}
        for i, name in enumerate(self.reach.sums):
            sums = np.zeros((3, len(slices.probes)), np.int64)
            for run, starts, stops in places:
                more, read = sums_between(run, name, starts, stops)
                sums += more
                spine.reads.rows += read
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

    def by_value(self, layout: Layout, reach: FrameReach) -> tuple[Ints, Ints, Ints] | None:
        """Return numbers that compare as the values of rows and the bounds of their frames do.

        All ascend, group by group. None if there are no such frames.
        """
        if not reach.lowers:
            return None
        by, rows = layout.order[0], len(self.at)
        names = (by.name, *reach.lowers, *reach.uppers)
        at = pa.array(self.at)
        columns = [column(self.source.table, name).take(at) for name in names]
        every = pa.concat_arrays(columns)
        order, codes = ordered(np.zeros(len(every), np.int64), order_keys(every, by))
        numbers = np.empty(len(every), np.int64)
        numbers[order] = codes
        numbers = numbers.reshape(len(names), rows) + self.groups * (int(codes[-1]) + 1)
        bounds = 1 + len(reach.lowers)
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

    def before(self, slices: _Slices) -> list[tuple[Run, Ints, Ints]]:
        """Return where the rows before slices to the end of their groups are, by run."""
        if self.mixed:
            return []  # their groups are read whole
        found, read, near = [], self.entries[len(self.probes) :], self.near
        for i, run in enumerate(near.runs):
            own = read[near.offsets[i] : near.offsets[i + 1]]
            starts, stops = near.starts[i, slices.probes], near.stops[i, slices.probes]
            places = own.searchsorted(slices.begin)
            positions = np.append(near.positions[i], 0)[places]
            inside = (places < len(own)) & (positions < stops) & (positions >= starts)
            found.append((run, starts, np.where(inside, positions, stops)))
        return found


def _at(places: Ints, entries: Ints, absent: int) -> Ints:
    """Return the indexes of rows that were read, by run and probe; -1 stands for no row."""
    if not len(entries):
        return np.full(places.shape, absent)
    return np.where(places >= 0, entries[places], absent)
