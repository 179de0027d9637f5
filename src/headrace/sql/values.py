"""Parses ``VALUES`` as rows of token ranges, so that each value is typed independently."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import HeadraceError, Span
from headrace.sql.lexer import Token, tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

_OPENING = frozenset("([{")
_CLOSING = frozenset(")]}")


ValueRow: TypeAlias = list[list[Token]]
"""One row of ``VALUES``: the tokens of each of its values."""

_CLAUSES = frozenset(
    ["AS", "ORDER", "LIMIT", "OFFSET", "UNION", "EXCEPT", "MINUS", "INTERSECT", "SORT", "CLUSTER"]
)
"""Words that show that the query is not just a list of rows."""


def value_rows(query: Span) -> list[ValueRow] | None:
    """Return the rows of ``VALUES (a, b), (c, d)``; None if the query is anything else."""
    try:
        found = list(tokens(query.text, query.start, query.end, query.file))
    except HeadraceError:
        return None
    if not found or found[0].word != "VALUES":
        return None
    rows: list[ValueRow] = []
    at = 1
    while at < len(found):
        if found[at].text == "(":
            row, at = _bracketed(found, at + 1)
        else:
            row, at = _bare(found, at)
        if row is None or not all(row):
            return None
        rows.append(row)
        if at == len(found):
            return rows
        if found[at].text != ",":
            return None
        at += 1
    return None


def place_of(query: Span, found: Sequence[Token]) -> Span:
    """Return the span of some tokens of a query."""
    return Span(query.text, found[0].start, found[-1].end, query.file, query.line)


def _bracketed(found: list[Token], at: int) -> tuple[ValueRow | None, int]:
    """Return the values up to the closing bracket, and the index after it."""
    row: ValueRow = [[]]
    depth = 0
    for place in range(at, len(found)):
        token = found[place]
        text = token.text
        if depth == 0:
            if text == ",":
                row.append([])
                continue
            if text == ")":
                return row, place + 1
        if text in _OPENING:
            depth += 1
        elif text in _CLOSING:
            depth -= 1
        row[-1].append(token)
    return None, len(found)


def _bare(found: list[Token], at: int) -> tuple[ValueRow | None, int]:
    """Return the single value of a row without brackets, up to a comma, and its end."""
    depth = 0
    end = at
    while end < len(found):
        token = found[end]
        if depth == 0 and token.text == ",":
            break
        if depth == 0 and token.word in _CLAUSES:
            return None, end
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        end += 1
    return [found[at:end]], end
