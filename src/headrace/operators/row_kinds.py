"""The kinds of rows inside a join whose condition is more than equalities."""

from __future__ import annotations

from enum import IntEnum

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
