"""What follows a write of a session: its later reads see it, and what it changes is recorded."""

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
    """Tells a session, and the history of changes, what was written.

    ``wrote`` has later reads of the session wait for the changes before an offset of a log.
    """

    reader: Reader
    changes: ChangeClassifier
    principal: Principal
    wrote: Callable[[RelationId, Offset], None]

    def show(self, relation: RelationId, end: Offset) -> None:
        """Let later reads of this session wait for the changes before an offset of a log."""
        self.wrote(relation, end)
        self.reader.show_written(relation, end)

    def of_rows(self, statement: Statement, written: WrittenRows) -> int:
        """Show changed rows; record what views follow from changed versions. Return their number.

        Versions are the rows of a table with ``effective_from``.
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
        """Show corrected events, and record what views follow. Return their number."""
        self.show(corrected.stream.id, corrected.end)
        if corrected.events:
            carried = self.changes.of_correction(corrected.stream, corrected.rebuilt)
            self.changes.record(carried, corrected.origin)
        return corrected.events


def row_count(count: int) -> str:
    """Return a number of rows for a message."""
    return f"{count:,} {'row' if count == 1 else 'rows'}"


def not_taken(count: int) -> str:
    """Return the part of a message about rows that a relation has not taken."""
    return f", {count:,} not taken: duplicate or late" if count else ""
