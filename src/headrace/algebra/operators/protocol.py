"""The protocol of stateful operators: pure functions of input deltas and the state before.

The kinds of rows between an operator and what is computed from its output.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

import numpy as np

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.algebra.spine import Spine
    from headrace.algebra.zset import Layout, ZSet
    from headrace.algebra.zset.order import Ints


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


ROW = "__row"
"""The column with the kind of a row (int64)."""


class RowKind(IntEnum):
    """The kind of a row between the operator that pairs rows and those that count pairs."""

    PAIR = 0
    """A row of the left paired with a row of the right."""
    LEFT = 1
    """A row of the left alone, whose pairs are yet to be counted."""
    RIGHT = 2
    """A row of the right alone, whose pairs are yet to be counted."""
    SETTLED = 3
    """A row of one side whose pairs have been counted: it is part of the result."""


VERSION = "__version"
"""The output column with the version of a row: before the epoch (0) or after it (1)."""

PRESENT = "__present"
"""The output column that is false for a placeholder row, which only makes its group exist."""


def copies_of(rows: ZSet) -> Ints:
    """Return the position of each row as often as its weight."""
    weights = rows.weights
    if (weights < 0).any():
        raise HeadraceError(
            Code.INTERNAL,
            "a row of a group has a negative weight",
            detail="The input of the view deletes a row that was never inserted.",
        )
    return np.repeat(np.arange(rows.rows), weights)
