"""The protocol of stateful operators: pure functions of input deltas and the state before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.spine import Spine
    from headrace.zset import Layout, ZSet


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of one epoch: the output delta, and the delta of each arrangement.

    ``output`` has weights but need not be consolidated. ``updates`` are consolidated, one per
    layout of the operator; the caller adds them to its arrangements. They may be empty.
    """

    output: pa.Table
    updates: tuple[ZSet, ...]


class StatefulOperator(Protocol):
    """An incremental operator on the rows of one hash range.

    Promise: for every input, the sum of ``output`` over any sequence of epochs equals the
    operator's value over the sum of their inputs, provided that ``before`` is the sum of all
    earlier updates. A step has no side effects, so it can be repeated.
    """

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """The layouts of the arrangements that the operator keeps, in order."""
        ...

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:
        """Return the output delta and the arrangements' deltas for the deltas of the inputs.

        ``inputs`` are deltas with rows in any order, possibly with rows that repeat or cancel;
        ``before`` has one spine per layout: the arrangements before this epoch.
        """
        ...
