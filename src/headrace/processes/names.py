"""Finds unknown names in a query's text without Spark.

A query waits if no query process is ready yet; a misspelt name is refused before that. Only certain
errors are raised here; everything else is left to Spark, which resolves all names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.errors import Span, unknown
from headrace.sql.lexer import Token, TokenKind, identifier_value, tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.catalog import Catalog, Relation

_SYSTEM: Final = "information_schema."
_AFTER_FROM: Final = frozenset(
    {"", "CLUSTER", "DISTRIBUTE", "GROUP", "HAVING", "LIMIT", "ORDER", "SORT", "WHERE", "WINDOW"}
)
"""Words that may follow the only relation of a query and its alias; "" is the end."""
_SPECIAL: Final = frozenset(
    {
        "ALL", "CASE", "CURRENT_CATALOG", "CURRENT_DATABASE", "CURRENT_DATE", "CURRENT_SCHEMA",
        "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER", "DISTINCT", "FALSE", "LOCALTIMESTAMP",
        "NULL", "ROWOFFSET", "ROWPARTITION", "ROWTIME", "SESSION_USER", "TRUE", "USER",
    }
)  # fmt: skip
"""Words that can be a whole item of SELECT though no column has their name."""


def require_known_names(query: Span, catalog: Catalog) -> None:
    """Refuse a query that names a relation, or a column in SELECT, that does not exist.

    Raises:
        HeadraceError: ``invalid``, at the place, with the most similar name as the hint.
    """
    found = list(tokens(query.text[query.start : query.end]))
    words = [each.word for each in found]
    if "WITH" in words or "LATERAL" in words or "TABLE" in words:
        return
    named = list(_relations(found))
    for name, start, end in named:
        known = catalog.find(name) is not None or name.lower().startswith(_SYSTEM)
        if not known:
            place = _span(query, start, end)
            otherwise = "SHOW TABLES lists what exists."
            raise unknown("stream, table or view", name, catalog.by_name, otherwise, place)
    if len(named) == 1 and words.count("SELECT") == 1 and words.count("FROM") == 1:
        relation = catalog.find(named[0][0])
        rest = [each for each in found if each.start >= named[0][2]]
        if relation is not None and _word_after_alias(rest) in _AFTER_FROM:
            _require_columns(query, found, relation)


def _word_after_alias(rest: Sequence[Token]) -> str:
    """Return the word after the alias of a relation, if it has one; empty at the end."""
    words = [each.text.upper() for each in rest if each.kind is not TokenKind.END]
    if words[:1] == ["AS"]:
        words = words[2:]
    elif words and words[0] not in _AFTER_FROM:
        words = words[1:]
    return words[0] if words else ""


def _relations(found: Sequence[Token]) -> Iterator[tuple[str, int, int]]:
    """Yield the dotted names after FROM and JOIN, with their places.

    Functions and subqueries are left out, and so is FROM inside a call, as in ``extract``.
    """
    opened: list[bool] = []
    for at, token in enumerate(found):
        if token.text == "(":
            after = found[at + 1].word if at + 1 < len(found) else ""
            opened.append(after in ("SELECT", "FROM"))
        elif token.text == ")" and opened:
            opened.pop()
        if token.word not in ("FROM", "JOIN") or not all(opened):
            continue
        if token.word == "FROM" and at and found[at - 1].word == "DISTINCT":
            continue  # IS DISTINCT FROM
        parts, here = [], at + 1
        while here < len(found) and found[here].kind in (TokenKind.WORD, TokenKind.BACKQUOTED):
            parts.append(found[here])
            here += 1
            if here >= len(found) or found[here].text != ".":
                break
            here += 1
        after = found[here].text if here < len(found) else ""
        if parts and after not in ("(", "."):
            yield ".".join(map(identifier_value, parts)), parts[0].start, parts[-1].end


def _require_columns(query: Span, found: Sequence[Token], relation: Relation) -> None:
    """Refuse an unknown column that is a whole item of SELECT over a single relation."""
    begins = next(at for at, each in enumerate(found) if each.word == "SELECT") + 1
    ends = next(at for at, each in enumerate(found) if each.word == "FROM")
    names = relation.schema.names
    items = list(_items(found[begins:ends]))
    aliases = {identifier_value(item[-1]).lower() for item in items if len(item) > 1}
    known = aliases | {name.lower() for name in names}
    for item in items:
        if not item or item[0].kind not in (TokenKind.WORD, TokenKind.BACKQUOTED):
            continue
        named = len(item) == 1 or item[1].word == "AS"
        name = identifier_value(item[0])
        if not named or item[0].word in _SPECIAL or name.startswith("__"):
            continue
        if name.lower() not in known:
            place = _span(query, item[0].start, item[0].end)
            raise unknown("column", name, names, f"There are: {', '.join(names)}.", place)


def _items(found: Sequence[Token]) -> Iterator[list[Token]]:
    """Yield the items of a list, split at commas outside of brackets."""
    item: list[Token] = []
    depth = 0
    for token in found:
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        if token.text == "," and depth == 0:
            yield item
            item = []
        else:
            item.append(token)
    yield item


def _span(query: Span, start: int, end: int) -> Span:
    return Span(query.text, query.start + start, query.start + end, query.file, query.line)
