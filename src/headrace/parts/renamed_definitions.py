"""Definitions of views, sinks and indexes over what has another name now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from headrace.catalog import FUNCTION_VIEW, PlainView, Sink, Stream, Table, View
from headrace.errors import Code, HeadraceError, Span
from headrace.parts.naming import HIDDEN
from headrace.parts.renamed_queries import (
    RenamedColumn,
    keeping_names,
    renamed,
    under_former_names,
    with_other_variables,
)
from headrace.sql import (
    CreateMaterializedView,
    CreateTableAs,
    CreateView,
    Name,
    Query,
    select_all,
)
from headrace.sql.edits import Edit, as_name, dotted_as_name, edited
from headrace.sql.parser import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.catalog import Defined, Index, Relation
    from headrace.catalyst.analysed import Analysed
    from headrace.catalyst.planner import Planner
    from headrace.parts.renamed_queries import RenamedRelations
    from headrace.sql import Statement
    from headrace.types import Schema


@dataclass(frozen=True, slots=True)
class ColumnOf:
    """A column of a relation that has another name now."""

    relation: Relation
    former: str
    to: str

    def present(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return names of columns with the present one of this column."""
        return tuple(self.to if name == self.former else name for name in names)

    def over(self, schema: Schema) -> Schema:
        """Return the columns of what has all columns of the relation, stored as they were."""
        return schema.renamed(self.present(schema.names), schema.stored_names)


@dataclass(frozen=True, slots=True)
class RenamedDefinitions:
    """Returns definitions over what has another name.

    ``renamed`` returns a query over the present names, which ``analyse`` resolves; ``relations``
    are those that have other names, or ``column`` the one that has.
    """

    renamed: Callable[[str], str]
    analyse: Callable[[Span], Analysed]
    relations: RenamedRelations | None = None
    column: ColumnOf | None = None

    @classmethod
    def of_relations(cls, relations: RenamedRelations, planner: Planner) -> Self:
        """Return the definitions over relations with other names."""

        def over(query: str) -> str:
            return renamed(query, relations, planner.analyse)

        return cls(over, planner.analyse, relations)

    @classmethod
    def of_column(cls, relation: Relation, former: str, to: str, planner: Planner) -> list[Self]:
        """Return the definitions over a relation with another name of a column, best first.

        Where others would hide or take the new name, or names cannot be replaced, as in USING, the
        relation is read with the former names.
        """
        name = RenamedColumn(former, to, planner.written.columns)

        def replaced(query: str) -> str:
            return renamed(query, name, planner.analyse)

        def not_hidden(query: str) -> str:
            return replaced(with_other_variables(query, to, planner.written.variables))

        again = f"{as_name(to)} AS {as_name(former)}"
        listed = (again if each == former else as_name(each) for each in relation.schema.names)
        columns = f"* EXCEPT ({as_name(to)}), {again}", ", ".join(listed)
        reading = (cls.reading(relation, each, planner) for each in columns)
        ways = [cls(replaced, planner.analyse), cls(not_hidden, planner.analyse), *reading]
        return [replace(way, column=ColumnOf(relation, former, to)) for way in ways]

    @classmethod
    def reading(cls, relation: Relation, columns: str, planner: Planner) -> Self:
        """Return the definitions that read some columns of a relation where they read it."""

        def over(query: str) -> str:
            places = planner.written.places(Span.whole(query), relation.name)
            return under_former_names(query, places, columns)

        return cls(over, planner.analyse)

    def over(self, defined: Defined) -> Defined:
        """Return the definition of what depends on what was renamed.

        Raises:
            HeadraceError: if the names in its query cannot be replaced.
        """
        column = self.column
        if isinstance(defined, View) and defined.index is not None and column is not None:
            return _index(defined, defined.index, column)
        if isinstance(defined, Sink):
            if column is not None and defined.source == column.relation.id:
                key, schema = column.present(defined.key), column.over(defined.schema)
                defined = replace(defined, schema=schema, key=key)
            return replace(defined, created_sql=self._statements(defined.created_sql, "", ""))
        if defined.name.startswith(FUNCTION_VIEW):
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"function {defined.name.removeprefix(FUNCTION_VIEW)} by CREATE FUNCTION reads it",
            )
        query = self.renamed(defined.query)
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
                    new = query if own == former else self.renamed(own)
                    if self.relations is None:
                        new = keeping_names(own, new)
                    edits.append(Edit(part.span.start, part.span.end, new))
                elif self.relations is not None:
                    to = self.relations.present(part.dotted)
                    edits += [] if to is None else [_edit(part, to)]
        return edited(text, edits)


def _index(view: View, index: Index, column: ColumnOf) -> View:
    """Return an index over a relation whose column has another name."""
    if index.of != column.relation.id:
        return view
    columns, created = column.present(index.columns), view.created_sql
    if columns != index.columns:
        name, listed = index.name.rpartition(".")[2], ", ".join(map(as_name, columns))
        of = dotted_as_name(column.relation.name)
        created = f"CREATE INDEX {as_name(name)} ON {of} ({listed})"
    schema = column.over(view.schema)
    return replace(
        view,
        schema=schema,
        query=select_all(schema.names, column.relation.name),
        created_sql=created,
        index=replace(index, columns=columns),
    )


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
