"""``WHERE ts > now() - INTERVAL 5 MINUTES``: rows that enter and leave as the clock advances.

Algebra: linear in the rows, and a function of the clock. A row is in the result from the time it
enters until the time it leaves. If the clock advances from ``T0`` to ``T1``::

    Δ f = f(a + Δa, T1) - f(a, T0),    f(s, T) = the rows of s with enters <= T < leaves

which is ``f(Δa, T1)`` plus the *moves* of the other rows in ``(T0, T1]``: a row moves with ``+1``
at the time it enters and with ``-1`` at the time it leaves.

State: the future moves, ordered by time, spread over a few hashes. Past moves are not kept: not
those of a row that has left or that arrived too late, nor the entry of a row in the result.
Cost per epoch: O(|Δ| log n) plus the moves that are due, found by their time.
NULL: a time that is NULL makes the condition NULL, so the row is never in the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.operators.protocol import StatefulOperator, StepResult
from headrace.algebra.spine import due_rows
from headrace.algebra.zset import DUE, HASH, WEIGHT, Layout, OrderBy, ZSet
from headrace.algebra.zset.zset import column, numbers, take
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from headrace.algebra.spine import Spine
    from headrace.algebra.zset.order import Bools, Ints


SIGN = "__sign"
"""The column of the state that is 1 if the row enters, and -1 if it leaves."""

CLOCK = pa.schema([pa.field("before", pa.int64()), pa.field("after", pa.int64())])
"""The second input: one row with the clock of the previous epoch and that of this epoch."""

_WEIGHT_FIELD = pa.field(WEIGHT, pa.int64(), nullable=False)
_ALWAYS = -(2**63)


@dataclass(frozen=True)
class Temporal(StatefulOperator):
    """Keep the rows for which ``enters <= now < leaves``.

    ``rows`` are the columns of a row. ``enters`` and ``leaves`` name further int64 columns of the
    input, in the unit of the clock; None means no such bound. Inputs are the delta, with equal
    hashes for equal rows, and a table of ``CLOCK``. The output has ``__hash``, the columns of a row
    and the weight; consolidated. The clock must not go back.
    """

    rows: pa.Schema
    enters: str | None
    leaves: str | None

    @cached_property
    def layout(self) -> Layout:
        """The layout of the future moves: ordered by time."""
        moves = [pa.field(DUE, pa.int64(), nullable=False)]
        moves.append(pa.field(SIGN, pa.int64(), nullable=False))
        columns = pa.schema([*self.rows, *moves])
        return Layout((), columns, pa.schema([_WEIGHT_FIELD]), (OrderBy(DUE),))

    @property
    def layouts(self) -> tuple[Layout]:
        """The layout of the future moves."""
        return (self.layout,)

    @cached_property
    def answer(self) -> Layout:
        """The layout of the output."""
        return Layout((), self.rows, pa.schema([_WEIGHT_FIELD]))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of the input, the weight last."""
        times = [name for name in (self.enters, self.leaves) if name is not None]
        return (HASH, *self.rows.names, *times, WEIGHT)

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:
        """Return the output delta, and the delta of the future moves."""
        change, clock = inputs
        (past,), (now,) = clock["before"].to_pylist(), clock["after"].to_pylist()
        moves = self._moves(change)
        done = numbers(moves.table, DUE) <= now
        due = due_rows(before[0], past, now)
        if (due.weights < 0).any():
            raise HeadraceError(
                Code.INTERNAL,
                "a row has a negative weight",
                detail="The input deletes a row that was never inserted.",
            )
        output = self._performed(moves.filter(done).plus(due)).consolidated()
        update = moves.filter(~done).plus(due.negated()).consolidated()
        return StepResult(output.table, (update,))

    def _moves(self, change: pa.Table) -> ZSet:
        """Return the moves of the changed rows, past and future; not consolidated."""
        moving = numbers(change, WEIGHT) != 0
        enters, enters_known = self._times(change, self.enters)
        leaves, leaves_known = self._times(change, self.leaves)
        moving &= enters_known & leaves_known
        if self.enters is not None and self.leaves is not None:
            moving &= enters < leaves
        parts = [self._moves_at(change, moving, enters, 1)]
        if self.leaves is not None:
            parts.append(self._moves_at(change, moving, leaves, -1))
        return ZSet.sum_of(self.layout, parts)

    def _moves_at(self, change: pa.Table, moving: Bools, times: Ints, sign: int) -> ZSet:
        kept = change.select([HASH, *self.rows.names, WEIGHT])
        if not moving.all():
            kept, times = take(kept, moving.nonzero()[0]), times[moving]
        *columns, weights = kept.columns
        columns += [pa.array(times), pa.array(np.full(len(times), sign, np.int64)), weights]
        layout = self.layout
        return ZSet.of(layout, pa.Table.from_arrays(columns, names=layout.schema.names))

    def _times(self, change: pa.Table, name: str | None) -> tuple[Ints, Bools]:
        """Return the times in a column, and whether each is not NULL."""
        if name is None:
            rows = change.num_rows
            return np.full(rows, _ALWAYS, np.int64), np.ones(rows, np.bool_)
        times = column(change, name)
        return (
            pc.fill_null(times, 0).to_numpy(zero_copy_only=False),
            times.is_valid().to_numpy(zero_copy_only=False),
        )

    def _performed(self, moves: ZSet) -> ZSet:
        """Return the output delta of moves; not consolidated."""
        weights = pa.array(moves.weights * numbers(moves.table, SIGN))
        columns = [column(moves.table, name) for name in (HASH, *self.rows.names)]
        answer = self.answer
        return ZSet(answer, pa.Table.from_arrays([*columns, weights], schema=answer.schema))
