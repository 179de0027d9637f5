"""The contents of a view or a stream, as the sum of its deltas.

Algebra: the identity; the state is the integral of the input::

    Δ output = Δ input

State: the rows, arranged by the key of the layout.
Cost per epoch: O(|Δ| log |Δ|).
NULL: a value like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.operators.protocol import StatefulOperator, StepResult
from headrace.zset import Layout, ZSet

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.spine import Spine


@dataclass(frozen=True)
class Integrate(StatefulOperator):
    """Store the input. The output is the consolidated input, in the order of the layout.

    Rows whose total is negative are stored as they are: this operator does not check for them.
    """

    layout: Layout

    @property
    def layouts(self) -> tuple[Layout]:
        """The rows of all inputs so far."""
        return (self.layout,)

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:  # noqa: ARG002
        """Return the consolidated delta, as output and as update."""
        change = ZSet.of(self.layout, inputs[0]).consolidated()
        return StepResult(change.table, (change,))
