"""``FROM balance(TABLE payments)``: folds, Python functions of a key's events, in plain Spark SQL.

The call becomes a subquery that collects and sorts the events of each key, and calls the function
on the list. So Spark can run it as a batch query; a view is maintained event by event. PARTITION BY
and ORDER BY may be given, as in SQL's table functions, and must equal the fold's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.sql.cursor import RESERVED_PREFIX, Cursor
from headrace.sql.keywords import quote
from headrace.sql.lexer import StatementText, Token, TokenKind, identifier_value
from headrace.sql.rewritten import Rewriting, Rewritten, unchanged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.errors import Span
    from headrace.functions import Folded

_IDENTIFIERS = frozenset({TokenKind.WORD, TokenKind.BACKQUOTED})
_BEFORE_RELATIONS = frozenset({"FROM", "JOIN"})
_ROW = f"{RESERVED_PREFIX}row"


def with_folds(query: Span, folds: Mapping[str, Folded]) -> Rewritten:
    """Return the query with each call of a fold in FROM as a subquery; ``folds`` are by name.

    Raises:
        HeadraceError: ``invalid``, at the place in the query, if the call is malformed.
    """
    rewritten = unchanged(query)
    while True:  # a fold may be called on what another one returns
        with rewritten.mapping_errors():
            inner = _once(rewritten.span, folds)
        if not inner.pieces:
            return rewritten
        rewritten = inner.after(rewritten)


def _once(query: Span, folds: Mapping[str, Folded]) -> Rewritten:
    text = query.source.lower()
    if not any(name in text for name in folds):
        return unchanged(query)
    cursor = Cursor(StatementText(query.text, query.start, query.end, query.file))
    rewriting = Rewriting(query)
    while not cursor.at_end():
        token = cursor.token
        named = token.kind in _IDENTIFIERS and cursor.peek(1).text == "("
        name = identifier_value(token).lower() if named else ""
        is_relation = cursor.peek(2).word == "TABLE" or cursor.previous.word in _BEFORE_RELATIONS
        if name in folds and is_relation:
            _Call(cursor, name, folds[name]).rewrite(rewriting)
        else:
            cursor.advance()
    return rewriting.done()


class _Call:
    """One call; the cursor is at the name of the fold."""

    def __init__(self, cursor: Cursor, name: str, fold: Folded) -> None:
        self.cursor = cursor
        self.name = name
        self.fold = fold

    def rewrite(self, rewriting: Rewriting) -> None:
        """Parse the call, and write the subquery."""
        cursor, fold = self.cursor, self.fold
        name = cursor.advance()
        cursor.expect_symbol("(")
        if not cursor.accept("TABLE"):
            raise cursor.expected("TABLE", hint=self._form)
        events = self._events()
        if cursor.accept("PARTITION", "BY"):
            self._check("PARTITION BY", fold.key)
        if cursor.accept("ORDER", "BY"):
            self._check("ORDER BY", fold.order_by)
        cursor.expect_symbol(")")
        key = ", ".join(map(quote, fold.key))
        order = ", ".join(map(quote, fold.order_by))
        before = (
            f"(SELECT {key}, {_ROW}.* FROM (SELECT {key}, {quote(self.name)}(sort_array("
            f"collect_list(named_struct('by', struct({order}), 'event', struct(*))))) AS {_ROW}"
            " FROM "
        )
        rewriting.replace(cursor.span(name), [before, events, f" GROUP BY {key}))"])

    def _events(self) -> tuple[int, int]:
        """Take a relation's name, or a query in brackets; return its range, as in FROM."""
        cursor = self.cursor
        if cursor.at_symbol("("):
            first = cursor.token
            last = self._closed()
            inside = cursor.tokens[cursor.tokens.index(first) + 1]
            if inside.word in _QUERIES or inside.text == "(":
                return first.start, last.end
            return inside.start, last.start
        first = self._name()
        while cursor.accept_symbol("."):
            self._name()
        return first.start, cursor.previous.end

    @property
    def _form(self) -> str:
        return f"Write {self.name}(TABLE name) or {self.name}(TABLE(SELECT ...))."

    def _name(self) -> Token:
        if self.cursor.token.kind not in _IDENTIFIERS:
            raise self.cursor.expected(
                "the name of a relation",
                hint=self._form,
            )
        return self.cursor.advance()

    def _closed(self) -> Token:
        """Take everything between brackets, and return the closing one."""
        depth = 0
        while True:
            if self.cursor.at_end():
                raise self.cursor.expected('")"')
            token = self.cursor.advance()
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if depth == 0:
                return token

    def _check(self, clause: str, wanted: tuple[str, ...]) -> None:
        """Take columns, and refuse them if they differ from the fold's own."""
        cursor = self.cursor
        bracketed = cursor.accept_symbol("(")
        first, found = cursor.token, []
        while True:
            found.append(identifier_value(self._name()).lower())
            cursor.accept("ASC")
            if not cursor.accept_symbol(","):
                break
        place = cursor.span(first)
        if bracketed:
            cursor.expect_symbol(")")
        if tuple(found) != tuple(name.lower() for name in wanted):
            raise HeadraceError(
                Code.INVALID,
                f'fold "{self.name}" has another {clause}: {", ".join(wanted)}',
                hint=f"Leave {clause} out: it is part of the fold.",
                span=place,
            )


_QUERIES = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE"})
