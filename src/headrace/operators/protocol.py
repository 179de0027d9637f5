"""What a stateful operator is: a pure function of a change and of what was there before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.spine import Spine
    from headrace.zset import Layout, ZSet


@dataclass(frozen=True, slots=True)
class Step:
    """What one epoch does: the change of the answer, and of each arrangement.

    ``output`` has weights but need not be consolidated. ``updates`` are consolidated, one per
    layout of the operator, and are to be added to its arrangements; they may be empty.
    """

    output: pa.Table
    updates: tuple[ZSet, ...]


class StatefulOperator(Protocol):
    """An incremental operator on the rows of one hash range.

    Promised: for every input, ``output`` summed over any sequence of epochs equals the operator's
    value over the sum of their inputs, provided that ``before`` is the sum of all earlier updates.
    A step has no effect but its result, so it can be repeated.
    """

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """The layouts of the arrangements that the operator keeps, in order."""
        ...

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> Step:
        """Return what the change of the inputs does to the answer and to the arrangements.

        ``inputs`` hold the changes in any order, duplicates and cancelling rows included;
        ``before`` has one spine per layout, as they were before this epoch.
        """
        ...
