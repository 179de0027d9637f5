"""``SELECT key, session_window(at, gap), count(*) ... GROUP BY``: totals of each session.

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

from headrace.errors import Code, HeadraceError
from headrace.operators.aggregate_parts import (
    ROWS,
    End,
    Extremum,
    answer_schema,
    check_groups,
    increments_of,
)
from headrace.operators.protocol import StatefulOperator, StepResult
from headrace.operators.sessions import (
    END,
    START,
    Intervals,
    by_time,
    made,
    near,
    rows_layout,
    sessions_layout,
    structs,
    within,
)
from headrace.zset import WEIGHT, Layout, OrderBy, ZSet
from headrace.zset.equality import valid
from headrace.zset.order import exact_keys, order_keys, ordered
from headrace.zset.sums import is_zero, sums_at
from headrace.zset.zset import column, fresh, numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.spine import Spine
    from headrace.zset.equality import Bools, Ints

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
