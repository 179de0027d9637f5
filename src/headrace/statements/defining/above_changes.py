"""What becomes of the views and sinks above a view that gets other columns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from headrace.catalog import Sink, Table, View
from headrace.errors import Code, HeadraceError, Span
from headrace.parts.naming import HIDDEN, shown_name
from headrace.sql import CreateMaterializedView, parse
from headrace.types import RelationId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.catalog import Index
    from headrace.engine.engine import Engine
    from headrace.parts.reader import Reader
    from headrace.sql.view_columns import DeclaredKey
    from headrace.types import Schema


OF_SINK: Final = "it writes the columns that it has, unless it is dropped before"
_STAND_INS: Final = -(1 << 32)
"""Ids below this one are those of no relation."""


class Becomes(Enum):
    """What becomes of a view or sink."""

    FOLLOWS = "follows the difference"
    COMPUTED = "computed again, and changes in the same epoch"
    RESHAPED = "computed again with other columns, and changes in the same epoch"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class AboveChange:
    """A view or sink above, what becomes of it, and why if that is refused."""

    relation: View | Sink
    becomes: Becomes
    why: str = ""


@dataclass(frozen=True, slots=True)
class AboveChanges:
    """Plans views above over the columns that a view would have, without filling anything."""

    reader: Reader
    engine: Engine

    def of(self, view: View, schema: Schema) -> Iterator[AboveChange]:
        """Yield what becomes of each view and sink above, inputs first."""
        catalog = self.reader.catalog
        instead = {view.id: _stand_in(view, schema)}
        for each in catalog.dependants(view.id):
            if isinstance(each, Sink):
                if each.source in instead:
                    yield AboveChange(each, Becomes.REFUSED, OF_SINK)
            elif isinstance(each, View) and each.candidate_of is None:
                if instead.keys().isdisjoint(each.depends_on):
                    yield AboveChange(each, Becomes.FOLLOWS)
                    continue
                try:
                    found = self._schema_over(each, instead)
                except HeadraceError as error:
                    yield AboveChange(each, Becomes.REFUSED, error.primary)
                    continue
                same = found == each.schema
                if not same:
                    instead[each.id] = _stand_in(each, found)
                yield AboveChange(each, Becomes.COMPUTED if same else Becomes.RESHAPED)

    def refused(self, view: View, schema: Schema) -> dict[str, str]:
        """Return why views and sinks above cannot follow to other columns, by their names."""
        catalog = self.reader.catalog
        return {
            shown_name(each.relation, catalog): each.why
            for each in self.of(view, schema)
            if each.becomes is Becomes.REFUSED
        }

    def _schema_over(self, view: View, instead: dict[RelationId, Table]) -> Schema:
        """Return the columns of a view over stand-ins for some of its inputs."""
        catalog, planner = self.reader.catalog, self.engine.planner
        if view.index is not None:
            return _indexed(view.index, instead[view.index.of].schema)
        names = {catalog.by_id[id_].name: table.name for id_, table in instead.items()}
        waits = catalog.candidate(view.id)
        if waits is not None and waits.own_query and not waits.has_served:
            view = waits
        query = view.by_name or view.query
        with self.engine.planning:
            text = planner.substituted(Span.whole(query), names) or query
            with self.engine.beside(instead.values()):
                found = planner.analyse(Span.whole(text)).schema
        named = declared(view)[0]
        return found.renamed(named) if len(named) == len(found.names) else found


def declared(view: View) -> tuple[tuple[str, ...], DeclaredKey | None]:
    """Return the names of columns and the key that the statement of a view declares."""
    if view.created_sql and view.index is None:
        created, *_ = parse(view.created_sql)
        if isinstance(created, CreateMaterializedView):
            return created.columns, created.key
    return (), None


def _stand_in(view: View, schema: Schema) -> Table:
    """Return a relation with the columns that a view would have."""
    return Table(RelationId(_STAND_INS - view.id), f"{HIDDEN}new{view.id}", schema)


def _indexed(index: Index, schema: Schema) -> Schema:
    """Return the columns of the view of an index: all of its relation, with those it is by."""
    for name in index.columns:
        if name not in schema.names:
            raise HeadraceError(Code.INVALID, f'column "{name}" does not exist')
    return schema
