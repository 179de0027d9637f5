"""CREATE STREAM and CREATE TABLE."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headrace.catalog import Declaration, Stream, Table
from headrace.connectors import CONNECTOR, ChangeFormat, is_captured
from headrace.dialects import delay_of
from headrace.errors import Code, HeadraceError, masked
from headrace.sql import CONNECTION, ColumnDefinition, CreateStream, CreateTable
from headrace.statements.defining.columns import (
    computed_column,
    require_default,
    require_free_name,
    require_known_rows,
)
from headrace.statements.defining.event_time import require_event_time
from headrace.statements.defining.options import (
    broker_note,
    check_metadata,
    check_relation_options,
    needs_broker,
    source_of,
    stored_options,
    value_of,
    writes_outside,
)
from headrace.statements.defining.placing import place_of
from headrace.statements.defining.retention import with_retention
from headrace.statements.defining.taking import with_taken
from headrace.statements.defining.versioned import effective_column
from headrace.types import Column, Schema, require_kept, require_key

if TYPE_CHECKING:
    from headrace.connectors import Connections, NamedConnection
    from headrace.engine.engine import Engine
    from headrace.errors import Span
    from headrace.parts.definer import Definer
    from headrace.parts.feeding import Feeding
    from headrace.parts.reader import Reader

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
