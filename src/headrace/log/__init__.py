"""The embedded log: the only offset space, one log per stream and table."""

from headrace.log.appender import Admitted, Append, Appender
from headrace.log.bounds import Pruning, bounds_of, merged_bounds, read_bounds
from headrace.log.events import (
    SEGMENTS_READ,
    Events,
    Extent,
    InLedger,
    Page,
    SegmentListing,
)
from headrace.log.large import AMENDED, APPENDED, CORRECTION, WEIGHT, LargeWriter, keeps
from headrace.log.reader import EmbeddedLog
from headrace.log.seen import Seen, checked_part, ids_of
from headrace.log.segments import (
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
from headrace.log.share import Corrected, LogShare
from headrace.log.watermark import Watermark
from headrace.log.writer import SegmentWriter, write_segment

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
