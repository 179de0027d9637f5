"""``ALTER STREAM ... SET`` and ``RESET``: change the options of a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sql.options import listed_options, take_key, take_options
from headrace.sql.parts import Name, Option, Statement

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.sql.cursor import Cursor
    from headrace.sql.lexer import Token


@dataclass(frozen=True, slots=True)
class AlterStream(Statement):
    """``ALTER STREAM name SET (key = value, ...)``, or ``RESET (key, ...)``: values are empty."""

    name: Name
    options: tuple[Option, ...]
    span: Span
    resets: bool = False


def at_stream_options(cursor: Cursor) -> bool:
    """Return whether a change of a stream's options follows its name."""
    return cursor.peek(1).text == "(" and (cursor.at("SET") or cursor.at("RESET"))


def take_stream_options(cursor: Cursor, name: Name, first: Token) -> AlterStream:
    """Take ``SET (key = value, ...)`` or ``RESET (key, ...)``, to the end of the statement."""
    resets = cursor.accept("RESET")
    if resets:
        options = listed_options(cursor, lambda: _named(cursor))
    else:
        options = take_options(cursor, "SET")
    cursor.expect_end()
    return AlterStream(name, options, cursor.span(first), resets)


def _named(cursor: Cursor) -> Option:
    token = cursor.token
    return Option(take_key(cursor), "", cursor.span(token, cursor.previous))
