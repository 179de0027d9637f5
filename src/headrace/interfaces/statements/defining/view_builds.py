"""Builds of views: planned from their queries, and filled.

ALTER MATERIALIZED VIEW ... AS: the statement that creates a view, with another query.

What becomes of the views and sinks above a view that gets other columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError, Span, masked
from headrace.execution.engine.circuits import Planned
from headrace.interfaces.statements.defining.on_error import ON_ERROR, on_error, quarantines
from headrace.interfaces.statements.defining.options import check_view_options, value_of
from headrace.interfaces.statements.defining.stream_options import AUTO_SWAP, REUSE
from headrace.interfaces.statements.defining.view_options import (
    HISTORY,
    REFRESH_OPTIONS,
    TTL_OPTIONS,
    declared_columns,
    with_ttl,
)
from headrace.interfaces.statements.results import Progress
from headrace.lifecycle.states.system_relations import refuse_system
from headrace.planning.catalog import CONTINUOUS, Sink, Table, View
from headrace.planning.catalog.naming import HIDDEN, shown_name
from headrace.planning.circuit import GivenKey, InferredKey
from headrace.planning.circuit.digest import digest, fingerprint
from headrace.planning.dialects import with_bounds
from headrace.planning.sql import CreateMaterializedView, CreateTableAs, Option, Query, parse
from headrace.types import RelationId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.execution.engine.engine import Engine
    from headrace.lifecycle.definitions.definer import Definer
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog, Index
    from headrace.planning.sql import AlterViewQuery, Name
    from headrace.planning.sql.columns import DeclaredKey
    from headrace.types import Schema


@dataclass(frozen=True, slots=True)
class ViewBuilds:
    """Plans and fills builds of views."""

    reader: Reader
    engine: Engine
    definer: Definer
    report: Callable[[Progress], None]

    def with_ttl(self, query: Query, statement: CreateMaterializedView | CreateTableAs) -> Query:
        """Return the query of a view, without the rows that are older than the option ``ttl``."""
        if value_of(statement.options, *TTL_OPTIONS) is None:
            return query
        with self.engine.planning:
            schema = self.engine.planner.analyse(query.span).schema
        columns = statement.columns if isinstance(statement, CreateMaterializedView) else ()
        names = columns or schema.names
        check_names(names, len(schema.names), query.span)
        return with_ttl(query, schema, tuple(names), statement.options)

    def of_statement(
        self,
        statement: CreateMaterializedView | CreateTableAs,
        query: Query,
        former: View | None = None,
    ) -> Planned:
        """Plan the view of a statement, or another build of a former one, with a query."""
        columns = statement.columns if isinstance(statement, CreateMaterializedView) else ()
        text = masked(statement.span.source)
        kept = quarantines(on_error(statement.options))
        return self.planned(
            statement.name.dotted, query, columns, text, former, guarded=kept, key=statement.key
        )

    def planned(
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
            fingerprint=fingerprint(circuit),
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

    def differing(self, former: View, planned: Planned) -> str | None:
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

    def fill(
        self,
        planned: Planned,
        former: View | None,
        replaced: tuple[RelationId, ...],
        *,
        earliest: bool,
        reuse: bool = True,
    ) -> int:
        """Fill a view, or another build of a former one, and let it serve.

        It takes the place of the relations ``replaced``. With ``reuse``, state of other views is
        read in place of inputs, where that costs less. Returns the number of rows read.
        """
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
            self.definer.create_view(planned, report, replaced, earliest=earliest, reuse=reuse)
        else:
            self.definer.replace_view(
                former, planned, report, earliest=earliest, reuse=reuse, names_row=True
            )
        return seen


def with_windows(statement: CreateMaterializedView | CreateTableAs) -> Query:
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


_OWN: Final = frozenset({*REFRESH_OPTIONS, HISTORY, ON_ERROR, AUTO_SWAP})
"""Options that ALTER may have changed since: they are those of the view."""
_FILLED: Final = frozenset({AUTO_SWAP, REUSE})
"""Options that say how the new query is filled, which ALTER may give."""


def redefined(catalog: Catalog, statement: AlterViewQuery) -> CreateMaterializedView:
    """Return the statement that replaces a view by one with another query and its own options.

    Its text is that of the view's definition with the new query.

    Raises:
        HeadraceError: ``invalid``, at the name, if there is no such view; ``unsupported`` if
            another statement made it, such as ``CREATE TABLE AS``, or at an option that says what
            the view is.
    """
    name, given = statement.name, {option.key.lower() for option in statement.options}
    check_view_options(statement.options)
    for option in statement.options:
        if option.key.lower() not in _FILLED:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'option "{option.key}" of ALTER MATERIALIZED VIEW ... AS is not supported',
                "It changes the query alone; other options stay as they are.",
                "ALTER MATERIALIZED VIEW ... SET changes refresh, on_error and history; CREATE OR"
                " REPLACE gives all options again.",
                option.span,
            )
    view = materialized(catalog, name)
    created, *_ = parse(view.created_sql)
    if not isinstance(created, CreateMaterializedView):
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'another query of "{view.name}" is not supported by ALTER',
            hint="CREATE OR REPLACE it by the statement of SHOW CREATE, with the new query.",
            span=name.span,
        )
    text, query = created.span.text, created.query.span
    whole = text[: query.start] + statement.query.span.source + text[query.end :]
    own = [option for option in created.options if option.key.lower() not in _OWN]
    options = [option for option in own if option.key.lower() not in given]
    if view.refresh != CONTINUOUS:
        options.append(Option(REFRESH_OPTIONS[0], str(view.refresh), statement.span))
    if view.history is not None:
        options.append(Option(HISTORY, str(view.history), statement.span))
    if view.quarantines:
        options.append(Option(ON_ERROR, "quarantine", statement.span))
    return replace(
        created,
        name=name,
        query=statement.query,
        span=Span.whole(whole),
        options=(*options, *statement.options),
        or_replace=True,
        if_not_exists=False,
    )


def materialized(catalog: Catalog, name: Name) -> View:
    """Return the materialized view of a name; raise ``invalid``, at the name, for another kind."""
    found = catalog.resolve(name.dotted, name.span)
    if isinstance(found, View) and not found.name.startswith(HIDDEN):
        return found
    raise HeadraceError(
        Code.INVALID, f'"{found.name}" is a {found.kind}, not a materialized view', span=name.span
    )


OF_SINK: Final = "it writes the columns that it has, unless it is dropped before"
_STAND_INS: Final = -(1 << 32)
"""Ids below this one are those of no relation."""


class Becomes(Enum):
    """What becomes of a view or sink."""

    FOLLOWS = "follows the difference"
    COMPUTED = "computed again, and changes in the same epoch"
    RESHAPED = "computed again with other columns, and changes in the same epoch"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class AboveChange:
    """A view or sink above, what becomes of it, and why if that is refused."""

    relation: View | Sink
    becomes: Becomes
    why: str = ""


@dataclass(frozen=True, slots=True)
class AboveChanges:
    """Plans views above over the columns that a view would have, without filling anything."""

    reader: Reader
    engine: Engine

    def of(self, view: View, schema: Schema) -> Iterator[AboveChange]:
        """Yield what becomes of each view and sink above, inputs first."""
        catalog = self.reader.catalog
        instead = {view.id: _stand_in(view, schema)}
        for each in catalog.dependants(view.id):
            if isinstance(each, Sink):
                if each.source in instead:
                    yield AboveChange(each, Becomes.REFUSED, OF_SINK)
            elif isinstance(each, View) and each.candidate_of is None:
                if instead.keys().isdisjoint(each.depends_on):
                    yield AboveChange(each, Becomes.FOLLOWS)
                    continue
                try:
                    found = self._schema_over(each, instead)
                except HeadraceError as error:
                    yield AboveChange(each, Becomes.REFUSED, error.primary)
                    continue
                same = found == each.schema
                if not same:
                    instead[each.id] = _stand_in(each, found)
                yield AboveChange(each, Becomes.COMPUTED if same else Becomes.RESHAPED)

    def refused(self, view: View, schema: Schema) -> dict[str, str]:
        """Return why views and sinks above cannot follow to other columns, by their names."""
        catalog = self.reader.catalog
        return {
            shown_name(each.relation, catalog): each.why
            for each in self.of(view, schema)
            if each.becomes is Becomes.REFUSED
        }

    def _schema_over(self, view: View, instead: dict[RelationId, Table]) -> Schema:
        """Return the columns of a view over stand-ins for some of its inputs."""
        catalog, planner = self.reader.catalog, self.engine.planner
        if view.index is not None:
            return _indexed(view.index, instead[view.index.of].schema)
        names = {catalog.by_id[id_].name: table.name for id_, table in instead.items()}
        waits = catalog.candidate(view.id)
        if waits is not None and waits.own_query and not waits.has_served:
            view = waits
        query = view.by_name or view.query
        with self.engine.planning:
            text = planner.substituted(Span.whole(query), names) or query
            with self.engine.beside(instead.values()):
                found = planner.analyse(Span.whole(text)).schema
        named = declared(view)[0]
        return found.renamed(named) if len(named) == len(found.names) else found


def declared(view: View) -> tuple[tuple[str, ...], DeclaredKey | None]:
    """Return the names of columns and the key that the statement of a view declares."""
    if view.created_sql and view.index is None:
        created, *_ = parse(view.created_sql)
        if isinstance(created, CreateMaterializedView):
            return created.columns, created.key
    return (), None


def _stand_in(view: View, schema: Schema) -> Table:
    """Return a relation with the columns that a view would have."""
    return Table(RelationId(_STAND_INS - view.id), f"{HIDDEN}new{view.id}", schema)


def _indexed(index: Index, schema: Schema) -> Schema:
    """Return the columns of the view of an index: all of its relation, with those it is by."""
    for name in index.columns:
        if name not in schema.names:
            raise HeadraceError(Code.INVALID, f'column "{name}" does not exist')
    return schema
