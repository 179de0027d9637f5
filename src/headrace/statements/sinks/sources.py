"""The relation that a sink follows: a view or table, or a query as a hidden view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import Stream, Table, View
from headrace.errors import Code, HeadraceError
from headrace.parts.swapping import root_of, same_contents, swapping
from headrace.statements.reading.simple import simple_select
from headrace.statements.sinks.columns import with_types_of

if TYPE_CHECKING:
    from headrace.engine.engine import Engine
    from headrace.errors import Span
    from headrace.parts.reader import Reader
    from headrace.sql import Insert, Query
    from headrace.statements.defining.views import Views
    from headrace.types import Schema


@dataclass(frozen=True, slots=True)
class SinkSources:
    """Finds or creates the relation whose changes a sink delivers."""

    reader: Reader
    engine: Engine
    views: Views

    def is_continuous(self, statement: Insert, target: Stream | Table) -> bool:
        """Whether INSERT ... SELECT runs continuously: the target has a connector."""
        if target.declaration.connector is None:
            return False
        text = statement.query.text.lstrip("( \n\t")
        if text[:6].upper() == "VALUES":
            return False
        with self.engine.planning:
            found = self.engine.planner.analyse(statement.query.span, once=True)
        if found.names and (statement.on_conflict is not None or statement.replace):
            raise HeadraceError(
                Code.UNSUPPORTED,
                "a conflict clause in an INSERT ... SELECT that runs continuously is not supported",
                detail=f'Table "{target.name}" has a connector.',
                hint="Leave it out: a row replaces the existing row of its primary key.",
                span=statement.span,
            )
        return bool(found.names)

    def followed(self, query: Query, wanted: Schema | None) -> tuple[View | Table, bool]:
        """Return the view or table to follow, and whether it was created for this sink."""
        simple = simple_select(query.text)
        found = None if simple is None else self.reader.catalog.find(simple.relation)
        if (
            simple is not None
            and not simple.equal
            and not simple.columns
            and isinstance(found, View | Table)
            and (wanted is None or _types(found.schema) == _types(wanted))
        ):
            self.reader.require_running(found)
            self._require_kept(found, query.span)
            return found, False
        if wanted is None:
            return self.views.create_hidden(query), True
        with self.engine.planning:
            given = self.engine.planner.analyse(query.span).schema
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
        return self.views.create_hidden(query, wanted.names), True

    def _require_kept(self, relation: View | Table, span: Span) -> None:
        """Raise if a view has a candidate with other columns, which a sink could not follow."""
        catalog = self.reader.catalog
        candidate = catalog.candidate(relation.id)
        if not isinstance(relation, View) or candidate is None or candidate.has_served:
            return
        if not same_contents(self.reader.published, relation, candidate):
            root = root_of(catalog, relation)
            raise HeadraceError(
                Code.CONFLICT,
                f'view "{relation.name}" is to get other columns, which a sink cannot follow',
                "Its candidate has them.",
                f"{swapping(catalog, root)}, or DROP CANDIDATE OF {root.name}, first.",
                span,
            )


def _types(schema: Schema) -> list[str]:
    return [column.type.simpleString() for column in schema.columns]
