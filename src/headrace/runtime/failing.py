"""Views that fail on the changes of an epoch: each is tried alone, and explained or isolated."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from headrace.catalog import View
from headrace.errors import EvaluationError, HeadraceError, Span
from headrace.ledger import Dirty
from headrace.runtime.attempt import Attempt
from headrace.runtime.faults import Fault, found_fault
from headrace.runtime.isolating import isolating, may_be_of_data
from headrace.runtime.published import STOPPED
from headrace.runtime.quarantine import Guarded
from headrace.types import ArrangementId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.catalog import Catalog
    from headrace.runtime.stages import Performer, Poll, RunStep
    from headrace.runtime.step import Report, Step
    from headrace.types import RelationId

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
