"""Push queries that end, ``EMIT CHANGES LIMIT n``, and ksqlDB's ``PRINT``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.sql.fragments import take_query
from headrace.sql.lexer import Token, TokenKind, string_value
from headrace.sql.statements import Print

if TYPE_CHECKING:
    from headrace.sql.cursor import Cursor
    from headrace.sql.parts import Query

_ENDING = ("EMIT", "CHANGES", "LIMIT")
_SNAPSHOTS = (
    ("WITH", "(", "SNAPSHOT", ")"),
    ("WITH", "(", "SNAPSHOT", "=", "TRUE", ")"),
    ("WITH", "(", "SNAPSHOT", "=", "FALSE", ")"),
    ("WITH", "(", "SNAPSHOT", "TRUE", ")"),
    ("WITH", "(", "SNAPSHOT", "FALSE", ")"),
)
_MOST = 2**31 - 1


def take_whole_query(cursor: Cursor) -> Query:
    """Take a query as a whole statement, up to ``EMIT CHANGES LIMIT n``."""
    ending = cursor.tokens[-5:-1]
    if tuple(token.word for token in ending[:3]) != _ENDING or len(ending) < len(_ENDING) + 1:
        return take_query(cursor)
    limit = _rows(cursor, ending[-1])
    del cursor.tokens[-3:-1]
    return replace(take_query(cursor), limit=limit)


def take_snapshot(cursor: Cursor) -> bool:
    """Remove Materialize's ``WITH (SNAPSHOT = false)`` from the statement's end; True if absent.

    It is removed first, because a query is parsed up to the end of the statement.
    """
    for words in _SNAPSHOTS:
        ending = cursor.tokens[-1 - len(words) : -1]
        if tuple(token.text.upper() for token in ending) == words:
            del cursor.tokens[-1 - len(words) : -1]
            return "FALSE" not in words
    return True


def take_print(cursor: Cursor) -> Print:
    """Take ``PRINT topic [FROM BEGINNING] [LIMIT n]``."""
    first = cursor.token
    cursor.expect("PRINT")
    place = cursor.token
    if place.kind in {TokenKind.STRING, TokenKind.DQUOTED}:
        topic = string_value(cursor.advance())
    else:
        topic = str(cursor.name("a topic's or relation's name"))
    named = cursor.span(place)
    beginning = cursor.accept("FROM", "BEGINNING")
    if cursor.at_any("INTERVAL", "SAMPLE"):
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"{cursor.token.word} is not supported",
            hint="Leave it out, or follow a query whose WHERE chooses rows.",
            span=cursor.span(cursor.token, cursor.token),
        )
    limit = _rows(cursor, cursor.advance()) if cursor.accept("LIMIT") else None
    others = () if limit is not None else ("LIMIT",)
    cursor.expect_end(*(others if beginning or limit is not None else ("FROM BEGINNING", "LIMIT")))
    return Print(topic, named, cursor.span(first), beginning, limit)


def _rows(cursor: Cursor, token: Token) -> int:
    if token.kind is not TokenKind.NUMBER or not token.text.isdecimal():
        cursor.index = cursor.tokens.index(token)
        raise cursor.expected(
            "a number of rows", hint="Write LIMIT 10: the query ends after so many."
        )
    rows = int(token.text)
    if not 0 < rows <= _MOST:
        raise HeadraceError(
            Code.INVALID,
            f"a push query cannot end after {token.text[:40]} rows",
            hint=f"LIMIT is between 1 and {_MOST:,} here.",
            span=cursor.span(token, token),
        )
    return rows
