"""``VALUES`` whose rows are left to chance: as SELECTs, since Spark takes only constants there."""

from __future__ import annotations

import re

from headrace.errors import Span
from headrace.sql.lexer import Token, tokens
from headrace.sql.rewritten import Rewriting, Rewritten, unchanged

_CHANCE = re.compile(
    r"\b(?:uuid|rand|randn|random|randstr|uniform|shuffle|gen_random_uuid|generate_uuid|uuid_string)"
    r"\s*\(",
    re.IGNORECASE,
)


def rows_apart(query: Span) -> Rewritten:
    """Return ``SELECT a, b UNION ALL SELECT c, d`` for ``VALUES (a, b), (c, d)`` with such rows.

    Any other query is returned as it is.
    """
    found = list(tokens(query.text, query.start, query.end, query.file))
    if len(found) < 2 or found[0].word != "VALUES" or not _CHANCE.search(query.source):  # noqa: PLR2004
        return unchanged(query)
    rewriting = Rewriting(query)
    rows = _rows(found[1:])
    for number, row in enumerate(rows):
        first, last = row[0], row[-1]
        start = found[0].start if number == 0 else rows[number - 1][-1].end
        inside = row[1:-1] if _is_bracketed(row) else row
        if not inside:
            return unchanged(query)
        select = " UNION ALL SELECT " if number else "SELECT "
        stretch = (inside[0].start, inside[-1].end)
        whole = Span(query.text, min(start, first.start), last.end, query.file, query.line)
        rewriting.replace(whole, [select, stretch])
    return rewriting.done()


def _rows(found: list[Token]) -> list[list[Token]]:
    """Return the tokens between the commas outside of all brackets."""
    rows: list[list[Token]] = [[]]
    depth = 0
    for token in found:
        depth += (token.text in {"(", "[", "{"}) - (token.text in {")", "]", "}"})
        if token.text == "," and depth == 0:
            rows.append([])
        else:
            rows[-1].append(token)
    return [row for row in rows if row]


def _is_bracketed(row: list[Token]) -> bool:
    """Say whether a row stands in brackets of its own, as ``(1) + (2)`` does not."""
    depth = 0
    for at, token in enumerate(row):
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0:
            return at == len(row) - 1 and token.text == ")"
    return False
