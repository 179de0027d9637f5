"""Superseded changes of a log: events that a later correction in the same range amends.

A log range with an event and its correction has the same sum without the event and the correction's
retraction. Leaving both out spares a query that would fail on the original event.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from headrace.storage.log.large import AMENDED, CORRECTION, WEIGHT
from headrace.storage.log.segments import blocks
from headrace.types import Offset

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from headrace.algebra.zset.order import Bools
    from headrace.storage.ledger import Segment
    from headrace.storage.log.share import Corrected


if TYPE_CHECKING:
    Places = NDArray[np.int64]

_MOST_READ: Final = 8_192
"""The most segments with corrections that a process remembers as read."""


class Changes(NamedTuple):
    """The changes of corrections in a part of a log, by offset: the ``events`` that they amend.

    Of each event, a correction ``retracts`` what it was, before it has what takes its place.
    """

    events: Places
    places: Places
    retracts: Bools


@dataclass(frozen=True, slots=True)
class Superseded:
    """The events that the corrections within a log range amend.

    The arrays are by event: its ``offsets``, ascending, the ``ends`` of its first retraction, the
    ``starts`` of its last one, the offset of its ``lasts`` change, and whether it is ``present``
    since then. ``places`` are the offsets of all changes of corrections, and ``inserted`` of those
    that stay of events of the range, both ascending. ``first`` is the first offset of the range.
    """

    first: Offset
    offsets: Places
    ends: Places
    starts: Places
    lasts: Places
    present: Bools
    places: Places
    inserted: Places

    @classmethod
    def of(cls, first: Offset, changes: Changes) -> Superseded:
        """Return what the corrections with some changes amend."""
        order = np.argsort(changes.events, kind="stable")  # those of one event stay in order
        offsets, places = changes.events[order], changes.places[order]
        retracts = changes.retracts[order]
        begins = np.flatnonzero(np.r_[True, offsets[1:] != offsets[:-1]][: len(offsets)])
        last = np.r_[begins[1:], len(offsets)][: len(begins)] - 1
        present = ~retracts[last]
        offsets, lasts = offsets[begins], places[last]
        return cls(
            first,
            offsets,
            places[begins] + 1,
            places[last - present],  # what is present follows its last retraction
            lasts,
            present,
            changes.places,
            np.sort(lasts[present & (offsets >= first)]),
        )

    def kept(self, rows: pa.RecordBatch, at: Offset) -> Bools | None:
        """Return a mask of the changes of a segment at offset ``at`` to keep; None if all are.

        An amended event is left out. So are the insertion of a correction that another correction
        amends, and the retraction of a change that is in the range as well.
        """
        low, high = np.searchsorted(self.offsets, [at, at + rows.num_rows])
        if low == high and AMENDED not in rows.schema.names:
            return None
        kept = np.ones(rows.num_rows, np.bool_)
        kept[self.offsets[low:high] - at] = False
        if AMENDED not in rows.schema.names or not len(self.offsets):
            return kept
        ours = np.flatnonzero(rows[AMENDED].is_valid().to_numpy(zero_copy_only=False))
        events = rows[AMENDED].drop_null().to_numpy()
        places, its = at + ours, np.searchsorted(self.offsets, events)
        retracts = rows[WEIGHT].to_numpy()[ours] < 0
        kept[ours] = ~np.where(
            retracts,
            (events >= self.first) | (self.ends[its] <= places),
            self.starts[its] > places,
        )
        return kept

    def count(self, first: Offset, end: Offset) -> int:
        """Return the number of events that the changes ``[first, end)`` of the range leave."""

        def within(offsets: Places) -> int:
            low, high = np.searchsorted(offsets, [first, end]).tolist()
            return int(high - low)

        plain = end - first - within(self.places) - within(self.offsets)
        return plain + within(self.inserted)

    def replacing(self, first: Offset, end: Offset) -> Places:
        """Return the offsets of what is in the place of the events ``[first, end)``, ascending."""
        low, high = np.searchsorted(self.offsets, [first, end])
        found: Places = np.sort(self.lasts[low:high][self.present[low:high]])
        return found


def superseded(directory: Path, corrected: Corrected) -> Superseded:
    """Return the events superseded by a range's corrections; ``directory`` is that of the log.

    None are if the range has only a part of a correction, which would not say what it supersedes.
    Uses about 50 bytes for each change of a correction. Each is read once per process.
    """
    segments = tuple(replace(each, hold=None) for each in corrected.segments)  # it would stay
    return _superseded(directory, replace(corrected, segments=segments))


@lru_cache(maxsize=2)
def _superseded(directory: Path, corrected: Corrected) -> Superseded:
    first, end = corrected.first, corrected.end
    if any(_divides(directory, each, at) for each in corrected.segments for at in (first, end)):
        return Superseded.of(first, _changes_of([]))
    read = [
        _changes(directory, each, max(first, each.range.first), min(end, each.range.end))
        for each in corrected.segments
        if first < each.range.end and each.range.first < end
    ]
    return Superseded.of(first, _changes_of(read))


def _divides(directory: Path, segment: Segment, at: Offset) -> bool:
    """Whether an offset is within a correction: not its first one, nor after its last one."""
    if not segment.range.first < at < segment.range.end:
        return False
    if not segment.file.footer:
        return True
    before, after = (
        next(blocks(directory, [segment], Offset(each), Offset(each + 1))) for each in (at - 1, at)
    )
    if CORRECTION not in before.schema.names or CORRECTION not in after.schema.names:
        return False
    one, other = (each.read([CORRECTION])[CORRECTION][0].as_py() for each in (before, after))
    return one is not None and one == other


@lru_cache(maxsize=_MOST_READ)
def _changes(directory: Path, segment: Segment, first: Offset, end: Offset) -> Changes:
    """Return the changes ``[first, end)`` of corrections in a segment."""
    found = []
    for block in blocks(directory, [segment], first, end):
        if AMENDED not in block.schema.names:
            continue
        rows = block.read([WEIGHT, AMENDED])
        ours = np.flatnonzero(rows[AMENDED].is_valid().to_numpy(zero_copy_only=False))
        events = rows[AMENDED].drop_null().to_numpy()
        found.append(Changes(events, block.first + ours, rows[WEIGHT].to_numpy()[ours] < 0))
    return _changes_of(found)


def _changes_of(parts: list[Changes]) -> Changes:
    """Return the changes of consecutive parts of a log."""
    nothing = np.empty(0, np.int64)
    return Changes(
        np.concatenate([nothing, *(each.events for each in parts)]),
        np.concatenate([nothing, *(each.places for each in parts)]),
        np.concatenate([nothing.astype(np.bool_), *(each.retracts for each in parts)]),
    )
