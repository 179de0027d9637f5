"""Which rows of a join's side are part of the answer, by whether they have a partner."""

from __future__ import annotations

from enum import Enum, auto

FLAG = "__exists"
"""The output column that says whether a row has a partner."""


class Emits(Enum):
    """What an operator that knows which rows have a partner passes on."""

    MATCHED = auto()
    """The rows with a partner: a semi join."""
    UNMATCHED = auto()
    """The rows without: an anti join, and with NULLs beside them the rest of an outer join."""
    FLAGGED = auto()
    """All rows, each with ``__exists``: what ``EXISTS`` within an ``OR`` needs."""
