"""COPY: appends a file, in parts."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace.catalog import Stream, Table
from headrace.connectors import Given
from headrace.connectors.file_source import FileOptions, FileSource
from headrace.errors import HeadraceError
from headrace.formats.debezium import DebeziumChanges, image_schema, is_debezium, refuse_choices
from headrace.formats.envelopes import read_envelopes
from headrace.parts.written_rows import completed, weighted
from headrace.runtime.ports import Part
from headrace.statements.changing.loading import Load
from headrace.statements.changing.targets import chosen, target_named
from headrace.statements.results import Progress
from headrace.types import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from headrace.engine.queries import Queries
    from headrace.ledger import Ledger
    from headrace.parts.log import Log
    from headrace.parts.reader import Reader
    from headrace.sql import Copy


class Copied(NamedTuple):
    """How many rows a COPY appended and rejected, and a note about it."""

    rows: int
    rejected: int
    note: str


@dataclass(frozen=True, slots=True)
class Copies:
    """Appends files to streams and tables; what is reported as done is durable."""

    reader: Reader
    log: Log
    ledger: Ledger
    queries: Queries
    report: Callable[[Progress], None]

    def copy(self, statement: Copy) -> Copied:
        """Append a file's rows, in parts; rows that do not fit are stored as rejects.

        A load of the same file that was interrupted is resumed where it stopped.
        """
        relation = target_named(self.reader.catalog, statement.target)
        path = Path(statement.path)
        if isinstance(relation, Table) and is_debezium(relation):
            # Without a key, deletions name rows that have to be there: nobody else may write them.
            with nullcontext() if relation.primary_key else self.log.alone(relation):
                return self._copy_envelopes(statement, relation, path)
        return self._copy_rows(statement, relation, path)

    def _copy_rows(self, statement: Copy, relation: Stream | Table, path: Path) -> Copied:
        given = Given.of(statement.options)
        load = None
        try:
            options = FileOptions.of(path, given)
            columns = chosen(relation, statement.columns, statement.span)
            load = Load.begin(self.ledger, self.log, relation, path, restart=options.restart)
            source = FileSource(path, Schema(columns), options)
            for part in source.parts(load.ingest.position):
                rows = completed(self.queries, relation, part.rows)
                if isinstance(relation, Table):
                    rows = weighted(rows, 1)
                load.land(part, rows)
                self._report(load, part)
            load.finish()
        except HeadraceError as error:
            failure = error if load is None else load.stopped(error)
            raise failure.at(statement.path_span) from error
        return Copied(load.ingest.landed, load.ingest.rejected, load.note)

    def _copy_envelopes(self, statement: Copy, table: Table, path: Path) -> Copied:
        """Append the changes in the envelopes of a file."""
        restart = refuse_choices(statement)
        done, load = 0, None
        try:
            load = Load.begin(self.ledger, self.log, table, path, restart=restart)
            envelopes = DebeziumChanges(table, str(path), self._rows_to_take_back(table))
            for found in read_envelopes(path, image_schema(table), load.resumed):
                rows, refused = envelopes.changes(found.found)
                rejects, at = (*found.rejects, *refused), found.progress.to_json()
                part = Part(rows, rejects, at, found.bytes_done, found.bytes_total)
                load.land(part, rows)
                done += len(found.found) - len(refused)
                self._report(load, part)
            load.finish()
        except HeadraceError as error:
            failure = error if load is None else load.stopped(error)
            raise failure.at(statement.path_span) from error
        return Copied(done, load.ingest.rejected, load.note)

    def _report(self, load: Load, part: Part) -> None:
        what, rejected = f"copying {load.path.name}", load.ingest.rejected
        self.report(Progress(what, part.done, part.total, "bytes", rejected))

    def _rows_to_take_back(self, table: Table) -> pa.Table | None:
        """Return the rows of a table without a key, in which the deleted rows are looked up."""
        if table.primary_key:
            return None
        return self.reader.contents(self.reader.settled([table.id]), table).whole()
