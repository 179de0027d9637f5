"""Runs reconciliation in the background, within a budget of processor time."""

from __future__ import annotations

import logging
import math
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError
from headrace.execution.engine.jobs.scope import StatementJobs
from headrace.execution.runtime.cancelling import Cancellation, check_cancelled
from headrace.lifecycle.history.comparing import SLICE_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.execution.runtime.published import Published
    from headrace.lifecycle.history.comparing import Rounds, Stored
    from headrace.lifecycle.history.reconciling import Reconciling
    from headrace.types import RelationId


_log = logging.getLogger(__name__)

_FIRST_SECONDS: Final = 60.0
"""The delay of the first comparison after opening: short-lived databases are spared."""
_IDLE_SECONDS: Final = 10.0
"""The interval at which new work is looked for when there is none."""
_CANCEL_SECONDS: Final = 0.2
_LONGEST_FAREWELL: Final = 10.0
_MUCH_LONGER: Final = 1.5
_MOST_ROWS: Final = 1 << 20
_TOGETHER: Final = 2
"""The number of relations over a common log that are compared in one job, which reads it once."""


@dataclass(frozen=True, slots=True)
class _Size:
    """How many rows to compare next, and how long the last sample took, in seconds."""

    rows: int
    seconds: float = math.inf

    def after(self, seconds: float) -> _Size:
        """Return the next size: doubled, unless this sample took much longer than the last one."""
        if seconds > _MUCH_LONGER * self.seconds:
            return _Size(max(SLICE_ROWS, self.rows // 2), seconds)
        return _Size(min(2 * self.rows, _MOST_ROWS), seconds)


_SMALLEST: Final = _Size(SLICE_ROWS)


def _rows(size: _Size) -> int:
    return size.rows


@dataclass(slots=True)
class Reconciler:
    """Compares samples one after the other; the relation compared longest ago is next.

    ``budget`` is the average share of one processor that comparisons may take; 0 disables them. A
    comparison is charged as if it had kept all processors that its tasks may use busy, so the real
    share is lower. A sample takes about as long as reading the history below it, however small it
    is: the sample size of a relation is doubled while that hardly prolongs the comparison.
    Relations that have been compared completely, and whose inputs have not changed since, are
    skipped.
    """

    reconciling: Reconciling
    budget: float
    processors: int
    first: float = _FIRST_SECONDS
    idle: float = _IDLE_SECONDS
    clock: Callable[[], float] = time.monotonic
    error: HeadraceError | None = None
    """The error that prevented the last comparison, if any."""
    _closed: threading.Event = field(default_factory=threading.Event)
    _cancellation: Cancellation = field(default_factory=Cancellation)
    _thread: threading.Thread | None = None
    _failing: dict[RelationId, Mapping[str, int]] = field(default_factory=dict)
    """The views whose queries fail in batch, with the inputs for which they do."""
    _sizes: dict[RelationId, _Size] = field(default_factory=dict)

    def start(self) -> None:
        """Begin, unless the budget is 0."""
        if self.budget > 0:
            self._thread = threading.Thread(
                target=self._run, name="headrace-reconciliation", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Cancel the running comparison, and stop."""
        self._closed.set()
        thread, until = self._thread, time.monotonic() + _LONGEST_FAREWELL
        while thread is not None and thread.is_alive() and time.monotonic() < until:
            self._cancellation.asked = True
            if self._cancellation.running:
                StatementJobs(self.reconciling.engine.source, self._cancellation.tag).cancel()
            thread.join(_CANCEL_SECONDS)

    def turn(self) -> float:
        """Compare the next sample, if there is one; return the pause after it, in seconds."""
        state = self.reconciling.reader.published
        relations = self._next(state)
        if not relations:
            return self.idle
        size = max((self._sizes.get(each.id, _SMALLEST) for each in relations), key=_rows)
        began = self.clock()
        with self._cancellation.statement():
            if self._closed.is_set():
                return 0.0
            found = self.reconciling.compare(
                relations, state, lambda _all: size.rows, lambda _done, _total: check_cancelled()
            )
        spent = self.clock() - began
        for each in found:
            id_ = each.relation.id
            self._failing.pop(id_, None)
            self._sizes[id_] = size.after(spent)
            if each.failed:
                self._failing[id_] = self.reconciling.inputs(each.relation, state)
        return spent * self.processors / self.budget

    def _run(self) -> None:
        pause = self.first
        while not self._closed.wait(pause):
            try:
                pause, self.error = self.turn(), None
            except Exception as error:  # noqa: BLE001 - it is shown, and must not end the thread
                if self._closed.is_set():
                    return
                pause, self.error = self.idle, _shown(error)
                if self.error.code not in (Code.CONFLICT, Code.CANCELLED):
                    _log.warning("views are not reconciled: %s", self.error.primary)

    def _next(self, state: Published) -> list[Stored]:
        """Return the relation to compare next, and possibly one more that shares a log with it."""
        waiting = {
            relation: rounds
            for relation, rounds in self.reconciling.rounds(state).items()
            if not self.reconciling.is_settled(relation, rounds, state)
            and self._failing.get(relation.id) != self.reconciling.inputs(relation, state)
        }
        if not waiting:
            return []
        ordered = sorted(waiting, key=lambda relation: _since(waiting[relation]))
        bases = {relation: state.catalog.bases([relation.id]) for relation in ordered}
        return [each for each in ordered if bases[each] & bases[ordered[0]]][:_TOGETHER]


def _since(rounds: Rounds) -> float:
    return rounds.at or 0.0


def _shown(error: Exception) -> HeadraceError:
    if isinstance(error, HeadraceError):
        return error
    return HeadraceError(Code.INTERNAL, "reconciliation failed", detail=f"{error!r}.")
