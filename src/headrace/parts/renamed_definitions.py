"""Definitions of views, sinks and indexes over what has another name now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.catalog import FUNCTION_VIEW, PlainView, Sink, Stream, Table, View
from headrace.errors import Code, HeadraceError
from headrace.parts.naming import HIDDEN
from headrace.parts.renamed_queries import (
    RenamedColumn,
    RenamedRelations,
    keeping_names,
    renamed,
)
from headrace.sql import (
    CreateMaterializedView,
    CreateTableAs,
    CreateView,
    Name,
    Query,
)
from headrace.sql.edits import Edit, as_name, dotted_as_name, edited
from headrace.sql.parser import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.catalog import Defined, Relation
    from headrace.catalyst.analysed import Analysed
    from headrace.errors import Span
    from headrace.parts.renamed_queries import Renamed
    from headrace.sql import Statement


@dataclass(frozen=True, slots=True)
class RenamedDefinitions:
    """Returns definitions with another name in them.

    ``analyse`` resolves a query over the present names.
    """

    name: Renamed
    analyse: Callable[[Span], Analysed]

    def over(self, defined: Defined) -> Defined:
        """Return the definition of what depends on what was renamed.

        Raises:
            HeadraceError: if the names in its query cannot be replaced.
        """
        if isinstance(defined, Sink):
            return replace(defined, created_sql=self._statements(defined.created_sql, "", ""))
        if defined.name.startswith(FUNCTION_VIEW):
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"function {defined.name.removeprefix(FUNCTION_VIEW)} by CREATE FUNCTION reads it",
            )
        query = renamed(defined.query, self.name, self.analyse)
        created = self._created(defined, query)
        return replace(defined, query=query, created_sql=created)

    def _created(self, view: View | PlainView, query: str) -> str:
        """Return the statements that create a view, with another query."""
        if not view.created_sql or view.created_sql == view.query:
            return query if view.created_sql else ""
        text = self._statements(view.created_sql, view.query, query)
        if view.name.startswith(HIDDEN):
            return text
        created, *_ = parse(text)
        if not isinstance(created, CreateMaterializedView | CreateView | CreateTableAs):
            return text
        found = self.analyse(created.query.span).schema.names
        names = view.schema.names
        if getattr(created, "columns", ()) or found == names or len(found) != len(names):
            return text
        if isinstance(created, CreateTableAs):
            raise HeadraceError(
                Code.UNSUPPORTED, f'"{view.name}" names its columns by * or by functions of them'
            )
        listed = ", ".join(map(as_name, names))
        return edited(text, [Edit(created.name.span.end, created.name.span.end, f" ({listed})")])

    def _statements(self, text: str, former: str, query: str) -> str:
        """Return statements with the name replaced, and with another query for ``former``."""
        edits: list[Edit] = []
        for statement in parse(text):
            for part in _parts(statement):
                if isinstance(part, Query):
                    own = part.span.source
                    new = query if own == former else renamed(own, self.name, self.analyse)
                    if isinstance(self.name, RenamedColumn):
                        new = keeping_names(own, new)
                    edits.append(Edit(part.span.start, part.span.end, new))
                elif isinstance(self.name, RenamedRelations):
                    to = self.name.present(part.dotted)
                    edits += [] if to is None else [_edit(part, to)]
        return edited(text, edits)


def _parts(statement: Statement) -> Iterator[Query | Name]:
    """Yield the query of a statement, and the relations that it names apart."""
    for field in ("name", "query", "source", "into", "target", "relation"):
        part = getattr(statement, field, None)
        if isinstance(part, Query | Name):
            yield part


def with_own_name(text: str, former: str, to: str) -> str:
    """Return the statements that create and alter an object, with its new dotted name."""
    names = (getattr(statement, "name", None) for statement in parse(text))
    own = [each for each in names if isinstance(each, Name) and each.dotted == former]
    return edited(text, [_edit(each, to) for each in own])


def renamed_relation(relation: Relation, name: str) -> Relation:
    """Return a relation with another name, also in the statements that create it."""
    if isinstance(relation, Stream | Table):
        declaration = relation.declaration
        text = with_own_name(declaration.created_sql, relation.name, name)
        return replace(relation, name=name, declaration=replace(declaration, created_sql=text))
    text = with_own_name(relation.created_sql, relation.name, name)
    return replace(relation, name=name, created_sql=text)


def _edit(name: Name, to: str) -> Edit:
    return Edit(name.span.start, name.span.end, dotted_as_name(to))
