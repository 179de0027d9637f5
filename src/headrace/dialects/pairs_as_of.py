"""``FROM AS_OF(TABLE pairs, DESCRIPTOR(at), week, tiers(tier AS t))``: rows as of their times.

A polymorphic table function in the notation of the standard: the rows of a table or a query, with
the values that views had at the time in one of their columns. ``DESCRIPTOR`` may be left out if
only one column is a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.catalog import Table, View, key_of
from headrace.sql.as_of import PairsAsOf
from headrace.sql.asked_view import take_asked_view
from headrace.sql.keywords import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.catalog import Relation
    from headrace.errors import Span
    from headrace.sql.as_of import AskedView
    from headrace.sql.cursor import Cursor

_BEFORE = frozenset({"FROM", "JOIN"})


def at_pairs(cursor: Cursor) -> bool:
    """Whether the function is called here, as a relation."""
    if not cursor.at("AS_OF") or cursor.peek(1).text != "(" or not cursor.index:
        return False
    return cursor.previous.word in _BEFORE or cursor.previous.text == ","


def take_pairs(cursor: Cursor) -> PairsAsOf:
    """Take a call of the function.

    Raises:
        HeadraceError: ``invalid``, at the place, if it is malformed.
    """
    first = cursor.token
    cursor.expect("AS_OF")
    cursor.expect_symbol("(")
    pairs = _take_rows(cursor)
    time: str | None = None
    views: list[AskedView] = []
    cursor.expect_symbol(",")
    if cursor.at("DESCRIPTOR") and cursor.peek(1).text == "(":
        cursor.advance()
        cursor.expect_symbol("(")
        time, _ = cursor.identifier("the column of times")
        cursor.expect_symbol(")")
        cursor.expect_symbol(",")
    views.append(take_asked_view(cursor))
    while cursor.accept_symbol(","):
        views.append(take_asked_view(cursor))
    cursor.expect_symbol(")", '","')
    return PairsAsOf(pairs, time, tuple(views), cursor.span(first, cursor.previous))


def joined(
    pairs: PairsAsOf, rows: str, relations: Mapping[str, Relation]
) -> list[str | tuple[int, int]]:
    """Return a query of the same columns, which names the same relations, in place of a call.

    ``rows`` is the text of the rows' query.
    """
    parts: list[str | tuple[int, int]] = ["(SELECT __pairs.*"]
    for number, view in enumerate(pairs.views):
        parts += [f", __v{number}.{quote(c)} AS {quote(n)}" for c, n in _columns(view, relations)]
    parts += [f" FROM ({rows}) AS __pairs"]
    for number, view in enumerate(pairs.views):
        span = view.span or pairs.span
        parts += [" LEFT JOIN ", (span.start, span.end), f" AS __v{number} ON false"]
    return [*parts, ")"]


def _take_rows(cursor: Cursor) -> Span:
    """Take ``TABLE name``, ``TABLE (query)`` or ``(query)``; return the query."""
    first = cursor.token
    table = cursor.accept("TABLE")
    if not cursor.at_symbol("("):
        if not table:
            raise cursor.expected("TABLE", '"("')
        cursor.name("the name of a table")
        return cursor.span(first, cursor.previous)
    cursor.advance()
    first, depth = cursor.token, 1
    while not cursor.at_end():
        depth += {"(": 1, ")": -1}.get(cursor.token.text, 0)
        if not depth:
            break
        cursor.advance()
    if cursor.token is first:
        raise cursor.expected("a query")
    query = cursor.span(first, cursor.previous)
    cursor.expect_symbol(")")
    return query


def _columns(view: AskedView, relations: Mapping[str, Relation]) -> tuple[tuple[str, str], ...]:
    if view.columns is not None:
        return view.columns
    relation = relations.get(view.name.lower())
    if not isinstance(relation, Table | View):
        return ()
    key = key_of(relation)
    return tuple((name, name) for name in relation.schema.names if name not in key)
