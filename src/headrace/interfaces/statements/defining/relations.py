"""CREATE STREAM and CREATE TABLE.

CREATE TABLE AS, and CREATE STREAM AS: a view with event times that accepts INSERT.

Such a stream is a materialized view over its query and a hidden stream for the rows of INSERT. A
hidden plain view has the same rows with their event times; queries that use these read the plain
view, and so compute from the streams themselves (see :mod:`headrace.planning.dialects.event_time`).

If the query's rows are not input events, since it groups them or reads only tables, the result is
an ordinary materialized view.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError, Span, masked
from headrace.interfaces.statements.defining.columns import (
    computed_column,
    require_default,
    require_free_name,
    require_known_rows,
)
from headrace.interfaces.statements.defining.options import (
    broker_note,
    check_metadata,
    check_relation_options,
    needs_broker,
    source_of,
    stored_options,
    value_of,
    writes_outside,
)
from headrace.interfaces.statements.defining.placing import place_of
from headrace.interfaces.statements.defining.stream_options import (
    effective_column,
    require_event_time,
    with_retention,
    with_taken,
)
from headrace.interfaces.statements.defining.view_builds import check_names
from headrace.io.connectors import CONNECTOR, ChangeFormat, is_captured
from headrace.planning.catalog import (
    ROWTIME,
    Declaration,
    PlainView,
    Stream,
    Table,
    View,
    inserted_into,
    with_rowtime,
)
from headrace.planning.catalog.naming import HIDDEN
from headrace.planning.dialects import INSTANT, delay_of, refuse_undecided, timed
from headrace.planning.sql import (
    CONNECTION,
    ColumnDefinition,
    CreateStream,
    CreateTable,
    CreateTableAs,
    ObjectKind,
    quote,
)
from headrace.types import Column, RelationId, Schema, TimestampType, require_kept, require_key

if TYPE_CHECKING:
    from headrace.execution.engine.engine import Engine
    from headrace.interfaces.statements.defining.views import Views
    from headrace.io.connectors import Connections, NamedConnection
    from headrace.lifecycle.definitions.definer import Definer
    from headrace.lifecycle.inputs.feeding import Feeding
    from headrace.lifecycle.states.reader import Reader


@dataclass(frozen=True, slots=True)
class DerivedStreams:
    """Creates streams and tables from queries."""

    reader: Reader
    engine: Engine
    definer: Definer
    views: Views

    def create(self, statement: CreateTableAs) -> str:
        """Create a table from a query, which is a materialized view, or a stream."""
        if statement.kind is ObjectKind.STREAM:
            return self._create(statement)
        return self.views.create_materialized(statement)

    def _create(self, statement: CreateTableAs) -> str:
        """Create a stream from a query, with the existing rows.

        Raises:
            HeadraceError: as for a materialized view; ``conflict`` if views use the event times of
                a stream that is to be replaced.
        """
        replaced = place_of(self.reader.catalog, statement.name, statement)
        if replaced is None:
            return f'"{statement.name}" exists already'
        refuse_undecided(statement.query.span, self.engine.planner.relations)
        text, schema = self._with_times(statement)
        former = self.reader.catalog.by_id.get(replaced[0]) if replaced else None
        kept = former.into if isinstance(former, View) else None
        if kept is not None:
            self._free(kept, statement)
        if text is None or schema is None:
            return self.views.create_materialized(statement)
        into = kept if kept is not None and self._holds(kept, schema) else self._inserted(schema)
        names = ", ".join(quote(name) for name in schema.names)
        more = f"SELECT {names} FROM {quote(inserted_into(into))}"
        query = f"({statement.query.text}\n) UNION ALL {more}"
        try:
            said = self.views.create_materialized(
                statement, replace(statement.query, text=query, span=Span.whole(query)), into
            )
        except BaseException:
            if into != kept:
                self.definer.drop([into])
            raise
        times = f"SELECT {names}, {INSTANT} AS {ROWTIME} FROM {quote(inserted_into(into))}"
        self._timed(statement, into, schema, f"({text}\n) UNION ALL {times}")
        return said.replace("materialized view", "stream", 1)

    def _with_times(self, statement: CreateTableAs) -> tuple[str | None, Schema | None]:
        """Return the query with event times, and its own columns; None if it has no event times."""
        engine, span = self.engine, statement.query.span
        text = timed(statement.query.text)
        with engine.planning:
            schema = engine.planner.analyse(span).schema
            check_names(schema.names, len(schema.names), span)
            if text is None:
                return None, None
            try:
                engine.planner.analyse(Span.whole(text))
            except HeadraceError:
                return None, None  # no event time: it reads no stream, or one without times
        return text, schema

    def _free(self, into: RelationId, statement: CreateTableAs) -> None:
        """Drop the event times of a stream before it is replaced; raise if a view uses them."""
        catalog = self.reader.catalog
        former = catalog.find(with_rowtime(into))
        if former is None:
            return
        above = [v for v in catalog.dependants(former.id) if not v.name.startswith(HIDDEN)]
        if above:
            raise HeadraceError(
                Code.CONFLICT,
                f'{above[0].kind} "{above[0].name}" uses the event times of stream'
                f' "{statement.name}"',
                hint=f'DROP "{above[0].name}" first, and create it again.',
                span=statement.name.span,
            )
        self.definer.drop([*(v.id for v in catalog.dependants(former.id)), former.id])

    def _holds(self, into: RelationId, schema: Schema) -> bool:
        stream = self.reader.catalog.by_id.get(into)
        return isinstance(stream, Stream) and stream.schema == _nullable(schema)

    def _inserted(self, schema: Schema) -> RelationId:
        """Create the hidden stream for the rows of INSERT."""
        id_ = self.definer.new_relation()
        # In ksqlDB, INSERT INTO stream SELECT runs continuously; the topic makes it so here.
        name = inserted_into(id_)
        declaration = Declaration(options=(("kafka_topic", name),), rowtime=True)
        self.definer.create(Stream(id_, name, _nullable(schema), declaration))
        return id_

    def _timed(self, statement: CreateTableAs, into: RelationId, schema: Schema, text: str) -> None:
        """Create the hidden plain view with event times, which is dropped with the stream."""
        engine = self.engine
        stream = self.reader.catalog.resolve(statement.name.dotted)
        with engine.planning:
            analysed = engine.planner.analyse(Span.whole(text))
        time = Column(ROWTIME, TimestampType())
        self.definer.create(
            PlainView(
                self.definer.new_relation(),
                with_rowtime(into),
                Schema((*analysed.schema.renamed((*schema.names, ROWTIME)).columns[:-1], time)),
                text,
                (*analysed.names, stream.id),
                analysed.through,
                "",
                tuple(sorted(analysed.calls)),
            )
        )


def _nullable(schema: Schema) -> Schema:
    return Schema(tuple(replace(column, nullable=True) for column in schema.columns))


_PRECISION: Final = re.compile(r"(?i)\s*(?:timestamp|datetime)\w*\s*\(\s*(\d)\s*\)")


@dataclass(frozen=True, slots=True)
class RelationDefinitions:
    """Creates empty streams and tables."""

    reader: Reader
    engine: Engine
    definer: Definer
    feeding: Feeding
    connections: Connections

    def create(self, statement: CreateStream | CreateTable) -> str:
        """Create an empty stream or table."""
        replaced = place_of(self.reader.catalog, statement.name, statement)
        if replaced is None:
            return f'"{statement.name}" exists already'
        outside = isinstance(statement, CreateTable) and writes_outside(statement.options)
        if not outside:
            check_relation_options(statement.options)
        source = () if outside else source_of(statement.options, self._connection(statement))
        check_metadata(statement.columns, source)
        if statement.taken.stops and not source and not needs_broker(statement.options):
            raise _nothing_stops(statement)
        schema = self._schema(statement.columns, statement.primary_key)
        effective = effective_column(statement, schema)
        if effective is not None:
            schema = _present(schema, effective)
        id_ = self.definer.new_relation()
        name = statement.name.dotted
        relation: Stream | Table
        if isinstance(statement, CreateTable) or statement.primary_key:
            key = _spelled(schema, statement.primary_key)
            if effective is not None:
                key = (*key, effective)
            relation = Table(id_, name, schema, key, effective, _declaration(statement, source))
        else:
            relation = _with_time(Stream(id_, name, schema, _declaration(statement, source)))
            require_event_time(relation, statement.options)
            relation = with_taken(relation, statement.taken)
        relation = with_retention(relation, statement.options)
        if isinstance(relation, Table) and is_captured(relation):
            require_known_rows(relation, statement.name.span)
            _require_decoder(relation, statement.span)
        try:
            self.feeding.check(relation)
        except HeadraceError as error:
            raise error.at(statement.span) from error
        self.definer.create(relation, replaced)
        self.feeding.begin_new(relation)
        if source or outside:
            note = f", whose rows come from {dict(source)[CONNECTOR]}" if source else ""
            return f"created {relation.kind} {name}{note}"
        return f"created {relation.kind} {name}{broker_note(statement.options)}"

    def _connection(self, statement: CreateStream | CreateTable) -> NamedConnection | None:
        """Return the connection that the options name; None if they name none."""
        for option in statement.options:
            if option.key.lower() == CONNECTION:
                return self.connections.find(option.value.lower(), "kafka", option.span)
        return None

    def declared(self, definitions: tuple[ColumnDefinition, ...], key: tuple[str, ...]) -> Schema:
        """Return the schema of declared columns."""
        return self._schema(definitions, key)

    def _schema(self, definitions: tuple[ColumnDefinition, ...], key: tuple[str, ...]) -> Schema:
        folded = {name.lower() for name in key}
        arriving = {
            d.name: self.column(d, keyed=d.name.lower() in folded)
            for d in definitions
            if d.computed is None
        }
        known = Schema(
            tuple(c for d in definitions if d.metadata is None and (c := arriving.get(d.name)))
        )
        engine = self.engine
        return Schema(
            tuple(arriving.get(d.name) or computed_column(engine, d, known) for d in definitions)
        )

    def column(self, definition: ColumnDefinition, *, keyed: bool = False) -> Column:
        """Return a declared column, which is not computed.

        Raises:
            HeadraceError: ``invalid`` or ``unsupported``, at its place, for its type or default.
        """
        require_free_name(definition.name, definition.span)
        engine, span = self.engine, definition.type.span
        with engine.planning:
            type_ = engine.planner.parse_type(span, definition.type.text)
        try:
            require_kept(type_)
            if keyed:
                require_key(type_)
        except HeadraceError as error:
            raise error.at(span) from error
        column = Column(definition.name, type_, not (definition.not_null or keyed))
        if definition.default is not None:
            require_default(engine, column, definition.default.span)
        return column


def _with_time(stream: Stream) -> Stream:
    """Return the stream with the log's time of each row, if no column has its event time."""
    if stream.event_time is not None:
        return stream
    return replace(stream, declaration=replace(stream.declaration, rowtime=True))


def _present(schema: Schema, name: str) -> Schema:
    """Return the schema with one column made NOT NULL."""
    return Schema(
        tuple(replace(c, nullable=False) if c.name == name else c for c in schema.columns)
    )


def _require_decoder(table: Table, span: Span) -> None:
    """Raise if the format of a table of captured changes lacks one of its options or columns."""
    generated = table.declaration.generated
    value = Schema(tuple(c for c in table.schema.columns if c.name not in generated))
    try:
        ChangeFormat.of(table).captured(table, value)
    except HeadraceError as error:
        raise error.at(span) from error


def _precision(text: str) -> int | None:
    """Return n of a type that is written ``TIMESTAMP(n)``, or None."""
    found = _PRECISION.match(text)
    return None if found is None else int(found[1])


def _nothing_stops(statement: CreateStream | CreateTable) -> HeadraceError:
    return HeadraceError(
        Code.INVALID,
        f'"{statement.name}" has no source that could stop',
        "INSERT is applied whole or not at all, and COPY rejects what does not fit.",
        "Leave ON ERROR STOP out, or name a connector in WITH (...).",
        statement.taken.span,
    )


def _spelled(schema: Schema, names: tuple[str, ...]) -> tuple[str, ...]:
    spelled = {name.lower(): name for name in schema.names}
    return tuple(spelled[name.lower()] for name in names)


def _declaration(
    statement: CreateStream | CreateTable, source: tuple[tuple[str, str], ...]
) -> Declaration:
    watermark = statement.watermark
    return Declaration(
        masked(statement.span.source),
        stored_options(statement.options),
        None if watermark is None else (watermark.column, watermark.expression.text),
        tuple((c.name, c.computed.text) for c in statement.columns if c.computed is not None),
        tuple((c.name, c.metadata) for c in statement.columns if c.metadata is not None),
        statement.message_key if isinstance(statement, CreateStream) else (),
        tuple((c.name, c.default.text) for c in statement.columns if c.default is not None),
        source,
        stops_on_error=statement.taken.stops,
        delay=0 if watermark is None else delay_of(watermark.expression.text),
        precisions=tuple(
            (c.name, digits)
            for c in statement.columns
            if (digits := _precision(c.type.span.source)) is not None
        ),
        ksqldb=value_of(statement.options, "kafka_topic", "value_format") is not None,
    )
