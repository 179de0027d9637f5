"""EXPLAIN CHANGE of ALTERs of streams and tables: what goes on, and what refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.catalog import PlainView, Stream, View
from headrace.ledger import RepairPath
from headrace.parts.naming import is_hidden
from headrace.sql import AddColumns
from headrace.statements.defining.retention import lost_events, retention_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.catalog import Relation
    from headrace.errors import HeadraceError
    from headrace.parts.reader import Reader
    from headrace.parts.reshaping import AlteredDependant, Reshaping
    from headrace.runtime.retirement import Retirement
    from headrace.sql import AlterStream, Name
    from headrace.statements.defining.column_plans import AlteringColumns, ColumnPlans

REFUSED: Final = "refused"

Row: TypeAlias = "tuple[Relation, str, str, int | None]"
"""A relation, the effect on it, the reason, and the number of rows that a rebuild reads, if any."""


@dataclass(frozen=True, slots=True)
class AlterationEffects:
    """Finds what becomes of what depends on a stream or table that is altered."""

    reader: Reader
    retirement: Retirement
    reshaping: Reshaping
    column_plans: ColumnPlans

    def of_columns(self, statement: AlteringColumns) -> Iterator[Row]:
        """Yield the effect on the relation, and on each that depends on it; inputs come first.

        Raises:
            HeadraceError: if the relation itself does not allow the change.
        """
        change = self.column_plans.of(statement)
        relation = change.relation
        if change.altered == relation:
            yield relation, RepairPath.NONE, change.done, None
            return
        stays = "its rows stay as they are stored, and are read with the columns that it has then"
        yield relation, RepairPath.NONE, stays, None
        for sink in change.writers:
            yield sink, REFUSED, "it writes into the column", None
        tried = self.reshaping.tried(
            [relation], [change.altered], change.moved, change.follow, change.refused
        )
        for each in tried:
            if each.error is not None:
                yield each.former, REFUSED, _why(each.error), None
            elif isinstance(each.former, View | PlainView) and not is_hidden(each.former):
                yield each.former, RepairPath.NONE, _goes_on(each, statement), None

    def of_retention(self, statement: AlterStream) -> Iterator[Row]:
        """Yield the effect of another retention on each view over a stream."""
        catalog, name = self.reader.catalog, statement.name
        stream = catalog.resolve(name.dotted, name.span)
        if not isinstance(stream, Stream):
            return
        due = self.retirement.due(stream, retention_of(statement.options))
        why = "unchanged: this retires no event"
        if due is not None:
            lost = lost_events(stream, self.reader.ledger.head, due)
            why = f"keeps rows of {lost}, and can no longer be verified or computed again"
        for view in self._above(name):
            if stream.id in view.depends_on:
                yield view, RepairPath.NONE, why, None

    def _above(self, name: Name) -> list[View]:
        catalog = self.reader.catalog
        relation = catalog.resolve(name.dotted, name.span)
        over = {view.id for view in catalog.dependants(relation.id)}
        return [v for v in catalog.views_in_order() if v.id in over and not is_hidden(v)]


def _goes_on(followed: AlteredDependant, statement: AlteringColumns) -> str:
    queries = {getattr(each, "query", "") for each in (followed.former, followed.present)}
    if isinstance(statement, AddColumns):
        if len(queries) > 1:
            return "unchanged; its query lists the columns that * means now"
        return "unchanged; earlier rows have the default of the column, or NULL"
    return "unchanged" if len(queries) == 1 else "unchanged; its query has the new name"


def _why(error: HeadraceError) -> str:
    """Return why something could not go on, as a part of a sentence."""
    return (error.detail or error.primary).rstrip(".")
