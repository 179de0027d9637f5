"""Which changes of a log are superseded: what was read of an event that was corrected since.

A range of a log that has an event and its correction is summed to the same without what the
correction retracts. A query that would fail on the event as it was does not see it then.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from headrace.log.segments import AMENDED, WEIGHT, open_segment

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from headrace.log.share import Corrected
    from headrace.types import Offset
    from headrace.zset.equality import Bools


@dataclass(frozen=True, slots=True)
class Superseded:
    """The events that the corrections within a range of a log amend.

    The arrays are by event: its ``offsets``, ascending, the ``ends`` of the first correction of it,
    and the ``starts`` of the last one. ``first`` is the first offset of the range.
    """

    first: Offset
    offsets: NDArray[np.int64]
    ends: NDArray[np.int64]
    starts: NDArray[np.int64]

    def kept(self, rows: pa.RecordBatch, at: Offset) -> Bools | None:
        """Return which changes of one segment, from offset ``at``, are left; None if all are.

        An event is left out if it was amended. So is what a correction puts in its place if another
        amends that again, and what it retracts if that is in the range as well.
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
    """Return what the corrections of a range supersede; ``directory`` is that of the log.

    It takes 24 bytes for each event that was amended, and is read once per process.
    """
    read = [
        np.unique(open_segment(directory, each.file)[AMENDED].to_numpy())
        for each in corrected.segments
    ]
    sizes = [len(each) for each in read]
    offsets = np.concatenate(read)
    order = np.argsort(offsets, kind="stable")  # corrections of one event stay in order
    offsets = offsets[order]
    begins = np.flatnonzero(np.r_[True, offsets[1:] != offsets[:-1]])
    lasts = np.r_[begins[1:], len(offsets)] - 1
    starts = np.repeat([each.range.first for each in corrected.segments], sizes)[order]
    ends = np.repeat([each.range.end for each in corrected.segments], sizes)[order]
    return Superseded(corrected.first, offsets[begins], ends[begins], starts[lasts])
