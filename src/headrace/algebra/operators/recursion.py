"""``WITH RECURSIVE``: the rows of all levels, each computed from the level before.

Algebra: the least solution ``r`` of ``r = start + step(r)``. It is computed in rounds, each a step
of the whole circuit, whose input from the loop is the loop's own delta of the round before::

    r(k) = start + step(r(k-1)),   where r(-1) is the value before the epoch

State: none between epochs. The delta of a round is the input of the next one; rows of levels at or
beyond the limit are collected, since a later round may retract them.
Cost per epoch: O(|Δ| log |Δ|) per round, with one round for each level to which changes propagate.
NULL: a value like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.algebra.operators.protocol import StatefulOperator, StepResult
from headrace.algebra.zset import Layout, ZSet

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.algebra.spine import Spine


@dataclass(frozen=True)
class Recursion(StatefulOperator):
    """Emit the delta of the levels below ``limit``, and store it for the next round.

    The last column of the layout is the level. The output is consolidated.
    """

    layout: Layout
    limit: int

    @property
    def layouts(self) -> tuple[Layout, Layout]:
        """The input of the next round, and the rows of levels at or beyond the limit."""
        return self.layout, self.layout

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:  # noqa: ARG002
        """Return the consolidated delta below the limit, as output and update, and that beyond."""
        change = ZSet.of(self.layout, inputs[0]).consolidated()
        level = change.table[self.layout.columns.names[-1]].to_numpy()
        within = change.filter(level < self.limit)
        return StepResult(within.table, (within, change.filter(level >= self.limit)))
