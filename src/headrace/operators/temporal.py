"""``WHERE ts > now() - INTERVAL 5 MINUTES``: rows that come and go as the clock passes.

Algebra: linear in the rows, and a function of the clock. A row is there from the time it enters
until the time it leaves. With the clock going from ``T0`` to ``T1``::

    Δ f = f(a + Δa, T1) - f(a, T0),    f(s, T) = the rows of s with enters <= T < leaves

which is what the changed rows are at ``T1``, plus the moves of the others in ``(T0, T1]``: a row is
``+1`` at the time it enters and ``-1`` at the time it leaves.

State: the moves that are still to come, in the order of time, spread over a few hashes. A row that
has left, or that came too late to be seen, is not kept; neither is the entry of one that is there.
Cost per epoch: O(|Δ| log n) plus the moves that are due, found by their time.
NULL: a time that is NULL makes the condition NULL: the row is never there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import Code, HeadraceError
from headrace.operators.protocol import StatefulOperator, Step
from headrace.spine import due_rows
from headrace.zset import HASH, WEIGHT, Layout, OrderBy, ZSet
from headrace.zset.zset import column, numbers

if TYPE_CHECKING:
    from headrace.spine import Spine
    from headrace.zset.equality import Bools, Ints

DUE = "__due"
"""The column of the state with the time of a move, in the unit of the clock."""

SIGN = "__sign"
"""The column of the state that is 1 where a row enters, and -1 where it leaves."""

CLOCK = pa.schema([pa.field("before", pa.int64()), pa.field("after", pa.int64())])
"""The second input: one row with the clock of the epoch before, and of this one."""

_WEIGHT_FIELD = pa.field(WEIGHT, pa.int64(), nullable=False)
_ALWAYS = -(2**63)


@dataclass(frozen=True)
class Temporal(StatefulOperator):
    """Keep the rows for which ``enters <= now < leaves``.

    ``rows`` are the columns of a row. ``enters`` and ``leaves`` name int64 columns of the input
    beside them, in the unit of the clock; None stands for always. Inputs are the change, with equal
    hashes for equal rows, and a table of ``CLOCK``. The output has ``__hash``, the columns of a row
    and the weight; consolidated. The clock must not go back.
    """

    rows: pa.Schema
    enters: str | None
    leaves: str | None

    @property
    def layout(self) -> Layout:
        """The moves to come, by time."""
        moves = [pa.field(DUE, pa.int64(), nullable=False)]
        moves.append(pa.field(SIGN, pa.int64(), nullable=False))
        columns = pa.schema([*self.rows, *moves])
        return Layout((), columns, pa.schema([_WEIGHT_FIELD]), (OrderBy(DUE),))

    @property
    def layouts(self) -> tuple[Layout]:
        """The moves to come."""
        return (self.layout,)

    @property
    def answer(self) -> Layout:
        """The layout of the output."""
        return Layout((), self.rows, pa.schema([_WEIGHT_FIELD]))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of the input, the weight last."""
        times = [name for name in (self.enters, self.leaves) if name is not None]
        return (HASH, *self.rows.names, *times, WEIGHT)

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> Step:
        """Return the rows that come and go, and how the moves to come change."""
        change, clock = inputs
        (past,), (now,) = clock["before"].to_pylist(), clock["after"].to_pylist()
        moves = self._moves(change)
        done = numbers(moves.table, DUE) <= now
        due = due_rows(before[0], past, now)
        if (due.weights < 0).any():
            raise HeadraceError(
                Code.INTERNAL,
                "a row is there a negative number of times",
                detail="The input deletes a row that was never inserted.",
            )
        output = self._performed(moves.filter(done).plus(due)).consolidated()
        update = moves.filter(~done).plus(due.negated()).consolidated()
        return Step(output.table, (update,))

    def _moves(self, change: pa.Table) -> ZSet:
        """Return when the changed rows enter and leave; not consolidated."""
        there = numbers(change, WEIGHT) != 0
        enters, enters_known = self._times(change, self.enters)
        leaves, leaves_known = self._times(change, self.leaves)
        there &= enters_known & leaves_known
        if self.enters is not None and self.leaves is not None:
            there &= enters < leaves
        parts = [self._moved(change, there, enters, 1)]
        if self.leaves is not None:
            parts.append(self._moved(change, there, leaves, -1))
        return ZSet.sum_of(self.layout, parts)

    def _moved(self, change: pa.Table, there: Bools, times: Ints, sign: int) -> ZSet:
        rows = pa.array(np.flatnonzero(there))
        columns = [column(change, name).take(rows) for name in (HASH, *self.rows.names)]
        columns += [pa.array(times).take(rows), pa.array(np.full(len(rows), sign, np.int64))]
        columns.append(column(change, WEIGHT).take(rows))
        layout = self.layout
        return ZSet.of(layout, pa.Table.from_arrays(columns, names=layout.schema.names))

    def _times(self, change: pa.Table, name: str | None) -> tuple[Ints, Bools]:
        """Return the times in a column, and where there is one."""
        if name is None:
            rows = change.num_rows
            return np.full(rows, _ALWAYS, np.int64), np.ones(rows, np.bool_)
        times = column(change, name)
        return (
            pc.fill_null(times, 0).to_numpy(zero_copy_only=False),
            times.is_valid().to_numpy(zero_copy_only=False),
        )

    def _performed(self, moves: ZSet) -> ZSet:
        """Return what moves do to the answer; not consolidated."""
        weights = pa.array(moves.weights * numbers(moves.table, SIGN))
        columns = [column(moves.table, name) for name in (HASH, *self.rows.names)]
        answer = self.answer
        return ZSet(answer, pa.Table.from_arrays([*columns, weights], schema=answer.schema))
