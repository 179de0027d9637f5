"""``BACKUP TO``, and ``SHOW BACKUPS IN``: copies of the database at another place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sql.options import take_options
from headrace.sql.parts import Statement

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.sql.cursor import Cursor
    from headrace.sql.lexer import Token
    from headrace.sql.parts import Option

_PLACE = "a directory or URL between quotes"


@dataclass(frozen=True, slots=True)
class Backup(Statement):
    """``BACKUP TO``: copy the database to a directory or an object store."""

    url: str
    url_span: Span
    span: Span
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True)
class ShowBackups(Statement):
    """``SHOW BACKUPS IN``: list the backups at a place."""

    url: str
    url_span: Span
    span: Span


def take_backup(cursor: Cursor) -> Backup:
    """Take ``BACKUP TO 'url' [WITH (...)]``."""
    first = cursor.token
    cursor.expect("BACKUP", "TO")
    url, span = _place(cursor)
    options = take_options(cursor)
    cursor.expect_end(*(() if options else ("WITH",)))
    return Backup(url, span, cursor.span(first), options)


def take_show_backups(cursor: Cursor, first: Token) -> ShowBackups:
    """Take ``BACKUPS IN 'url'``, after SHOW."""
    cursor.expect("BACKUPS", "IN")
    url, span = _place(cursor)
    cursor.expect_end()
    return ShowBackups(url, span, cursor.span(first))


def _place(cursor: Cursor) -> tuple[str, Span]:
    place = cursor.token
    return cursor.string(_PLACE), cursor.span(place)
