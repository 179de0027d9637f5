"""Double-quoted names of PostgreSQL and Snowflake.

In Spark and BigQuery, a double-quoted token is a string. A string cannot be a relation in FROM, a
part of a qualified name, or a name after AS. If a query has a double-quoted token at such a
position, all double-quoted tokens of the query are names; otherwise they are strings. A string that
is also the name of a column is refused in new statements: it may be meant as either. The property
``double_quoted_identifiers`` of a session makes them all names.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeGuard

from headrace.dialects.blocks import blocks_of
from headrace.dialects.tree import Group, tree_of
from headrace.errors import Code, HeadraceError, Span
from headrace.sql.cursor import Cursor
from headrace.sql.keywords import quote
from headrace.sql.lexer import StatementText, Token, TokenKind, identifier_value
from headrace.sql.rewritten import Rewriting, Rewritten, unchanged

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from headrace.catalog import Relation
    from headrace.dialects.tree import Node

_IDENTIFIERS = frozenset({TokenKind.WORD, TokenKind.BACKQUOTED})
_OF_NAMES = frozenset({"MAP", "NAMED_STRUCT"})
"""Functions whose strings are names, often those of the columns beside them."""


def with_names_unquoted(query: Span) -> Rewritten:
    """Return the query with backticks for double quotes, if double quotes denote names in it."""
    if query.text.find('"', query.start, query.end) < 0:
        return unchanged(query)
    tokens = Cursor(StatementText(query.text, query.start, query.end, query.file)).tokens[:-1]
    quoted = [token for token in tokens if _is_quoted(token)]
    nodes = tree_of(tokens, query) if quoted else None
    if nodes is None or not _has_name(nodes):
        return unchanged(query)
    return _unquoted(query, quoted)


def with_all_unquoted(statement: Span) -> Rewritten:
    """Return a statement with backticks for all double quotes."""
    tokens = Cursor(StatementText(statement.text, statement.start, statement.end)).tokens[:-1]
    quoted = [token for token in tokens if _is_quoted(token)]
    return _unquoted(statement, quoted) if quoted else unchanged(statement)


def _unquoted(query: Span, quoted: Iterable[Token]) -> Rewritten:
    rewriting = Rewriting(query)
    for token in quoted:
        rewriting.replace(_place(query, token), [quote(identifier_value(token))])
    return rewriting.done()


def _place(query: Span, token: Token) -> Span:
    return Span(query.text, token.start, token.end, query.file, query.line)


def refuse_quoted_columns(query: Span, relations: Iterable[Relation]) -> None:
    """Refuse a double-quoted string that is the name of a column of what a query reads.

    Raises:
        HeadraceError: ``invalid``, at the string.
    """
    if query.text.find('"', query.start, query.end) < 0:
        return
    tokens = Cursor(StatementText(query.text, query.start, query.end, query.file)).tokens[:-1]
    nodes = tree_of(tokens, query) if any(map(_is_quoted, tokens)) else None
    if nodes is None or _has_name(nodes):
        return
    words = {identifier_value(token).lower() for token in tokens if token.kind in _IDENTIFIERS}
    columns = {
        name.lower()
        for relation in relations
        if relation.name.rpartition(".")[2].lower() in words
        for name in relation.schema.names
    }
    _refuse_columns(query, nodes, columns)


def _refuse_columns(query: Span, nodes: Sequence[Node], columns: Collection[str]) -> set[str]:
    """Refuse columns of relations and of subqueries in strings; return the aliases of a level."""
    inner: set[str] = set()
    for at, node in enumerate(nodes):
        if isinstance(node, Group) and not (at and nodes[at - 1].word in _OF_NAMES):
            inner |= _refuse_columns(query, node.inside, columns)
    for node in nodes:
        if isinstance(node, Token) and _is_quoted(node):
            value = identifier_value(node)
            if value.lower() in columns or value.lower() in inner:
                raise HeadraceError(
                    Code.INVALID,
                    f'"{value}" is a text in Spark SQL, and there is a column of this name',
                    hint=f"Write `{value}` for the column, or '{value}' for the text. SET"
                    " double_quoted_identifiers = true makes names of all double-quoted texts.",
                    span=_place(query, node),
                )
    return inner | {
        identifier_value(after).lower()
        for before, after in pairwise(nodes)
        if before.word == "AS" and isinstance(after, Token) and after.kind in _IDENTIFIERS
    }


def _is_quoted(node: Node | None) -> TypeGuard[Token]:
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
