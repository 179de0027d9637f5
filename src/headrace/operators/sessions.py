"""Sessions: intervals of one key that overlap or touch, united.

A row has an interval of time, closed at both ends: from its own time until a gap later. A session
is the union of intervals that are connected, so sessions of one key neither overlap nor touch. What
a change can reach are the sessions that it overlaps or touches, and nothing else of its key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.spine import Rank
from headrace.zset import HASH, Layout, OrderBy, ZSet
from headrace.zset.zset import column, fresh, take

if TYPE_CHECKING:
    from headrace.spine import Spine
    from headrace.zset.equality import Bools, Ints

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
