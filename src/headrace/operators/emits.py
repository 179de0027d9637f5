"""Which rows of one side of a join are in the output: those with or without a partner."""

from __future__ import annotations

from enum import Enum, auto

FLAG = "__exists"
"""The output column: whether a row has a partner."""


class Emits(Enum):
    """The rows that an operator emits, by whether they have a partner."""

    MATCHED = auto()
    """The rows with a partner: a semi join."""
    UNMATCHED = auto()
    """The rows without a partner: an anti join, and, padded with NULLs, part of an outer join."""
    FLAGGED = auto()
    """All rows, each with ``__exists``: for ``EXISTS`` inside an ``OR``."""
