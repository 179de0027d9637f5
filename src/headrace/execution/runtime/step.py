"""One step as data: the inputs of an attempt, and the reports of its tasks.

A step is planned without side effects. As text, it travels with the jobs that run it, and every
task reads it. Spark returns the tasks' reports. An attempt has no effect until the ledger names its
runs.

The stored contents of relations at an epoch, as shares that a step or a query can read.

Checks the declared keys of views before a commit: in steps, fills and replays.

A view whose key follows from its query is not checked.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.algebra.operators import Violation, violation
from headrace.algebra.spine import HIGHEST, LOWEST, RunFile, Spine
from headrace.algebra.zset import Layout, Restriction
from headrace.errors import Code, HeadraceError, shortened
from headrace.execution.runtime.quarantine import Guarded
from headrace.planning.catalog import Relation, Stream
from headrace.storage.ledger import Segment, SegmentFile
from headrace.storage.ledger.records import OffsetRange
from headrace.storage.log import Corrected, Events, Extent, LogShare, SegmentListing
from headrace.types import ArrangementId, Epoch, Offset, RelationId, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from headrace.execution.runtime.published import Published
    from headrace.planning.catalog import View
    from headrace.storage.ledger import Ledger


@dataclass(frozen=True, slots=True)
class RowsShare:
    """The contents of an arrangement with hashes in ``[low, high]``, as insertions."""

    layout: Layout
    runs: tuple[RunFile, ...]
    low: int
    high: int

    @property
    def rows(self) -> int:
        """An upper bound of the number of physical rows: those of the runs, in any range."""
        return sum(run.rows for run in self.runs)

    @property
    def bytes(self) -> int:
        """An upper bound of the bytes of the rows: those of the runs, in any range."""
        return sum(run.bytes for run in self.runs)


Share = LogShare | RowsShare


@dataclass(frozen=True, slots=True)
class StepArrangement:
    """An arrangement before the step.

    ``below``: while a view is filled, only the rows of a relation with hashes below this one have
    been read by the circuit, and only they are visible; None means all rows.
    """

    layout: Layout
    runs: tuple[RunFile, ...]
    below: int | None = None


@dataclass(frozen=True, slots=True)
class Clock:
    """``now()`` in the epoch before, and in this epoch: in microseconds, UTC."""

    before: int
    after: int

    def table(self) -> pa.Table:
        """Return the clock as an operator's input: a table of one row."""
        return pa.table({"before": [self.before], "after": [self.after]})


@dataclass(frozen=True, slots=True)
class Step:
    """The inputs of one attempt at a step. ``directory`` is the data directory, shared by tasks.

    ``initialise`` names the operators that emit a row even without input: the global aggregates of
    a view that is being created. ``recomputed`` are the runs of arrangements that were computed
    again, where a step is to write by what they differ from what is stored. ``restrictions`` say
    what leaves, by name, are to read of their shares. With ``few`` rows, it may run without a job.
    """

    attempt: str
    directory: Path
    partitions: int
    shares: Mapping[RelationId, Share]
    arrangements: Mapping[ArrangementId, StepArrangement]
    initialise: frozenset[str] = frozenset()
    clock: Clock = Clock(0, 0)
    recomputed: Mapping[ArrangementId, tuple[RunFile, ...]] = field(default_factory=dict)
    guards: Mapping[ArrangementId, Guarded] = field(default_factory=dict)
    """What quarantines do; by default, they keep copies of the rows that they have."""
    restrictions: Mapping[str, Restriction] = field(default_factory=dict)
    few: bool = False
    written: Mapping[ArrangementId, tuple[RunFile, ...]] = field(default_factory=dict)
    """The runs that earlier jobs of the same attempt wrote."""

    @property
    def runs_directory(self) -> Path:
        """The directory of runs."""
        return _runs_of(self.directory)

    @property
    def log_directory(self) -> Path:
        """The directory of the log's segments."""
        return self.directory / "log"

    @property
    def rows(self) -> int:
        """The number of changes that the step reads."""
        return sum(share.rows for share in self.shares.values())

    def after(self, reports: Sequence[Report]) -> Step:
        """Return the step of the attempt's next job, after jobs that have reported."""
        if not reports:
            return self
        written: dict[ArrangementId, tuple[RunFile, ...]] = {}
        for report in reports:
            for id_, run in report.runs.items():
                written[id_] = (*written.get(id_, ()), run)
        return replace(self, written=written)

    def sent(self) -> str:
        """Return the step as text, which :meth:`received` reads in another process."""
        data = zlib.compress(json.dumps(self.to_json()).encode("utf-8"), 1)
        return base64.b64encode(data).decode("ascii")

    @classmethod
    def received(cls, text: str) -> Step:
        """Read a step that :meth:`sent` wrote."""
        return cls.of_json(json.loads(zlib.decompress(base64.b64decode(text))))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value that :meth:`of_json` reads."""
        return {
            "attempt": self.attempt,
            "directory": str(self.directory),
            "partitions": self.partitions,
            "shares": {str(id_): _share_to_json(share) for id_, share in self.shares.items()},
            "arrangements": {
                id_: {
                    "layout": a.layout.to_json(),
                    "runs": [r.to_json() for r in a.runs],
                    "below": a.below,
                }
                for id_, a in self.arrangements.items()
            },
            "initialise": sorted(self.initialise),
            "clock": asdict(self.clock),
            "recomputed": {
                id_: [r.to_json() for r in runs] for id_, runs in self.recomputed.items()
            },
            "guards": {id_: each.to_json() for id_, each in self.guards.items()},
            "restrictions": {name: r.to_json() for name, r in self.restrictions.items()},
            "few": self.few,
            "written": {id_: [r.to_json() for r in runs] for id_, runs in self.written.items()},
        }

    @classmethod
    def of_json(cls, value: Any) -> Step:
        """Return the step that :meth:`to_json` wrote."""
        return cls(
            value["attempt"],
            Path(value["directory"]),
            value["partitions"],
            {RelationId(int(id_)): _share_of_json(s) for id_, s in value["shares"].items()},
            {
                ArrangementId(id_): StepArrangement(
                    Layout.of_json(a["layout"]), _runs(a["runs"]), a["below"]
                )
                for id_, a in value["arrangements"].items()
            },
            frozenset(value["initialise"]),
            Clock(**value["clock"]),
            {ArrangementId(id_): _runs(runs) for id_, runs in value["recomputed"].items()},
            {ArrangementId(id_): Guarded.of_json(g) for id_, g in value["guards"].items()},
            {name: Restriction.of_json(r) for name, r in value["restrictions"].items()},
            value["few"],
            {ArrangementId(id_): _runs(runs) for id_, runs in value["written"].items()},
        )


@lru_cache(maxsize=16)
def _runs_of(directory: Path) -> Path:
    """Return the directory of runs in a data directory: the same object, since all runs ask."""
    return directory / "runs"


@dataclass(frozen=True, slots=True)
class Report:
    """The work of one operator in one partition: the runs it wrote, and its cost."""

    operator: str
    partition: int
    runs: Mapping[ArrangementId, RunFile]
    rows_in: int
    rows_out: int
    rows_read: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value that :meth:`of_json` reads."""
        return asdict(self)

    @classmethod
    def of_json(cls, value: Any) -> Report:
        """Return the report that :meth:`to_json` wrote."""
        runs = {ArrangementId(i): RunFile.of_json(r) for i, r in value["runs"].items()}
        return cls(**{**value, "runs": runs})


def _runs(values: Any) -> tuple[RunFile, ...]:
    return tuple(RunFile.of_json(value) for value in values)


def _share_to_json(share: Share) -> dict[str, Any]:
    match share:
        case LogShare():
            return {"log": asdict(share)}
        case RowsShare():
            return {
                "layout": share.layout.to_json(),
                "runs": [run.to_json() for run in share.runs],
                "low": share.low,
                "high": share.high,
            }


def _share_of_json(value: Any) -> Share:
    if "log" not in value:
        layout = Layout.of_json(value["layout"])
        return RowsShare(layout, _runs(value["runs"]), value["low"], value["high"])
    log = value["log"]
    amended = log["corrected"]
    corrected = amended and Corrected(
        amended["first"], amended["end"], _segments(amended["segments"])
    )
    segments, sparse = _segments(log["segments"]), log["sparse"]
    return LogShare(segments, log["first"], log["end"], log["since"], corrected, sparse)


def _segments(values: Any) -> tuple[Segment, ...]:
    return tuple(
        Segment(
            RelationId(s["relation"]),
            OffsetRange(**s["range"]),
            SegmentFile(**s["file"]),
            s["appended_at"],
            s["amends"],
        )
        for s in values
    )


NOTHING = LogShare((), Offset(0), Offset(0))
"""A share without changes."""


def log_share(ledger: Ledger, relation: RelationId, first: Offset, end: Offset) -> LogShare:
    """Return the share of the changes ``[first, end)`` of a relation."""
    if first >= end:
        return NOTHING
    return LogShare(ledger.log.segments(relation, first, end), first, end)


def whole_log(ledger: Ledger, state: Published, relation: RelationId, end: Offset) -> LogShare:
    """Return the share of all changes of a relation that are kept in a state, up to an offset."""
    first = state.starts.get(relation, Offset(0))
    return replace(log_share(ledger, relation, first, end), since=first)


def as_corrected(share: Share) -> Share:
    """Return a share whose events are read as corrected up to its end."""
    return share.as_corrected() if isinstance(share, LogShare) else share


def events_in(directory: Path, stream: Stream, extent: Extent, listing: SegmentListing) -> Events:
    """Return the events of a stream in an extent of its log; ``directory`` is that of the data."""
    columns = stream.logged.columns
    present = frozenset(column.name for column in columns if not column.nullable)
    names, stored = stream.logged.names, stream.logged.stored
    return Events(directory / "log", extent, names, stored, listing, present)


def parts_of_log(share: LogShare, most: int) -> Iterator[LogShare]:
    """Yield a share in parts of ``most`` rows, each with the segments that hold it."""
    for low in range(0, share.rows, most):
        yield share.between(low, low + most)


def arranged(
    ledger: Ledger, layouts: Mapping[ArrangementId, Layout], epoch: Epoch
) -> dict[ArrangementId, StepArrangement]:
    """Return the arrangements at an epoch."""
    spines = ledger.spines.of(list(layouts), epoch)
    return {
        id_: StepArrangement(layout, tuple(run.file for run in spines.get(id_, ())))
        for id_, layout in layouts.items()
    }


def snapshot(
    ledger: Ledger,
    state: Published,
    relations: Iterable[Relation],
    ends: Mapping[RelationId, Offset],
) -> dict[RelationId, Share]:
    """Return the contents of relations in a state; those of streams end at ``ends``."""
    shares: dict[RelationId, Share] = {}
    for relation in relations:
        if isinstance(relation, Stream):
            end = ends.get(relation.id, Offset(0))
            shares[relation.id] = whole_log(ledger, state, relation.id, end)
        else:
            runs = tuple(run.file for run in state.runs(relation))
            shares[relation.id] = RowsShare(state.layout(relation), runs, LOWEST, HIGHEST)
    return shares


@dataclass(slots=True)
class SharedContents:
    """The contents of relations that the view's operators read instead of a copy of their own.

    Operators see only the rows that the circuit has read so far, as in a copy: the parts of a
    relation are read by ascending hash, so these are the rows with hashes below a bound.
    """

    shares: Mapping[ArrangementId, Share]
    below: dict[ArrangementId, int | None] = field(default_factory=dict)

    def begin(self, id_: ArrangementId, part: Share) -> None:
        """Record that the circuit reads a part now: the rows before it have been read."""
        if isinstance(part, RowsShare):
            self.below[id_] = part.low

    def finish(self, id_: ArrangementId, part: Share) -> None:
        """Record that the circuit has read a part."""
        if isinstance(part, RowsShare):
            self.below[id_] = None if part.high == HIGHEST else part.high + 1

    def arranged(self) -> dict[ArrangementId, StepArrangement]:
        """Return the contents before a step, with the bound of the rows read so far."""
        return {
            id_: StepArrangement(share.layout, share.runs, self.below.get(id_, LOWEST))
            for id_, share in self.shares.items()
            if isinstance(share, RowsShare)
        }


_ROWS = 100_000
_MOST_CHARACTERS = 300
"""The number of characters of a row that a message shows."""


def require_keys(
    views: Iterable[View],
    directory: Path,
    before: Mapping[ArrangementId, StepArrangement],
    reports: Sequence[Report],
) -> None:
    """Raise if what a step wrote breaks the declared key of a view.

    ``before`` has the contents of the views before the step.

    Raises:
        HeadraceError: ``invalid``, with both rows of a key.
    """
    for view in views:
        if not view.checks_key:
            continue
        id_ = rows_of(view.id)
        delta = [report.runs[id_] for report in reports if id_ in report.runs]
        if delta:
            stood = before[id_]
            _require_key(view, directory, stood.layout, stood.runs, delta)


def require_key_of_all(
    view: View, directory: Path, layout: Layout, contents: Sequence[RunFile]
) -> None:
    """Raise if the contents of a view break its declared key; see :func:`require_keys`."""
    if view.checks_key:
        _require_key(view, directory, layout, (), contents)


def _require_key(
    view: View,
    directory: Path,
    layout: Layout,
    before: Sequence[RunFile],
    delta: Sequence[RunFile],
) -> None:
    contents = Spine.open(directory, layout, before)
    for part in Spine.open(directory, layout, delta).scan(_ROWS):
        found = violation(contents, part)
        if found is not None:
            raise _broken(view, found)


def _broken(view: View, found: Violation) -> HeadraceError:
    key, rows = ", ".join(view.key), [shortened(_text(row), _MOST_CHARACTERS) for row in found.rows]
    if len(rows) == 1:
        return HeadraceError(
            Code.INVALID,
            f'a row of view "{view.name}" has NULL in its PRIMARY KEY ({key})',
            detail=f"The row is {rows[0]}.",
            hint="Leave such rows out with WHERE ... IS NOT NULL, or declare another key.",
        )
    values = ", ".join(_text(value) for value in found.key)
    return HeadraceError(
        Code.INVALID,
        f'two rows of view "{view.name}" have the PRIMARY KEY ({key}) = ({values})',
        detail=f"The rows are {rows[0]} and {rows[1]}.",
        hint="Correct the rows that the view reads, have its query choose one row of each key, or"
        " declare another key.",
    )


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
