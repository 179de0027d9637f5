"""The embedded log: the only offset space, one log per stream and table."""

from headrace.log.appender import Append, Appender
from headrace.log.reader import EmbeddedLog
from headrace.log.segments import WEIGHT, read_range
from headrace.log.share import LogShare
from headrace.log.writer import SegmentWriter, write_segment

__all__ = [
    "WEIGHT",
    "Append",
    "Appender",
    "EmbeddedLog",
    "LogShare",
    "SegmentWriter",
    "read_range",
    "write_segment",
]
