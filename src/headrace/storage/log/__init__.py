"""The embedded log: the only offset space, one log per stream and table.

The walk of a segment that is retired:

1. Before a compaction, ``execution/runtime/retirement.py`` finds the first segments of each
   stream's log that have only events older than its retention, and that every view has read.
   The ids among them are stored (``storage/log/seen.py``).
2. One transaction moves the beginning of the log, and keeps the bounds of what is before it
   (``storage/ledger/log.py``). It is published with the next state.
3. The sweep deletes the files that no held state reads, then their names. Fills refuse what has
   read the events that are gone (decision 35).
"""

from headrace.storage.log.appender import Admitted, Append, Appender, SegmentWriter, write_segment
from headrace.storage.log.events import (
    SEGMENTS_READ,
    EmbeddedLog,
    Events,
    Extent,
    InLedger,
    Page,
    SegmentListing,
)
from headrace.storage.log.large import AMENDED, APPENDED, CORRECTION, WEIGHT, LargeWriter, keeps
from headrace.storage.log.seen import Seen, Watermark, checked_part, ids_of
from headrace.storage.log.segments import (
    LargePart,
    LogBlock,
    appended_at,
    appended_by,
    appended_with,
    blocks,
    forget_segments,
    large_parts,
    open_segment,
    read_range,
)
from headrace.storage.log.share import (
    Corrected,
    LogShare,
    Pruning,
    bounds_of,
    merged_bounds,
    read_bounds,
)

__all__ = [
    "AMENDED",
    "APPENDED",
    "CORRECTION",
    "SEGMENTS_READ",
    "WEIGHT",
    "Admitted",
    "Append",
    "Appender",
    "Corrected",
    "EmbeddedLog",
    "Events",
    "Extent",
    "InLedger",
    "LargePart",
    "LargeWriter",
    "LogBlock",
    "LogShare",
    "Page",
    "Pruning",
    "Seen",
    "SegmentListing",
    "SegmentWriter",
    "Watermark",
    "appended_at",
    "appended_by",
    "appended_with",
    "blocks",
    "bounds_of",
    "checked_part",
    "forget_segments",
    "ids_of",
    "keeps",
    "large_parts",
    "merged_bounds",
    "open_segment",
    "read_bounds",
    "read_range",
    "write_segment",
]
