"""The reports of one attempt at an epoch, and the ledger records made from them."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from headrace.errors import Code, HeadraceError
from headrace.ledger import NewRun, Read, RunKind
from headrace.runtime.cancelling import check_cancelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.runtime.step import Report, Step
    from headrace.spine import RunFile
    from headrace.types import ArrangementId

T = TypeVar("T")


@dataclass(slots=True)
class Attempt:
    """The results of the stages of one attempt so far.

    ``jobs`` counts all Spark jobs; ``rounds`` counts those that were further rounds of recursions,
    and ``scanned`` the rows of logs and deltas that were read, each as often as it was.
    """

    reports: list[Report] = field(default_factory=list)
    jobs: int = 0
    rounds: int = 0
    scanned: int = 0
    begun: float = field(default_factory=time.perf_counter)

    def counters(self, reads: Iterable[Read]) -> dict[str, Any]:
        """Return the counters that the ledger stores with the epoch."""
        return {
            "jobs": self.jobs,
            "rounds": self.rounds,
            "changes": sum(r.to_offset - r.from_offset for r in reads),
            "operators": len(self.reports),
            "rows_scanned": self.scanned,
            "rows_in": sum(r.rows_in for r in self.reports),
            "rows_out": sum(r.rows_out for r in self.reports),
            "rows_read": sum(r.rows_read for r in self.reports),
            "bytes_written": sum(f.bytes for r in self.reports for f in r.runs.values()),
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
        attempt.write()
        try:
            return run(attempt)
        except HeadraceError as error:
            check_cancelled()
            if error.code is not Code.UNAVAILABLE or left <= 0:
                raise
        finally:
            shutil.rmtree(attempt.folder, ignore_errors=True)


def new_runs(reports: Iterable[Report], kind: RunKind) -> tuple[NewRun, ...]:
    """Return ledger records of the runs that tasks wrote."""
    return tuple(
        new_run(id_, file, kind) for report in reports for id_, file in report.runs.items()
    )


def new_run(arrangement: ArrangementId, file: RunFile, kind: RunKind) -> NewRun:
    """Return the ledger record of a written run."""
    return NewRun(
        file.name, arrangement, file.rows, file.bytes, file.checksum, file.low, file.high, kind
    )
