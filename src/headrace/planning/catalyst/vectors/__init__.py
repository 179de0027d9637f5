"""Catalyst's expressions over Arrow columns, evaluated in this process.

An expression is converted by an allow-list of what is proved to have Spark's meaning in Arrow or
NumPy: ``KNOWN`` of each module has what reads each class of expression. Any other expression is
evaluated by Catalyst itself (:mod:`headrace.planning.catalyst.evaluation`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.planning.catalyst.vectors import (
    casts,
    digests,
    documents,
    lists,
    logic,
    maps,
    numbers,
    parsed,
    patterns,
    texts,
    times,
)
from headrace.planning.catalyst.vectors.reader import ExpressionReader, UnprovedError
from headrace.planning.catalyst.vectors.vector import DoubtError, InputRows, Vector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.planning.catalyst.vectors.reader import Known


__all__ = [
    "KNOWN",
    "DoubtError",
    "ExpressionReader",
    "InputRows",
    "UnprovedError",
    "Vector",
    "reader_over",
]

KNOWN: Final[Mapping[str, Known]] = {
    **logic.KNOWN,
    **maps.KNOWN,
    **numbers.KNOWN,
    **casts.KNOWN,
    **parsed.KNOWN,
    **texts.KNOWN,
    **lists.KNOWN,
    **patterns.KNOWN,
    **digests.KNOWN,
    **documents.KNOWN,
    **times.KNOWN,
}
"""What reads each class of expression that is evaluated over Arrow columns."""


def reader_over(places: Mapping[int, int]) -> ExpressionReader:
    """Return what reads expressions over columns at some places, by the ids of attributes."""
    return ExpressionReader(places, KNOWN)
