"""Views that fail on the changes of an epoch: each is tried alone, and explained or isolated.

Find one row on which the query of a view fails, by trials of the step that failed.

The changes that the step reads are put in an order: relation by relation, logs by offset and stored
rows by hash. A trial steps the view over a part of them, and its results are discarded. Of a
shortest beginning that fails, the last row is the one: the query passes without it. If all changes
are insertions, parts are halved first, which reads fewer rows if one row fails alone.

It is an example for whoever reads the error, so it is found within a few seconds or not at all: no
trial is begun later.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.spine import Spine
from headrace.errors import Code, EvaluationError, HeadraceError, Span, shortened
from headrace.execution.runtime.attempt import Attempt, remove_reported
from headrace.execution.runtime.isolating import first_failing, isolating, may_be_of_data
from headrace.execution.runtime.ports import MoreRowsError
from headrace.execution.runtime.published import STOPPED
from headrace.execution.runtime.quarantine import Guarded
from headrace.execution.runtime.step import NOTHING, RowsShare
from headrace.planning.catalog import View, title
from headrace.storage.ledger import Dirty
from headrace.storage.log import WEIGHT, LogShare, open_segment, read_range
from headrace.types import ArrangementId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from headrace.algebra.zset.order import Ints
    from headrace.execution.runtime.stages import Performer, Poll, RunStep
    from headrace.execution.runtime.step import Report, Share, Step
    from headrace.planning.catalog import Catalog
    from headrace.types import RelationId


Trial: TypeAlias = "Callable[[Step], Sequence[Report]]"
"""Runs a step and returns its reports; raises as a step."""

_MOST_ROWS: Final = 2_000_000
"""A trial that reads more takes too long."""
_MOST_CHARACTERS: Final = 1000
_SCAN_ROWS: Final = 1 << 18
_OWN: Final = "__"
"""Begins the names of a log's own columns."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A row of a relation as errors show it, and the error of the query with it."""

    relation: RelationId
    row: str
    error: HeadraceError

    def named(self, catalog: Catalog) -> HeadraceError:
        """Return the error with the row in its detail."""
        relation, error = catalog.by_id.get(self.relation), self.error
        if relation is None or not isinstance(error, EvaluationError):
            return error  # a relation that was dropped meanwhile
        return error.with_detail(f"It fails with the row {self.row} of {title(relation)}.")

    def origin(self, catalog: Catalog) -> Mapping[str, Any]:
        """Return the row as the origin of a dirty entry."""
        return {"relation": catalog.by_id[self.relation].name, "row": self.row}


def found_fault(
    step: Step,
    trial: Trial,
    failure: HeadraceError,
    row_text: Callable[[pa.Table], str],
    seconds: float,
    ended: Callable[[], bool] = lambda: False,
) -> Fault | None:
    """Return an inserted row that makes a step fail.

    ``row_text`` returns a table of one row as errors show it. None if no row is to blame, or none
    is found within some ``seconds`` and before the search has ``ended``.

    Raises:
        HeadraceError: ``cancelled``.
    """
    if not isinstance(failure, EvaluationError) or not 0 < step.rows <= _MOST_ROWS:
        return None
    until = time.monotonic() + seconds
    try:
        search = _Search(step, trial, row_text, lambda: ended() or time.monotonic() > until)
        return search.run(failure)
    except (_GivenUpError, MoreRowsError):
        return None
    except HeadraceError as error:
        if error.code is Code.CANCELLED:
            raise
        return None


class _GivenUpError(Exception):
    """The search has taken too long."""


@dataclass(slots=True)
class _Search:
    """One search; ``ended`` is asked before each trial."""

    step: Step
    trial: Trial
    row_text: Callable[[pa.Table], str]
    ended: Callable[[], bool]
    _hashes: dict[RelationId, Ints] = field(init=False)
    """The hashes of stored rows: ascending, each once."""
    _ends: list[int] = field(init=False)
    """Where the changes of each relation end in the order."""

    def __post_init__(self) -> None:
        """Put the changes in order."""
        shares = self.step.shares
        self._hashes = {
            id_: _hashes_of(self.step.runs_directory, share)
            for id_, share in shares.items()
            if not isinstance(share, LogShare)
        }
        counts = (
            share.rows if isinstance(share, LogShare) else len(self._hashes[id_])
            for id_, share in shares.items()
        )
        self._ends = list(accumulate(counts))

    def run(self, failure: HeadraceError) -> Fault | None:
        """Return the row of a shortest part that fails."""
        count = self._ends[-1]
        at, error = self._alone(count) if self._inserts() else (0, None)
        if error is None:
            end, error = first_failing(lambda n: self._fails(0, n), 0, count, failure)
            at = end - 1
        if at == 0 and self._fails(0, 0) is not None:
            return None
        return self._at(at, error)

    def _inserts(self) -> bool:
        """Return whether all changes are insertions, so that none needs those before it."""
        for share in self.step.shares.values():
            for segment in share.segments if isinstance(share, LogShare) else ():
                rows = open_segment(self.step.log_directory, segment.file)
                if segment.amends:
                    return False
                if WEIGHT in rows.column_names and pc.min(rows[WEIGHT]).as_py() < 0:
                    return False
        return True

    def _alone(self, count: int) -> tuple[int, HeadraceError | None]:
        """Return a row that fails alone, with its error: None if the one found by halving passes.

        A part whose first half passes is taken to fail in the second.
        """
        start, end = 0, count
        while end - start > 1:
            middle = (start + end) // 2
            if self._fails(start, middle) is None:
                start = middle
            else:
                end = middle
        return start, self._fails(start, end)

    def _fails(self, start: int, end: int) -> HeadraceError | None:
        """Return the error of a trial with the changes ``[start, end)``; None if it passes."""
        if self.ended():
            raise _GivenUpError
        shares = self._between(start, end)
        try:
            reports = self.trial(replace(self.step, attempt=uuid4().hex, shares=shares))
        except HeadraceError as error:
            if not may_be_of_data(error):
                raise
            return error
        remove_reported(self.step.runs_directory, reports)
        return None

    def _between(self, start: int, end: int) -> Mapping[RelationId, Share]:
        found: dict[RelationId, Share] = {}
        begins = [0, *self._ends]
        for (id_, share), begin, stop in zip(
            self.step.shares.items(), begins, self._ends, strict=False
        ):
            low, high = max(start, begin) - begin, min(end, stop) - begin
            if low >= high:
                found[id_] = NOTHING
            elif isinstance(share, LogShare):
                found[id_] = share.between(low, high)
            else:
                hashes = self._hashes[id_]
                found[id_] = replace(share, low=int(hashes[low]), high=int(hashes[high - 1]))
        return found

    def _at(self, place: int, error: HeadraceError) -> Fault | None:
        """Return the change at a place of the order, if it is an insertion."""
        id_ = list(self.step.shares)[bisect_right(self._ends, place)]
        match self._between(place, place + 1)[id_]:
            case LogShare() as one:
                batches = read_range(self.step.log_directory, one.segments, one.first, one.end)
                row = pa.Table.from_batches(list(batches))
                if WEIGHT in row.column_names and row[WEIGHT][0].as_py() < 0:
                    return None
                names = [name for name in row.column_names if not name.startswith(_OWN)]
            case RowsShare() as one:
                part = next(iter(_spine(self.step.runs_directory, one).scan(_SCAN_ROWS)))
                row, names = part.table.slice(0, 1), list(one.layout.columns.names)
        text = shortened(self.row_text(row.select(names)), _MOST_CHARACTERS)
        return Fault(id_, text, error)


def _spine(directory: Path, share: RowsShare) -> Spine:
    return Spine.open(directory, share.layout, share.runs, share.low, share.high)


def _hashes_of(directory: Path, share: RowsShare) -> Ints:
    found = [np.unique(part.hashes) for part in _spine(directory, share).scan(_SCAN_ROWS)]
    return np.concatenate([np.zeros(0, np.int64), *found])


_EXPLAINED_ROWS, _EXPLAINED_SECONDS = 200_000, 5.0
"""Limits of the search for a row that makes a view fail: other views wait meanwhile."""


@dataclass(frozen=True, slots=True)
class FailingViews:
    """Finds which views fail on the polled changes of an epoch."""

    loop: Performer
    poll: Poll

    def run(self, failure: HeadraceError) -> dict[ArrangementId, Guarded]:
        """Try each view alone on the polled changes; return the rows that quarantines refuse.

        Views that fail and have none, or whose failure no row is to blame for, are marked as
        stopped. Raises ``failure`` if no view fails alone.
        """
        found, guards = False, dict[ArrangementId, Guarded]()
        for view in self.loop.catalog.views_in_order():
            if view.id in self.loop.left_out():
                continue
            error = self._trial(view, guards)
            if error is None:
                continue
            found = True
            try:
                guards |= self._isolated(view, guards, error)
            except HeadraceError as why:
                if not may_be_of_data(why):
                    raise
                detail, origin = self._explained(view, guards, why)
                stopped = Dirty(
                    view.id, STOPPED, time.time(), detail, self.poll.previous, origin=origin
                )
                self.loop.ledger.dirty.mark(stopped)
        if not found:
            raise failure
        with self.loop.lock:
            self.loop.published.publish()
        return guards

    def _trial(self, view: View, guards: Mapping[ArrangementId, Guarded]) -> HeadraceError | None:
        """Step a view with only the views it depends on, discard the result, return the error."""
        stage = self._alone(view, guards)
        if stage is None:
            return None
        try:
            self._tried(stage).abandon()
        except HeadraceError as error:
            return error if may_be_of_data(error) else None
        return None

    def _isolated(
        self,
        view: View,
        guards: Mapping[ArrangementId, Guarded],
        failure: HeadraceError,
    ) -> Mapping[ArrangementId, Guarded]:
        """Return the rows that a view's quarantines refuse; raise if the view fails anyway."""
        stage = self._alone(view, guards)
        if stage is None or not view.quarantines:
            raise failure

        def trial(tried: Mapping[ArrangementId, Guarded]) -> Sequence[Report]:
            self.loop.fault("isolate")
            name = uuid4().hex
            step = replace(stage.step, attempt=name, guards=tried)
            return self._tried(replace(stage, step=step)).reports

        build = self.loop.ledger.head.serving(view.id).id
        return isolating(
            self.loop.runner,
            build,
            stage.step,
            stage.guards,
            trial,
            self.loop.settings.quarantine_rows,
        ).run(failure)

    def _explained(
        self,
        view: View,
        guards: Mapping[ArrangementId, Guarded],
        failure: HeadraceError,
    ) -> tuple[str, Mapping[str, Any]]:
        """Return why a view stops, and as the origin of that the row with which it fails.

        The row is one of the polled changes, if one is found; the place is that in the query.
        """
        stage = self._alone(view, guards)
        fault: Fault | None = None
        if stage is not None and stage.step.rows <= _EXPLAINED_ROWS:

            def trial(part: Step) -> Sequence[Report]:
                return self._tried(replace(stage, step=part)).reports

            ended = self.loop.closing.is_set
            fault = found_fault(
                stage.step, trial, failure, self.loop.row_text, _EXPLAINED_SECONDS, ended
            )
        if fault is not None:
            failure = fault.named(self.loop.catalog)
        if isinstance(failure, EvaluationError):
            failure = failure.in_words(Span.whole(view.query))
        return str(failure), {} if fault is None else fault.origin(self.loop.catalog)

    def _alone(self, view: View, guards: Mapping[ArrangementId, Guarded]) -> RunStep | None:
        """Return the step of a view and the views it depends on; None if nothing has changed."""
        needed = {view.id, *_ancestors(view, self.loop.catalog)}
        others = {v.id for v in self.loop.catalog.views_in_order() if v.id not in needed}
        without = self.loop.left_out() | others
        changed = frozenset(needed & (self.poll.ranges.keys() | self.poll.due))
        if not changed:
            return None
        return self.loop.step(uuid4().hex, self.poll, changed, frozenset(without), guards)

    def _tried(self, stage: RunStep) -> Attempt:
        """Run a step that is not committed; return what it has written."""
        attempt = Attempt(self.loop.runs)
        self.loop.run_step(stage, attempt)
        return attempt


def _ancestors(view: View, catalog: Catalog) -> set[RelationId]:
    found: set[RelationId] = set()
    pending = list(view.depends_on)
    while pending:
        id_ = pending.pop()
        found.add(id_)
        relation = catalog.by_id[id_]
        if isinstance(relation, View):
            pending += [i for i in relation.depends_on if i not in found]
    return found
