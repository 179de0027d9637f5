"""The clauses of ``CREATE STREAM`` that restrict which rows it admits.

``DEDUPLICATE ON (id) [WITHIN INTERVAL '7' DAY]`` and ``ALLOWED LATENESS INTERVAL '1' HOUR [ON LATE
REJECT | ON LATE ACCEPT]``, ``ON ERROR STOP | ON ERROR REJECT``, in any order. The last one is for
tables, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError
from headrace.sql.fragments import take_expression

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.sql.cursor import Cursor
    from headrace.sql.lexer import Token
    from headrace.sql.parts import Fragment

_ENDS = ("DEDUPLICATE", "ALLOWED", "WITH", "FROM", "ON")


@dataclass(frozen=True, slots=True)
class Taken:
    """Which rows a stream admits; without clauses, all.

    ``unique`` are the columns of an event's id, which is remembered ``within`` a duration.
    ``lateness`` is the duration by which rows may be late; ``rejects``: later rows are rejected.
    ``stops``: its source stops at a row that does not fit, instead of rejecting it.
    """

    unique: tuple[str, ...] = ()
    within: Fragment | None = None
    lateness: Fragment | None = None
    rejects: bool = False
    stops: bool = False
    span: Span | None = None


EVERY_ROW: Final = Taken()


def take_taken(cursor: Cursor) -> Taken:
    """Take the clauses, if present.

    Raises:
        HeadraceError: ``invalid`` if one is malformed, or repeated.
    """
    first, begin = cursor.token, cursor.index
    unique: tuple[str, ...] = ()
    within: Fragment | None = None
    lateness: Fragment | None = None
    rejects = stops = False
    while (
        cursor.at("DEDUPLICATE", "ON")
        or cursor.at("ALLOWED", "LATENESS")
        or cursor.at("ON", "ERROR")
    ):
        word = cursor.token
        if cursor.accept("ON", "ERROR"):
            stops = cursor.accept("STOP")
            if not stops and not cursor.accept("REJECT"):
                raise cursor.expected("STOP", "REJECT")
        elif cursor.accept("DEDUPLICATE", "ON"):
            _once(cursor, "DEDUPLICATE", unique or None, word)
            unique = (
                cursor.identifiers("a column's name")
                if cursor.at_symbol("(")
                else (cursor.identifier("a column's name")[0],)
            )
            if cursor.accept("WITHIN"):
                within = take_expression(cursor, *_ENDS)
        else:
            cursor.expect("ALLOWED", "LATENESS")
            _once(cursor, "ALLOWED LATENESS", lateness, word)
            lateness = take_expression(cursor, *_ENDS)
            if cursor.accept("ON", "LATE"):
                rejects = cursor.accept("REJECT")
                if not rejects and not cursor.accept("ACCEPT"):
                    raise cursor.expected("REJECT", "ACCEPT")
    if cursor.index == begin:
        return EVERY_ROW
    return Taken(unique, within, lateness, rejects, stops, cursor.span(first, cursor.previous))


def _once(cursor: Cursor, clause: str, before: object, word: Token) -> None:
    if before is not None:
        raise HeadraceError(
            Code.INVALID, f"{clause} is given twice", span=cursor.span(word, cursor.previous)
        )
