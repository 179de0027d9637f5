"""CREATE TABLE AS, and CREATE STREAM AS: a view with event times that accepts INSERT.

Such a stream is a materialized view over its query and a hidden stream for the rows of INSERT. A
hidden plain view has the same rows with their event times; queries that use these read the plain
view, and so compute from the streams themselves (see :mod:`headrace.dialects.event_time`).

If the query's rows are not input events, since it groups them or reads only tables, the result is
an ordinary materialized view.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.catalog import (
    ROWTIME,
    Declaration,
    PlainView,
    Stream,
    View,
    inserted_into,
    with_rowtime,
)
from headrace.dialects import INSTANT, refuse_undecided, timed
from headrace.errors import Code, HeadraceError, Span
from headrace.parts.naming import HIDDEN
from headrace.sql import CreateTableAs, ObjectKind, quote
from headrace.statements.defining.placing import place_of
from headrace.statements.defining.view_builds import check_names
from headrace.types import Column, RelationId, Schema, TimestampType

if TYPE_CHECKING:
    from headrace.engine.engine import Engine
    from headrace.parts.definer import Definer
    from headrace.parts.reader import Reader
    from headrace.statements.defining.views import Views


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
