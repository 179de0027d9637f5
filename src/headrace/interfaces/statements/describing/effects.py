"""EXPLAIN CHANGE: the effect of a statement on each view, without running it.

Three kinds of statements change views: ALTERs of streams and tables, what fills views again or lets
other builds of them serve, and all else that changes the catalog.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from headrace.errors import Code, HeadraceError, unknown
from headrace.execution.runtime.retirement import require_kept
from headrace.interfaces.statements.checking.repairs import invalidated
from headrace.interfaces.statements.defining.drops import dropped_with
from headrace.interfaces.statements.defining.options import begins_earliest
from headrace.interfaces.statements.defining.stream_options import (
    REUSE,
    is_on,
    lost_events,
    retention_of,
)
from headrace.interfaces.statements.defining.view_builds import (
    OF_SINK,
    AboveChange,
    AboveChanges,
    Becomes,
    redefined,
    with_windows,
)
from headrace.interfaces.statements.defining.view_options import HISTORY
from headrace.interfaces.statements.results import Listed
from headrace.lifecycle.definitions.functions import above, users
from headrace.lifecycle.history.changes import in_effect
from headrace.lifecycle.states.swapping import missing, same_contents
from headrace.planning.catalog import PlainView, Sink, Stream, Table, View
from headrace.planning.catalog.naming import is_hidden, shown_name
from headrace.planning.sql import (
    AddColumns,
    AlterStream,
    AlterView,
    AlterViewQuery,
    CreateMaterializedView,
    CreateTableAs,
    Drop,
    DropColumns,
    DropFunction,
    Insert,
    Invalidate,
    Name,
    RebuildView,
    RenameColumn,
    RetypeColumn,
    SwapView,
)
from headrace.storage.ledger import RepairPath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headrace.execution.runtime.retirement import Retirement
    from headrace.interfaces.statements.changing.row_changes import RowChange, Trials
    from headrace.interfaces.statements.defining.candidate_sets import CandidateSets
    from headrace.interfaces.statements.defining.candidates import Candidates
    from headrace.interfaces.statements.defining.column_changes import AlteringColumns, ColumnPlans
    from headrace.interfaces.statements.defining.view_builds import ViewBuilds
    from headrace.interfaces.statements.describing.explanations import ReusedState
    from headrace.lifecycle.definitions.functions import Functions
    from headrace.lifecycle.definitions.reshaping import AlteredDependant, Reshaping
    from headrace.lifecycle.history.changes import ChangeClassifier
    from headrace.lifecycle.history.slices import Slices
    from headrace.lifecycle.states.access import Principal
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Relation
    from headrace.planning.sql import ExplainChange, ExplainScript
    from headrace.storage.ledger import Carried
    from headrace.types import RelationId


REFUSED: Final = "refused"

Row: TypeAlias = "tuple[Relation, str, str, int | None]"
"""A relation, the effect on it, the reason, and the number of rows that a rebuild reads, if any."""


@dataclass(frozen=True, slots=True)
class AlterationEffects:
    """Finds what becomes of what depends on a stream or table that is altered."""

    reader: Reader
    retirement: Retirement
    reshaping: Reshaping
    column_plans: ColumnPlans

    def of_columns(self, statement: AlteringColumns) -> Iterator[Row]:
        """Yield the effect on the relation, and on each that depends on it; inputs come first.

        Raises:
            HeadraceError: if the relation itself does not allow the change.
        """
        change = self.column_plans.of(statement)
        relation = change.relation
        if change.altered == relation:
            yield relation, RepairPath.NONE, change.done, None
            return
        stays = "its rows stay as they are stored, and are read with the columns that it has then"
        yield relation, RepairPath.NONE, stays, None
        for sink in change.writers:
            yield sink, REFUSED, "it writes into the column", None
        tried = self.reshaping.tried(
            [relation], [change.altered], change.moved, change.follow, change.refused
        )
        for each in tried:
            if each.error is not None:
                yield each.former, REFUSED, _why(each.error), None
            elif isinstance(each.former, View | PlainView) and not is_hidden(each.former):
                yield each.former, RepairPath.NONE, _goes_on(each, statement), None

    def of_retention(self, statement: AlterStream) -> Iterator[Row]:
        """Yield the effect of another retention on each view over a stream."""
        catalog, name = self.reader.catalog, statement.name
        stream = catalog.resolve(name.dotted, name.span)
        if not isinstance(stream, Stream):
            return
        due = self.retirement.due(stream, retention_of(statement.options))
        why = "unchanged: this retires no event"
        if due is not None:
            lost = lost_events(stream, self.reader.ledger.head, due)
            why = f"keeps rows of {lost}, and can no longer be verified or computed again"
        for view in self._above(name):
            if stream.id not in view.depends_on:
                continue
            if due is not None and self.retirement.have_left(view, stream, due):
                yield view, RepairPath.NONE, f"unchanged: it shows nothing of {lost}", None
            else:
                yield view, RepairPath.NONE, why, None

    def _above(self, name: Name) -> list[View]:
        catalog = self.reader.catalog
        relation = catalog.resolve(name.dotted, name.span)
        over = {view.id for view in catalog.dependants(relation.id)}
        return [v for v in catalog.views_in_order() if v.id in over and not is_hidden(v)]


def _goes_on(followed: AlteredDependant, statement: AlteringColumns) -> str:
    queries = {getattr(each, "query", "") for each in (followed.former, followed.present)}
    if isinstance(statement, AddColumns):
        if len(queries) > 1:
            return "unchanged; its query lists the columns that * means now"
        return "unchanged; earlier rows have the default of the column, or NULL"
    return "unchanged" if len(queries) == 1 else "unchanged; its query has the new name"


def _why(error: HeadraceError) -> str:
    """Return why something could not go on, as a part of a sentence."""
    return (error.detail or error.primary).rstrip(".")


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


Definition: TypeAlias = (
    AddColumns
    | DropColumns
    | RenameColumn
    | RetypeColumn
    | AlterStream
    | AlterView
    | AlterViewQuery
    | CreateMaterializedView
    | CreateTableAs
    | Drop
    | DropFunction
    | RebuildView
    | SwapView
)
"""The statements on the catalog whose effect on views can be explained."""
DEFINITIONS = (
    AddColumns, DropColumns, RenameColumn, RetypeColumn, AlterStream, AlterView, AlterViewQuery,
    CreateMaterializedView, CreateTableAs, Drop, DropFunction, RebuildView, SwapView,
)  # fmt: skip

DROP = "drop"


@dataclass(frozen=True, slots=True)
class DefinitionChanges:
    """Finds the effects of statements on views, without running them."""

    reader: Reader
    functions: Functions
    changes: ChangeClassifier
    alteration_effects: AlterationEffects
    build_effects: BuildEffects

    def of(self, statement: Definition) -> Iterator[Row]:
        """Yield the effect of a statement on each view; inputs come before their readers."""
        match statement:
            case Drop():
                yield from self._dropped(statement)
            case DropFunction():
                calling = users(self.reader.catalog, statement.name.dotted)
                how = DROP if statement.cascade else REFUSED
                for view in above(self.reader.catalog, calling):
                    yield view, how, f"needs function {statement.name.dotted}", None
            case AlterStream():
                yield from self.alteration_effects.of_retention(statement)
            case AddColumns() | DropColumns() | RenameColumn() | RetypeColumn():
                yield from self.alteration_effects.of_columns(statement)
            case AlterView():
                altered = self.reader.catalog.resolve(statement.name.dotted, statement.name.span)
                kept = any(option.key.lower() == HISTORY for option in statement.options)
                what = "how long its states are kept" if kept else "its refresh schedule"
                yield altered, RepairPath.NONE, f"its rows stay; {what} changes", None
            case AlterViewQuery():
                yield from self.build_effects.of_replaced(redefined(self.reader.catalog, statement))
            case CreateMaterializedView() | CreateTableAs():
                yield from self.build_effects.of_replaced(statement)
            case RebuildView():
                yield from self.build_effects.of_rebuilt(statement)
            case SwapView():
                yield from self.build_effects.of_swapped(statement)

    def of_function(self, name: Name) -> list[Carried]:
        """Return the effect of replacing a function on the views that call it.

        Raises:
            HeadraceError: ``invalid``, at the name, if the function does not exist.
        """
        key, known = name.dotted, self.functions.records
        if key not in known:
            otherwise = "SHOW FUNCTIONS lists what exists."
            raise unknown("function", name, known, otherwise, name.span)
        calling = users(self.reader.catalog, key)
        return self.changes.of_function([view for view in calling if isinstance(view, View)])

    def _dropped(self, statement: Drop) -> Iterator[Row]:
        catalog = self.reader.catalog
        relation = catalog.resolve(statement.name.dotted, statement.name.span)
        others = [view for view in dropped_with(catalog, relation) if not is_hidden(view)]
        how = REFUSED if others and not statement.cascade else DROP
        yield relation, how, "its rows are deleted" if how == DROP else "others read it", None
        for view in others:
            yield view, how, f"reads {relation.name}", None


CARRIED = ("view", "path", "rule", "rows", "changed", "rebuild_rows")
_TYPES = dict.fromkeys(("rows", "changed", "rebuild_rows"), pa.int64())

CREATE: Final = "create"
"""The path of a view that a statement of a script creates."""
DEFINED: Final = "defined"
"""Of a view or sink whose definition follows a statement: it has another name in it."""
WRONG: Final = "wrong"
"""Of a statement that would fail; the row has its error."""
UNCHECKED: Final = "unchecked"
"""Of a statement over what another one would not make, or that cannot be tried offline."""


@dataclass(frozen=True, slots=True)
class ChangeExplanations:
    """Explains the effects of statements, without running them."""

    reader: Reader
    slices: Slices
    changes: ChangeClassifier
    definition_changes: DefinitionChanges
    trials: Trials
    principal: Principal

    def explain(self, statement: ExplainChange) -> Listed:
        """List, for each view, how it follows the change, why, and the number of affected rows."""
        target = statement.target
        match target:
            case Name():
                carried = self.definition_changes.of_function(target)
            case Invalidate():
                view = invalidated(self.reader.catalog, target)
                carried = self.changes.of_slice(view, self.slices.read(view, target.slice))
            case _ if isinstance(target, DEFINITIONS):
                return Listed(CARRIED, self._shown(self.definition_changes.of(target)), _TYPES)
            case _:
                carried = self._of_rows(target)
        return Listed(CARRIED, self._rows(carried), _TYPES)

    def _rows(self, carried: Sequence[Carried]) -> list[tuple[Any, ...]]:
        names = self.reader.catalog.by_id
        return [
            (names[c.view].name, c.path.value, c.rule, c.cost, c.changed, c.whole)
            for c in carried
            if self.principal.sees(names[c.view].name)
        ]

    def _shown(self, found: Iterable[Row]) -> list[tuple[Any, ...]]:
        catalog = self.reader.catalog
        return [
            (shown_name(relation, catalog), how, why, None, None, whole)
            for relation, how, why, whole in found
            if self.principal.sees(relation.name)
        ]

    def _of_rows(self, target: RowChange) -> list[Carried]:
        written = self.trials.written(target)
        if written is None:
            return []
        relation, rows = written
        note = in_effect(relation, rows) if isinstance(relation, Table) else ""
        corrects = isinstance(relation, Stream) and not isinstance(target, Insert)
        return self.changes.of_rows(relation, rows, note, corrects=corrects)


@dataclass(frozen=True, slots=True)
class ScriptExplanations:
    """Explains the statements of a script, each after those before it."""

    rehearse: Callable[[ExplainScript], Listed]

    def explain(self, statement: ExplainScript) -> Listed:
        """List, for each statement, its effects on views, or why it would fail."""
        return self.rehearse(statement)
