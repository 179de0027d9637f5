"""After a write of a session: later reads wait for it, and affected views are recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import Table
from headrace.errors import masked

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.history.changes import ChangeClassifier
    from headrace.parts.access import Principal
    from headrace.parts.reader import Reader
    from headrace.sql import Statement
    from headrace.statements.changing.corrections import CorrectionResult
    from headrace.statements.changing.targets import WrittenRows
    from headrace.types import Offset, RelationId


@dataclass(frozen=True, slots=True)
class Writes:
    """Reports writes to the session and to the history of changes.

    ``wrote`` makes later reads of the session wait for the changes before an offset of a log.
    """

    reader: Reader
    changes: ChangeClassifier
    principal: Principal
    wrote: Callable[[RelationId, Offset], None]

    def show(self, relation: RelationId, end: Offset) -> None:
        """Make later reads of this session wait for the changes before an offset of a log."""
        self.wrote(relation, end)
        self.reader.show_written(relation, end)

    def of_rows(self, statement: Statement, written: WrittenRows) -> int:
        """Make changed rows visible to the session; record the effect of changed versions on views.

        Versions are the rows of a table with ``effective_from``. Returns the number of rows.
        """
        self.show(written.relation, written.end)
        table = self.reader.catalog.by_id.get(written.relation)
        if written.rows and isinstance(table, Table) and table.effective_from is not None:
            by = self.principal.name
            origin = {"statement": masked(statement.span.source)}
            carried = self.changes.of_versions(table, written.end)
            self.changes.record(carried, origin if by is None else {**origin, "by": by})
        return written.rows

    def of_events(self, corrected: CorrectionResult) -> int:
        """Make corrected events visible, record the affected views, and return the count."""
        self.show(corrected.stream.id, corrected.end)
        if corrected.events:
            carried = self.changes.of_correction(corrected.stream, corrected.rebuilt)
            self.changes.record(carried, corrected.origin)
        return corrected.events


def row_count(count: int) -> str:
    """Return a number of rows for a message."""
    return f"{count:,} {'row' if count == 1 else 'rows'}"


def not_taken(count: int) -> str:
    """Return the part of a message about rows that a relation did not accept."""
    return f", {count:,} not taken: duplicate or late" if count else ""
