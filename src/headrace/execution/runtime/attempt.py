"""One attempt at an epoch, a fill or a replay: the runs that it has written, and their cost.

The width of a step: narrow in this process, or wide as Spark jobs.

A job costs more than the work on a few changes, and one process less than that on many. How many
rows flow is known only when a step runs: a few changes may fan out. A narrow step with too many
rows on the way ends before anything is durable and is run again as jobs; steps with as many changes
of the same relations are wide from then on.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import uuid4

from headrace.algebra.spine import due_by_partition, merge, remove_packs
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.cancelling import check_cancelled
from headrace.storage.ledger import NewRun, Read, RunKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from headrace.algebra.spine import RunFile
    from headrace.algebra.zset import Layout
    from headrace.execution.runtime.spent import Spent
    from headrace.execution.runtime.step import Report, Share, Step
    from headrace.storage.ledger import EpochCommit, Ledger
    from headrace.types import ArrangementId, Epoch, RelationId


_MOST_BYTES = 1 << 25
"""The most bytes of the changes of a narrow step: this process holds them several times."""

_REMEMBERED = 64
"""After so many wide steps, a narrow one is tried again: the data may have changed."""


class Width(Enum):
    """Where a step runs, and why."""

    NARROW = "narrow"
    """In this process: it reads few changes."""
    MANY_CHANGES = "wide: many changes"
    """As jobs: it reads more than ``small_rows`` changes."""
    LARGE_CHANGES = "wide: large changes"
    """As jobs: it reads few changes, but of many bytes."""
    FANS_OUT = "wide: changes fan out"
    """As jobs: it reads few changes, but too many rows follow from them."""

    @property
    def few(self) -> bool:
        """Whether the step runs in this process, in one partition."""
        return self is Width.NARROW


class SetAsideError(Exception):
    """A narrow step is left to a thread beside epochs: it is wide, or it has failed.

    It was undone. ``changed`` is what it was to read.
    """

    def __init__(self, changed: frozenset[RelationId]) -> None:
        super().__init__(changed)
        self.changed = changed


@dataclass(slots=True)
class _FannedOut:
    """A narrow step of this many changes had too many rows; ``left`` more steps heed that."""

    rows: int
    left: int = _REMEMBERED


@dataclass(slots=True)
class Widths:
    """Chooses the width of steps. ``small_rows``: the most changes of a narrow step."""

    small_rows: int
    _known: dict[frozenset[RelationId], _FannedOut] = field(default_factory=dict)

    def of_shares(self, changed: frozenset[RelationId], shares: Collection[Share]) -> Width:
        """Return the width of a step over the changes of some relations; see :meth:`of`."""
        rows = sum(share.rows for share in shares)
        return self.of(changed, rows, sum(share.bytes for share in shares))

    def of(self, changed: frozenset[RelationId], rows: int, size: int) -> Width:
        """Return the width of a step over so many changes, of ``size`` bytes, of some relations.

        Each step that is wide since its changes fan out counts: after some, one is narrow again.
        """
        if rows > self.small_rows:
            return Width.MANY_CHANGES
        if size > _MOST_BYTES:
            return Width.LARGE_CHANGES
        known = self._known.get(changed)
        if known is None or rows < known.rows:
            return Width.NARROW
        known.left -= 1
        if known.left <= 0:
            self._known.pop(changed, None)
        return Width.FANS_OUT

    def fan_out(self, changed: frozenset[RelationId], rows: int) -> bool:
        """Whether so many changes of some relations are known to fan out."""
        known = self._known.get(changed)
        return known is not None and rows >= known.rows

    def fanned_out(self, changed: frozenset[RelationId], rows: int) -> None:
        """Remember that a narrow step over so many changes had too many rows."""
        self._known[changed] = _FannedOut(rows)


T = TypeVar("T")


@dataclass(slots=True)
class Attempt:
    """The runs that have been written so far and that the ledger does not name, and their cost.

    ``directory`` is that of runs. As a context, an attempt removes its runs if its block fails,
    unless a commit was begun: the ledger may name them then.

    ``jobs`` counts all Spark jobs; ``rounds`` counts those that were further rounds of recursions,
    and ``scanned`` the rows of logs and deltas that were read, each as often as it was.
    """

    directory: Path
    reports: list[Report] = field(default_factory=list)
    jobs: int = 0
    rounds: int = 0
    scanned: int = 0
    begun: float = field(default_factory=time.perf_counter)
    files: dict[ArrangementId, list[RunFile]] = field(default_factory=lambda: defaultdict(list))
    """The runs by arrangement: those of the reports, or the runs that replaced them."""
    widths: list[Width] = field(default_factory=list)
    """The width of each step."""
    spent: Spent | None = None
    """What the time since it has begun was spent on, where that is measured."""
    _committing: bool = False

    def take(self, reports: Iterable[Report]) -> None:
        """Add what tasks have written, and what it cost."""
        taken = tuple(reports)
        self.reports += taken
        self.own(taken)

    def own(self, reports: Iterable[Report]) -> None:
        """Add runs whose cost is counted elsewhere."""
        for report in reports:
            for id_, file in report.runs.items():
                self.files[id_].append(file)

    def written(self, id_: ArrangementId) -> tuple[RunFile, ...]:
        """Return the runs of an arrangement."""
        return tuple(self.files.get(id_, ()))

    def put(self, id_: ArrangementId, files: Iterable[RunFile]) -> None:
        """Replace the runs of an arrangement by others, and remove them."""
        former = self.written(id_)
        self.files[id_] = list(files)
        self._remove(former)

    def compact(self, layouts: Mapping[ArrangementId, Layout], partitions: int) -> None:
        """Merge the runs of arrangements where a merge is due."""
        for id_, layout in layouts.items():
            for group in due_by_partition(self.written(id_), partitions):
                merged = merge(self.directory, layout, group)
                left = [file for file in self.files[id_] if file not in group]
                self.files[id_] = left if merged is None else [*left, merged]
                self._remove(group)

    def _remove(self, former: Iterable[RunFile]) -> None:
        """Delete the packs of runs in which the attempt has no run any more."""
        kept = {file.pack for files in self.files.values() for file in files}
        remove_packs(self.directory, {file.pack for file in former} - kept)

    def new_runs(self, kind: RunKind) -> tuple[NewRun, ...]:
        """Return the ledger records of the runs."""
        return tuple(NewRun(file, id_, kind) for id_, files in self.files.items() for file in files)

    def commit(self, ledger: Ledger, change: EpochCommit) -> Epoch:
        """Commit an epoch that names the runs: from now on, they are not removed.

        Raises:
            HeadraceError: as :meth:`Ledger.commit`.
        """
        self._committing = True
        return ledger.commit(change)

    def abandon(self) -> None:
        """Remove the runs, unless a commit was begun."""
        if not self._committing:
            former = [file for files in self.files.values() for file in files]
            self.files.clear()
            self._remove(former)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is not None:
            self.abandon()

    @property
    def width(self) -> Width | None:
        """That of the widest step; None without a step."""
        wide = (each for each in self.widths if each is not Width.NARROW)
        return next(wide, Width.NARROW) if self.widths else None

    def counters(self, reads: Iterable[Read]) -> dict[str, Any]:
        """Return the counters that the ledger stores with the epoch."""
        return {
            **({} if self.spent is None else self.spent.counters()),
            "jobs": self.jobs,
            **({} if self.width is None else {"width": self.width.value}),
            "rounds": self.rounds,
            "changes": sum(r.to_offset - r.from_offset for r in reads),
            "operators": len(self.reports),
            "rows_scanned": self.scanned,
            "rows_in": sum(r.rows_in for r in self.reports),
            "rows_out": sum(r.rows_out for r in self.reports),
            "rows_read": sum(r.rows_read for r in self.reports),
            "bytes_written": sum(f.bytes for r in self.reports for f in r.runs.values()),
            "files": len({f.pack for r in self.reports for f in r.runs.values()}),
            "fallbacks": 0,
            "seconds": round(time.perf_counter() - self.begun, 6),
        }


def retried(step: Step, attempts: int, run: Callable[[Step], T]) -> T:
    """Run a step, each time as an attempt of its own; try again if the machine has failed.

    Raises:
        HeadraceError: as the last attempt; ``cancelled`` if the statement was cancelled meanwhile.
    """
    left = attempts
    while True:
        check_cancelled()
        left -= 1
        attempt = replace(step, attempt=uuid4().hex)
        try:
            return run(attempt)
        except HeadraceError as error:
            check_cancelled()
            if error.code is not Code.UNAVAILABLE or left <= 0:
                raise


def remove_reported(directory: Path, reports: Iterable[Report]) -> None:
    """Delete the packs that the tasks of a discarded step have written."""
    remove_packs(directory, {run.pack for report in reports for run in report.runs.values()})
