"""Bounds of queries and expressions: how deeply nested and how long their texts may be.

Planning visits the tree of a text recursively, and takes milliseconds for each of its nodes. What
is beyond the bounds would keep a planner busy for a minute, or exhaust its stack, so it is refused
here, on tokens, before Spark parses it. The depth of the tree is estimated from above: operators
outside brackets associate to the left, except AND and OR, which Spark balances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError
from headrace.sql.lexer import Token, TokenKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.sql.cursor import Cursor

DEEPEST: Final = 150
"""How deeply brackets and CASE may be nested."""
HIGHEST: Final = 300
"""How high the tree of an expression or of joined and united queries may be."""
MOST_WORDS: Final = 10_000
"""How many names, keywords and operators a query may have; literals are not counted."""

_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_CLOSED: Final = frozenset(_CLOSING.values())
_NOT_COUNTED: Final = frozenset({",", ".", *_CLOSING, *_CLOSED})
_LITERALS: Final = frozenset({"NULL", "TRUE", "FALSE", "DATE", "TIMESTAMP", "INTERVAL"})
_OPERATORS: Final = frozenset(
    {"NOT", "LIKE", "ILIKE", "RLIKE", "REGEXP", "IN", "IS", "BETWEEN", "DIV", "COLLATE"}
)
_OF_QUERIES: Final = frozenset({"UNION", "EXCEPT", "INTERSECT", "MINUS", "JOIN"})
_SEPARATING: Final = frozenset(
    {"AND", "OR", "WHEN", "THEN", "ELSE", "SELECT", "FROM", "WHERE", "HAVING", "ON", "BY", "AS"}
)
_DIVIDE: Final = "Divide it, and name its parts with CREATE VIEW."


@dataclass(slots=True)
class _Level:
    """The inside of a bracket or of CASE: the height of the trees that were found in it."""

    closing: str
    highest: int = 0
    """The height of the highest expression that has ended."""
    height: int = 0
    """The height of the expression that has not ended."""
    queries: int = 0
    """The operators between queries and relations."""

    @property
    def whole(self) -> int:
        return max(self.highest, self.height) + self.queries

    def separate(self) -> None:
        self.highest, self.height = max(self.highest, self.height), 0


def require_bounded(cursor: Cursor, body: Sequence[Token]) -> None:
    """Refuse the tokens of a query or an expression that is nested too deeply, or too long.

    Brackets are balanced. Rows of VALUES may be many.

    Raises:
        HeadraceError: ``unsupported``, at the place.
    """
    words, most = 0, len(body) if body and body[0].word == "VALUES" else MOST_WORDS
    level, outer = _Level(""), list[_Level]()
    for token in body:
        kind, text = token.kind, token.text
        if kind is TokenKind.SYMBOL:
            words += text not in _NOT_COUNTED
            if text in _CLOSING:
                level = _opened(cursor, token, _CLOSING[text], level, outer)
            elif text == "," or text in _CLOSED:
                while level.closing == "END":  # a column is called case
                    level = _closed(level, outer)
                level.separate()
                level = _closed(level, outer) if text in _CLOSED else level
            elif text != ".":
                level.height += 1
        elif kind is TokenKind.WORD:
            word = text.upper()
            words += word not in _LITERALS
            if word == "CASE":
                level = _opened(cursor, token, "END", level, outer)
            elif word == level.closing:
                level = _closed(level, outer)
            elif word in _SEPARATING:
                level.separate()
            elif word in _OPERATORS:
                level.height += 1
            elif word in _OF_QUERIES:
                level.queries += 1
        elif kind is TokenKind.BACKQUOTED:
            words += 1
        if words > most:
            raise _refused(
                cursor, token, f"more than {MOST_WORDS:,} words and operators in a query"
                " are not supported", "Values are not counted: compare a column with many of them"
                " by IN, or put them into a table. Divide what computes much into several views.",
            )  # fmt: skip
        if level.height + level.queries > HIGHEST or level.whole > HIGHEST:
            raise _refused(
                cursor,
                token,
                f"more than {HIGHEST} operators in a row are not supported",
                f"Put parts of them in brackets, in halves. {_DIVIDE}",
            )


def _opened(
    cursor: Cursor, token: Token, closing: str, level: _Level, outer: list[_Level]
) -> _Level:
    outer.append(level)
    if len(outer) > DEEPEST:
        raise _refused(
            cursor,
            token,
            "the query is nested too deeply",
            f"Brackets and CASE may be nested {DEEPEST} deep. {_DIVIDE}",
        )
    return _Level(closing)


def _closed(level: _Level, outer: list[_Level]) -> _Level:
    around = outer.pop()
    around.height = max(around.height, level.whole + 1)
    return around


def _refused(cursor: Cursor, token: Token, primary: str, hint: str) -> HeadraceError:
    return HeadraceError(Code.UNSUPPORTED, primary, hint=hint, span=cursor.span(token, token))
