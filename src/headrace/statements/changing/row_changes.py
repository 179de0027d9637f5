"""INSERT, UPDATE, DELETE, TRUNCATE and CORRECT in a session, and rows passed by a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.statements.changing.corrections import as_correction
from headrace.statements.changing.writes import not_taken, row_count

if TYPE_CHECKING:
    from headrace.ledger import ProducerPosition
    from headrace.parts.reader import Reader
    from headrace.sql import Correct, Delete, Insert, Truncate, Update
    from headrace.statements.changing.corrections import Corrections
    from headrace.statements.changing.given_rows import Rows
    from headrace.statements.changing.inserts import Inserts
    from headrace.statements.changing.targets import WrittenRows
    from headrace.statements.changing.updates import Updates
    from headrace.statements.changing.writes import Writes
    from headrace.statements.sinks.creations import SinkCreations


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Changes rows and events; each method but :meth:`append` returns a message."""

    reader: Reader
    inserts: Inserts
    updates: Updates
    corrections: Corrections
    creations: SinkCreations
    writes: Writes

    def insert(self, statement: Insert) -> str:
        """Insert rows; a query into a table with a connector runs continuously."""
        if self.creations.is_job(statement):
            return self.creations.start_job(statement)
        return self._done(statement, self.inserts.insert(statement), "inserted")

    def update(self, statement: Update) -> str:
        """Update rows of a table."""
        return self._done(statement, self.updates.update(statement), "updated")

    def delete(self, statement: Delete) -> str:
        """Delete rows of a table, or void events of a stream."""
        voids = as_correction(self.reader.catalog, statement)
        if voids is not None:
            return self.correct(voids)
        return self._done(statement, self.updates.delete(statement), "deleted")

    def truncate(self, statement: Truncate) -> str:
        """Delete all rows of a table."""
        return self._done(statement, self.updates.truncate(statement), "deleted")

    def correct(self, statement: Correct) -> str:
        """Replace or void events of a stream."""
        corrected = self.corrections.correct(statement)
        events = self.writes.of_events(corrected)
        done = "replaced" if statement.assignments else "voided"
        retired = self.reader.published.starts.get(corrected.stream.id, 0)
        note = f"; the first {retired:,} are no longer kept, and stay in views" if retired else ""
        return f"{events:,} {'event' if events == 1 else 'events'} {done}{note}"

    def append(self, name: str, rows: Rows, producer: ProducerPosition | None = None) -> int:
        """Append rows passed by a program, matched to columns by name; return their number."""
        written = self.inserts.append(name, rows, producer)
        self.writes.show(written.relation, written.end)
        return written.rows

    def _done(
        self, statement: Insert | Update | Delete | Truncate, written: WrittenRows, verb: str
    ) -> str:
        rows = self.writes.of_rows(statement, written)
        return f"{row_count(rows)} {verb}{not_taken(written.left_out)}"
