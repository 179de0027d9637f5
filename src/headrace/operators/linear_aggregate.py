"""``SELECT key, count(*), sum(x) ... GROUP BY key``: aggregates that add up, of exact types.

Algebra: the accumulators are linear, so the state takes the increments as they are; only the
answer needs the old totals. For the groups touched, with ``n`` the number of rows of a group::

    Δ answer = [n + Δn > 0] (total + Δ) - [n > 0] total

State: the number of rows and the accumulators, by group. The spine adds them up.
Cost per epoch: O(|Δ| log n), whatever the size of the groups.
NULL: the NULLs of a key are one group. Arguments that are NULL have added nothing by now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.operators.protocol import StatefulOperator, Step
from headrace.zset import HASH, WEIGHT, Layout, ZSet
from headrace.zset.sums import is_zero
from headrace.zset.zset import column

if TYPE_CHECKING:
    from headrace.spine import Spine

ROWS = "__rows"
"""The output column with the number of rows of a group."""

INIT = "__init"
"""The sum that tells a global aggregate whose answer was published from a new one: 1, or none."""


@dataclass(frozen=True)
class LinearAggregate(StatefulOperator):
    """Keep totals by group; a group without rows vanishes.

    ``layout``: the identity columns are the group key; ``__weight`` sums to the number of rows;
    the other sums are the accumulators. The input is a table of increments in its physical order,
    per row or added up already. The output has ``__hash``, the key columns, ``__weight`` (-1 for
    an old row, +1 for a new one), ``__rows`` (int64) and the accumulators with their totals. At
    most two rows per group touched; none for a group in which nothing changes.
    """

    layout: Layout

    def __post_init__(self) -> None:
        if self.layout.key != tuple(self.layout.columns.names):
            raise HeadraceError(Code.INTERNAL, "a group is not identified by all of its key")

    @property
    def is_global(self) -> bool:
        """Whether there is an answer before there is any input."""
        return False

    @property
    def layouts(self) -> tuple[Layout]:
        """The totals by group."""
        return (self.layout,)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the output."""
        return _answer_schema(self.layout)

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> Step:
        """Return the old and new rows of the groups touched, and the increments consolidated."""
        change = ZSet.of(self.layout, inputs[0]).consolidated()
        _, old = before[0].lookup(change.hashes, change.keys)
        # The sum of both has a row for each group touched, unless all its totals are zero.
        new = old.plus(change).consolidated()
        _check_groups(new)
        old, new = old.filter(old.weights != 0), new.filter(new.weights != 0)
        output = pa.concat_tables([_answer(old, -1), _answer(new, 1)])
        return Step(output, (change,))


@dataclass(frozen=True)
class GlobalAggregate(StatefulOperator):
    """Keep totals without ``GROUP BY``: there is exactly one row, also over no input.

    ``increments`` is the layout of the input; it has no identity columns, and every ``__hash`` is
    0. The first step publishes the row, even for an input without rows; so only the partition that
    owns the hash 0 may step. The output is that of :class:`LinearAggregate`.
    """

    increments: Layout

    def __post_init__(self) -> None:
        if self.increments.columns.names:
            raise HeadraceError(Code.INTERNAL, "a global aggregate has a key")

    @property
    def is_global(self) -> bool:
        """Whether there is an answer before there is any input."""
        return True

    @property
    def layouts(self) -> tuple[Layout]:
        """The totals, with the sum ``__init`` that is 1 once the row was published."""
        return (self.increments.with_summed(pa.field(INIT, pa.int64(), nullable=False)),)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the output."""
        return _answer_schema(self.increments)

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> Step:
        """Return the old and the new row where they differ, and the increments consolidated."""
        given = ZSet.of(self.increments, inputs[0])
        if given.hashes.any():
            raise HeadraceError(Code.INTERNAL, "an increment of a global aggregate has a hash")
        state = self.layouts[0]
        _, old = before[0].lookup(np.zeros(1, np.int64), [])
        marked = [_zeros(state, 1)] if old.rows == 0 else []
        change = ZSet.sum_of(state, [_unmarked(state, given), *marked]).consolidated()
        new = old.plus(change).consolidated()
        _check_groups(new)
        if change.rows == 0:
            old, new = change, change
        output = pa.concat_tables([_answer(old, -1), _answer(new, 1)]).drop_columns([INIT])
        return Step(output, (change,))


def _unmarked(state: Layout, given: ZSet) -> ZSet:
    zeros = pa.array(np.zeros(given.rows, np.int64))
    return ZSet.of(state, given.table.append_column(INIT, zeros))


def _zeros(state: Layout, init: int) -> ZSet:
    """Return the one row of a global aggregate over no input."""
    row = {field.name: [0] for field in state.schema} | {INIT: [init]}
    return ZSet(state, pa.table(row, schema=state.schema))


def _check_groups(totals: ZSet) -> None:
    """Refuse totals that no bag of rows has."""
    if (totals.weights < 0).any():
        raise HeadraceError(
            Code.INTERNAL,
            "a group has a negative number of rows",
            detail="The input of the aggregate deletes a row that was never inserted.",
        )
    gone = totals.filter(totals.weights == 0)
    accumulators = [name for name in gone.layout.summed.names if name not in {WEIGHT, INIT}]
    if not all(is_zero(column(gone.table, name)).all() for name in accumulators):
        raise HeadraceError(
            Code.INTERNAL,
            "a group without rows has a total other than zero",
            detail="The input of the aggregate deletes a row with other values than it had.",
        )


def _answer_schema(layout: Layout) -> pa.Schema:
    whole = pa.int64()
    return pa.schema(
        [
            layout.schema.field(HASH),
            *layout.columns,
            pa.field(WEIGHT, whole, nullable=False),
            pa.field(ROWS, whole, nullable=False),
            *(f.with_nullable(nullable=False) for f in layout.summed if f.name != WEIGHT),
        ]
    )


def _answer(totals: ZSet, weight: int) -> pa.Table:
    """Return totals as rows of the answer that come (+1) or go (-1)."""
    table, schema = totals.table, _answer_schema(totals.layout)
    given = {name: table[name] for name in table.schema.names}
    given[ROWS] = table[WEIGHT]
    given[WEIGHT] = pa.chunked_array([pa.array(np.full(totals.rows, weight, np.int64))])
    return pa.Table.from_arrays([given[name] for name in schema.names], schema=schema)
