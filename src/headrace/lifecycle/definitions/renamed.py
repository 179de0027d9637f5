"""Queries over a relation, or a column, that has another name now: the same text, names replaced.

Spark says which names in a query have become unknown, one after the other, and only these are
replaced: there is no resolver of names here. Whether the query then computes the same is for
:mod:`headrace.planning.circuit.reuse` to say: a name may have got another meaning unnoticed. A
query in which names cannot be replaced reads the relation under its former names
(:func:`under_former_names`).

Definitions of views, sinks and indexes over what has another name now.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, Self

from headrace.errors import Code, HeadraceError, Span
from headrace.planning.catalog import FUNCTION_VIEW, PlainView, Sink, Stream, Table, View
from headrace.planning.catalog.naming import HIDDEN
from headrace.planning.sql import (
    CreateMaterializedView,
    CreateTableAs,
    CreateView,
    Name,
    Query,
    select_all,
)
from headrace.planning.sql.lexer import identifier_value, tokens
from headrace.planning.sql.parser import parse
from headrace.planning.sql.rewritten import (
    NAMES,
    Edit,
    as_name,
    dotted_as_name,
    edited,
    in_place_of,
    is_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headrace.planning.catalog import Defined, Index, Relation
    from headrace.planning.catalyst.analysed import Analysed
    from headrace.planning.catalyst.planner import Planner
    from headrace.planning.catalyst.written import RelationPlace
    from headrace.planning.sql import Statement
    from headrace.planning.sql.lexer import Token
    from headrace.types import Schema


_MOST: Final = 1000
"""How many names of one query are replaced at most."""
_BEFORE_ITEMS: Final = frozenset({"SELECT", "DISTINCT", "ALL"})
_AFTER_ITEMS: Final = frozenset({
    "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET",
    "UNION", "EXCEPT", "MINUS", "INTERSECT", "QUALIFY", "WINDOW", "LATERAL", "EMIT",
})  # fmt: skip
_CLAUSES: Final = _AFTER_ITEMS | {"SELECT", "ON", "USING", "BY", "VALUES", "SET", "AGGREGATE"}
_BEFORE_RELATIONS: Final = frozenset({"FROM", "JOIN", "TABLE"})


class Renamed(Protocol):
    """What has another name now."""

    def begin(self, query: str) -> list[Edit]:
        """Return edits of the places where the former name surely stands."""
        ...

    def edits(self, query: str, start: int, end: int) -> list[Edit]:
        """Return edits of the former name in a range that Spark does not understand any more."""
        ...


def renamed(query: str, name: Renamed, analyse: Callable[[Span], object]) -> str:
    """Return a query with the names that are unknown now replaced.

    Raises:
        HeadraceError: that of the planner, if it refuses the query for another reason.
    """
    query = edited(query, name.begin(query))
    for _ in range(_MOST):
        try:
            analyse(Span.whole(query))
        except HeadraceError as error:
            span = error.span
            if error.code is not Code.INVALID or span is None or span.text != query:
                raise
            edits = name.edits(query, span.start, span.end)
            if not edits:
                raise
            query = edited(query, edits)
        else:
            return query
    raise HeadraceError(Code.UNSUPPORTED, "the query has too many names")


def with_other_variables(
    query: str, name: str, variables: Callable[[Span, str], list[Span]]
) -> str:
    """Return a query with another name of the lambdas' variables that are called so.

    A column that gets the name would be hidden by them. ``variables`` returns their places.
    """
    if "->" not in query:
        return query
    places = variables(Span.whole(query), name)
    if not places:
        return query
    taken = {identifier_value(t).lower() for t in tokens(query) if t.kind in NAMES}
    numbered = (f"{name}_{number}" for number in itertools.count(2))
    other = as_name(next(each for each in numbered if each.lower() not in taken))
    return edited(query, [Edit(place.start, place.end, other) for place in places])


def under_former_names(query: str, places: Iterable[RelationPlace], columns: str) -> str:
    """Return a query that reads a relation as ``columns`` of it, under the name that it has."""
    edits = []
    for each in places:
        inner = f"(SELECT {columns} FROM {each.span.source})"
        called = "" if each.is_named else f" AS {as_name(each.name.rpartition('.')[2])}"
        edits.append(Edit(each.span.start, each.span.end, f"{inner}{called}"))
    return edited(query, edits)


def _nowhere(query: Span, name: str) -> list[Span]:
    del query, name
    return []


@dataclass(frozen=True, slots=True)
class RenamedColumn:
    """A column with another name.

    ``places`` returns the places of names in a query that may mean a column of a name. ``alone``:
    whether no name of a relation can come before that of a column.
    """

    former: str
    present: str
    places: Callable[[Span, str], list[Span]] = _nowhere
    alone: bool = False

    def begin(self, query: str) -> list[Edit]:
        """Return no edits: any name may be that of another column."""
        del query
        return []

    def edits(self, query: str, start: int, end: int) -> list[Edit]:
        """Return edits of the column in a range: one in each name that may mean it.

        In a range that Spark knows no names of, such as one that a dialect has rewritten, they are
        of all words that may.
        """
        every = list(tokens(query))
        within = [t for t in every if start <= t.start and t.end <= end]
        if all(t.kind in NAMES or t.text == "." for t in within):
            return self._named(within)
        edits: list[Edit] = []
        for place in self.places(Span.whole(query), self.former):
            if start <= place.start and place.end <= end:
                edits += self._named(t for t in within if place.start <= t.start < place.end)
        return edits or [self._edit(t) for t in within if is_name(t, self.former)]

    def _named(self, name: Iterable[Token]) -> list[Edit]:
        """Return the edit in a name of several parts: of the last that fits, or of the first."""
        found = [token for token in name if is_name(token, self.former)]
        return [self._edit(each) for each in (found[:1] if self.alone else found[-1:])]

    def _edit(self, token: Token) -> Edit:
        return Edit(token.start, token.end, in_place_of(token, [self.present]))


@dataclass(frozen=True, slots=True)
class RenamedRelation:
    """A relation with another dotted name."""

    former: str
    present: str

    def begin(self, query: str) -> list[Edit]:
        """Return edits of the name after FROM, JOIN and TABLE, unless WITH names another by it."""
        every = list(tokens(query))
        parts = self.former.split(".")
        if len(parts) == 1 and any(
            is_name(t, parts[0]) and _defines(every, i) for i, t in enumerate(every)
        ):
            return []
        return [
            edit
            for i, token in enumerate(every)
            if _before(every, i) in _BEFORE_RELATIONS
            and (edit := self._at(every, i, parts, self.present)) is not None
            and token.kind in NAMES
        ]

    def edits(self, query: str, start: int, end: int) -> list[Edit]:
        """Return edits of the name, whole or by its last part, that begins in a range."""
        every, former = list(tokens(query)), self.former.split(".")
        found = []
        for i, token in enumerate(every):
            if not (start <= token.start < end) or (i and every[i - 1].text == "."):
                continue
            whole = self._at(every, i, former, self.present)
            last = self._at(every, i, former[-1:], self.present.rpartition(".")[2])
            edit = whole or last
            if edit is not None:
                found.append(edit)
        return found

    def _at(self, every: Sequence[Token], at: int, parts: Sequence[str], text: str) -> Edit | None:
        """Return the edit of a name of some parts that begins at a token; None if none does."""
        last = at + 2 * (len(parts) - 1)
        if last >= len(every):
            return None
        named = all(is_name(every[at + 2 * i], part) for i, part in enumerate(parts))
        joined = all(every[i].text == "." for i in range(at + 1, last, 2))
        if not (named and joined):
            return None
        return Edit(every[at].start, every[last].end, in_place_of(every[at], text.split(".")))


@dataclass(frozen=True, slots=True)
class RenamedRelations:
    """Relations with other dotted names."""

    each: tuple[RenamedRelation, ...]

    def begin(self, query: str) -> list[Edit]:
        """Return edits of the places where the former names surely stand."""
        return [edit for one in self.each for edit in one.begin(query)]

    def edits(self, query: str, start: int, end: int) -> list[Edit]:
        """Return edits of the former names in a range, at most one at a place."""
        found = (edit for one in self.each for edit in one.edits(query, start, end))
        return list({edit.start: edit for edit in found}.values())

    def present(self, name: str) -> str | None:
        """Return the present name of a relation; None if it has not been renamed."""
        return next((one.present for one in self.each if one.former == name), None)


def keeping_names(former: str, present: str) -> str:
    """Return a query with a renamed column whose own columns have the names of the former query.

    ``AS`` gives them these names, where a column of the outermost SELECT is the renamed one.
    """
    before, after = list(tokens(former)), list(tokens(present))
    if len(before) != len(after):
        return present
    pairs = enumerate(zip(before, after, strict=True))
    return edited(
        present,
        [
            Edit(new.end, new.end, f" AS {old.text}")
            for i, (old, new) in pairs
            if old.text != new.text and not _depth(after, i) and is_item(after, i)
        ],
    )


def _depth(every: Sequence[Token], at: int) -> int:
    """Return in how many parentheses a token is."""
    return sum({"(": 1, ")": -1}.get(token.text, 0) for token in every[:at])


def is_item(every: Sequence[Token], at: int) -> bool:
    """Whether a column that ends at a token is a whole item of a SELECT without an alias."""
    after = every[at + 1] if at + 1 < len(every) else None
    ends = after is None or after.text in {",", ")", ";", "|>"} or after.word in _AFTER_ITEMS
    if not ends:
        return False
    begin = at
    while begin > 1 and every[begin - 1].text == "." and every[begin - 2].kind in NAMES:
        begin -= 2
    if not begin:
        return False
    before = every[begin - 1]
    if before.word in _BEFORE_ITEMS:
        return True
    return before.text == "," and _clause(every, begin - 1) == "SELECT"


def _clause(every: Sequence[Token], at: int) -> str:
    """Return the keyword of the clause that a token is in, outside of inner parentheses."""
    depth = 0
    for token in reversed(every[:at]):
        if token.text == ")":
            depth += 1
        elif token.text == "(":
            if not depth:
                return ""
            depth -= 1
        elif not depth and token.word in _CLAUSES:
            return token.word
    return ""


def _before(every: Sequence[Token], at: int) -> str:
    """Return the word before a token, without an opening parenthesis between them."""
    if at > 1 and every[at - 1].text == "(" and every[at - 2].word == "TABLE":
        return "TABLE"
    return every[at - 1].word if at else ""


def _defines(every: Sequence[Token], at: int) -> bool:
    """Whether a name is that of a common table expression."""
    after = [each.word or each.text for each in every[at + 1 : at + 3]]
    return after == ["AS", "("] or (
        after[:1] == ["("] and _before(every, at) in {"WITH", "RECURSIVE"}
    )


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
