"""``row_number() OVER (PARTITION BY key ORDER BY x) <= n``, ``ORDER BY x LIMIT n OFFSET m``.

Algebra: not linear. Only the groups touched can change, and in these only the first rows::

    Δ answer = first(a + Δa) - first(a)

State: the input, arranged by the key, in order. If the input is append-only, only the first
``skip + count`` rows of each group are kept, and the rows that tie with them: no other row can
become one of the first.
Cost per epoch: O(|Δ| log n) plus, for each group touched, the first ``skip + count`` rows of each
run, and the rows that tie with them; never the whole group, except rows in front that were
retracted since runs were last merged.
NULL: the NULLs of a key are one group; in the order, NULL is where the layout puts it.
Ties: rows that tie in the order of the layout are ordered by their values. So the result depends
on the rows alone, not on their history.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.algebra.operators.protocol import StatefulOperator, StepResult
from headrace.algebra.spine import FirstOf, Rank
from headrace.algebra.spine.first_rows import ranked
from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet, same_pairs
from headrace.algebra.zset.order import coarse_keys, valid
from headrace.algebra.zset.sums import segment_sums_int64
from headrace.algebra.zset.zset import column, fresh
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from headrace.algebra.spine import Around, Ranked, Spine
    from headrace.algebra.zset.order import Bools, Ints


_SOME = 32
"""The fewest rows of an input that only grows that are compared with the first rows one by one."""

_WEIGHT_FIELD = pa.field(WEIGHT, pa.int64(), nullable=False)


@dataclass(frozen=True)
class FirstRows(StatefulOperator):
    """Emit the copies of each group's rows whose rank is in ``(skip, skip + count]``.

    ``layout``: the key is that of the group (if it is empty, every ``__hash`` is 0), the order is
    the ``ORDER BY``. The input is a table with the layout's physical schema. The output has the
    same columns, with the rank as int64 column ``number`` before the weight if it is named;
    consolidated. The weight of an output row is the number of its copies in that range.
    With ``append_only``, no row of the input is ever retracted.
    """

    layout: Layout
    count: int
    rank: Rank = Rank.ROW_NUMBER
    skip: int = 0
    number: str | None = None
    append_only: bool = False

    def __post_init__(self) -> None:
        if self.layout.summed.names != [WEIGHT]:
            raise HeadraceError(Code.INTERNAL, "an input with accumulators has no first rows")
        if not self.layout.order:
            raise HeadraceError(Code.INTERNAL, "an input without order has no first rows")

    @property
    def layouts(self) -> tuple[Layout]:
        """The rows, by group, in order."""
        return (self.layout,)

    @cached_property
    def answer(self) -> Layout:
        """The layout of the output."""
        number = [pa.field(self.number, pa.int64(), nullable=False)] if self.number else []
        columns = pa.schema([*self.layout.columns, *number])
        return Layout(self.layout.key, columns, pa.schema([_WEIGHT_FIELD]))

    @property
    def schema(self) -> pa.Schema:
        """The schema of the output."""
        return self.answer.schema

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:
        """Return the delta of the first rows, and the delta of the state."""
        given, spine = ZSet.of(self.layout, inputs[0]), before[0]
        if self.append_only and (given.weights < 0).any():
            raise HeadraceError(
                Code.INTERNAL,
                "an append-only input deletes a row",
                detail="The first rows were kept without the rows that would replace them.",
            )
        if self.append_only and given.rows >= _SOME:
            around = self._grown(given, spine)
        else:
            change = given.consolidated()
            groups = change.take(change.keyed()[0])
            around = spine.first_rows_around(change, groups.hashes, groups.keys, *self._asked)
        if self.append_only:
            change = around.weighed(self.layout, around.after.weights - around.before.weights)
        if (around.after.weights < 0).any():
            raise HeadraceError(
                Code.INTERNAL,
                "a row has a negative weight",
                detail="The input deletes a row that was never inserted.",
            )
        return StepResult(self._change(around).table, (change,))

    @property
    def _asked(self) -> tuple[int, Rank]:
        return self.skip + self.count, self.rank

    def _grown(self, given: ZSet, spine: Spine) -> Around:
        """Return the first rows before and after an input is added that only grows.

        Its rows that are after all first rows of a full group are left out before it is sorted. A
        group is full if the rank of further rows would be above the last one.
        """
        hashes, heads = np.unique(given.hashes, return_index=True)
        read = spine.read_first(hashes, self.skip + self.count)
        count, rank = self._asked
        found, _ = ranked(read, given.take(heads).keys, rank, count)
        beyond = self._beyond(given, hashes, found)
        change = given.filter(~beyond).consolidated()
        groups = change.take(change.keyed()[0])
        known = read.of(hashes.searchsorted(groups.hashes))
        return spine.first_rows_around(change, groups.hashes, groups.keys, *self._asked, known)

    def _beyond(self, given: ZSet, hashes: Ints, found: Ranked) -> Bools:
        """Return which rows are after all first rows of a full group, given those by hash."""
        none = np.zeros(given.rows, np.bool_)
        if not len(found.probes):
            return none
        order, count = self.layout.order[0], self.skip + self.count
        starts = fresh(found.probes).nonzero()[0]
        last = np.append(starts[1:], len(found.probes)) - 1
        reached = found.ranks[last]
        if self.rank is not Rank.DENSE_RANK:
            reached = segment_sums_int64(found.rows.weights.clip(0, count), starts)
        ends, values = column(found.rows.table, order.name), column(given.table, order.name)
        last = last[(reached >= count) & valid(ends)[last]]
        if not len(last):
            return none
        of_hash = np.full(len(hashes), -1, np.int64)
        of_hash[found.probes[last]] = last
        end_of = of_hash[hashes.searchsorted(given.hashes)]
        own, end = coarse_keys(values), coarse_keys(ends)[end_of]
        after = own < end if order.descending else own > end
        beyond = (end_of >= 0) & after & valid(values)
        rows = beyond.nonzero()[0]
        beyond[rows] = same_pairs(given.keys, rows, found.rows.keys, end_of[rows])
        return beyond

    def _change(self, around: Around) -> ZSet:
        """Return the delta of the rows whose rank is in the range."""
        if self.number is None:
            copies = [self._copies(state)[0] for state in (around.before, around.after)]
            return around.weighed(self.answer, copies[1] - copies[0])
        old, new = (self._numbered(around.ranked(s)) for s in (around.before, around.after))
        return new.plus(old.negated()).consolidated()

    def _copies(self, found: FirstOf) -> tuple[Ints, Ints]:
        """Return how many copies have a rank in the range, and the rank of the first of these."""
        ranks, copies = found.ranks, found.weights
        if self.rank is not Rank.ROW_NUMBER:
            return np.where(ranks > self.skip, copies.clip(0), 0), ranks
        stops = ranks + copies.clip(0, self.skip + self.count)
        ranks = np.maximum(ranks, self.skip + 1)
        return (np.minimum(stops, self.skip + self.count + 1) - ranks).clip(0), ranks

    def _numbered(self, found: Ranked) -> ZSet:
        """Return the copies whose rank is in the range, with their ranks."""
        copies, ranks = self._copies(FirstOf(found.rows.weights, found.ranks))
        kept = copies.nonzero()[0]
        ranks, copies = ranks[kept], copies[kept]
        if self.rank is Rank.ROW_NUMBER:
            kept, ranks, copies = _one_by_one(kept, ranks, copies)
        rows, answer = found.rows.take(kept), self.answer
        columns = [column(rows.table, name) for name in (HASH, *self.layout.columns.names)]
        columns += [pa.array(ranks), pa.array(copies)]
        return ZSet(answer, pa.Table.from_arrays(columns, schema=answer.schema))


def _one_by_one(rows: Ints, ranks: Ints, copies: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the rows, ranks and copies with one entry of its own for every copy."""
    within = np.arange(copies.sum()) - np.repeat(np.cumsum(copies) - copies, copies)
    return np.repeat(rows, copies), np.repeat(ranks, copies) + within, np.ones_like(within)
