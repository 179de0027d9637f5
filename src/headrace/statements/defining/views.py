"""CREATE VIEW, CREATE MATERIALIZED VIEW, and the hidden views of followed queries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.catalog import CONTINUOUS, PlainView, View, title
from headrace.circuit import GivenKey, InferredKey
from headrace.circuit.digest import digest
from headrace.dialects import index_base, is_of_ksqldb, refuse_undecided, with_bounds
from headrace.engine.planned import Planned
from headrace.errors import Code, EvaluationError, HeadraceError, Span, masked
from headrace.parts.naming import HIDDEN
from headrace.parts.system_relations import refuse_system
from headrace.sql import CreateMaterializedView, CreateTableAs, CreateView, Query
from headrace.statements.defining.altered_queries import redefined
from headrace.statements.defining.candidates import AUTO_SWAP, swaps_by_itself, without_swap
from headrace.statements.defining.declared_keys import declared_columns
from headrace.statements.defining.on_error import on_error, quarantines, require_quarantine
from headrace.statements.defining.options import (
    begins_earliest,
    check_view_options,
    storage_note,
    value_of,
)
from headrace.statements.defining.placing import place_of
from headrace.statements.defining.refresh_options import refresh_note, refresh_of
from headrace.statements.defining.ttl import TTL_OPTIONS, with_ttl
from headrace.statements.defining.versioned import refuse_versions
from headrace.statements.results import Progress
from headrace.types import RelationId

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.catalog import Defined, Index
    from headrace.engine.engine import Engine
    from headrace.parts.definer import Definer
    from headrace.parts.reader import Reader
    from headrace.sql import AlterViewQuery
    from headrace.sql.view_columns import DeclaredKey


@dataclass(frozen=True, slots=True)
class Views:
    """Plans and creates views; a materialized view is filled when a method returns."""

    reader: Reader
    engine: Engine
    definer: Definer
    report: Callable[[Progress], None]

    def create_materialized(
        self,
        statement: CreateMaterializedView | CreateTableAs,
        query: Query | None = None,
        into: RelationId | None = None,
    ) -> str:
        """Create a view, and fill it from its inputs.

        ``query`` replaces the statement's query with one that also reads the hidden stream
        ``into``, which has the rows inserted into the view.

        If it replaces a view with the same columns, that view's rows change by the difference;
        otherwise the former view is dropped, unless something depends on it.
        """
        replaced = place_of(self.reader.catalog, statement.name, statement)
        if replaced is None:
            return f'"{statement.name}" exists already'
        refuse_versions(statement.options)
        check_view_options(statement.options)
        policy = refresh_of(statement.options) or CONTINUOUS
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
        query = self._with_ttl(query or _with_windows(statement), statement)
        if former is not None and not swaps_by_itself(statement.options):
            return self._create_candidate(former, statement, query)
        planned = None if former is None else self._view_in_place_of(former, statement, query)
        if planned is None:
            replaced = self._with_candidates(replaced)
            self.reader.catalog.without(replaced, statement.name.span)
            planned, former = self._view_of(statement, query), None
        ksqldb = isinstance(statement, CreateTableAs) and self._of_ksqldb(statement)
        view = replace(planned.view, into=into, refresh=policy, ksqldb=ksqldb)
        planned = replace(planned, view=view)
        if asked is not None and view.quarantines:
            catalog = self.reader.catalog
            require_quarantine(view, planned.circuit, catalog, asked.span)
        earliest = begins_earliest(statement.options)
        try:
            total = self._fill(planned, former, replaced, earliest=earliest)
        except EvaluationError as error:
            raise error.within(statement.query.span) from error
        changes = "change" if total == 1 else "changes"
        note = storage_note(statement.options) + refresh_note(statement.options, policy)
        note += self._index_note(statement.query)
        if isinstance(statement, CreateTableAs) and into is None and not policy.lags:
            note += "; it is maintained as its inputs change, and cannot be written to"
        done = "created" if former is None else "replaced"
        return f"{done} materialized view {view.name} from {total:,} {changes}{note}"

    def alter(self, statement: AlterViewQuery) -> str:
        """Replace a view's query; its other options stay as they are."""
        return self.create_materialized(redefined(self.reader.catalog, statement))

    def _create_candidate(
        self, former: View, statement: CreateMaterializedView | CreateTableAs, query: Query
    ) -> str:
        """Create a hidden view with the new query, which SWAP VIEW lets serve."""
        catalog, span = self.reader.catalog, statement.name.span
        policy = refresh_of(statement.options) or CONTINUOUS
        self.reader.require_running(former)
        if former.into is not None or former.refresh.lags or policy.lags:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'a candidate of view "{former.name}" is not supported',
                "It accepts INSERT." if former.into is not None else "It is refreshed apart.",
                f"CREATE OR REPLACE it without {AUTO_SWAP}.",
                span,
            )
        planned = self._view_in_place_of(former, statement, query)
        if planned is None:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'a candidate of view "{former.name}" with other columns is not supported',
                self._differing(former, self._view_of(statement, query, former)),
                f"CREATE OR REPLACE it without {AUTO_SWAP}.",
                span,
            )
        kept = quarantines(on_error(statement.options))
        columns = statement.columns if isinstance(statement, CreateMaterializedView) else ()
        text = masked(without_swap(statement.span, statement.options))
        hidden = self._view("", query, columns, text, guarded=kept, key=statement.key, like=former)
        view = replace(hidden.view, candidate_of=former.id)
        before = catalog.candidate(former.id)
        gone = () if before is None else (before.id,)
        earliest = begins_earliest(statement.options)
        try:
            total = self._fill(replace(hidden, view=view), None, gone, earliest=earliest)
        except EvaluationError as error:
            raise error.within(statement.query.span) from error
        changes = "change" if total == 1 else "changes"
        return (
            f"filled a candidate of materialized view {former.name} from {total:,} {changes}:"
            f" SWAP VIEW {former.name} lets it serve"
        )

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

    def _with_ttl(self, query: Query, statement: CreateMaterializedView | CreateTableAs) -> Query:
        """Return a view's query without the rows that are older than the option ``ttl``."""
        if value_of(statement.options, *TTL_OPTIONS) is None:
            return query
        with self.engine.planning:
            schema = self.engine.planner.analyse(query.span).schema
        columns = statement.columns if isinstance(statement, CreateMaterializedView) else ()
        names = columns or schema.names
        check_names(names, len(schema.names), query.span)
        return with_ttl(query, schema, tuple(names), statement.options)

    def _view_of(
        self,
        statement: CreateMaterializedView | CreateTableAs,
        query: Query,
        former: View | None = None,
    ) -> Planned:
        columns = statement.columns if isinstance(statement, CreateMaterializedView) else ()
        text = masked(statement.span.source)
        kept = quarantines(on_error(statement.options))
        return self._view(
            statement.name.dotted, query, columns, text, former, guarded=kept, key=statement.key
        )

    def _view_in_place_of(
        self, former: View, statement: CreateMaterializedView | CreateTableAs, query: Query
    ) -> Planned | None:
        """Plan a view with another query that keeps the contents of a former one.

        Returns None if the contents cannot be kept and nothing depends on them; raises if something
        does.
        """
        catalog = self.reader.catalog
        if former.id in self.reader.published.stopped:
            return None
        planned = self._view_of(statement, query, former)
        catalog.with_(planned.view, statement.name.span)
        differs = self._differing(former, planned)
        above = catalog.dependants(former.id)
        if differs is not None and above:
            raise HeadraceError(
                Code.CONFLICT,
                f'view "{former.name}" is used by {title(above[0])}: {differs}',
                hint="Keep its columns and its key, so that what is over it can follow; or "
                + _dropped_first(former, above[0]),
                span=statement.name.span,
            )
        return planned if differs is None else None

    def differing_contents(
        self, former: View, statement: CreateMaterializedView | CreateTableAs
    ) -> str | None:
        """Return why a statement could not keep a view's contents; None if it could, or is kept.

        Raises:
            HeadraceError: ``conflict`` if it could not and something depends on the view; as the
                statement, if its query is refused.
        """
        if former.into is not None or statement.if_not_exists:
            return None
        query = self._with_ttl(_with_windows(statement), statement)
        if self._view_in_place_of(former, statement, query) is not None:
            return None
        if former.id in self.reader.published.stopped:
            return None
        return self._differing(former, self._view_of(statement, query, former))

    def _differing(self, former: View, planned: Planned) -> str | None:
        """Return why a view's contents cannot be kept with another query; None if they can."""
        view = planned.view
        before, after = former.schema.columns, view.schema.columns
        if len(before) != len(after):
            return f"it would have {len(after)} columns instead of {len(before)}"
        for old, new in zip(before, after, strict=True):
            if (old.name, old.type) != (new.name, new.type):
                shown = f"{new.name} {new.type.simpleString()}"
                return f"it would have {shown} instead of {old.name} {old.type.simpleString()}"
            if old.nullable != new.nullable:
                return f'its column "{new.name}" {"may" if new.nullable else "could not"} be NULL'
        layout = planned.circuit.output.operator.layout
        stored = self.reader.published.layout(former)
        if (former.key, stored) == (view.key, layout):
            return None
        keys = [f"({', '.join(key)})" if key else "unknown" for key in (view.key, former.key)]
        return f"its key would be {keys[0]} instead of {keys[1]}"

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
        planned = self._view("", query, columns, query.text)
        self._fill(planned, None, (), earliest=True)
        return planned.view

    def create_index(self, query: Query, index: Index, created_sql: str) -> None:
        """Create the hidden view of an index, whose query returns all rows of a relation."""
        self._fill(self._view("", query, (), created_sql, index=index), None, (), earliest=True)

    def _fill(
        self,
        planned: Planned,
        former: View | None,
        replaced: tuple[RelationId, ...],
        *,
        earliest: bool,
    ) -> int:
        seen, view = 0, planned.view
        name = "the rows to follow" if view.name.startswith(HIDDEN) else view.name
        name = name if view.index is None else f"index {view.index.name}"
        if view.candidate_of is not None:
            name = f"the candidate of {self.reader.catalog.by_id[view.candidate_of].name}"

        def report(done: int, total: int) -> None:
            nonlocal seen
            seen = total
            self.report(Progress(f"filling {name}", done, total, "rows"))

        if former is None:
            self.definer.create_view(planned, report, replaced, earliest=earliest)
        else:
            self.definer.replace_view(former, planned, report, earliest=earliest, names_row=True)
        return seen

    def _view(
        self,
        name: str,
        query: Query,
        columns: tuple[str, ...],
        created_sql: str,
        former: View | None = None,
        index: Index | None = None,
        *,
        guarded: bool = False,
        key: DeclaredKey | None = None,
        like: View | None = None,
    ) -> Planned:
        """Plan a view, or another build of a former one, without creating it.

        A ``guarded`` view quarantines rows. Without a declared ``key``, the key is inferred from
        the query; of several possible keys, that of the former build, or of the view that it is
        ``like``, is used.

        Raises:
            HeadraceError: ``invalid`` or ``unsupported``, at the place in the statement.
        """
        engine, span = self.engine, query.span
        with engine.planning:
            analysed = engine.planner.analyse(span)
            refuse_system(analysed.names, span)
            names = columns or analysed.schema.names
            check_names(names, len(analysed.schema.names), span)
            schema = analysed.schema.renamed(tuple(names))
            build = self.definer.new_build()
            id_ = RelationId(build) if former is None else former.id
            by = () if index is None else index.columns
            stated = None if key is None else declared_columns(key, schema)
            changes = engine.changes
            circuit = engine.circuits.circuit_of(
                id_,
                build,
                analysed,
                span,
                tuple(names),
                by,
                guarded=guarded,
                key=self._inferred(former or like, names) if stated is None else GivenKey(stated),
            )
            unique = tuple(names[i] for i in circuit.output.key) if circuit.unique else ()
            checked = stated is not None and not (
                engine.circuits.has_unique(circuit, circuit.output.key)
                and not any(c.nullable for c in schema.columns if c.name in stated)
            )
        view = View(
            id_,
            name or f"{HIDDEN}{id_}",
            schema,
            span.text[span.start : span.end],
            analysed.names,
            analysed.through,
            created_sql,
            tuple(sorted(analysed.calls)),
            unique,
            digest(circuit),
            None if former is None else build,
            index=index,
            quarantines=guarded,
            single=circuit.unique and not unique,
            declares_key=stated is not None,
            checks_key=checked,
        )
        return Planned(view, circuit, changes)

    def _inferred(self, former: View | None, names: Sequence[str]) -> InferredKey | GivenKey:
        """Return the key of a build without a declared key: the former build's, if possible.

        A view without a key keeps none if anything depends on it.
        """
        if former is None or not set(former.key) <= set(names):
            return InferredKey()
        if not former.key and not former.single and self.reader.catalog.dependants(former.id):
            return GivenKey(None)
        return InferredKey(former.key)


def _dropped_first(former: View, above: Defined) -> str:
    if isinstance(above, View) and above.index is not None:
        return f"DROP INDEX {above.index.name} first."
    return f"DROP MATERIALIZED VIEW {former.name} CASCADE first."


def _with_windows(statement: CreateMaterializedView | CreateTableAs) -> Query:
    """Return a view's query; a ksqlDB CREATE TABLE AS gets the bounds of its windows."""
    query = statement.query
    text = with_bounds(query.text) if isinstance(statement, CreateTableAs) else None
    return query if text is None else replace(query, text=text, span=Span.whole(text))


def check_names(names: tuple[str, ...], count: int, span: Span) -> None:
    """Raise unless the names are valid column names for a query with ``count`` columns."""
    if len(names) != count:
        raise HeadraceError(
            Code.INVALID,
            f"the view names {len(names)} columns, but its query has {count}",
            span=span,
        )
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise HeadraceError(
                Code.INVALID,
                f'column "{name}" is in the query twice',
                hint="Rename them with AS, as in a.x AS a_x, b.x AS b_x, in place of *.",
                span=span,
            )
        if name.startswith(HIDDEN):
            raise HeadraceError(Code.INVALID, f'column name "{name}" is reserved', span=span)
        seen.add(name.lower())
