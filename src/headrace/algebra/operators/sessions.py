"""Sessions: intervals of one key that overlap or touch, united.

A row has an interval of time, closed at both ends: from its own time until a gap later. A session
is the union of intervals that are connected, so sessions of one key neither overlap nor touch. What
a change can reach are the sessions that it overlaps or touches, and nothing else of its key.

``SELECT key, session_window(at, gap), count(*) ... GROUP BY``: totals of each session.

Algebra: the totals of a session are the sums of those of its rows, so sessions that a change
connects add up, and a session whose extent does not change gets the increments::

    total(s1 + s2 + Δ) = total(s1) + total(s2) + Δ

Only what a retraction leaves open has to be found among the rows: whether those around it still
connect, and the totals of the pieces if they do not.

State: the sessions by key, the latest first, with their totals, least and greatest values; unless
the input only grows, also its rows by key and time, as increments.
Cost per epoch: O(|Δ| log n) for inserted rows, however long their session is. A retracted row
reads the rows within the longest gap of its session around it. If it splits the session, or was its
least or greatest value, the rows of that session are read; never those of others.
NULL: the NULLs of a key are one key. A row without a time is in no session: it is not in the input.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.algebra.operators.aggregate_parts import (
    ROWS,
    End,
    Extremum,
    answer_schema,
    check_groups,
    increments_of,
)
from headrace.algebra.operators.protocol import StatefulOperator, StepResult
from headrace.algebra.spine import Rank
from headrace.algebra.zset import HASH, WEIGHT, Layout, OrderBy, ZSet
from headrace.algebra.zset.order import exact_keys, order_keys, ordered, valid
from headrace.algebra.zset.sums import is_zero, sums_at
from headrace.algebra.zset.zset import column, fresh, numbers, take
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.algebra.spine import Spine
    from headrace.algebra.zset.order import Bools, Ints


START, END = "start", "end"
"""The columns of an arrangement with the ends of an interval; it is ordered by the start."""


def rows_layout(given: Layout, session: str) -> Layout:
    """Return the layout of rows by time: with both ends in place of the struct ``session``."""
    others = [each for each in given.columns if each.name != session]
    columns = pa.schema([*others, *_ends(given, session)])
    return Layout(given.key, columns, given.summed, (OrderBy(START),))


def sessions_layout(given: Layout, session: str, more: list[pa.Field]) -> Layout:
    """Return the layout of sessions, the latest of each key first, with ``more`` columns."""
    keys = [given.columns.field(name) for name in given.key]
    columns = pa.schema([*keys, *_ends(given, session), *more])
    return Layout(given.key, columns, given.summed, (OrderBy(START, descending=True),))


def by_time(given: ZSet, layout: Layout, session: str) -> ZSet:
    """Return rows with a struct ``session`` as rows by time, consolidated."""
    intervals = column(given.table, session)
    if intervals.null_count:
        raise HeadraceError(Code.INTERNAL, "a row of a session has no time")
    ends = dict(zip((START, END), intervals.flatten(), strict=True))
    columns = [ends[n] if n in ends else column(given.table, n) for n in layout.schema.names]
    return ZSet(layout, pa.Table.from_arrays(columns, schema=layout.schema)).consolidated()


def structs(starts: pa.Array, ends: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return intervals as structs of a type."""
    return pa.StructArray.from_arrays([starts, ends], fields=list(type_))


def _ends(given: Layout, session: str) -> list[pa.Field]:
    times = given.columns.field(session).type
    return [pa.field(name, times.field(i).type) for i, name in enumerate((START, END))]


@dataclass(frozen=True, slots=True)
class Intervals:
    """Closed intervals of numbered groups."""

    groups: Ints
    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, groups: Ints, rows: ZSet) -> Intervals:
        """Return the intervals of arranged rows, whose groups are given."""
        starts, ends = (
            np.asarray(column(rows.table, name).view(pa.int64())) for name in (START, END)
        )
        return cls(groups, starts, ends)

    def where(self, kept: Bools | Ints) -> Intervals:
        """Return some of the intervals, by a mask or by position."""
        return Intervals(self.groups[kept], self.starts[kept], self.ends[kept])

    def plus(self, *others: Intervals) -> Intervals:
        """Return these intervals, then others."""
        every = (self, *others)
        return Intervals(
            np.concatenate([each.groups for each in every]),
            np.concatenate([each.starts for each in every]),
            np.concatenate([each.ends for each in every]),
        )

    def united(self) -> tuple[Intervals, Ints]:
        """Return the connected unions, by group and start, and the position of each one's union."""
        count = len(self.groups)
        order = np.lexsort([self.starts, self.groups])
        groups, starts = self.groups[order], self.starts[order]
        values, ranks = np.unique(self.ends[order], return_inverse=True)
        first = fresh(groups)
        # The greatest end so far in each group: the numbers of a group are above those before it.
        bases = (first.cumsum() - 1) * count
        reached = np.maximum.accumulate(bases + ranks) - bases
        first[1:] |= starts[1:] > values[reached[:-1]]
        heads = first.nonzero()[0]
        lasts = np.append(heads[1:], count)[: len(heads)] - 1
        of = np.empty(count, np.int64)
        of[order] = first.cumsum() - 1
        return Intervals(groups[heads], starts[heads], values[reached[lasts]]), of

    def without(self, parts: Intervals) -> Intervals:
        """Return what is left of these intervals, one of each group, around parts of them.

        Groups ascend. What is left around parts is closed, and longer than one point.
        """
        holes, _ = parts.united()
        at = self.groups.searchsorted(holes.groups)
        first, begins = fresh(holes.groups), self.starts[at]
        begins[~first] = holes.ends[:-1][~first[1:]]
        last = np.append(first[1:], np.True_)[: len(first)].nonzero()[0]
        left = Intervals(holes.groups, begins, holes.starts).plus(
            Intervals(holes.groups[last], holes.ends[last], self.ends[at[last]])
        )
        untouched = np.ones(len(self.groups), np.bool_)
        untouched[at] = False
        return left.where(left.starts < left.ends).plus(self.where(untouched))


def made(layout: Layout, keys: ZSet, sessions: Intervals, more: dict[str, pa.Array]) -> ZSet:
    """Return sessions of numbered keys, with the other columns of their layout."""
    names = [HASH, *layout.key]
    given = dict(zip(names, take(keys.table.select(names), sessions.groups).columns, strict=True))
    for name, values in ((START, sessions.starts), (END, sessions.ends)):
        given[name] = pa.array(values).view(layout.schema.field(name).type)
    given |= more
    columns = [given[name] for name in layout.schema.names]
    return ZSet(layout, pa.Table.from_arrays(columns, schema=layout.schema))


def near(sessions: Spine, keys: ZSet, blocks: Intervals) -> tuple[Ints, ZSet]:
    """Return the sessions that overlap or touch some intervals, each once, with their groups.

    ``sessions`` are arranged by key, the latest start first; ``keys`` has a row with the key of
    each group. About O(log n) for each interval, and the sessions found.
    """
    groups, found = [blocks.groups[:0]], [ZSet.empty(sessions.layout)]
    pending, count = np.arange(len(blocks.groups)), 2
    while len(pending):
        asked = blocks.where(pending)
        hashes, given = _of_groups(keys, asked.groups)
        read = sessions.first_rows(hashes, given, count, Rank.DENSE_RANK, asked.ends)
        starts = Intervals.of(read.probes, read.rows).starts
        unfinished = read.probes[(read.ranks == count) & (starts >= asked.starts[read.probes])]
        done = np.ones(len(pending), np.bool_)
        done[unfinished] = False
        kept = done[read.probes]
        groups.append(asked.groups[read.probes[kept]])
        rows = read.rows.filter(kept)
        reaches = Intervals.of(groups[-1], rows).ends >= asked.starts[read.probes[kept]]
        groups[-1] = groups[-1][reaches]
        found.append(rows.filter(reaches))
        pending, count = pending[~done], 2 * count
    of_row, rows = np.concatenate(groups), ZSet.sum_of(sessions.layout, found)
    # Two intervals may be near one session.
    order = np.lexsort([Intervals.of(of_row, rows).starts, of_row])
    ordered = Intervals.of(of_row, rows).where(order)
    once = order[fresh(ordered.groups) | fresh(ordered.starts)]
    return of_row[once], rows.take(once)


def within(rows: Spine, keys: ZSet, ranges: Intervals) -> tuple[Ints, ZSet]:
    """Return the rows that start in some ranges, each with the position of its range."""
    hashes, given = _of_groups(keys, ranges.groups)
    return rows.rows_between(hashes, given, ranges.starts, ranges.ends)


def _of_groups(keys: ZSet, groups: Ints) -> tuple[Ints, list[pa.Array]]:
    """Return the hash and the key of each group."""
    return keys.hashes[groups], [values.take(pa.array(groups)) for values in keys.keys]


_LONGEST = "longest"
"""The column of a session that no interval of its rows is longer than, in microseconds."""

_NONE = np.iinfo(np.int64).max


@dataclass(frozen=True)
class SessionAggregate(StatefulOperator):
    """Emit totals by session; sessions are those of one key.

    ``layout``: the key and the column ``session``, a struct of two times, are the identity; sums
    are as in :class:`GroupAggregate`, and so are the input, with the interval of its row in that
    column, and the output, with the session. With ``append_only``, no row is ever retracted, and
    rows are not kept.
    """

    layout: Layout
    session: str
    parts: tuple[Extremum, ...] = ()
    append_only: bool = False

    def __post_init__(self) -> None:
        if {*self.layout.key, self.session} != {*self.layout.columns.names}:
            raise HeadraceError(Code.INTERNAL, "the columns of a session are not its key")
        if self.session in self.layout.key:
            raise HeadraceError(Code.INTERNAL, "a session is part of its own key")

    @property
    def is_global(self) -> bool:
        """Whether there is a result over an empty input."""
        return False

    @cached_property
    def increments(self) -> Layout:
        """The layout of the input: key, interval, arguments; sums: accumulators, weights."""
        return increments_of(self.layout, self.parts)

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        """The rows as increments, by key and time, unless the input only grows; the sessions."""
        return (self._sessions,) if self.append_only else (self._rows, self._sessions)

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the output."""
        return answer_schema(self.layout, self.parts)

    @cached_property
    def _rows(self) -> Layout:
        return rows_layout(self.increments, self.session)

    @cached_property
    def _sessions(self) -> Layout:
        more = [
            pa.field(_LONGEST, pa.int64()),
            *(each for part in self.parts for each in part.fields),
        ]
        return sessions_layout(self.layout, self.session, more)

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:
        """Return old and new totals of the sessions touched, and the deltas of the state."""
        change = by_time(ZSet.of(self.increments, inputs[0]), self._rows, self.session)
        if not change.rows:
            return StepResult(self.schema.empty_table(), tuple(map(ZSet.empty, self.layouts)))
        if self.append_only and (change.weights < 0).any():
            raise HeadraceError(
                Code.INTERNAL,
                "an append-only input deletes a row",
                detail="Its sessions were kept without their rows.",
            )
        heads, group = change.keyed()
        keys = change.take(heads)
        own = Intervals.of(group, change)
        group, former = near(before[-1], keys, own.united()[0])
        whole, of = own.plus(Intervals.of(group, former)).united()
        reach = _Reach(self, keys, whole, change, of[: change.rows], former, of[change.rows :])
        rows = None if self.append_only else before[0].plus(change)
        new = reach.sessions(rows)
        state = ZSet.sum_of(self._sessions, [former.negated(), new]).consolidated()
        output = pa.concat_tables([self._answer(former, -1), self._answer(new, 1)])
        return StepResult(output, (state,) if self.append_only else (change, state))

    def _answer(self, sessions: ZSet, weight: int) -> pa.Table:
        """Return the output rows of some sessions, with the given weight: +1 or -1."""
        table, times = sessions.table, self.layout.columns.field(self.session).type
        given = {
            self.session: structs(column(table, START), column(table, END), times),
            WEIGHT: pa.array(np.full(table.num_rows, weight, np.int64)),
            ROWS: table.column(WEIGHT),
        }
        columns = [given[n] if n in given else table.column(n) for n in self.schema.names]
        return pa.Table.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True, slots=True)
class _Reach:
    """What a change reaches: its rows and the former sessions near them, united to *stretches*.

    Neither a former nor a new row goes on beyond the ends of a stretch. ``of_row`` and
    ``of_former`` have the stretch of each row of the change and of each former session; every
    stretch has a row. ``keys`` has the key of each group.
    """

    operator: SessionAggregate
    keys: ZSet
    stretches: Intervals
    change: ZSet
    of_row: Ints
    former: ZSet
    of_former: Ints

    def sessions(self, rows: Spine | None) -> ZSet:
        """Return the new sessions, given the rows after the change, unless the input only grows."""
        count = len(self.stretches.groups)
        every = Intervals(np.arange(count), self.stretches.starts, self.stretches.ends)
        extents, longest = self._extents(every, rows)
        pieces = np.bincount(extents.groups, minlength=count)
        extrema, lost = self._extrema()
        again = (pieces > 1) | (lost & (pieces > 0))
        sums = self._sums()
        whole = extents.where(~again[extents.groups])
        at = pa.array(whole.groups)
        columns = [each.take(at) for each in (*extrema, *sums)]
        found = self._made(whole, longest[whole.groups], columns)
        if rows is not None and again.any():
            found = found.plus(self._read_again(every.where(again), rows))
        emptied = pieces == 0
        if not (found.weights > 0).all() or not all(is_zero(each)[emptied].all() for each in sums):
            raise HeadraceError(
                Code.INTERNAL,
                "a session has totals that no rows have",
                detail="The input of the aggregate deletes a row with other values than it had.",
            )
        return found

    def _extents(self, every: Intervals, rows: Spine | None) -> tuple[Intervals, Ints]:
        """Return the extents of the new sessions, grouped by stretch, and each stretch's longest.

        Where a row has gone, the rows that overlap its interval show what is left of it: all of
        them start at most the longest interval before it.
        """
        own = Intervals.of(self.of_row, self.change)
        longest = np.zeros(len(every.groups), np.int64)
        np.maximum.at(longest, self.of_row, own.ends - own.starts)
        np.maximum.at(longest, self.of_former, numbers(self.former.table, _LONGEST))
        gone = _gone(own, self.change.weights)
        if rows is None or not len(gone.groups):
            return every, longest
        at = gone.groups
        starts = np.maximum(gone.starts - longest[at], every.starts[at])
        ranges, _ = Intervals(at, starts, gone.ends).united()
        probes, left = self._within(ranges, rows)
        there = Intervals.of(ranges.groups[probes], left)
        return every.without(gone).plus(there).united()[0], longest

    def _within(self, ranges: Intervals, rows: Spine) -> tuple[Ints, ZSet]:
        """Return the rows that start in ranges, which are grouped by stretch."""
        groups = self.stretches.groups[ranges.groups]
        probes, found = within(rows, self.keys, Intervals(groups, ranges.starts, ranges.ends))
        check_groups(found)
        present = found.weights > 0
        return probes[present], found.filter(present)

    def _sums(self) -> list[pa.Array]:
        """Return the sum of the former sessions and the change, by stretch."""
        names = self.operator.layout.summed.names
        codes = np.concatenate([self.of_former, self.of_row])
        columns = [
            pa.concat_arrays([column(self.former.table, n), column(self.change.table, n)])
            for n in names
        ]
        order = codes.argsort(kind="stable")
        return sums_at(columns, order, fresh(codes[order]).nonzero()[0])

    def _extrema(self) -> tuple[list[pa.Array], Bools]:
        """Return each part's extremum of the stretches, and where a row that had one has gone."""
        lost = np.zeros(len(self.stretches.groups), np.bool_)
        found = []
        for part in self.operator.parts:
            weights = numbers(self.change.table, part.weight)
            counted = weights.nonzero()[0]
            former = column(self.former.table, part.result)
            kept = valid(former).nonzero()[0]
            values = pa.concat_arrays(
                [
                    former.take(pa.array(kept)),
                    column(self.change.table, part.argument.name).take(pa.array(counted)),
                ]
            )
            of = np.concatenate([self.of_former[kept], self.of_row[counted]])
            signs = np.concatenate([np.zeros(len(kept), np.int64), np.sign(weights[counted])])
            ranks = _ranks(values, of, part)
            old, put, gone = (_least(ranks, of, signs == sign, len(lost)) for sign in (0, 1, -1))
            lost |= (gone <= old) & (gone < put) & (gone < _NONE)
            found.append(_at(values, ranks, np.minimum(old, put)))
        return found, lost

    def _read_again(self, stretches: Intervals, rows: Spine) -> ZSet:
        """Return the sessions of the rows of some stretches."""
        probes, found = self._within(stretches, rows)
        own = Intervals.of(stretches.groups[probes], found)
        sessions, of = own.united()
        longest = np.zeros(len(sessions.groups), np.int64)
        np.maximum.at(longest, of, own.ends - own.starts)
        order = of.argsort(kind="stable")
        names = self.operator.layout.summed.names
        starts = fresh(of[order]).nonzero()[0]
        sums = sums_at([column(found.table, name) for name in names], order, starts)
        extrema = []
        for part in self.operator.parts:
            counted = (numbers(found.table, part.weight) > 0).nonzero()[0]
            values = column(found.table, part.argument.name).take(pa.array(counted))
            ranks = _ranks(values, of[counted], part)
            every = np.ones(len(ranks), np.bool_)
            extrema.append(_at(values, ranks, _least(ranks, of[counted], every, len(longest))))
        return self._made(sessions, longest, [*extrema, *sums])

    def _made(self, extents: Intervals, longest: Ints, columns: Sequence[pa.Array]) -> ZSet:
        """Return sessions, grouped by stretch; ``columns`` are the extrema, then the sums."""
        layout, groups = self.operator.layouts[-1], self.stretches.groups[extents.groups]
        names = (*(part.result for part in self.operator.parts), *layout.summed.names)
        more = {_LONGEST: pa.array(longest), **dict(zip(names, columns, strict=True))}
        return made(layout, self.keys, Intervals(groups, extents.starts, extents.ends), more)


def _gone(rows: Intervals, weights: Ints) -> Intervals:
    """Return the intervals of retracted rows for which none is inserted, with repetitions."""
    if not (weights < 0).any():
        return rows.where(weights < 0)
    _, codes = np.unique(
        np.stack([rows.groups, rows.starts, rows.ends]), axis=1, return_inverse=True
    )
    replaced = np.zeros(len(codes), np.bool_)
    replaced[codes[weights > 0]] = True
    return rows.where((weights < 0) & ~replaced[codes])


def _ranks(values: pa.Array, groups: Ints, part: Extremum) -> Ints:
    """Return the rank of values by group and order, the extremum of each group first.

    Only equal values of one group have one rank; ranks are less than the number of values.
    """
    by = OrderBy(part.argument.name, part.end is End.MAX, nulls_first=False)
    order = groups.argsort(kind="stable")
    sorted_ = values.take(pa.array(order))
    within_, codes = ordered(groups[order], [*order_keys(sorted_, by), *exact_keys(sorted_)])
    ranks = np.empty(len(values), np.int64)
    ranks[order[within_]] = codes
    return ranks


def _at(values: pa.Array, ranks: Ints, wanted: Ints) -> pa.Array:
    """Return the values with some ranks, NULL where there is none."""
    places = np.zeros(len(values) + 1, np.int64)
    places[ranks] = np.arange(len(values))
    some = wanted < _NONE
    return values.take(pa.array(places[np.where(some, wanted, 0)], mask=~some))


def _least(ranks: Ints, groups: Ints, chosen: Bools, count: int) -> Ints:
    """Return the least rank of the chosen values of each group."""
    found = np.full(count, _NONE)
    np.minimum.at(found, groups[chosen], ranks[chosen])
    return found
