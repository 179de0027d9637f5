"""One step as data: the inputs of an attempt, and the reports of its tasks.

A step is planned without side effects. As text, it travels with the jobs that run it, and every
task reads it. Spark returns the tasks' reports. An attempt has no effect until the ledger names its
runs.
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

from headrace.ledger import Segment, SegmentFile
from headrace.ledger.records import OffsetRange
from headrace.log import Corrected, LogShare
from headrace.runtime.quarantine import Guarded
from headrace.spine import RunFile
from headrace.types import ArrangementId, RelationId
from headrace.zset import Layout, Restriction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
