"""Double-quoted names of PostgreSQL and Snowflake.

In Spark and BigQuery, a double-quoted token is a string. A string cannot be a relation in FROM, a
part of a qualified name, or a name after AS. If a query has a double-quoted token at such a
position, all double-quoted tokens of the query are names; otherwise they are strings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.dialects.blocks import blocks_of
from headrace.dialects.tree import Group, tree_of
from headrace.errors import Span
from headrace.sql.cursor import Cursor
from headrace.sql.keywords import quote
from headrace.sql.lexer import StatementText, Token, TokenKind, identifier_value
from headrace.sql.rewritten import Rewriting, Rewritten, unchanged

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.dialects.tree import Node


def with_names_unquoted(query: Span) -> Rewritten:
    """Return the query with backticks for double quotes, if double quotes denote names in it."""
    if query.text.find('"', query.start, query.end) < 0:
        return unchanged(query)
    tokens = Cursor(StatementText(query.text, query.start, query.end, query.file)).tokens[:-1]
    quoted = [token for token in tokens if _is_quoted(token)]
    nodes = tree_of(tokens, query) if quoted else None
    if nodes is None or not _has_name(nodes):
        return unchanged(query)
    rewriting = Rewriting(query)
    for token in quoted:
        place = Span(query.text, token.start, token.end, query.file, query.line)
        rewriting.replace(place, [quote(identifier_value(token))])
    return rewriting.done()


def _is_quoted(node: Node | None) -> bool:
    return isinstance(node, Token) and node.kind is TokenKind.DQUOTED and node.text[0] == '"'


def _has_name(nodes: Sequence[Node]) -> bool:
    """Return whether a double-quoted token is at a position where only a name can be."""
    for at, node in enumerate(nodes):
        if isinstance(node, Group):
            if _has_name(node.inside):
                return True
        elif _is_quoted(node):
            before = nodes[at - 1] if at else None
            after = nodes[at + 1] if at + 1 < len(nodes) else None
            if before is not None and (before.text == "." or before.word == "AS"):
                return True
            if after is not None and after.text == ".":
                return True
    return any(_is_quoted(nodes[at]) for at in _relations(nodes))


def _relations(nodes: Sequence[Node]) -> Iterable[int]:
    """Yield the index at which each relation of FROM begins, for all SELECTs of a level."""
    for block in blocks_of(nodes):
        first, last = block.clauses.get("FROM", (0, 0))
        for at in range(first, last):
            before = nodes[at - 1]
            if at == first or before.text == "," or before.word == "JOIN":
                yield at
