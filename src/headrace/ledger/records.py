"""What goes into the ledger and what comes out of it: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NewType

from headrace.types import ArrangementId, Epoch, Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Mapping

Fence = NewType("Fence", int)
"""A token that grows with every takeover: only the holder of the newest one may write."""


class RunKind(StrEnum):
    """Why a run exists."""

    DELTA = "delta"
    """The change of one epoch: a part of the changelog."""
    MERGED = "merged"
    """What compaction or a backfill wrote: contents, but no change."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The changes ``[first, end)`` of a relation's log."""

    first: Offset
    end: Offset

    @property
    def rows(self) -> int:
        """How many changes the range holds."""
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A file of the log, written and synced, not yet named by the ledger."""

    name: str
    rows: int
    bytes: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of the log and the offsets it holds. ``appended_at`` is in Unix seconds."""

    relation: RelationId
    range: OffsetRange
    file: SegmentFile
    appended_at: float


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far a bulk load of ``source`` has come, in the words of its reader.

    ``source`` identifies one state of the source, such as path, size and modification time.
    """

    source: str
    progress: Mapping[str, Any]
    finished: bool = False


@dataclass(frozen=True, slots=True)
class ProducerPosition:
    """The number that a producer gave this append; it never gives a number twice."""

    producer: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Reject:
    """A row that was refused: where, why, and its text."""

    file: str
    line: int
    column: str | None
    reason: str
    raw: str


@dataclass(frozen=True, slots=True)
class RejectRecord:
    """A refused row as kept. ``at`` is in Unix seconds."""

    reject: Reject
    at: float


@dataclass(frozen=True, slots=True)
class Read:
    """The changes ``[from_offset, to_offset)`` of a relation that an epoch consumed."""

    relation: RelationId
    from_offset: Offset
    to_offset: Offset


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run's file, written and synced. ``low`` and ``high`` bound its signed 64-bit hashes."""

    name: str
    arrangement: ArrangementId
    rows: int
    bytes: int
    checksum: str
    low: int
    high: int
    kind: RunKind = RunKind.DELTA


@dataclass(frozen=True, slots=True)
class Run:
    """A run and the epochs ``[added, removed)`` that see it; ``removed`` is None while live."""

    name: str
    arrangement: ArrangementId
    rows: int
    bytes: int
    checksum: str
    low: int
    high: int
    kind: RunKind
    added: Epoch
    removed: Epoch | None


@dataclass(frozen=True, slots=True)
class Merge:
    """Runs of one arrangement and the one run, or none, whose weights are their sum."""

    arrangement: ArrangementId
    inputs: tuple[str, ...]
    output: NewRun | None


@dataclass(frozen=True, slots=True)
class NewArrangement:
    """An arrangement to keep from now on; its layout is opaque to the ledger."""

    id: ArrangementId
    layout: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewObject:
    """A relation to create under an id that :meth:`Ledger.reserve_relation` gave.

    ``inputs`` are the relations it is computed from: none of them can be dropped before it.
    """

    relation: RelationId
    name: str
    kind: str
    definition: Mapping[str, Any]
    inputs: tuple[RelationId, ...] = ()
    arrangements: tuple[NewArrangement, ...] = ()


@dataclass(frozen=True, slots=True)
class ObjectRecord:
    """A relation as the ledger knows it."""

    relation: RelationId
    name: str
    kind: str
    definition: Mapping[str, Any]
    created_epoch: Epoch
    dropped_epoch: Epoch | None
    inputs: tuple[RelationId, ...]


@dataclass(frozen=True, slots=True)
class ArrangementRecord:
    """An arrangement as the ledger knows it; ``since`` is its oldest readable epoch."""

    id: ArrangementId
    owner: RelationId
    layout: Mapping[str, Any]
    since: Epoch
    dropped_epoch: Epoch | None


CLOCK = "clock"
"""The counter of an epoch that says what ``now()`` is in it."""


@dataclass(frozen=True, slots=True)
class EpochCommit:
    """All that one epoch changes. It follows ``previous`` or fails.

    Drops happen before creations, so that one epoch can swap two relations of one name.
    ``merges`` are compactions that take effect with this epoch. ``clock`` is what ``now()`` is in
    it, in microseconds UTC, kept among the counters; None leaves it as it was.
    """

    previous: Epoch
    attempt: str
    reads: tuple[Read, ...] = ()
    runs: tuple[NewRun, ...] = ()
    created: tuple[NewObject, ...] = ()
    dropped: tuple[RelationId, ...] = ()
    merges: tuple[Merge, ...] = ()
    counters: Mapping[str, Any] = field(default_factory=dict)
    clock: int | None = None

    @property
    def epoch(self) -> Epoch:
        """The epoch that this commit makes."""
        return Epoch(self.previous + 1)


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """A committed epoch. ``committed_at`` is in Unix seconds and never decreases."""

    epoch: Epoch
    committed_at: float
    attempt: str
    fence: Fence
    counters: Mapping[str, Any]
    reads: tuple[Read, ...]


@dataclass(frozen=True, slots=True)
class Files:
    """File names, by the kind of directory they live in."""

    runs: frozenset[str] = frozenset()
    segments: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.runs or self.segments)


@dataclass(frozen=True, slots=True)
class Dirty:
    """A view known to differ, or not known to agree, with its inputs. ``since``: Unix seconds."""

    view: RelationId
    cause: str
    since: float
    detail: str = ""
