"""The parentheses after a view's name: names of its columns, and its declared key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.sql.lexer import TokenKind

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.sql.cursor import Cursor


@dataclass(frozen=True, slots=True)
class DeclaredKey:
    """``PRIMARY KEY (column, ...)`` of a view: columns as written, and the clause's place."""

    columns: tuple[str, ...]
    span: Span


@dataclass(slots=True)
class ViewColumns:
    """``(column, ..., [PRIMARY KEY (column, ...)])``; a column may have ``PRIMARY KEY`` itself.

    ``names`` is empty if only a key is declared. ``NOT ENFORCED``, which Flink requires, has no
    effect.
    """

    cursor: Cursor
    names: tuple[str, ...] = ()
    key: DeclaredKey | None = None

    def take(self) -> None:
        """Take the parentheses.

        Raises:
            HeadraceError: ``invalid`` if it is malformed, or a column or key is repeated.
        """
        self.cursor.listed(self._entry)

    def _entry(self) -> None:
        cursor = self.cursor
        if _at_key(cursor):
            first = cursor.token
            if cursor.accept("CONSTRAINT"):
                cursor.identifier("a constraint's name")
            cursor.expect("PRIMARY", "KEY")
            columns = cursor.identifiers("a column's name")
            self._set(DeclaredKey(columns, cursor.span(first)))
            return
        name, token = cursor.identifier("a column's name")
        cursor.refuse_twice("column", name, {each.lower() for each in self.names}, token)
        self.names = (*self.names, name)
        if cursor.accept("PRIMARY", "KEY"):
            self._set(DeclaredKey((name,), cursor.span(token)))

    def _set(self, key: DeclaredKey) -> None:
        if self.key is not None:
            raise HeadraceError(
                Code.INVALID,
                "PRIMARY KEY is given twice",
                hint="For a key of several columns, write PRIMARY KEY (a, b) after the columns.",
                span=key.span,
            )
        self.key = key
        self.cursor.accept("NOT", "ENFORCED")


def at_only_key(cursor: Cursor) -> bool:
    """Whether parentheses with only a key clause follow, and then a query."""
    if not _at_key(cursor, 1):
        return False
    ahead, depth = 1, 1
    while depth and cursor.peek(ahead).kind is not TokenKind.END:
        depth += {"(": 1, ")": -1}.get(cursor.peek(ahead).text, 0)
        if depth == 1 and cursor.peek(ahead).text == ",":
            return False
        ahead += 1
    return cursor.peek(ahead).word in ("AS", "USING", "WITH")


def _at_key(cursor: Cursor, ahead: int = 0) -> bool:
    words = [cursor.peek(ahead + i).word for i in range(3)]
    return words[:2] == ["PRIMARY", "KEY"] or (words[0] == "CONSTRAINT" and words[2] == "PRIMARY")
