"""Superseded changes of a log: events that a later correction in the same range amends.

A log range with an event and its correction has the same sum without the event and the correction's
retraction. Leaving both out spares a query that would fail on the original event.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace.log.segments import AMENDED, WEIGHT, open_segment

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from headrace.ledger import SegmentFile
    from headrace.log.share import Corrected
    from headrace.types import Offset
    from headrace.zset.equality import Bools


_MOST_READ: Final = 8_192
"""The most corrections that a process remembers as read."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """The events that the corrections within a log range amend.

    The arrays are by event: its ``offsets``, ascending, the ``ends`` of its first correction, and
    the ``starts`` of its last one. ``first`` is the first offset of the range.
    """

    first: Offset
    offsets: NDArray[np.int64]
    ends: NDArray[np.int64]
    starts: NDArray[np.int64]

    def kept(self, rows: pa.RecordBatch, at: Offset) -> Bools | None:
        """Return a mask of the changes of a segment at offset ``at`` to keep; None if all are.

        An amended event is left out. So are the insertion of a correction that another correction
        amends, and the retraction of a change that is in the range as well.
        """
        if AMENDED not in rows.schema.names:
            low, high = np.searchsorted(self.offsets, [at, at + rows.num_rows])
            if low == high:
                return None
            kept = np.ones(rows.num_rows, np.bool_)
            kept[self.offsets[low:high] - at] = False
            return kept
        events = rows[AMENDED].to_numpy()
        places = np.arange(at, at + rows.num_rows)
        its = np.searchsorted(self.offsets, events)
        retracts = rows[WEIGHT].to_numpy() < 0
        found: Bools = ~np.where(
            retracts,
            (events >= self.first) | (self.ends[its] <= places),
            self.starts[its] > places,
        )
        return found


@lru_cache(maxsize=2)
def superseded(directory: Path, corrected: Corrected) -> Superseded:
    """Return the events superseded by a range's corrections; ``directory`` is that of the log.

    Uses 24 bytes for each amended event. Each correction is read once per process.
    """
    read = [_amended(directory, each.file) for each in corrected.segments]
    sizes = [len(each) for each in read]
    offsets = np.concatenate(read)
    order = np.argsort(offsets, kind="stable")  # stable: corrections of one event stay in order
    offsets = offsets[order]
    begins = np.flatnonzero(np.r_[True, offsets[1:] != offsets[:-1]])
    lasts = np.r_[begins[1:], len(offsets)] - 1
    starts = np.repeat([each.range.first for each in corrected.segments], sizes)[order]
    ends = np.repeat([each.range.end for each in corrected.segments], sizes)[order]
    return Superseded(corrected.first, offsets[begins], ends[begins], starts[lasts])


@lru_cache(maxsize=_MOST_READ)
def _amended(directory: Path, correction: SegmentFile) -> NDArray[np.int64]:
    """Return the offsets of the events that a correction amends, ascending."""
    found: NDArray[np.int64] = np.unique(open_segment(directory, correction)[AMENDED].to_numpy())
    return found
