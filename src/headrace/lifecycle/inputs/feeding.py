"""Feeds: streams and tables whose rows come from an external system.

Captures: tables that follow the tables of another database through one source.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.feeds import Feed, Ingest, JointIngest
from headrace.execution.runtime.offenders import divided
from headrace.execution.runtime.ports import Moment, Part
from headrace.io.connectors import (
    CONNECTOR,
    REFERENCE,
    CapturedTable,
    Reference,
    SourceConnector,
    SourceContext,
    source_connector,
)
from headrace.lifecycle.inputs.admission import LINE, PARTITION, PLACE
from headrace.lifecycle.inputs.rows import (
    completed,
    depends_on_rows,
    rows_of,
    with_computed_columns,
    with_rows_before,
)
from headrace.lifecycle.states.former_names import as_present, with_former
from headrace.planning.catalog import ROWTIME, Stream, Table
from headrace.storage.ledger import Reject
from headrace.types import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.execution.engine.reading.queries import Queries
    from headrace.execution.runtime.feeds import Feeds
    from headrace.execution.runtime.ports import LiveSource
    from headrace.io.connectors import Captures, PostgresCapture, PostgresSource, Secrets
    from headrace.lifecycle.inputs.log import Log
    from headrace.lifecycle.states.reader import Reader
    from headrace.storage.ledger import Ledger
    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class Capturing:
    """Runs captures, each on a thread, so that their tables follow the source."""

    reader: Reader
    ledger: Ledger
    log: Log
    feeds: Feeds
    captures: Captures

    def begin_all(self) -> None:
        """Resume every capture after its last landed transaction."""
        for capture in self.captures:
            self.begin(capture)

    def begin(self, capture: PostgresCapture) -> None:
        """Start or resume a capture with its present tables."""
        tables = {table.id: table for table in self.tables(capture.name)}
        self.feeds.share(capture.name, None)
        ingest = JointIngest.of(self.log, self.ledger, capture.identity, tables)
        opened = partial(self._opened, capture, tables, ingest)
        self.feeds.share(capture.name, Feed(ingest, opened))

    def tables(self, name: str) -> list[Table]:
        """Return the tables of a capture."""
        return [
            relation
            for relation in self.reader.catalog
            if isinstance(relation, Table) and relation.declaration.shared_source == name
        ]

    def _opened(
        self, capture: PostgresCapture, tables: Mapping[RelationId, Table], ingest: JointIngest
    ) -> _Whole:
        ingest.begin()
        captured = [_captured(table) for table in tables.values()]
        return _Whole(self.captures.source(capture, captured), self.reader, tables)


def _captured(table: Table) -> CapturedTable:
    reference = Reference.of(dict(table.declaration.source)[REFERENCE])
    return CapturedTable(table.id, reference, table.schema, table.primary_key)


@dataclass(frozen=True, slots=True)
class _Whole:
    """A source whose parts are completed to whole rows."""

    source: PostgresSource
    reader: Reader
    tables: Mapping[RelationId, Table]

    def parts(self, position: Mapping[RelationId, Mapping[str, Any] | None]) -> Iterator[Moment]:
        for moment in self.source.moments(position):
            parts = tuple((id_, self._whole(id_, part)) for id_, part in moment.parts)
            yield Moment(parts, moment.done, moment.total, moment.whole)

    def _whole(self, relation: RelationId, part: Part) -> Part:
        """Return a part with the unchanged cells filled in from the table.

        All earlier parts have been landed, and the capture is the table's only writer. Deletions
        are not looked up: PostgreSQL has deleted rows that the table has.
        """
        table = self.tables[relation]
        if not (part.unchanged or part.emptied) or table.id not in self.reader.catalog.by_id:
            return part
        return with_rows_before(part, table.primary_key, rows_of(self.reader, table))

    def close(self) -> None:
        self.source.close()


_BEGIN_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Feeding:
    """Lands the sources of streams and tables in their logs, for as long as these exist."""

    reader: Reader
    ledger: Ledger
    log: Log
    queries: Queries
    secrets: Secrets
    feeds: Feeds

    def begin_all(self) -> None:
        """Resume every source of the catalog after its last landed part."""
        for relation in self.reader.catalog:
            if isinstance(relation, Stream | Table):
                self.begin(relation)

    def begin(self, relation: Stream | Table, *, rejecting: bool = False) -> None:
        """Start or resume the source of a relation, if it has one.

        A source that stops at rows that do not fit lands the first such part if ``rejecting``.
        """
        if not relation.declaration.source or relation.declaration.shared_source:
            return
        connector, options = _restored(relation)
        identity = self._opened(connector, options, relation).identity
        ingest = Ingest.of(self.ledger, relation.id, identity, partial(self.log.land, relation))
        opened = partial(self._opened, connector, options, relation, rejecting=rejecting)
        self.feeds.add(relation.id, relation.name, Feed(ingest, opened))

    def restart(self, relation: Stream | Table) -> None:
        """Start the source of a relation again, which is defined otherwise now."""
        if relation.id in self.feeds.by_relation:
            self.feeds.forget(relation.id)
            self.begin(relation)

    def begin_new(self, relation: Stream | Table) -> None:
        """Start the source of a relation that was created just now.

        Returns once the source's first position is stored: a source that starts at the newest
        record misses nothing that arrives after this call.
        """
        self.begin(relation)
        feed = self.feeds.by_relation.get(relation.id)
        if feed is not None:
            feed.wait_begun(_BEGIN_SECONDS)

    def check(self, relation: Stream | Table) -> None:
        """Check that the source of a relation about to be created can be read.

        Raises:
            HeadraceError: ``unavailable`` if it does not answer; ``invalid`` or ``unsupported`` if
                no retry can help.
        """
        if relation.declaration.source:
            connector, options = _restored(relation)
            connector.check(options, self._context(relation))

    def _opened(
        self,
        connector: SourceConnector[Any],
        options: Any,
        relation: Stream | Table,
        *,
        rejecting: bool = False,
    ) -> LiveSource:
        source = connector.open(options, self._context(relation))
        stops = relation.declaration.stops_on_error
        return _Completed(source, self.reader, self.queries, relation, stops, rejecting)

    def _context(self, relation: Stream | Table) -> SourceContext:
        declaration = relation.declaration
        given = declaration.option("format", "value.format", "value_format") or "json"
        metadata = (*declaration.metadata, *((name, "key") for name in declaration.message_key))
        apart = {*declaration.generated, *declaration.message_key}
        own = Schema(tuple(c for c in relation.schema.columns if c.name not in apart))
        value = with_former(relation, own)
        computed = {name for name, _ in declaration.computed}
        arriving = Schema(
            (
                *(c for c in relation.schema.columns if c.name not in computed),
                *value.columns[len(own.columns) :],
            )
        )
        notes = partial(self.ledger.loads.notes, relation.id)
        return SourceContext(arriving, value, metadata, given, self.secrets, relation, notes)


def _now() -> int:
    return int(time.time() * 1_000_000)


def _restored(relation: Stream | Table) -> tuple[SourceConnector[Any], Any]:
    stored = relation.declaration.source
    connector = source_connector(dict(stored)[CONNECTOR])
    return connector, connector.restored(stored)


@dataclass(frozen=True, slots=True)
class _Completed:
    """A source whose rows are completed to all columns of their relation."""

    source: LiveSource
    reader: Reader
    queries: Queries
    relation: Stream | Table
    stops: bool = False
    rejecting: bool = False
    """Whether it stops only after a part with rejects was landed."""

    @property
    def identity(self) -> str:
        return self.source.identity

    def parts(self, position: Mapping[str, Any] | None) -> Iterator[Part]:
        rejecting = self.rejecting
        for given in self.source.parts(position):
            present = as_present(self.relation, given.rows)
            part = self._whole(replace(given, rows=present))
            rows = completed(self.queries, self.relation, self._timed(part), _now())
            if isinstance(self.relation, Table):
                rows = rows.append_column(WEIGHT, part.rows[WEIGHT])
            rows, refused = self._computed(self._placed(rows, part), part)
            rejects = (*part.rejects, *refused)
            if rejects and self.stops and not rejecting:
                raise self._stopped(rejects[0])
            rejecting = rejecting and not rejects
            done, total, notes = part.done, part.total, part.notes
            yield Part(rows, rejects, part.position, done, total, notes=notes)

    def _stopped(self, reject: Reject) -> HeadraceError:
        what = reject.reason if reject.column is None else f"{reject.column}: {reject.reason}"
        name = self.relation.name
        return HeadraceError(
            Code.INVALID,
            f'a row does not fit {self.relation.kind} "{name}"; its source has stopped',
            f"{reject.file}, {reject.line}: {what}. Nothing of its part was appended.",
            f"Correct it there and RESUME SOURCE {name}; or RESUME SOURCE {name} ON ERROR REJECT.",
        )

    def _whole(self, part: Part) -> Part:
        """Return a part completed to whole rows; all earlier parts have been landed.

        The source is the table's only writer, so its rows do not change until the part is landed.
        """
        table = self.relation
        if not isinstance(table, Table) or not depends_on_rows(part, table.primary_key):
            return part
        return with_rows_before(part, table.primary_key, rows_of(self.reader, table))

    def _timed(self, part: Part) -> pa.Table:
        """Return the rows with the source's time of each row, if the log stores it."""
        if part.times is None or not self.relation.declaration.rowtime:
            return part.rows
        now = pa.scalar(_now(), part.times.type)
        return part.rows.append_column(ROWTIME, pc.fill_null(part.times, now))

    def _placed(self, rows: pa.Table, part: Part) -> pa.Table:
        """Return the rows with their positions in the source, if the stream has a watermark."""
        declaration = self.relation.declaration
        if part.origin is None or (declaration.watermark, declaration.lateness) == (None, None):
            return rows
        if part.origins is not None:
            places, lines = part.origins()
        else:
            origins = [part.origin(row) for row in range(rows.num_rows)]
            places = pa.array([place for place, _ in origins], pa.string())
            lines = pa.array([line for _, line in origins], pa.int64())
        rows = rows.append_column(PLACE, places).append_column(LINE, lines)
        if part.partition is None:
            return rows
        distinct = places.dictionary_encode()
        named = pa.array([part.partition(each) for each in distinct.dictionary.to_pylist()])
        return rows.append_column(PARTITION, named.cast(pa.string()).take(distinct.indices))

    def _computed(self, rows: pa.Table, part: Part) -> tuple[pa.Table, list[Reject]]:
        """Return rows with computed columns; rows for which these fail become rejects."""
        if not rows.num_rows or not self.relation.declaration.computed:
            return rows, []

        def attempt(start: int, stop: int) -> pa.Table | HeadraceError:
            try:
                given = rows.slice(start, stop - start)
                return with_computed_columns(self.queries, self.relation, given)
            except HeadraceError as error:
                if error.code is not Code.INVALID:
                    raise
                return error

        tables: list[pa.Table] = []
        rejects: list[Reject] = []
        for piece, found in divided(
            rows.num_rows, attempt, lambda found: isinstance(found, HeadraceError)
        ):
            if isinstance(found, HeadraceError):
                place, line = ("", 0) if part.origin is None else part.origin(piece.start)
                rejects.append(Reject(place, line, None, found.primary, ""))
            else:
                tables.append(found)
        return pa.concat_tables(tables or [rows.slice(0, 0)]), rejects

    def close(self) -> None:
        self.source.close()
