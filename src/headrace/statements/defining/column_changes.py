"""ALTER STREAM | TABLE ... ADD, DROP, RENAME COLUMN and ALTER COLUMN TYPE: history stays.

The log, and the rows of a table, keep the columns as they were written, under names that never
change; see :class:`headrace.types.Column`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import Stream, Table
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from headrace.parts.feeding import Feeding
    from headrace.parts.reshaping import Reshaping
    from headrace.runtime.feeds import Feeds
    from headrace.statements.defining.altered_columns import ColumnChange
    from headrace.statements.defining.column_plans import AlteringColumns, ColumnPlans


@dataclass(frozen=True, slots=True)
class ColumnChanges:
    """Changes the columns of existing streams and tables."""

    reshaping: Reshaping
    feeds: Feeds
    feeding: Feeding
    column_plans: ColumnPlans

    def alter(self, statement: AlteringColumns) -> str:
        """Change the columns of a stream or table; its source continues with it.

        Raises:
            HeadraceError: as :meth:`ColumnPlans.of`; and ``conflict`` if something uses a column
                that is dropped, or cannot go on, with the names of what does.
        """
        change = self.column_plans.of(statement)
        if change.used is not None:
            raise change.used
        if change.altered != change.relation:
            self._make(change)
        return change.done

    def _make(self, change: ColumnChange) -> None:
        relation, altered = change.relation, change.altered
        self.feeds.forget(relation.id)
        try:
            self.reshaping.alter([relation], [altered], change.moved, change.follow, change.refused)
        except HeadraceError as error:
            self.feeding.begin(relation)
            raise _explained(error, change) from error
        present = self.reshaping.loop.catalog.by_id[relation.id]
        self.feeding.begin(present if isinstance(present, Stream | Table) else altered)


def _explained(error: HeadraceError, change: ColumnChange) -> HeadraceError:
    """Return why a change is refused, with what reads the column whose type it changes."""
    if not change.readers or error.code is not Code.CONFLICT:
        return error.at(change.place)
    return HeadraceError(
        Code.CONFLICT,
        error.primary,
        f"The column is read by {', '.join(change.readers)}.",
        "DROP what computes with the present type first, and create it again afterwards:"
        " what it has stored has that type. Or ADD COLUMN of the wider type.",
        change.place,
    )
