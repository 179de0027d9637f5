"""Captures: tables that follow the tables of another database through one source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.catalog import Table
from headrace.connectors import REFERENCE, CapturedTable, Reference
from headrace.parts.rows_before import rows_of, with_rows_before
from headrace.runtime.feeds import Feed
from headrace.runtime.joint import JointIngest
from headrace.runtime.ports import Moment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.connectors import Captures, PostgresCapture, PostgresSource
    from headrace.ledger import Ledger
    from headrace.parts.log import Log
    from headrace.parts.reader import Reader
    from headrace.runtime.feeds import Feeds
    from headrace.runtime.ports import Part
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
