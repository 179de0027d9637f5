"""CREATE. DROP is in :mod:`headrace.statements.defining.drops`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql.types import TimeType

from headrace.catalog import Declaration, PlainView, Relation, Sink, Stream, Table, View
from headrace.circuit.digest import digest
from headrace.connectors import Secret
from headrace.errors import Code, HeadraceError, Span, masked
from headrace.formats.debezium import is_debezium
from headrace.parts.definer import Relations
from headrace.parts.functions import Functions
from headrace.parts.information_schema import refuse_system
from headrace.parts.naming import HIDDEN, SYSTEM_SCHEMA
from headrace.sql import (
    ColumnDefinition,
    CreateMaterializedView,
    CreateSchema,
    CreateSecret,
    CreateSink,
    CreateStream,
    CreateTable,
    CreateTableAs,
    CreateView,
    Drop,
    DropFunction,
    DropSchema,
    DropSecret,
    Name,
    ObjectKind,
    Query,
    SecretSource,
)
from headrace.statements.defining.columns import (
    computed_column,
    require_default,
    require_known_rows,
)
from headrace.statements.defining.drops import WORDS, Drops
from headrace.statements.defining.options import (
    broker_note,
    check_relation_options,
    check_view_options,
    refresh_note,
    stored_options,
)
from headrace.statements.defining.versioned import effective_column, refuse_versions
from headrace.statements.results import Progress
from headrace.types import Column, RelationId, Schema, holds, require_kept, require_key

if TYPE_CHECKING:
    from headrace.parts.instance import Instance
    from headrace.types import DataType

Report = Callable[[Progress], None]
Creation: TypeAlias = (
    CreateStream | CreateTable | CreateMaterializedView | CreateTableAs | CreateView
)
Placed: TypeAlias = Creation | CreateSink
Definition: TypeAlias = (
    Creation | Drop | DropFunction | CreateSchema | DropSchema | CreateSecret | DropSecret
)


@dataclass(frozen=True, slots=True)
class Definitions:
    """Creates and drops relations of one instance."""

    instance: Instance
    progress: Report

    def run(self, statement: Definition) -> str:
        """Run a CREATE or DROP statement, and return a message."""
        match statement:
            case CreateStream() | CreateTable():
                return self.create(statement)
            case CreateMaterializedView() | CreateTableAs():
                return self.create_view(statement)
            case CreateView():
                return self.create_plain(statement)
            case Drop():
                return Drops(self.instance).drop(statement)
            case DropFunction():
                return Functions(self.instance).drop(statement)
            case CreateSchema():
                return self.create_schema(statement)
            case DropSchema():
                return Drops(self.instance).drop_schema(statement)
            case CreateSecret():
                return self.create_secret(statement)
            case DropSecret():
                return Drops(self.instance).drop_secret(statement)

    def create(self, statement: CreateStream | CreateTable) -> str:
        """Create an empty stream or table."""
        replaced = self.place_of(statement.name, statement)
        if replaced is None:
            return f'"{statement.name}" exists already'
        check_relation_options(statement.options)
        schema = self._schema(statement.columns, statement.primary_key)
        effective = effective_column(statement, schema)
        if effective is not None:
            schema = _present(schema, effective)
        id_ = self.instance.ledger.reserve_relation()
        name = statement.name.dotted
        relation: Stream | Table
        if isinstance(statement, CreateTable) or statement.primary_key:
            key = _spelled(schema, statement.primary_key)
            if effective is not None:
                key = (*key, effective)
            relation = Table(id_, name, schema, key, effective, _declaration(statement))
        else:
            relation = Stream(id_, name, schema, _declaration(statement))
        if isinstance(relation, Table) and is_debezium(relation):
            require_known_rows(relation, statement.name.span)
        Relations(self.instance).create(relation, replaced)
        where = broker_note(statement.options)
        return f"created {relation.kind} {name}{where}"

    def create_view(self, statement: CreateMaterializedView | CreateTableAs) -> str:
        """Create a view, and fill it from its inputs.

        If it replaces a view with the same columns, that view's rows change by the difference;
        otherwise the former view is dropped, which nothing may depend on.
        """
        replaced = self.place_of(statement.name, statement)
        if replaced is None:
            return f'"{statement.name}" exists already'
        refuse_versions(statement.options)
        check_view_options(statement.options)
        existing = self.instance.catalog.by_id.get(replaced[0]) if replaced else None
        former = existing if isinstance(existing, View) else None
        view = None if former is None else self._view_in_place_of(former, statement)
        if view is None:
            self.instance.catalog.without(replaced, statement.name.span)
            view, former = self._view_of(statement), None
        total = self._fill(view, former, replaced)
        changes = "change" if total == 1 else "changes"
        note = refresh_note(statement.options)
        if isinstance(statement, CreateTableAs):
            note += "; it is maintained as its inputs change, and cannot be written to"
        done = "created" if former is None else "replaced"
        return f"{done} materialized view {view.name} from {total:,} {changes}{note}"

    def _view_of(
        self, statement: CreateMaterializedView | CreateTableAs, former: View | None = None
    ) -> View:
        columns = statement.columns if isinstance(statement, CreateMaterializedView) else ()
        text = masked(statement.span.source)
        return self.view(statement.name.dotted, statement.query, columns, text, former)

    def _view_in_place_of(
        self, former: View, statement: CreateMaterializedView | CreateTableAs
    ) -> View | None:
        """Plan a view with another query, and the contents of a former one.

        None if the contents cannot be kept, and nothing depends on them.
        """
        catalog, relations = self.instance.catalog, Relations(self.instance)
        if former.id in self.instance.published.stopped:
            return None
        view = self._view_of(statement, former)
        catalog.with_(view, statement.name.span)
        differs = relations.differing(former, view)
        above = catalog.dependants(former.id)
        if differs is not None and above:
            raise HeadraceError(
                Code.CONFLICT,
                f'view "{former.name}" is used by {above[0].kind} "{above[0].name}": {differs}',
                hint="Keep its columns and its key, so that what is over it can follow; or DROP"
                f" MATERIALIZED VIEW {former.name} CASCADE first.",
                span=statement.name.span,
            )
        return view if differs is None else None

    def create_plain(self, statement: CreateView) -> str:
        """Create a plain view, which stores no rows."""
        replaced = self.place_of(statement.name, statement)
        if replaced is None:
            return f'"{statement.name}" exists already'
        engine, span = self.instance.engine, statement.query.span
        with engine.planning:
            analysed = engine.planner.analyse(span)
        refuse_system(analysed.names, span)
        names = statement.columns or analysed.schema.names
        check_names(names, len(analysed.schema.names), span)
        view = PlainView(
            self.instance.ledger.reserve_relation(),
            statement.name.dotted,
            analysed.schema.renamed(tuple(names)),
            span.source,
            analysed.names,
            analysed.through,
            masked(statement.span.source),
            tuple(sorted(analysed.calls)),
        )
        Relations(self.instance).create(view, replaced)
        return f"created {view.kind} {view.name}"

    def create_hidden(self, query: Query, columns: tuple[str, ...] = ()) -> View:
        """Create a view that is dropped together with its reader or sink."""
        view = self.view("", query, columns, query.text)
        self._fill(view, None, ())
        return view

    def _fill(self, view: View, former: View | None, replaced: tuple[RelationId, ...]) -> int:
        seen = 0
        name = "the rows to follow" if view.name.startswith(HIDDEN) else view.name

        def report(done: int, total: int) -> None:
            nonlocal seen
            seen = total
            self.progress(Progress(f"filling {name}", done, total, "rows"))

        relations = Relations(self.instance)
        if former is None:
            relations.create_view(view, report, replaced)
        else:
            relations.replace_view(former, view, report)
        return seen

    def view(
        self,
        name: str,
        query: Query,
        columns: tuple[str, ...],
        created_sql: str,
        former: View | None = None,
    ) -> View:
        """Plan a view, or another build of a former one, without creating it.

        Raises:
            HeadraceError: ``invalid`` or ``unsupported``, at the place in the statement.
        """
        engine = self.instance.engine
        span = query.span
        with engine.planning:
            analysed = engine.planner.analyse(span)
            refuse_system(analysed.names, span)
            names = columns or analysed.schema.names
            check_names(names, len(analysed.schema.names), span)
            schema = analysed.schema.renamed(tuple(names))
            if not analysed.reads:
                raise HeadraceError(
                    Code.UNSUPPORTED,
                    "a view that reads no stream, table or view is not supported",
                    hint="Read from a relation; INSERT constant rows into a table.",
                    span=span,
                )
            build = self.instance.ledger.reserve_build()
            id_ = RelationId(build) if former is None else former.id
            circuit = engine.circuit_of(id_, build, analysed, span, tuple(names))
            key = tuple(names[i] for i in circuit.output.key) if circuit.unique else ()
        return View(
            id_,
            name or f"{HIDDEN}{id_}",
            schema,
            span.text[span.start : span.end],
            analysed.names,
            analysed.through,
            created_sql,
            tuple(sorted(analysed.calls)),
            key,
            digest(circuit),
            None if former is None else build,
        )

    def create_schema(self, statement: CreateSchema) -> str:
        """Create an empty schema."""
        name = statement.name.dotted
        if name in self.instance.schemas.names(self.instance.catalog):
            if statement.if_not_exists:
                return f'"{name}" exists already'
            raise HeadraceError(
                Code.CONFLICT,
                f'schema "{name}" exists already',
                hint="Use CREATE SCHEMA IF NOT EXISTS.",
                span=statement.name.span,
            )
        self.instance.schemas.add(name)
        return f"created schema {name}"

    def create_secret(self, statement: CreateSecret) -> str:
        """Create a reference to a value, which can be read now."""
        name, secrets = statement.name.dotted, self.instance.secrets
        if name in {secret.name for secret in secrets} and not statement.or_replace:
            if statement.if_not_exists:
                return f'"{name}" exists already'
            raise HeadraceError(
                Code.CONFLICT,
                f'secret "{name}" exists already',
                hint="Use CREATE OR REPLACE SECRET, or IF NOT EXISTS.",
                span=statement.name.span,
            )
        where = statement.where
        if statement.source is SecretSource.FILE:
            where = str(Path(where).expanduser().resolve())
        try:
            secrets.add(Secret(name, statement.source, where))
        except HeadraceError as error:
            raise error.at(statement.span) from error
        return f"created secret {name}; its value is read when it is needed, and not stored"

    def place_of(self, name: Name, statement: Placed) -> tuple[RelationId, ...] | None:
        """Return the relations that the new one replaces; None if it need not be created."""
        existing = self.instance.catalog.find(name.dotted)
        if name.dotted.startswith(HIDDEN):
            raise HeadraceError(Code.INVALID, f'name "{name}" is reserved', span=name.span)
        if name.dotted.startswith(f"{SYSTEM_SCHEMA}."):
            raise HeadraceError(
                Code.INVALID,
                f"schema {SYSTEM_SCHEMA} is read-only",
                hint="Use another schema, or a name without one.",
                span=name.span,
            )
        if existing is None:
            return ()
        if statement.if_not_exists:
            return None
        if not statement.or_replace:
            raise HeadraceError(
                Code.CONFLICT,
                f'{existing.kind} "{existing.name}" exists already',
                hint="Use CREATE OR REPLACE, or IF NOT EXISTS.",
                span=name.span,
            )
        if not isinstance(existing, _replaceable(statement)):
            raise HeadraceError(
                Code.CONFLICT,
                f'"{existing.name}" is a {existing.kind}, which is not replaced by another kind',
                hint=f"Choose another name, or DROP {WORDS[type(existing)]} {existing.name} first.",
                span=name.span,
            )
        redefines = isinstance(statement, CreateMaterializedView | CreateTableAs)
        if not (redefines and isinstance(existing, View)):  # else that depends on the query
            self.instance.catalog.without([existing.id], name.span)
        return (existing.id,)

    def _schema(self, definitions: tuple[ColumnDefinition, ...], key: tuple[str, ...]) -> Schema:
        folded = {name.lower() for name in key}
        arriving = {
            d.name: self._column(d, keyed=d.name.lower() in folded)
            for d in definitions
            if d.computed is None
        }
        known = Schema(
            tuple(c for d in definitions if d.metadata is None and (c := arriving.get(d.name)))
        )
        engine = self.instance.engine
        return Schema(
            tuple(arriving.get(d.name) or computed_column(engine, d, known) for d in definitions)
        )

    def _column(self, definition: ColumnDefinition, *, keyed: bool) -> Column:
        engine, span = self.instance.engine, definition.type.span
        with engine.planning:
            type_ = engine.planner.parse_type(span, definition.type.text)
        try:
            require_kept(type_)
            _refuse_time(type_)
            if keyed:
                require_key(type_)
        except HeadraceError as error:
            raise error.at(span) from error
        column = Column(definition.name, type_, not (definition.not_null or keyed))
        if definition.default is not None:
            require_default(engine, column, definition.default.span)
        return column


def _refuse_time(type_: DataType) -> None:
    """Refuse times of day: Spark computes with them but cannot store them."""
    if holds(type_, (TimeType,)):
        raise HeadraceError(
            Code.UNSUPPORTED,
            "a column of type TIME cannot be stored",
            hint="Store it as STRING, or as BIGINT seconds for time_from_seconds(x).",
        )


def _replaceable(statement: Placed) -> tuple[type[Relation], ...]:
    """Return the kinds of relations that a statement with OR REPLACE may replace."""
    match statement:
        case CreateStream() if not statement.primary_key:
            return (Stream,)
        case CreateStream():
            return (Stream, Table)
        case CreateTable():
            return (Table, View)
        case CreateTableAs():
            return (View, Stream if statement.kind is ObjectKind.STREAM else Table)
        case CreateView() | CreateMaterializedView():
            return (View, PlainView)
        case CreateSink():
            return (Sink,)


def _present(schema: Schema, name: str) -> Schema:
    """Return the schema with one column made NOT NULL."""
    return Schema(
        tuple(replace(c, nullable=False) if c.name == name else c for c in schema.columns)
    )


def _spelled(schema: Schema, names: tuple[str, ...]) -> tuple[str, ...]:
    spelled = {name.lower(): name for name in schema.names}
    return tuple(spelled[name.lower()] for name in names)


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
                hint="Name them apart with AS, as in a.x AS a_x, b.x AS b_x, in place of *.",
                span=span,
            )
        if name.startswith(HIDDEN):
            raise HeadraceError(Code.INVALID, f'column name "{name}" is reserved', span=span)
        seen.add(name.lower())


def _declaration(statement: CreateStream | CreateTable) -> Declaration:
    watermark = statement.watermark
    return Declaration(
        masked(statement.span.source),
        stored_options(statement.options),
        None if watermark is None else (watermark.column, watermark.expression.text),
        tuple((c.name, c.computed.text) for c in statement.columns if c.computed is not None),
        tuple((c.name, c.metadata) for c in statement.columns if c.metadata is not None),
        statement.message_key if isinstance(statement, CreateStream) else (),
        tuple((c.name, c.default.text) for c in statement.columns if c.default is not None),
    )
