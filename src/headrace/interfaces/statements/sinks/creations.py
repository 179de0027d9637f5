"""``CREATE SINK``, and continuous ``INSERT INTO table SELECT``: start deliveries of changelogs.

CREATE STREAM and CREATE TABLE, also captured ones and those with a sink in their options.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, Span, masked, meant
from headrace.interfaces.statements.changing.updates import chosen, taking, target_named
from headrace.interfaces.statements.defining.columns import require_known_rows
from headrace.interfaces.statements.defining.options import writes_outside
from headrace.interfaces.statements.defining.placing import place_of
from headrace.interfaces.statements.sinks.destination import (
    Destination,
    delivery_options,
    require_own_place,
)
from headrace.io.connectors import SinkOptions, known_kind
from headrace.io.connectors.options import read_options, stored_options
from headrace.io.connectors.sinks import declare_key
from headrace.planning.catalog import Catalog, Relation, Sink, Stream, Table, View, key_of
from headrace.planning.sql import CreateSink, CreateTable, Insert, Name, Query, quote
from headrace.planning.sql.lexer import tokens
from headrace.types import RelationId, Schema

if TYPE_CHECKING:
    from headrace.interfaces.statements.defining.connections import CaptureChanges
    from headrace.interfaces.statements.defining.relations import RelationDefinitions
    from headrace.interfaces.statements.sinks.destination import SinkSources
    from headrace.io.connectors import Connections
    from headrace.lifecycle.definitions.definer import Definer
    from headrace.lifecycle.inputs.sinks import Destinations, Sinks
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.sql import CreateStream


@dataclass(frozen=True, slots=True)
class SinkCreations:
    """Creates sinks, and starts the deliveries to them."""

    reader: Reader
    definer: Definer
    sink_sources: SinkSources
    destinations: Destinations
    connections: Connections
    sinks: Sinks

    def create(self, statement: CreateSink) -> str:
        """Create a sink that starts with the rows of the view."""
        name = statement.name
        replaced = place_of(self.reader.catalog, name, statement)
        if replaced is None:
            return f'"{name}" exists already'
        created = masked(statement.span.source)
        if statement.into is None and not statement.options:
            raise HeadraceError(
                Code.INVALID,
                f'sink "{name}" has no destination',
                hint="Use CREATE SINK name INTO table FROM view, or WITH (connector = ...).",
                span=name.span,
            )
        into = self._destination(statement)
        delivery = _delivery(statement) if into is None else into.delivery
        target = None
        if isinstance(statement.into, Name):
            target = _target(self.reader.catalog, statement.into)
        former = self.reader.catalog.by_id[replaced[0]] if replaced else None
        secret = created != statement.span.source  # a masked secret may have changed
        if (
            isinstance(former, Sink)
            and not secret
            and _words(former.created_sql) == _words(created)
        ):
            altered = " as it was altered" if ";" in _texts(former.created_sql) else ""
            return f"sink {former.name} is unchanged, and continues{altered}"
        self._require_own_place(statement, former, target, into)
        sink = self._made(
            name.dotted, statement.source, target, (), into, created, delivery, replaced=replaced
        )
        return f"created sink {sink.name}: {self.sinks.begin(sink)}"

    def _destination(self, statement: CreateSink) -> Destination | None:
        """Return the external destination of a sink; None for a table of this database."""
        if statement.into is None:
            return Destination.of(statement.options)
        if isinstance(statement.into, Name):
            return None
        over = statement.into
        connection = self.connections.find(over.name.dotted, span=over.name.span)
        kind = known_kind(over.kind)
        if kind not in (None, connection.kind):
            raise HeadraceError(
                Code.INVALID,
                f'connection "{over.name}" is of kind {connection.kind}, not {kind}',
                hint="SHOW CONNECTIONS lists what exists.",
                span=over.name.span,
            )
        return Destination.over(connection, (*over.options, *statement.options), over.name.span)

    def deliver(self, statement: CreateTable, table: RelationId) -> str:
        """Create the sink that the options of a new table name; if that fails, drop the table."""
        name = statement.name
        try:
            into = Destination.of(statement.options)
            self._require_place(statement, into)
            created = masked(statement.span.source)
            own = f"{name.dotted}_to_{into.connector.name}"
            sink = self._made(own, name, None, (), into, created, into.delivery)
        except BaseException:
            self.definer.drop([table])
            raise
        return f"sink {sink.name} delivers: {self.sinks.begin(sink)}"

    def is_job(self, statement: Insert) -> bool:
        """Whether INSERT ... SELECT runs continuously: the target has a connector."""
        target = target_named(self.reader.catalog, statement.target)
        return self.sink_sources.is_continuous(statement, target)

    def start_job(self, statement: Insert) -> str:
        """Fill a table continuously from a query, until the job is dropped."""
        target = target_named(self.reader.catalog, statement.target)
        base = f"insert_into_{target.name.replace('.', '_')}"
        names = (f"{base}_{n}" if n else base for n in range(1, 1 << 20))
        name = (
            base
            if self.reader.catalog.find(base) is None
            else next(n for n in names if self.reader.catalog.find(n) is None)
        )
        created = masked(statement.span.source)
        sink = self._made(name, statement.query, target, statement.columns, None, created)
        return f"started job {sink.name}: {self.sinks.begin(sink)}"

    # -- pieces ----------------------------------------------------------------------------

    def _made(
        self,
        name: str,
        source: Query | Name,
        target: Stream | Table | None,
        columns: tuple[str, ...],
        into: Destination | None,
        created_sql: str,
        delivery: SinkOptions | None = None,
        *,
        replaced: tuple[RelationId, ...] = (),
    ) -> Sink:
        span = source.span
        if isinstance(source, Name):
            self.reader.catalog.resolve(source.dotted, span)
            text = f"SELECT * FROM {'.'.join(map(quote, source.parts))}"
            source = Query(text, Span.whole(text))
        filled: Schema | None = None
        if target is not None:
            filled = Schema(chosen(target, columns, span))
        try:
            followed, made = self.sink_sources.followed(source, filled)
        except HeadraceError as error:
            if error.span is None or error.span.text == span.text:
                raise
            shown = HeadraceError(error.code, error.primary, error.detail, error.hint)
            # the query is generated: its places mean nothing to the user
            raise shown.at(span) from error
        delivery = delivery or SinkOptions()
        id_ = self.definer.new_relation()
        try:
            key = _key(followed, delivery, span)
            if not delivery.snapshot:
                self.reader.settled([followed.id])  # earlier rows are not changes
            if into is not None:
                context = self.destinations.context(id_, followed.schema, key, delivery)
                into.check(context, span)
            if target is not None and filled is not None:
                _require_unique(followed, target, filled, span)
                _require_no_circle(self.reader.catalog, followed, target, span)
            sink = Sink(
                id_,
                name,
                followed.schema,
                followed.id,
                None if target is None else target.id,
                filled.names if filled is not None else (),
                () if into is None else into.connector.stored(into.options),
                created_sql,
                key,
                stored_options(delivery),
                None if into is None else into.connection,
            )
            self.definer.create(sink, replaced)
        except BaseException:
            if made:
                self.definer.drop([followed.id])
            raise
        return sink

    def _require_own_place(
        self,
        statement: CreateSink,
        former: Relation | None,
        target: Stream | Table | None,
        into: Destination | None,
    ) -> None:
        """Raise if another sink has written rows to the destination."""
        if isinstance(former, Sink) and target is not None and former.target == target.id:
            raise HeadraceError(
                Code.CONFLICT,
                f'sink "{former.name}" has written into {target.kind} "{target.name}" already',
                detail="Its rows stay, and the new sink would write all rows of its view again.",
                hint=f"Write into another table; or DROP SINK {former.name}, remove the rows that"
                " it wrote, and CREATE it again.",
                span=statement.into.span if isinstance(statement.into, Name) else statement.span,
            )
        if into is not None:
            self._require_place(statement, into)

    def _require_place(self, statement: CreateSink | CreateTable, into: Destination) -> None:
        nowhere = self.destinations.context(RelationId(-1), Schema(()), (), into.delivery)
        span = statement.name.span
        require_own_place(self.reader.catalog, into, nowhere, statement.options, span)


def _delivery(statement: CreateSink) -> SinkOptions:
    """Return the delivery options of a sink into a table, which has no others."""
    delivery, others = delivery_options(statement.options)
    read_options(SinkOptions, others, "a sink into a table")
    return delivery


def _key(followed: View | Table, delivery: SinkOptions, span: Span) -> tuple[str, ...]:
    """Return the unique key of a sink's rows: its relation's key, or the given one.

    Raises:
        HeadraceError: ``invalid`` if given columns do not exist, or are not known to be unique.
    """
    known, names = key_of(followed), {name.lower(): name for name in followed.schema.names}
    single = isinstance(followed, View) and bool(followed.single)
    if not delivery.columns:
        return known
    for name in delivery.columns:
        if name.lower() not in names:
            raise HeadraceError(
                Code.INVALID,
                f'column "{name}" of the key does not exist',
                hint=meant(name, names, f"There are: {', '.join(names)}."),
                span=span,
            )
    given = tuple(names[name.lower()] for name in delivery.columns)
    if (known or single) and set(known) <= set(given):
        return given
    raise HeadraceError(
        Code.INVALID,
        f"rows are not known to be unique by ({', '.join(given)})",
        detail=f"Their key is ({', '.join(known)})." if known else "No key of the rows is known.",
        hint=declare_key(given),
        span=span,
    )


def _require_unique(
    followed: View | Table, target: Stream | Table, filled: Schema, span: Span
) -> None:
    """Raise unless the rows of the followed relation are unique by the target's primary key."""
    if isinstance(target, Table):
        require_known_rows(target, span)
    if not isinstance(target, Table) or not target.primary_key:
        return
    places = {name: i for i, name in enumerate(followed.schema.names)}
    key = {filled.names[places[name]] for name in key_of(followed)}
    single = isinstance(followed, View) and bool(followed.single)
    if (key or single) and key <= set(target.primary_key):
        return
    listed = ", ".join(target.primary_key)
    known = f"({', '.join(sorted(key))})" if key else "not known"
    raise HeadraceError(
        Code.INVALID,
        f'rows for table "{target.name}" are not known to be unique by its primary key',
        detail=f"Its primary key is ({listed}); that of the query is {known}.",
        hint=f"{declare_key(target.primary_key)} Or declare the table without a key.",
        span=span,
    )


def _require_no_circle(
    catalog: Catalog, followed: View | Table, target: Stream | Table, span: Span
) -> None:
    """Raise if the sink would write to a relation that its query reads."""
    feeding: dict[RelationId, list[RelationId]] = {}
    for relation in catalog:
        if isinstance(relation, Sink) and relation.target is not None:
            feeding.setdefault(relation.target, []).append(relation.source)
    pending, seen = [followed.id], {followed.id}
    while pending:
        id_ = pending.pop()
        relation = catalog.by_id[id_]
        above = relation.depends_on if isinstance(relation, View) else ()
        new = {*above, *feeding.get(id_, ())} - seen
        seen |= new
        pending += new
    if target.id in seen:
        raise HeadraceError(
            Code.INVALID,
            f'{target.kind} "{target.name}" is read by the query that would write to it',
            hint="Write into a table that the query does not read.",
            span=span,
        )


def _target(catalog: Catalog, name: Name) -> Stream | Table:
    relation = taking(catalog, catalog.resolve(name.dotted, name.span))
    if isinstance(relation, Stream | Table):
        return relation
    raise HeadraceError(
        Code.INVALID,
        f'{relation.kind} "{relation.name}" cannot be written to',
        hint="Write into a table or stream.",
        span=name.span,
    )


def _texts(sql: str) -> list[str]:
    return [token.word or token.text for token in tokens(sql)]


def _words(created_sql: str) -> list[str]:
    """Return the words of a CREATE SINK after SINK, without later alterations."""
    words = _texts(created_sql)
    if ";" in words:
        words = words[: words.index(";")]
    first = words.index("SINK") + 1 if "SINK" in words else 0
    return [word for word in words[first:] if word not in {"IF", "NOT", "EXISTS", ";"}]


@dataclass(frozen=True, slots=True)
class RelationCreations:
    """Creates streams and tables, with their captures and sinks."""

    reader: Reader
    relations: RelationDefinitions
    capture_changes: CaptureChanges
    creations: SinkCreations

    def create(self, statement: CreateStream | CreateTable) -> str:
        """Create a stream or table, and the sink named in its options, if any; both or neither."""
        if not isinstance(statement, CreateTable):
            return self.relations.create(statement)
        if statement.captured is not None:
            return self.capture_changes.create_table(statement)
        name = statement.name
        former = self.reader.catalog.find(name.dotted)
        message = self.relations.create(statement)
        if not writes_outside(statement.options):
            return message
        table = self.reader.catalog.resolve(name.dotted, name.span)
        if former is not None and former.id == table.id:
            return message
        return f"{message}, which {self.creations.deliver(statement, table.id)}"
