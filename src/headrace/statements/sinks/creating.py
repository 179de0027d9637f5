"""``CREATE SINK``, and ``INSERT INTO table SELECT`` as a job: deliver changelogs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.catalog import Relation, Sink, Stream, Table, View, key_of
from headrace.connectors import CONNECTOR, Connector, Given, SinkContext, sink_connector
from headrace.errors import Code, HeadraceError, Span, masked
from headrace.ledger import ProducerPosition
from headrace.parts.definer import Relations
from headrace.parts.written_rows import completed, require_present
from headrace.runtime.deliveries import Delivery
from headrace.sql import CreateSink, Insert, Name, Option, Query, quote
from headrace.sql.lexer import tokens
from headrace.statements.changing.targets import chosen
from headrace.statements.defining.columns import require_known_rows
from headrace.statements.reading.simple import simple_select
from headrace.statements.sinks.columns import with_types_of
from headrace.types import Epoch, RelationId, Schema
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.parts.instance import Instance
    from headrace.runtime.ports import SinkWriter
    from headrace.statements.defining.views import Definitions


@dataclass(frozen=True, slots=True)
class TableWriter:
    """Appends to a table's or stream's log, as a producer whose sequence numbers are epochs.

    So each epoch is written exactly once. Deletions come before insertions, so that the new row of
    a primary key stays.
    """

    instance: Instance
    sink: Sink
    target: RelationId
    guarantee: str = "exactly once: one transaction per epoch"

    def write(self, epoch: Epoch, changes: pa.Table) -> None:
        """Append the changes of an epoch, unless they have been appended."""
        relation = self.instance.catalog.by_id[self.target]
        if not isinstance(relation, Stream | Table):
            raise HeadraceError(Code.INTERNAL, f"sink {self.sink.name} writes to no table")
        weights = changes[WEIGHT]
        given = changes.drop_columns([WEIGHT]).rename_columns(list(self.sink.columns))
        rows = completed(self.instance.queries, relation, given)
        require_present(relation, rows, None)
        if isinstance(relation, Stream):
            if (pc.min(weights).as_py() or 1) < 0:
                raise HeadraceError(
                    Code.INVALID,
                    f'stream "{relation.name}" is append-only, but rows were deleted',
                    hint="Use a TABLE for rows that change.",
                )
            rows = rows.take(_repeated(weights))
        else:
            rows = rows.append_column(WEIGHT, weights).sort_by(WEIGHT)
        producer = ProducerPosition(f"sink {self.sink.id}", epoch)
        self.instance.log.append(relation, rows, producer=producer)


def begin_sinks(instance: Instance) -> None:
    """Resume delivery to the sinks in the catalog."""
    for relation in instance.catalog:
        if isinstance(relation, Sink):
            begin(instance, relation)


def begin(instance: Instance, sink: Sink) -> str:
    """Start delivering to a sink of the catalog; return its guarantee."""
    history = instance.reader.history(instance.published, sink.source)
    created = {r.relation: r.created_epoch for r in instance.ledger.objects()}
    writer = writer_of(instance, sink)
    delivery = Delivery(instance.loop, sink.id, created[sink.id], history, writer)
    instance.deliveries.add(delivery, background=instance.pump.running)
    return writer.guarantee


@dataclass(frozen=True, slots=True)
class Sinks:
    """Creates the sinks of one instance, and their writers."""

    instance: Instance
    definitions: Definitions

    def create(self, statement: CreateSink) -> str:
        """Create a sink that starts with the rows of the view."""
        name = statement.name
        replaced = self.definitions.place_of(name, statement)
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
        into = _Destination.of(statement.options) if statement.into is None else None
        target = None if statement.into is None else self._target(statement.into)
        former = self.instance.catalog.by_id[replaced[0]] if replaced else None
        secret = created != statement.span.source  # a masked secret may have changed
        if (
            isinstance(former, Sink)
            and not secret
            and _words(former.created_sql) == _words(created)
        ):
            return f"sink {former.name} is unchanged, and continues"
        self._require_own_place(statement, former, target, into)
        sink = self._made(
            name.dotted, statement.source, target, (), into, created, replaced=replaced
        )
        return f"created sink {sink.name}: {self.begin(sink)}"

    def job(self, statement: Insert, target: Stream | Table) -> str:
        """Fill a table continuously from a query, until the job is dropped."""
        base = f"insert_into_{target.name.replace('.', '_')}"
        names = (f"{base}_{n}" if n else base for n in range(1, 1 << 20))
        name = (
            base
            if self.instance.catalog.find(base) is None
            else next(n for n in names if self.instance.catalog.find(n) is None)
        )
        created = masked(statement.span.source)
        sink = self._made(name, statement.query, target, statement.columns, None, created)
        return f"started job {sink.name}: {self.begin(sink)}"

    def begin(self, sink: Sink) -> str:
        """Start delivering to a sink of the catalog; return its guarantee."""
        return begin(self.instance, sink)

    # -- pieces ----------------------------------------------------------------------------

    def _made(
        self,
        name: str,
        source: Query | Name,
        target: Stream | Table | None,
        columns: tuple[str, ...],
        into: _Destination | None,
        created_sql: str,
        *,
        replaced: tuple[RelationId, ...] = (),
    ) -> Sink:
        span = source.span
        if isinstance(source, Name):
            self.instance.catalog.resolve(source.dotted, span)
            text = f"SELECT * FROM {'.'.join(map(quote, source.parts))}"
            source = Query(text, Span.whole(text))
        filled: Schema | None = None
        if target is not None:
            filled = Schema(chosen(target, columns, span))
        followed, made = self._followed(source, filled)
        try:
            if into is not None:
                into.check(self.instance, followed.schema, span)
            if target is not None and filled is not None:
                self._require_unique(followed, target, filled, span)
                self._require_no_circle(followed, target, span)
            sink = Sink(
                self.instance.ledger.reserve_relation(),
                name,
                followed.schema,
                followed.id,
                None if target is None else target.id,
                filled.names if filled is not None else (),
                () if into is None else into.connector.stored(into.options),
                created_sql,
            )
            Relations(self.instance).create(sink, replaced)
        except BaseException:
            if made:
                Relations(self.instance).drop([followed.id])
            raise
        return sink

    def _require_own_place(
        self,
        statement: CreateSink,
        former: Relation | None,
        target: Stream | Table | None,
        into: _Destination | None,
    ) -> None:
        """Refuse a destination in which another sink has written rows."""
        if isinstance(former, Sink) and target is not None and former.target == target.id:
            raise HeadraceError(
                Code.CONFLICT,
                f'sink "{former.name}" has written into {target.kind} "{target.name}" already',
                detail="Its rows stay, and the new sink would write all rows of its view again.",
                hint=f"Write into another table; or DROP SINK {former.name}, remove the rows that"
                " it wrote, and CREATE it again.",
                span=statement.span if statement.into is None else statement.into.span,
            )
        place = None if into is None else into.place(self.instance)
        if into is None or place is None:
            return
        stored = into.connector.stored(into.options)
        path = dict(stored)["path"]
        others = [r for r in self.instance.catalog if isinstance(r, Sink)]
        taken = [r.name for r in others if dict(r.options).get("path") == path]
        if not taken and not (place.is_dir() and any(place.glob("*.*"))):
            return
        whose = f'of sink "{taken[0]}"' if taken else "of a sink that was dropped"
        given = next(option for option in statement.options if option.key.lower() == "path")
        raise HeadraceError(
            Code.CONFLICT,
            f"directory '{path}' has the changelog {whose}",
            detail="A directory holds one changelog, whose sum is the view.",
            hint="Choose another path, or remove the directory.",
            span=given.span,
        )

    def _followed(self, query: Query, wanted: Schema | None) -> tuple[View | Table, bool]:
        """Return the view or table to follow, and whether it was created for this sink."""
        simple = simple_select(query.text)
        found = None if simple is None else self.instance.catalog.find(simple.relation)
        if (
            simple is not None
            and not simple.equal
            and not simple.columns
            and isinstance(found, View | Table)
            and (wanted is None or _types(found.schema) == _types(wanted))
        ):
            self.instance.reader.require_running(found)
            return found, False
        if wanted is None:
            return self.definitions.create_hidden(query), True
        engine = self.instance.engine
        with engine.planning:
            given = engine.planner.analyse(query.span).schema
        if len(given.columns) != len(wanted.columns):
            raise HeadraceError(
                Code.INVALID,
                f"{len(wanted.columns)} columns are to be filled,"
                f" but the query has {len(given.columns)}",
                detail=f"Columns: {', '.join(wanted.names)}.",
                span=query.span,
            )
        if _types(given) != _types(wanted):
            query = with_types_of(query, given, wanted)
        return self.definitions.create_hidden(query, wanted.names), True

    def _require_unique(
        self, followed: View | Table, target: Stream | Table, filled: Schema, span: Span
    ) -> None:
        """Raise unless the rows of the followed relation are unique by the target's primary key."""
        if isinstance(target, Table):
            require_known_rows(target, span)
        if not isinstance(target, Table) or not target.primary_key:
            return
        places = {name: i for i, name in enumerate(followed.schema.names)}
        key = {filled.names[places[name]] for name in key_of(followed)}
        if key and key <= set(target.primary_key):
            return
        listed = ", ".join(target.primary_key)
        known = f"({', '.join(sorted(key))})" if key else "not known"
        raise HeadraceError(
            Code.INVALID,
            f'rows for table "{target.name}" are not known to be unique by its primary key',
            detail=f"Its primary key is ({listed}); that of the query is {known}.",
            hint=f"Group the query by ({listed}), or declare the table without a key.",
            span=span,
        )

    def _require_no_circle(
        self, followed: View | Table, target: Stream | Table, span: Span
    ) -> None:
        """Raise if the sink would write to a relation that its query reads."""
        catalog = self.instance.catalog
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

    def _target(self, name: Name) -> Stream | Table:
        relation = self.instance.catalog.resolve(name.dotted, name.span)
        if isinstance(relation, Stream | Table):
            return relation
        raise HeadraceError(
            Code.INVALID,
            f'{relation.kind} "{relation.name}" cannot be written to',
            hint="Write into a table or stream.",
            span=name.span,
        )


def _words(created_sql: str) -> list[str]:
    """Return the words of a CREATE SINK after SINK, for comparison."""
    words = [token.word or token.text for token in tokens(created_sql)]
    first = words.index("SINK") + 1 if "SINK" in words else 0
    return [word for word in words[first:] if word not in {"IF", "NOT", "EXISTS", ";"}]


def writer_of(instance: Instance, sink: Sink) -> SinkWriter:
    """Return the writer for a sink's destination."""
    if sink.target is not None:
        return TableWriter(instance, sink, sink.target)
    connector = sink_connector(dict(sink.options)[CONNECTOR])
    context = _context(instance, sink.schema, key_of(instance.catalog.by_id[sink.source]))
    if connector.open_sink is None:
        raise HeadraceError(Code.INTERNAL, f"connector {connector.name} has no sink")
    return connector.open_sink(connector.restored(sink.options), context)


def _context(instance: Instance, schema: Schema, key: tuple[str, ...] = ()) -> SinkContext:
    return SinkContext(instance.directory, schema.arrow, key, instance.secrets)


@dataclass(frozen=True, slots=True)
class _Destination:
    """A connector and its options, as a CREATE SINK gives them."""

    connector: Connector[Any]
    options: Any

    @classmethod
    def of(cls, options: tuple[Option, ...]) -> _Destination:
        """Read the options of a statement.

        Raises:
            HeadraceError: ``invalid`` or ``unsupported``, at the option that is wrong.
        """
        given = Given.of(options)
        named = next((each for each in given if each.key.lower() == CONNECTOR), None)
        name, span = ("file", None) if named is None else (named.value, named.span)
        connector = sink_connector(name, span)
        try:
            return cls(connector, connector.read(given, "sink"))
        except HeadraceError as error:
            raise error.at(given[0].span) if given[0].span is not None else error from error

    def place(self, instance: Instance) -> Path | None:
        """Return where it writes, if only one sink may write there."""
        return self.connector.place(self.options, _context(instance, Schema(())))

    def check(self, instance: Instance, schema: Schema, span: Span) -> None:
        """Refuse rows that cannot be written there."""
        try:
            self.connector.check_sink(self.options, _context(instance, schema))
        except HeadraceError as error:
            raise error.at(span) from error


def _types(schema: Schema) -> list[str]:
    return [column.type.simpleString() for column in schema.columns]


def _repeated(weights: pa.ChunkedArray) -> pa.Array:
    return pa.array(
        [i for i, weight in enumerate(weights.to_pylist()) for _ in range(weight)], pa.int64()
    )
