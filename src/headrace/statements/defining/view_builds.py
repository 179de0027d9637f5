"""Builds of views: planned from their queries, and filled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.catalog import View
from headrace.circuit import GivenKey, InferredKey
from headrace.circuit.digest import digest
from headrace.circuit.fingerprint import fingerprint
from headrace.dialects import with_bounds
from headrace.engine.planned import Planned
from headrace.errors import Code, HeadraceError, Span, masked
from headrace.parts.naming import HIDDEN
from headrace.parts.system_relations import refuse_system
from headrace.sql import CreateMaterializedView, CreateTableAs, Query
from headrace.statements.defining.declared_keys import declared_columns
from headrace.statements.defining.on_error import on_error, quarantines
from headrace.statements.defining.options import value_of
from headrace.statements.defining.ttl import TTL_OPTIONS, with_ttl
from headrace.statements.results import Progress
from headrace.types import RelationId

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.catalog import Index
    from headrace.engine.engine import Engine
    from headrace.parts.definer import Definer
    from headrace.parts.reader import Reader
    from headrace.sql.view_columns import DeclaredKey


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
