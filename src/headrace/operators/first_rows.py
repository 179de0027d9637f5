"""``row_number() OVER (PARTITION BY key ORDER BY x) <= n``, ``ORDER BY x LIMIT n OFFSET m``.

Algebra: not linear. Only the groups touched can change, and in these only the first rows::

    Δ answer = first(a + Δa) - first(a)

State: the input, arranged by the key, in order. Where no row of it ever goes, a row that is not
among the first will never be: then only the first ``skip + count`` of each group are kept, and
those that tie with them.
Cost per epoch: O(|Δ| log n) plus, for each group touched, the first ``skip + count`` rows of each
run, or those that tie with them; never the whole group, but for rows in front that were deleted
since runs were last merged.
NULL: the NULLs of a key are one group; in the order, NULL stands where the layout puts it.
Ties: after the order of the layout, rows are ordered by their values. So the answer depends on the
rows alone, and never on their history.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.operators.protocol import StatefulOperator, Step
from headrace.spine import Rank, Ranked
from headrace.zset import HASH, WEIGHT, Layout, ZSet
from headrace.zset.zset import column

if TYPE_CHECKING:
    from headrace.spine import Spine
    from headrace.zset.equality import Ints

_WEIGHT_FIELD = pa.field(WEIGHT, pa.int64(), nullable=False)


@dataclass(frozen=True)
class FirstRows(StatefulOperator):
    """Keep, of each group, the copies of rows with a rank in ``(skip, skip + count]``.

    ``layout``: the key is that of the group (there may be none: then every ``__hash`` is 0), the
    order is the ``ORDER BY``. The input is a table in its physical order. The output has the same
    columns, with the rank as an int64 column ``number`` before the weight if it is named;
    consolidated. A row of which only some copies are among the first has their number as weight.
    With ``append_only``, no row of the input ever goes.
    """

    layout: Layout
    count: int
    rank: Rank = Rank.ROW_NUMBER
    skip: int = 0
    number: str | None = None
    append_only: bool = False

    def __post_init__(self) -> None:
        if self.layout.summed.names != [WEIGHT]:
            raise HeadraceError(Code.INTERNAL, "the first rows of an input with accumulators")
        if not self.layout.order:
            raise HeadraceError(Code.INTERNAL, "the first rows of an input without order")

    @property
    def layouts(self) -> tuple[Layout]:
        """The rows, by group and in order."""
        return (self.layout,)

    @property
    def answer(self) -> Layout:
        """The layout of the output."""
        number = [pa.field(self.number, pa.int64(), nullable=False)] if self.number else []
        columns = pa.schema([*self.layout.columns, *number])
        return Layout(self.layout.key, columns, pa.schema([_WEIGHT_FIELD]))

    @property
    def schema(self) -> pa.Schema:
        """The schema of the output."""
        return self.answer.schema

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> Step:
        """Return the copies that come and go among the first, and the change of the state."""
        change = ZSet.of(self.layout, inputs[0]).consolidated()
        if self.append_only and (change.weights < 0).any():
            raise HeadraceError(
                Code.INTERNAL,
                "a row goes that was to stay",
                detail="The input of the first rows was to grow only, but deletes a row.",
            )
        groups = _groups(change)
        asked = (groups.hashes, groups.keys, self.skip + self.count, self.rank)
        old = before[0].first_rows(*asked)
        new = before[0].plus(change).first_rows(*asked)
        if (new.rows.weights < 0).any():
            raise HeadraceError(
                Code.INTERNAL,
                "a row is there a negative number of times",
                detail="The input deletes a row that was never inserted.",
            )
        output = self._first(new).plus(self._first(old).negated()).consolidated()
        if self.append_only:
            change = new.rows.plus(old.rows.negated()).consolidated()
        return Step(output.table, (change,))

    def _first(self, found: Ranked) -> ZSet:
        """Return the copies whose rank is asked for."""
        ranks, copies = found.ranks, found.rows.weights
        if self.rank is Rank.ROW_NUMBER:
            stops = ranks + np.minimum(copies, self.skip + self.count)
            ranks = np.maximum(ranks, self.skip + 1)
            copies = np.minimum(stops, self.skip + self.count + 1) - ranks
        kept = np.flatnonzero((copies > 0) & (ranks > self.skip))
        ranks, copies = ranks[kept], copies[kept]
        if self.number is not None and self.rank is Rank.ROW_NUMBER:
            kept, ranks, copies = _one_by_one(kept, ranks, copies)
        rows = found.rows.take(kept)
        columns = [column(rows.table, name) for name in (HASH, *self.layout.columns.names)]
        numbers = [pa.array(ranks)] if self.number is not None else []
        answer = self.answer
        columns += [*numbers, pa.array(copies)]
        return ZSet(answer, pa.Table.from_arrays(columns, schema=answer.schema))


def _one_by_one(rows: Ints, ranks: Ints, copies: Ints) -> tuple[Ints, Ints, Ints]:
    """Give each copy its own row and number."""
    within = np.arange(copies.sum()) - np.repeat(np.cumsum(copies) - copies, copies)
    return np.repeat(rows, copies), np.repeat(ranks, copies) + within, np.ones_like(within)


def _groups(change: ZSet) -> ZSet:
    """Return the keys of consolidated rows, each once, sorted by hash."""
    layout = change.layout
    names = dict.fromkeys(layout.key)
    columns = pa.schema([layout.columns.field(name) for name in names])
    keys = Layout(layout.key, columns, pa.schema([_WEIGHT_FIELD]))
    ones = pa.array(np.ones(change.rows, np.int64))
    given = [column(change.table, name) for name in (HASH, *names)]
    table = pa.Table.from_arrays([*given, ones], schema=keys.schema)
    return ZSet(keys, table).consolidated()
