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

from headrace.errors import Code, HeadraceError
from headrace.operators.protocol import StatefulOperator, StepResult
from headrace.spine import Rank, Ranked
from headrace.zset import HASH, WEIGHT, Layout, ZSet
from headrace.zset.zset import column

if TYPE_CHECKING:
    from headrace.spine import Spine
    from headrace.zset.equality import Ints

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
        change = ZSet.of(self.layout, inputs[0]).consolidated()
        if self.append_only and (change.weights < 0).any():
            raise HeadraceError(
                Code.INTERNAL,
                "an append-only input deletes a row",
                detail="The first rows were kept without the rows that would replace them.",
            )
        groups = change.take(change.keyed()[0])
        asked = (groups.hashes, groups.keys, self.skip + self.count, self.rank)
        old, new = before[0].first_rows_around(change, *asked)
        if (new.rows.weights < 0).any():
            raise HeadraceError(
                Code.INTERNAL,
                "a row has a negative weight",
                detail="The input deletes a row that was never inserted.",
            )
        output = self._first(new).plus(self._first(old).negated()).consolidated()
        if self.append_only:
            change = new.rows.plus(old.rows.negated()).consolidated()
        return StepResult(output.table, (change,))

    def _first(self, found: Ranked) -> ZSet:
        """Return the copies whose rank is in the range."""
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
    """Return the rows, ranks and copies with one entry of its own for every copy."""
    within = np.arange(copies.sum()) - np.repeat(np.cumsum(copies) - copies, copies)
    return np.repeat(rows, copies), np.repeat(ranks, copies) + within, np.ones_like(within)
