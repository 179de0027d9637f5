"""SHOW LINEAGE: what columns are made from, and what is made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import title
from headrace.errors import Code, HeadraceError, meant
from headrace.parts.naming import HIDDEN
from headrace.parts.openlineage_events import as_json
from headrace.statements.describing.listed import listed
from headrace.statements.results import Listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.catalog import Catalog, Relation
    from headrace.catalog.lineage import Dependence
    from headrace.errors import Span
    from headrace.parts.access import Principal
    from headrace.parts.datasets import Datasets
    from headrace.parts.lineage import Lineages
    from headrace.parts.openlineage import OpenLineage
    from headrace.parts.reader import Reader
    from headrace.sql import Name, ShowLineage

LINEAGE_COLUMNS = (
    "relation", "column", "input", "input_column", "type", "influence", "distance", "external",
)  # fmt: skip
ALL_COLUMNS = "*"
"""Stands for all columns of a relation: an input that decides which rows it has."""


@dataclass(frozen=True, slots=True)
class LineageListings:
    """Lists dependences between columns, as far as the client may see them."""

    reader: Reader
    lineages: Lineages
    datasets: Datasets
    openlineage: OpenLineage
    principal: Principal

    def show(self, statement: ShowLineage) -> Listed:
        """List the inputs of a relation's columns, or of one column; or what depends on these.

        ``external`` is the dataset outside of the database that feeds the input or, downstream,
        that a sink writes to.
        """
        if statement.name is None:
            return self._events(self.reader.catalog)
        relation, column = named(self.reader.catalog, statement.name)
        if statement.as_events:
            if column is not None:
                raise HeadraceError(
                    Code.INVALID,
                    f'"{statement.name}" is a column',
                    hint=f"Events are on relations: write {relation.name}.",
                    span=statement.name.span,
                )
            return self._events([relation])
        return self.of(relation, column, downstream=statement.downstream)

    def of(self, relation: Relation, column: str | None, *, downstream: bool) -> Listed:
        """List the lineage of a relation, or of one of its columns; see :meth:`show`."""
        catalog = self.reader.catalog
        found = self._found(catalog, relation, column, downstream=downstream)
        return listed(
            LINEAGE_COLUMNS, [self._row(catalog, each, downstream=downstream) for each in found]
        )

    def _events(self, relations: Iterable[Relation]) -> Listed:
        events = self.openlineage.events.on(relations, self.reader.published)
        return Listed(("event",), [(as_json(event),) for event in events])

    def _found(
        self, catalog: Catalog, relation: Relation, column: str | None, *, downstream: bool
    ) -> Iterator[Dependence]:
        follow = self.lineages.downstream if downstream else self.lineages.upstream
        for each in follow(catalog, relation.id):
            other = catalog.by_id[each.relation if downstream else each.input.relation]
            if other.name.startswith(HIDDEN) or not self._sees(catalog, each):
                continue
            own = each.input.column if downstream else each.column
            if column in {None, own} or own is None:  # all columns depend on what decides rows
                yield each

    def _sees(self, catalog: Catalog, each: Dependence) -> bool:
        """Whether the client may see how a relation is defined: it may read all its inputs."""
        return catalog.sees_all(self.principal.sees, each.relation)

    def _row(
        self, catalog: Catalog, each: Dependence, *, downstream: bool
    ) -> tuple[str, str, str, str, str, str, int, str | None]:
        relation, over = catalog.by_id[each.relation], catalog.by_id[each.input.relation]
        outside = self.datasets.of(relation if downstream else over)
        return (
            relation.name,
            ALL_COLUMNS if each.column is None else each.column,
            over.name,
            each.input.dotted,
            each.influence.type,
            str(each.influence),
            each.distance,
            None if outside is None else outside.uri,
        )


def named(catalog: Catalog, name: Name) -> tuple[Relation, str | None]:
    """Return the relation of a name, and the column if the name's last part is that of a column.

    Raises:
        HeadraceError: ``invalid``, at the name, if there is no such relation or column.
    """
    relation = catalog.find(name.dotted)
    below = catalog.find(".".join(name.parts[:-1]))
    if relation is not None or below is None:
        return catalog.resolve(name.dotted, name.span), None
    return below, column_of(below, name.parts[-1], name.span)


def column_of(relation: Relation, column: str, span: Span | None = None) -> str:
    """Return a column of a relation as its schema spells it.

    Raises:
        HeadraceError: ``invalid``, at the span, if it does not exist.
    """
    names = relation.schema.names
    found = next((name for name in names if name.lower() == column.lower()), None)
    if found is None:
        primary = f'column "{column}" does not exist in {title(relation)}'
        hint = meant(column, names, f"There are: {', '.join(names)}.")
        raise HeadraceError(Code.INVALID, primary, hint=hint, span=span)
    return found
