"""The transactional record of epochs: what each one read, wrote and published."""

from headrace.ledger.directory import prepare_directory
from headrace.ledger.ledger import Ledger
from headrace.ledger.lock import DirectoryLock
from headrace.ledger.records import (
    ArrangementRecord,
    Dirty,
    EpochCommit,
    EpochRecord,
    Fence,
    Files,
    LoadProgress,
    Merge,
    NewArrangement,
    NewObject,
    NewRun,
    ObjectRecord,
    OffsetRange,
    ProducerPosition,
    Read,
    Reject,
    RejectRecord,
    Run,
    RunKind,
    Segment,
    SegmentFile,
)
from headrace.ledger.store import Mode

__all__ = [
    "ArrangementRecord",
    "DirectoryLock",
    "Dirty",
    "EpochCommit",
    "EpochRecord",
    "Fence",
    "Files",
    "Ledger",
    "LoadProgress",
    "Merge",
    "Mode",
    "NewArrangement",
    "NewObject",
    "NewRun",
    "ObjectRecord",
    "OffsetRange",
    "ProducerPosition",
    "Read",
    "Reject",
    "RejectRecord",
    "Run",
    "RunKind",
    "Segment",
    "SegmentFile",
    "prepare_directory",
]
