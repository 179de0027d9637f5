"""``WITH RECURSIVE``: the rows of all levels, each of which is made from the level before.

Algebra: the least solution ``r`` of ``r = start + step(r)``. It is found in rounds, each of which
is a step of the whole circuit, in which the loop takes its own change of the round before::

    r(k) = start + step(r(k-1)),   with r(-1) what there was before the epoch

State: none that stays. What came of a round is handed to the next one; rows of a level that must
not be are set aside, since a later round may take them back.
Cost per epoch: O(|Δ| log |Δ|) in each round, and a round per level that changes follow each other.
NULL: a value like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.operators.protocol import StatefulOperator, Step
from headrace.zset import Layout, ZSet

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.spine import Spine


@dataclass(frozen=True)
class Recursion(StatefulOperator):
    """Pass on what changes on the levels below ``limit``, and keep it for the next round.

    The last column of the layout is the level. The output is consolidated.
    """

    layout: Layout
    limit: int

    @property
    def layouts(self) -> tuple[Layout, Layout]:
        """What the next round takes, and the rows of a level that must not be."""
        return self.layout, self.layout

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> Step:  # noqa: ARG002
        """Return the consolidated change on the levels that may be, as output and update."""
        change = ZSet.of(self.layout, inputs[0]).consolidated()
        level = change.table[self.layout.columns.names[-1]].to_numpy()
        within = change.filter(level < self.limit)
        return Step(within.table, (within, change.filter(level >= self.limit)))
