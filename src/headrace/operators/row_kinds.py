"""Rows of a join whose condition is more than equalities: pairs, and rows on their own."""

from __future__ import annotations

from enum import IntEnum

ROW = "__row"
"""The column that tells the kind of a row (int64)."""


class RowKind(IntEnum):
    """What a row is, between the operator that pairs and the one that counts pairs."""

    PAIR = 0
    """A row of the left and one of the right."""
    LEFT = 1
    """A row of the left on its own, to be held against its pairs."""
    RIGHT = 2
    """A row of the right on its own, to be held against its pairs."""
    SETTLED = 3
    """A row without a pair, which is part of the answer as it is."""
