"""CREATE VIEW, CREATE MATERIALIZED VIEW, and the hidden views of followed queries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.errors import Code, EvaluationError, HeadraceError, masked
from headrace.interfaces.statements.checking.repairs import restarted_note
from headrace.interfaces.statements.defining.on_error import (
    ON_ERROR,
    on_error,
    quarantines,
    require_quarantine,
)
from headrace.interfaces.statements.defining.options import (
    begins_earliest,
    check_view_options,
    storage_note,
    value_of,
)
from headrace.interfaces.statements.defining.placing import place_of
from headrace.interfaces.statements.defining.stream_options import (
    AUTO_SWAP,
    REUSE,
    is_on,
    refuse_versions,
)
from headrace.interfaces.statements.defining.view_builds import check_names, redefined, with_windows
from headrace.interfaces.statements.defining.view_options import (
    HISTORY,
    REFRESH_OPTIONS,
    history_of,
    refresh_note,
    refresh_of,
)
from headrace.lifecycle.states.system_relations import refuse_system
from headrace.planning.catalog import CONTINUOUS, PlainView, View
from headrace.planning.circuit.explain import counted, growing
from headrace.planning.dialects import index_base, is_of_ksqldb, refuse_undecided
from headrace.planning.sql import CreateTableAs

if TYPE_CHECKING:
    from headrace.execution.engine.circuits import Planned
    from headrace.execution.engine.engine import Engine
    from headrace.interfaces.statements.checking.repairs import Rebuilds
    from headrace.interfaces.statements.defining.candidate_sets import CandidateSets
    from headrace.interfaces.statements.defining.view_builds import ViewBuilds
    from headrace.lifecycle.definitions.definer import Definer
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Index
    from headrace.planning.sql import (
        AlterViewQuery,
        CreateMaterializedView,
        CreateView,
        Option,
        Query,
    )
    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class Views:
    """Plans and creates views; a materialized view is filled when a method returns."""

    reader: Reader
    engine: Engine
    definer: Definer
    builds: ViewBuilds
    rebuilds: Rebuilds
    sets: CandidateSets

    def create_materialized(
        self,
        statement: CreateMaterializedView | CreateTableAs,
        query: Query | None = None,
        into: RelationId | None = None,
    ) -> str:
        """Create a view, and fill it from its inputs.

        ``query`` replaces the statement's query with one that also reads the hidden stream
        ``into``, which has the rows inserted into the view.

        If it replaces a view with the same columns, that view's rows change by the difference. One
        with other columns takes its place, and the views that read it are computed again; all
        change in one epoch.
        """
        replaced = place_of(self.reader.catalog, statement.name, statement)
        if replaced is None:
            return f'"{statement.name}" exists already'
        refuse_versions(statement.options)
        check_view_options(statement.options)
        policy = refresh_of(statement.options) or CONTINUOUS
        history_of(statement.options)
        if policy.lags and into is not None:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"a stream whose refresh is {policy} is not supported",
                hint="CREATE MATERIALIZED VIEW instead, which does not accept INSERT.",
                span=statement.name.span,
            )
        existing = self.reader.catalog.by_id.get(replaced[0]) if replaced else None
        former = existing if isinstance(existing, View) else None
        asked = on_error(statement.options)
        if quarantines(asked) and into is not None:
            raise HeadraceError(
                Code.UNSUPPORTED,
                "a stream whose query quarantines rows is not supported",
                hint="CREATE MATERIALIZED VIEW instead, which does not accept INSERT.",
                span=statement.name.span,
            )
        query = self.builds.with_ttl(query or with_windows(statement), statement)
        gone = "" if former is None else _no_longer(former, statement.options)
        if former is not None and not is_on(statement.options, AUTO_SWAP):
            return self.sets.create(former, statement, query) + gone
        planned = None if former is None else self._planned_in_place_of(former, statement, query)
        if planned is None:
            if former is not None and self._is_read(former):
                return self.sets.replace(former, statement, query) + gone
            replaced = self._with_candidates(replaced)
            self.reader.catalog.without(replaced, statement.name.span)
            planned, former = self.builds.of_statement(statement, query), None
        ksqldb = isinstance(statement, CreateTableAs) and self._of_ksqldb(statement)
        view = replace(
            planned.view,
            into=into,
            refresh=policy,
            ksqldb=ksqldb,
            history=history_of(statement.options),
        )
        planned = replace(planned, view=view)
        if asked is not None and view.quarantines:
            catalog = self.reader.catalog
            require_quarantine(view, planned.circuit, catalog, asked.span)
        earliest, reuse = begins_earliest(statement.options), is_on(statement.options, REUSE)
        try:
            total = self.builds.fill(planned, former, replaced, earliest=earliest, reuse=reuse)
        except EvaluationError as error:
            raise error.within(statement.query.span) from error
        note = storage_note(statement.options) + refresh_note(statement.options, policy)
        note += self._index_note(statement.query)
        note += "" if former is None else restarted_note(self.rebuilds.restart([former.id]))
        if isinstance(statement, CreateTableAs) and into is None and not policy.lags:
            note += "; it is maintained as its inputs change, and cannot be written to"
        note += "".join(f"; {each}" for each in growing(planned.circuit))
        done = "created" if former is None else "replaced"
        return f"{done} materialized view {view.name} from {counted(total, 'change')}{note}{gone}"

    def alter(self, statement: AlterViewQuery) -> str:
        """Replace a view's query; its other options stay as they are."""
        return self.create_materialized(redefined(self.reader.catalog, statement))

    def _planned_in_place_of(
        self, former: View, statement: CreateMaterializedView | CreateTableAs, query: Query
    ) -> Planned | None:
        """Plan a view with another query; return None if it cannot keep the former contents."""
        planned = self.builds.of_statement(statement, query, former)
        self.reader.catalog.with_(planned.view, statement.name.span)
        return planned if self.builds.differing(former, planned) is None else None

    def _is_read(self, view: View) -> bool:
        return bool(self.reader.catalog.dependants(view.id))

    def _with_candidates(self, ids: tuple[RelationId, ...]) -> tuple[RelationId, ...]:
        found = (self.reader.catalog.candidate(id_) for id_ in ids)
        return (*ids, *(each.id for each in found if each is not None))

    def _index_note(self, query: Query) -> str:
        base = index_base(query.span, self.engine.planner.relations)
        return f"; {base}" if base else ""

    def _of_ksqldb(self, statement: CreateTableAs) -> bool:
        """Return whether the query is in ksqlDB's dialect; raise if that is ambiguous."""
        relations, span = self.engine.planner.relations, statement.query.span
        if value_of(statement.options, "kafka_topic", "value_format") is not None:
            refuse_undecided(span, relations)
        return is_of_ksqldb(span, relations)

    def create_plain(self, statement: CreateView) -> str:
        """Create a plain view, which stores no rows."""
        replaced = place_of(self.reader.catalog, statement.name, statement)
        if replaced is None:
            return f'"{statement.name}" exists already'
        engine, span = self.engine, statement.query.span
        with engine.planning:
            analysed = engine.planner.analyse(span)
        refuse_system(analysed.names, span)
        names = statement.columns or analysed.schema.names
        check_names(names, len(analysed.schema.names), span)
        view = PlainView(
            self.definer.new_relation(),
            statement.name.dotted,
            analysed.schema.renamed(tuple(names)),
            span.source,
            analysed.names,
            analysed.through,
            masked(statement.span.source),
            tuple(sorted(analysed.calls)),
        )
        self.definer.create(view, replaced)
        return f"created {view.kind} {view.name}{self._index_note(statement.query)}"

    def create_hidden(self, query: Query, columns: tuple[str, ...] = ()) -> View:
        """Create a view that is dropped with its reader or sink."""
        planned = self.builds.planned("", query, columns, query.text)
        self.builds.fill(planned, None, (), earliest=True)
        return planned.view

    def create_index(self, query: Query, index: Index, created_sql: str) -> None:
        """Create the hidden view of an index, whose query returns all rows of a relation."""
        self.builds.fill(
            self.builds.planned("", query, (), created_sql, index=index), None, (), earliest=True
        )


def _no_longer(former: View, options: tuple[Option, ...]) -> str:
    """Return the note on the options of a view that the statement which replaces it leaves out."""
    given = {option.key.lower() for option in options}
    had = [
        (REFRESH_OPTIONS, "" if former.refresh == CONTINUOUS else str(former.refresh)),
        ((HISTORY,), str(former.history or "")),
        ((ON_ERROR,), "quarantine" if former.quarantines else ""),
    ]
    gone = [f"{keys[0]} = '{value}'" for keys, value in had if value and given.isdisjoint(keys)]
    return f"; without {', '.join(gone)}, which it had" if gone else ""
