"""Editions of the planner: which operators it chooses for a query.

A later edition may choose cheaper operators, whose state has another form. A stored view keeps the
edition that planned it, which the digest of its circuit shows; a new build has the latest.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Edition(IntEnum):
    """The numbered editions; each states what it changed."""

    FIRST = 1
    TIMES_COMPARED = 2
    """Comparisons with a time computed from a subquery's value read the rows it passes."""
    FIRST_WITHOUT_NUMBERS = 3
    """First rows of groups whose numbers are not shown are not numbered."""
    NEAR_ROWS = 4
    """Window functions that depend on rows nearby read these, and not all rows of a partition."""
    SESSIONS_KEPT = 5
    """Totals of session windows are kept by session, and those near a change are united."""
    PERCENTILES_KEPT = 6
    """Percentiles read the values next to the ones they have, and not all rows of a group."""
    ORDERS_COUNTED = 7
    """``dense_rank()`` counts the values of the order before a row, and reads the rows after it."""
    SIGNS_KEPT = 8
    """The least and greatest of floats are kept as they are, with the sign of a zero."""


LATEST: Final = max(Edition)
