"""EXPLAIN CHANGE of statements that fill views again, or let other builds of them serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.catalog import Sink, View
from headrace.errors import Code, HeadraceError
from headrace.ledger import RepairPath
from headrace.parts.naming import shown_name
from headrace.parts.swapping import missing, same_contents
from headrace.runtime.retirement import require_kept
from headrace.statements.defining.above_changes import (
    OF_SINK,
    AboveChange,
    AboveChanges,
    Becomes,
)
from headrace.statements.defining.flags import REUSE, is_on
from headrace.statements.defining.options import begins_earliest
from headrace.statements.defining.view_builds import with_windows
from headrace.statements.describing.alteration_effects import REFUSED, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.history.changes import ChangeClassifier
    from headrace.parts.reader import Reader
    from headrace.sql import CreateMaterializedView, CreateTableAs, RebuildView, SwapView
    from headrace.statements.defining.candidate_sets import CandidateSets
    from headrace.statements.defining.candidates import Candidates
    from headrace.statements.defining.view_builds import ViewBuilds
    from headrace.statements.describing.reuse import ReusedState
    from headrace.types import RelationId

_SERVES: Final = "its candidate serves, in one epoch"
_AGAIN: Final = "has stopped: it is filled again afterwards"


@dataclass(frozen=True, slots=True)
class BuildEffects:
    """Finds the effects on each view of statements that fill or exchange builds of views."""

    reader: Reader
    changes: ChangeClassifier
    builds: ViewBuilds
    reused: ReusedState
    candidates: Candidates
    sets: CandidateSets

    def of_rebuilt(self, statement: RebuildView) -> Iterator[Row]:
        """Yield the effect of REBUILD VIEW on each view."""
        view = self.sets.rebuildable(statement)
        by_id, stopped = self.reader.catalog.by_id, self.reader.published.stopped
        for each in self.changes.of_replaced(view):
            path, rule = each.path, each.rule
            if each.view in stopped and each.view != view.id:
                path, rule = RepairPath.REBUILD, _AGAIN
            elif statement.dependants and path is RepairPath.DELTAS:
                path, rule = RepairPath.REBUILD, "rebuilt with it, in the same epoch"
            yield by_id[each.view], path, rule, each.whole

    def of_swapped(self, statement: SwapView) -> Iterator[Row]:
        """Yield the effect of SWAP VIEW or ROLLBACK VIEW on each view, and on sinks."""
        catalog, state = self.reader.catalog, self.reader.published
        pairs = self.sets.over(self.candidates.roots(statement))
        known = {view.id for view, _ in pairs}
        moved = {view.id for view, other in pairs if not same_contents(state, view, other)}
        for view, candidate in pairs:
            if candidate.id in state.stopped:
                yield view, REFUSED, "its candidate has stopped", None
            elif view.id in moved:
                yield view, RepairPath.DELTAS, f"{_SERVES}, with other columns or key", None
            else:
                yield view, RepairPath.DELTAS, f"{_SERVES}; rows change by the difference", None
        left: set[str] = set()
        while each := missing(catalog, state, pairs, without=left):
            left.add(shown_name(each, catalog))
            if each.id not in known:
                known.add(each.id)
                yield each, RepairPath.REBUILD, "filled before, over the other columns", None
        for sink in catalog:
            if isinstance(sink, Sink) and sink.source in moved:
                yield sink, REFUSED, OF_SINK, None
        for carried in self.changes.following([view.id for view, _ in pairs]):
            if carried.view in known:
                continue
            path, rule = carried.path, carried.rule
            if carried.view in state.stopped:
                path, rule = RepairPath.REBUILD, _AGAIN
            yield catalog.by_id[carried.view], path, rule, carried.whole

    def of_replaced(self, statement: CreateMaterializedView | CreateTableAs) -> Iterator[Row]:
        """Yield the effect of replacing a view on each view; none if there is no such view."""
        catalog, state = self.reader.catalog, self.reader.published
        view = catalog.find(statement.name.dotted)
        if not isinstance(view, View):
            return
        try:
            if not begins_earliest(statement.options):
                require_kept(state, view)
            if statement.if_not_exists or view.into is not None:
                planned, differs = None, None
            else:
                query = self.builds.with_ttl(with_windows(statement), statement)
                planned = self.builds.of_statement(statement, query, view)
                differs = self.builds.differing(view, planned)
        except HeadraceError as error:
            if error.code in (Code.INVALID, Code.UNSUPPORTED):  # of the query itself
                raise
            yield view, REFUSED, error.primary, None
            return
        if differs is not None and view.refresh.lags and catalog.dependants(view.id):
            yield view, REFUSED, f"it is refreshed apart, and others read it: {differs}", None
            return
        above: dict[RelationId, AboveChange] = {}
        if planned is not None and differs is not None:
            changes = AboveChanges(self.reader, self.builds.engine)
            above = {c.relation.id: c for c in changes.of(view, planned.view.schema)}
        reused = None
        if planned is not None and is_on(statement.options, REUSE):
            reused = self.reused.of(planned.circuit, planned.view)
        for each in self.changes.of_replaced(view):
            path: str = each.path
            rule, change = each.rule, above.pop(each.view, None)
            if differs is not None and each.view == view.id:
                rule = f"filled again beside it: {differs}"
            if reused is not None and each.view == view.id:
                rule = f"{rule}. {reused}"
            elif change is not None and change.becomes is not Becomes.FOLLOWS:
                refused = change.becomes is Becomes.REFUSED
                path = REFUSED if refused else RepairPath.REBUILD
                rule = change.why or change.becomes.value
            yield catalog.by_id[each.view], path, rule, each.whole
        for change in above.values():
            if change.becomes is Becomes.REFUSED:
                yield change.relation, REFUSED, change.why, None
