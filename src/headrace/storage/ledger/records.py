"""The values that the ledger stores and returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NewType

from headrace.files.mounts import PACKS, SEGMENTS
from headrace.types import (
    ArrangementId,
    BuildId,
    DirtyId,
    Epoch,
    EvidenceId,
    FrontierId,
    Offset,
    RelationId,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.algebra.spine import Place, RunFile
    from headrace.storage.ledger.holds import ReadHold


NO_EPOCH = Epoch(-1)
"""Before every epoch."""

LIVE: Final = FrontierId(0)
"""The frontier that every epoch moves: of all builds that are maintained as changes arrive."""

Fence = NewType("Fence", int)
"""A token that increases with every takeover: only the process with the newest may write."""

_BEGINNING: Final = Offset(0)


class RunKind(StrEnum):
    """Whether a run is part of the changelog."""

    DELTA = "delta"
    """The delta of one epoch: part of the changelog."""
    MERGED = "merged"
    """Contents written by compaction or a backfill: not part of the changelog."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The changes ``[first, end)`` of a relation's log."""

    first: Offset
    end: Offset

    @property
    def rows(self) -> int:
        """The number of changes in the range."""
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A part of a file of the log, written and synced, not yet named by the ledger.

    It begins at ``position`` in the file, and ``checksum`` is that of its ``bytes``. ``bounds`` are
    those of its columns' values, to be stored: what is read of the ledger has them apart. A large
    one (:mod:`headrace.storage.log.large`) has the checksum of its ``footer``; ``rows`` may be its
    first.
    """

    name: str
    rows: int
    bytes: int
    checksum: str
    position: int = 0
    bounds: Mapping[str, Any] = field(default_factory=dict, compare=False)
    footer: str = ""


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of the log and its offsets. ``appended_at`` is in Unix seconds.

    Adjacent segments that were appended together, and so are read by one epoch, have the same.

    If it ``amends`` earlier events, it is one correction of them. A merged one counts as appended
    with its last change. While one that was read of the ledger is in use, its ``hold`` keeps it.
    """

    relation: RelationId
    range: OffsetRange
    file: SegmentFile
    appended_at: float
    amends: bool = False
    hold: ReadHold | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """The progress of a bulk load of ``source``; only the source's reader interprets it.

    ``source`` identifies one version of the source, for example by path, size and modification
    time. ``notes`` are JSON values by name that are kept besides, each until one of its name comes:
    for what grows with the source, and must not be written whole each time.
    """

    source: str
    progress: Mapping[str, Any]
    finished: bool = False
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProducerPosition:
    """The sequence number of a producer's append; a producer never reuses a number."""

    producer: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Reject:
    """A rejected row: its place, the reason, and its text."""

    file: str
    line: int
    column: str | None
    reason: str
    raw: str


@dataclass(frozen=True, slots=True)
class Correction:
    """Why changes of a stream's log amend earlier events; ``origin`` has JSON values by name."""

    events: int
    origin: Mapping[str, Any] = field(default_factory=dict)
    first: Offset = _BEGINNING
    """The offset of the first event that is amended."""


@dataclass(frozen=True, slots=True)
class CorrectionRecord:
    """A correction in the ledger: its changes in the log. ``at`` is in Unix seconds."""

    relation: RelationId
    range: OffsetRange
    at: float
    correction: Correction


@dataclass(frozen=True, slots=True)
class Retired:
    """What is known of the changes of a log before ``start``, which are no longer kept.

    ``bounds`` are those of the columns of all of them, as of one segment; ``appended_at`` is when
    the last of them was appended, in Unix seconds.
    """

    start: Offset
    bounds: Mapping[str, Any]
    appended_at: float


@dataclass(frozen=True, slots=True)
class LogSize:
    """The size of what a log keeps; ``since`` is when the first change was appended, Unix seconds.

    ``bytes`` are those of its segments, which may share files with other logs.
    """

    segments: int
    changes: int
    bytes: int
    since: float


@dataclass(frozen=True, slots=True)
class AppendRecord:
    """A segment to append to a relation's log; None if every row was rejected.

    ``producers`` are the new positions of those that wrote its rows. If there is just one and its
    number is not above its last, nothing is appended. ``left_out`` counts rows that are not in the
    segment, by reason. ``newest`` has the newest event time of partitions, in microseconds.
    ``correction`` says why, if the segment amends earlier events. ``further`` are segments after
    it: all are appended, and read by one epoch, or none. ``delivered`` is that of a sink's rows.
    """

    relation: RelationId
    segment: SegmentFile | None
    load: LoadProgress | None = None
    producers: tuple[ProducerPosition, ...] = ()
    rejects: Sequence[Reject] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    newest: Mapping[str, int] = field(default_factory=dict)
    correction: Correction | None = None
    further: tuple[SegmentFile, ...] = ()
    delivered: DeliveryRecord | None = None

    @property
    def segments(self) -> tuple[SegmentFile, ...]:
        """The segments that have rows, in order."""
        return tuple(s for s in (self.segment, *self.further) if s is not None and s.rows)


@dataclass(frozen=True, slots=True)
class Read:
    """The changes ``[from_offset, to_offset)`` of a relation by which an epoch moves a frontier."""

    relation: RelationId
    from_offset: Offset
    to_offset: Offset
    frontier: FrontierId = LIVE


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run, written and synced."""

    file: RunFile
    arrangement: ArrangementId
    kind: RunKind = RunKind.DELTA


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run that epochs ``[added, removed)`` contain; ``removed`` is None while it is live."""

    file: RunFile
    arrangement: ArrangementId
    kind: RunKind
    added: Epoch
    removed: Epoch | None


@dataclass(frozen=True, slots=True)
class Merge:
    """Runs of one arrangement, and the run with their sum; None if the sum is empty."""

    arrangement: ArrangementId
    inputs: tuple[Place, ...]
    output: NewRun | None


@dataclass(frozen=True, slots=True)
class NewArrangement:
    """A new arrangement; the ledger does not interpret its layout."""

    id: ArrangementId
    layout: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Frontier:
    """How far builds have read their inputs.

    Stored tables and views are read as of ``epoch`` (None: the last one), each log up to its
    offset. It has stood there since ``at``, in Unix seconds; 0 if it moves with every epoch.
    """

    epoch: Epoch | None
    offsets: Mapping[RelationId, Offset]
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class NewBuild:
    """A new program of a view, with an id from ``Ledger.ids``, and its operators' state.

    ``definition`` is that of the view as this build computes it, ``inputs`` the relations that it
    reads. If it is ``serving``, it computes the view's contents from its first epoch on; another
    build of the view, unless it is retired, goes on beside it.
    """

    id: BuildId
    view: RelationId
    definition: Mapping[str, Any]
    inputs: tuple[RelationId, ...] = ()
    arrangements: tuple[NewArrangement, ...] = ()
    frontier: FrontierId = LIVE
    serving: bool = True
    begins: Mapping[RelationId, Offset] = field(default_factory=dict)
    """The offsets from which on it has read logs that had been cut at their beginning."""


@dataclass(frozen=True, slots=True)
class Build:
    """A live program of a view in the ledger; just one build of each view is ``serving``.

    It has been on its ``frontier`` since ``joined_epoch``.
    """

    id: BuildId
    view: RelationId
    frontier: FrontierId
    definition: Mapping[str, Any]
    inputs: tuple[RelationId, ...]
    created_epoch: Epoch
    joined_epoch: Epoch
    serving: bool
    begins: Mapping[RelationId, Offset] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewObject:
    """A new relation, with an id from ``Ledger.ids``, and its contents.

    ``inputs`` are the relations it is computed from: none of them can be dropped before it. A view
    needs a build beside it.
    """

    relation: RelationId
    name: str
    kind: str
    definition: Mapping[str, Any]
    inputs: tuple[RelationId, ...] = ()
    arrangements: tuple[NewArrangement, ...] = ()


@dataclass(frozen=True, slots=True)
class ObjectRecord:
    """A relation in the ledger."""

    relation: RelationId
    name: str
    kind: str
    definition: Mapping[str, Any]
    created_epoch: Epoch
    dropped_epoch: Epoch | None
    inputs: tuple[RelationId, ...]


@dataclass(frozen=True, slots=True)
class ArrangementRecord:
    """An arrangement in the ledger; ``since`` is its oldest readable epoch.

    ``build`` is the one whose operators' state it is; None if it has the contents of its owner.
    """

    id: ArrangementId
    owner: RelationId
    build: BuildId | None
    layout: Mapping[str, Any]
    since: Epoch
    dropped_epoch: Epoch | None


CLOCK = "clock"
"""The counter of an epoch with the value of ``now()`` in it."""

REDEFINED = "redefined"
"""The counter of an epoch with the ids of relations whose definitions it has replaced."""


@dataclass(frozen=True, slots=True)
class EpochCommit:
    """The changes of one epoch. The commit fails if ``previous`` is not the last epoch.

    Drops happen before creations, so one epoch can replace a relation by another of the same name.
    ``redefined`` are new definitions of relations; those of views, also of the builds that serve.
    Relations that are redefined may also be ``renamed``, all at once, and be ``reading`` other
    inputs. ``arranged`` are new layouts of arrangements, which apply to earlier runs too.
    ``builds`` are new programs of views, ``serve`` builds that compute their view's contents from
    this epoch on, ``retired`` those that are given up. ``caught_up`` are the frontiers that have
    read stored tables and views as of this epoch; one that does not exist is created. Builds in
    ``regrouped`` go on with another frontier, which has read exactly what their former one has.
    Builds in ``exchanged``, which serve, serve these views from this epoch on, with the state of
    their operators: each view gets one of them.
    ``merges`` are compactions that take effect with this epoch, ``forgets`` arrangements whose
    earlier epochs can no longer be read, ``repaired`` the views that it makes right again. It
    deletes the dirty entries ``cleaned``, whose slices it repairs, as far as they still exist, and
    adds those in ``dirtied``. ``clock`` is ``now()`` of the epoch, in microseconds UTC, stored in
    the counters; with None it stays as it was. If the epoch was built on ``began``, and others may
    have been committed since, they must have changed nothing of the relations ``members``.
    """

    previous: Epoch
    attempt: str
    reads: tuple[Read, ...] = ()
    runs: tuple[NewRun, ...] = ()
    created: tuple[NewObject, ...] = ()
    dropped: tuple[RelationId, ...] = ()
    builds: tuple[NewBuild, ...] = ()
    serve: tuple[BuildId, ...] = ()
    retired: tuple[BuildId, ...] = ()
    caught_up: tuple[FrontierId, ...] = ()
    regrouped: Mapping[BuildId, FrontierId] = field(default_factory=dict)
    exchanged: Mapping[BuildId, RelationId] = field(default_factory=dict)
    merges: tuple[Merge, ...] = ()
    forgets: tuple[ArrangementId, ...] = ()
    repaired: tuple[RepairedView, ...] = ()
    cleaned: tuple[DirtyId, ...] = ()
    dirtied: tuple[Dirty, ...] = ()
    counters: Mapping[str, Any] = field(default_factory=dict)
    clock: int | None = None
    redefined: Mapping[RelationId, Mapping[str, Any]] = field(default_factory=dict)
    renamed: Mapping[RelationId, str] = field(default_factory=dict)
    reading: Mapping[RelationId, tuple[RelationId, ...]] = field(default_factory=dict)
    arranged: Mapping[ArrangementId, Mapping[str, Any]] = field(default_factory=dict)
    began: Epoch | None = None
    members: tuple[RelationId, ...] = ()

    @property
    def epoch(self) -> Epoch:
        """The epoch that this commit creates."""
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
    """File names, by directory: those of packs of runs, and those of the log."""

    packs: frozenset[str] = frozenset()
    segments: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.packs or self.segments)

    @property
    def by_folder(self) -> dict[str, frozenset[str]]:
        """The names by folder of the data directory."""
        return {PACKS: self.packs, SEGMENTS: self.segments}


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a view's rows; ``Slice()`` is all of them.

    ``where`` is a condition over the view's columns in Spark SQL, empty for every row. ``since``
    is event time in microseconds UTC: only what events from then on changed; None: of any time.
    """

    where: str = ""
    since: int | None = None


class RepairPath(StrEnum):
    """How a dirty slice becomes right again."""

    NONE = "none"
    """Nothing has to be recomputed."""
    DELTAS = "deltas"
    """The next epochs carry the change."""
    REPLAY = "replay"
    """The slice is recomputed from its inputs."""
    REBUILD = "rebuild"
    """The whole view is recomputed from its inputs."""
    RESUME = "resume"
    """The view runs again once what stopped it is gone, and is then filled again."""


class DirtyState(StrEnum):
    """The state of a dirty entry. One that is repaired is deleted, by the epoch that repairs."""

    OPEN = "open"
    REPAIRING = "repairing"
    QUARANTINED = "quarantined"
    """The view has stopped, and stays stopped until REPAIR is run."""
    REPORTED = "reported"
    """The slice stays as it is until REPAIR is run."""


@dataclass(frozen=True, slots=True)
class Dirty:
    """A slice of a view that is, or may be, inconsistent with its inputs.

    ``since`` is in Unix seconds. ``detail`` may quote values of any input. ``after`` is the last
    epoch at which the slice is known to be the result of the view's query. ``origin`` says what
    caused it, in JSON values by name. ``cost`` is an estimate of the rows that ``repair`` reads,
    ``whole`` of those that a rebuild reads; None: not estimated. The ledger gives ``id``.
    """

    view: RelationId
    cause: str
    since: float
    detail: str = ""
    after: Epoch = NO_EPOCH
    slice: Slice = Slice()
    origin: Mapping[str, Any] = field(default_factory=dict)
    repair: RepairPath = RepairPath.RESUME
    cost: int | None = None
    whole: int | None = None
    state: DirtyState = DirtyState.OPEN
    id: DirtyId | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Rows of a slice of a view that were not the result of its query, as they were found.

    That was at ``epoch``, whose ``offsets`` say how far it had read the logs below the view;
    ``at`` is in Unix seconds. ``expected`` are rows that the slice lacked, ``found`` rows that it
    had beyond its query, as JSON objects: a bounded number of each, of ``differences`` rows that
    were not what they should be. ``circuit`` is the digest of the program that maintained the
    view. ``outcome`` says what became of the slice, and is empty until it is right again. The
    ledger gives ``id``.
    """

    view: RelationId
    epoch: Epoch
    at: float
    slice: Slice
    offsets: Mapping[RelationId, Offset]
    circuit: str
    expected: tuple[Mapping[str, Any], ...]
    found: tuple[Mapping[str, Any], ...]
    differences: int
    outcome: str = ""
    id: EvidenceId | None = None


@dataclass(frozen=True, slots=True)
class Carried:
    """How a change reaches a view: the path, and the rule that chose it.

    ``cost`` is the number of rows that are touched on the way, ``whole`` of those that a rebuild
    reads, ``changed`` that of the view's rows that change; None if they are not known.
    """

    view: RelationId
    path: RepairPath
    rule: str
    cost: int | None = None
    whole: int | None = None
    changed: int | None = None


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """A classified change in the ledger. ``at`` is in Unix seconds."""

    at: float
    origin: Mapping[str, Any]
    carried: Carried


@dataclass(frozen=True, slots=True)
class RepairedView:
    """A view whose contents an epoch makes right again: it is no longer dirty for a cause.

    Between ``after`` and that epoch, they were not the result of its query.
    """

    view: RelationId
    cause: str
    after: Epoch = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Gap:
    """Between these epochs, exclusive, a view's contents are not the result of its query."""

    after: Epoch
    until: Epoch


class DeliveryState(StrEnum):
    """Whether a sink is given changes."""

    RUNNING = "running"
    PAUSED = "paused"
    """By a statement."""
    STOPPED = "stopped"
    """A row was refused."""


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """How far a sink has been given changes: up to ``delivered``, or nothing yet.

    It is given the rows at ``begins`` first; if it ``clears``, what it has written before that is
    removed. ``why`` says why it has stopped. ``writing`` is the last of several epochs that are
    being written together: should that fail, just these are written together again. ``written`` is
    the last epoch that the target has acknowledged.
    """

    sink: RelationId
    begins: Epoch
    delivered: Epoch | None = None
    state: DeliveryState = DeliveryState.RUNNING
    why: str | None = None
    clears: bool = False
    writing: Epoch | None = None
    written: Epoch | None = None

    @property
    def held(self) -> Epoch:
        """The epoch whose contents, and the changes after it, it still needs."""
        return self.begins if self.delivered is None else self.delivered
