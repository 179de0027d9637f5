"""The kinds of rows between an operator and what is computed from its output."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from headrace.zset import ZSet
    from headrace.zset.equality import Ints

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
