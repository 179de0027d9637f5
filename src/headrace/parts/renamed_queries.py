"""Queries over a relation, or a column, that has another name now: the same text, names replaced.

Spark says which names in a query have become unknown, one after the other, and only these are
replaced: there is no resolver of names here. Whether the query then computes the same is for
:mod:`headrace.circuit.resembling` to say: a name may have got another meaning unnoticed. A query
in which names cannot be replaced reads the relation under its former names
(:func:`under_former_names`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from headrace.errors import Code, HeadraceError, Span
from headrace.sql.edits import NAMES, Edit, as_name, edited, in_place_of, is_name
from headrace.sql.lexer import identifier_value, tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headrace.catalyst.written import RelationPlace
    from headrace.sql.lexer import Token

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
