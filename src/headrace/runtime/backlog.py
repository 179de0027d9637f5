"""What a narrow epoch reads of a backlog: the changes that arrived first, in all logs together.

So a reader never sees a change without those that were appended to other logs before it.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from headrace.ledger import OffsetRange
from headrace.types import Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.ledger import Ledger


def first_arrived(
    ledger: Ledger, waiting: Mapping[RelationId, OffsetRange], most: int
) -> dict[RelationId, OffsetRange]:
    """Return the ranges of the changes that arrived first among those that wait.

    At most so many rows, or those of the first statement; no statement is divided.
    """
    pieces = [piece for id_, each in waiting.items() for piece in _pieces(ledger, id_, each, most)]
    pieces.sort(key=itemgetter(0))
    found: dict[RelationId, OffsetRange] = {}
    for _, together in groupby(pieces, itemgetter(0)):
        statement = list(together)
        rows = sum(each.rows for _, _, each in statement)
        if found and rows > most:
            break
        most -= rows
        for _, id_, each in statement:
            first = found[id_].first if id_ in found else each.first
            found[id_] = OffsetRange(first, each.end)
    return found


def _pieces(
    ledger: Ledger, id_: RelationId, waits: OffsetRange, most: int
) -> Iterator[tuple[float, RelationId, OffsetRange]]:
    """Yield when each part of a log arrived, until more than ``most`` rows; times never go back."""
    time = 0.0
    end = Offset(min(waits.end, waits.first + most + 1))
    for segment in ledger.log.segments(id_, waits.first, end):
        time = max(time, segment.appended_at)
        first, last = max(waits.first, segment.range.first), min(waits.end, segment.range.end)
        yield time, id_, OffsetRange(first, last)
