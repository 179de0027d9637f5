"""The contents of a view or a stream, kept as the sum of its changes.

Algebra: the identity; what it remembers is the integral::

    Δ output = Δ input

State: the rows, arranged by the key of the layout.
Cost per epoch: O(|Δ| log |Δ|).
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
class Integrate(StatefulOperator):
    """Keep what arrives. The output is the input consolidated, in the order of the layout.

    Rows whose total is negative are kept as such: telling them from defects is not done here.
    """

    layout: Layout

    @property
    def layouts(self) -> tuple[Layout]:
        """The rows so far."""
        return (self.layout,)

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> Step:  # noqa: ARG002
        """Return the consolidated change, as output and as update."""
        change = ZSet.of(self.layout, inputs[0]).consolidated()
        return Step(change.table, (change,))
