"""The lineage of all relations by column, read when it is first asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, Span
from headrace.planning.catalog import PlainView, Sink, Stream, Table, View
from headrace.planning.catalog.lineage import (
    NO_LINEAGE,
    Dependence,
    Influence,
    LineageColumn,
    RelationLineage,
    downstream,
    of_sink,
    of_written,
    seen_through,
    upstream,
)
from headrace.planning.catalog.naming import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.execution.engine.engine import Engine
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog, Relation
    from headrace.planning.catalog.lineage import LineageOf
    from headrace.types import RelationId


@dataclass(slots=True)
class Lineages:
    """Returns the lineage of relations in the published catalog; safe to use from several threads.

    The lineage of a view is kept until the view, or a relation that it reads, is replaced.
    """

    reader: Reader
    engine: Engine
    _known: dict[RelationId, tuple[tuple[Relation, ...], RelationLineage]] = field(
        default_factory=dict
    )

    def direct(self, catalog: Catalog, id_: RelationId) -> RelationLineage:
        """Return the lineage of a relation from its direct inputs.

        If the query of a view cannot be resolved, since a function of it is not registered, each
        of its columns is said to depend on each column of each input, by a transformation.
        """
        relation = catalog.by_id[id_]
        match relation:
            case Sink():
                return of_sink(relation)
            case Stream() | Table():
                into = [s for s in catalog if isinstance(s, Sink) and s.target == id_]
                return of_written(into) if into else NO_LINEAGE
            case View() | PlainView():
                return self._of_view(catalog, relation)

    def shown(self, catalog: Catalog, id_: RelationId) -> RelationLineage:
        """Return the lineage of a relation with hidden inputs replaced by their inputs."""
        return seen_through(
            lambda each: self.direct(catalog, each),
            id_,
            lambda each: catalog.by_id[each].name.startswith(HIDDEN),
        )

    def upstream(self, catalog: Catalog, id_: RelationId) -> Iterator[Dependence]:
        """Yield what a relation depends on; see ``upstream``."""
        return upstream(self._each_once(catalog), id_)

    def downstream(self, catalog: Catalog, id_: RelationId) -> Iterator[Dependence]:
        """Yield what depends on a relation; see ``downstream``."""
        return downstream(self._each_once(catalog), catalog, id_)

    def _each_once(self, catalog: Catalog) -> LineageOf:
        return cache(lambda id_: self.direct(catalog, id_))

    def _of_view(self, catalog: Catalog, view: View | PlainView) -> RelationLineage:
        over = (view, *(catalog.by_id[each] for each in view.inputs))
        known = self._known.get(view.id)
        if known is not None and known[0] == over:
            return known[1]
        with self.engine.planning:
            try:
                found = self.engine.planner.lineage(Span.whole(view.query), view.schema.names)
            except HeadraceError as error:
                if error.code is Code.INTERNAL:
                    raise
                return _unresolved(catalog, view)
        self._known[view.id] = (over, found)
        return found


def _unresolved(catalog: Catalog, view: View | PlainView) -> RelationLineage:
    """Return the lineage in which each column depends on all columns of all inputs."""
    how = frozenset((Influence.TRANSFORMATION,))
    given = {
        LineageColumn(id_, name): how
        for id_ in view.inputs
        for name in catalog.by_id[id_].schema.names
    }
    rows = {column: frozenset((Influence.FILTER,)) for column in given}
    return RelationLineage(dict.fromkeys(view.schema.names, given), rows, frozenset(view.inputs))
