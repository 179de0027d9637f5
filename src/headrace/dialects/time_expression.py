"""The time after ``AS OF``: finds its end, since an alias without ``AS`` may follow.

It is a value expression in Spark's grammar: operands and arithmetic operators, without
comparisons and without AND and OR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.sql.keywords import NOT_NAMES
from headrace.sql.lexer import TokenKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.sql.cursor import Cursor
    from headrace.sql.lexer import Token

_STRINGS = frozenset({TokenKind.STRING, TokenKind.DQUOTED})
_NAMES = frozenset({TokenKind.WORD, TokenKind.BACKQUOTED})
_SIGNS = frozenset({"+", "-", "~"})
_OPERATORS = frozenset({"+", "-", "*", "/", "%", "||", "|", "&", "^"})
_CLOSING = {"(": ")", "[": "]"}
_UNITS = frozenset(
    f"{unit}{plural}"
    for unit in (
        *("YEAR", "QUARTER", "MONTH", "WEEK", "DAY"),
        *("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"),
    )
    for plural in ("", "S")
)
_CLOCKS = frozenset(
    {
        "CURRENT_DATE",
        "CURRENT_TIME",
        "CURRENT_TIMESTAMP",
        "GETDATE",
        "LOCALTIMESTAMP",
        "NOW",
        "PROCTIME",
        "SYSDATE",
    }
)
_CALLED = frozenset({"NOW", "PROCTIME", "GETDATE", "SYSDATE"})
"""Functions that read the clock only if called: without parentheses they are columns."""


def take_time(cursor: Cursor) -> list[Token]:
    """Take a time, and return its tokens.

    Raises:
        HeadraceError: ``invalid`` if no time begins here or an operand is missing.
    """
    start = cursor.index
    _operand(cursor)
    while cursor.token.text in _OPERATORS or cursor.at("DIV"):
        cursor.advance()
        _operand(cursor)
    return cursor.tokens[start : cursor.index]


def is_constant(time: Sequence[Token]) -> bool:
    """Return whether a time consists of literals alone."""
    for i, token in enumerate(time):
        if token.kind not in _NAMES:
            continue
        typed = i + 1 < len(time) and time[i + 1].kind in _STRINGS
        counted = i > 0 and time[i - 1].kind in {*_STRINGS, TokenKind.NUMBER}
        interval = token.word == "INTERVAL" and i + 1 < len(time)
        if not (typed or counted or interval):
            return False
    return True


def refuse_clock(cursor: Cursor, time: Sequence[Token]) -> None:
    """Raise if a time reads the clock."""
    for i, token in enumerate(time):
        called = i + 1 < len(time) and time[i + 1].text == "("
        qualified = i > 0 and time[i - 1].text == "."
        if token.word not in _CLOCKS or qualified or (token.word in _CALLED and not called):
            continue
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"FOR SYSTEM_TIME AS OF the time of processing, {token.word}, is not supported",
            hint="Use a time in the data, such as that of the event, which does not change later.",
            span=cursor.span(token, token),
        )


def _operand(cursor: Cursor) -> None:
    while cursor.token.text in _SIGNS:
        cursor.advance()
    token = cursor.token
    if token.kind is TokenKind.SYMBOL and token.text == "(":
        _brackets(cursor)
    elif token.word == "CASE":
        _case(cursor)
    elif token.word == "INTERVAL" and _begins_interval(cursor):
        _interval(cursor)
    elif token.kind is TokenKind.WORD and cursor.peek(1).kind in _STRINGS:
        cursor.advance()  # TIMESTAMP '...'
        cursor.advance()
    elif token.kind in _STRINGS or token.kind is TokenKind.NUMBER:
        cursor.advance()
    elif token.kind in _NAMES and token.word not in NOT_NAMES:
        _names(cursor)
    else:
        raise cursor.expected("a time", hint="It is a column such as o.ts, or TIMESTAMP '...'.")
    _postfix(cursor)


def _names(cursor: Cursor) -> None:
    """Take a column or a call: a name with its dots, and the brackets after it."""
    cursor.advance()
    while cursor.token.text == "." and cursor.peek(1).kind in _NAMES:
        cursor.advance()
        cursor.advance()
    if cursor.at_symbol("("):
        _brackets(cursor)


def _postfix(cursor: Cursor) -> None:
    """Take the suffixes that bind closer than operators: an index, a field, a cast."""
    while True:
        if cursor.at_symbol("["):
            _brackets(cursor)
        elif cursor.token.text in {".", "::"} and cursor.peek(1).kind in _NAMES:
            cursor.advance()
            _names(cursor)
        else:
            return


def _begins_interval(cursor: Cursor) -> bool:
    following = cursor.peek(1)
    return following.kind in {*_STRINGS, TokenKind.NUMBER} or following.text in _SIGNS


def _interval(cursor: Cursor) -> None:
    """Take ``INTERVAL 1 DAY 2 HOURS``, ``INTERVAL '1' DAY``, ``INTERVAL '1:30' HOUR TO MINUTE``."""
    cursor.advance()
    while True:
        if cursor.token.text in _SIGNS:
            cursor.advance()
        cursor.advance()
        if cursor.token.word in _UNITS:
            cursor.advance()
        if cursor.at("TO") and cursor.peek(1).word in _UNITS:
            cursor.advance()
            cursor.advance()
        if cursor.token.kind is not TokenKind.NUMBER:
            return


def _case(cursor: Cursor) -> None:
    depth = 0
    while not cursor.at_end():
        depth += (cursor.token.word == "CASE") - (cursor.token.word == "END")
        cursor.advance()
        if depth == 0:
            return


def _brackets(cursor: Cursor) -> None:
    """Skip the bracketed tokens that begin here, including the closing bracket."""
    depth = 0
    while not cursor.at_end():
        token = cursor.token
        if token.kind is TokenKind.SYMBOL:
            depth += (token.text in _CLOSING) - (token.text in _CLOSING.values())
        cursor.advance()
        if depth == 0:
            return
