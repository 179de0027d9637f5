"""Changes of the columns of a stream: ``DROP COLUMN``, ``RENAME COLUMN``, ``ALTER COLUMN TYPE``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import Code, HeadraceError
from headrace.sql.column_types import take_type
from headrace.sql.parts import Statement

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.sql.cursor import Cursor
    from headrace.sql.lexer import Token
    from headrace.sql.parts import Fragment, Name


@dataclass(frozen=True, slots=True)
class ColumnName:
    """The name of a column in a statement, as written, and its place."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class DropColumns(Statement):
    """``ALTER STREAM name DROP COLUMN [IF EXISTS] column``, or ``DROP COLUMNS (column, ...)``."""

    name: Name
    dropped: tuple[ColumnName, ...]
    span: Span
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameColumn(Statement):
    """``ALTER STREAM name RENAME COLUMN column TO other``."""

    name: Name
    column: ColumnName
    to: ColumnName
    span: Span


@dataclass(frozen=True, slots=True)
class RetypeColumn(Statement):
    """``ALTER STREAM name ALTER COLUMN column TYPE type``."""

    name: Name
    column: ColumnName
    type: Fragment
    span: Span


AlteredColumn: TypeAlias = DropColumns | RenameColumn | RetypeColumn


def take_altered_columns(cursor: Cursor, name: Name, first: Token) -> AlteredColumn | None:
    """Take a change of columns to the end of the statement; None if none follows."""
    if cursor.accept("DROP"):
        return _dropped(cursor, name, first)
    if cursor.at("RENAME") and cursor.peek(1).word != "TO":
        return _renamed(cursor, name, first)
    if cursor.at("ALTER") or cursor.at("CHANGE", "COLUMN"):
        return _retyped(cursor, name, first)
    return None


def _dropped(cursor: Cursor, name: Name, first: Token) -> DropColumns:
    several = cursor.accept("COLUMNS")
    if not several:
        cursor.accept("COLUMN")
    if_exists = cursor.accept("IF", "EXISTS")
    found: list[ColumnName] = []

    def one() -> None:
        column = _column(cursor)
        known = {each.text.lower() for each in found}
        if column.text.lower() in known:
            raise HeadraceError(
                Code.INVALID, f'column "{column.text}" is named twice', span=column.span
            )
        found.append(column)

    if cursor.at_symbol("("):
        cursor.listed(one)
    else:
        one()
        while cursor.accept_symbol(","):
            if cursor.accept("DROP"):
                cursor.accept("COLUMN")
            one()
    cursor.accept("RESTRICT")
    cursor.expect_end()
    return DropColumns(name, tuple(found), cursor.span(first), if_exists)


def _renamed(cursor: Cursor, name: Name, first: Token) -> RenameColumn:
    cursor.expect("RENAME")
    cursor.accept("COLUMN")
    column = _column(cursor)
    cursor.expect("TO")
    to = _column(cursor)
    cursor.expect_end()
    return RenameColumn(name, column, to, cursor.span(first))


def _retyped(cursor: Cursor, name: Name, first: Token) -> RetypeColumn:
    if not cursor.accept("CHANGE", "COLUMN"):
        cursor.expect("ALTER")
        cursor.accept("COLUMN")
    column = _column(cursor)
    cursor.accept("SET", "DATA")
    if cursor.at("SET") or cursor.at("DROP"):
        raise HeadraceError(
            Code.UNSUPPORTED,
            "this change of a column is not supported",
            hint="The type of a column can be altered: ALTER COLUMN column TYPE type. For another"
            " default or NOT NULL, ADD COLUMN and write both, or compute it in a view.",
            span=cursor.span(first, cursor.token),
        )
    cursor.expect("TYPE")
    type_ = take_type(cursor)
    cursor.expect_end()
    return RetypeColumn(name, column, type_, cursor.span(first))


def _column(cursor: Cursor) -> ColumnName:
    text, token = cursor.identifier("a column's name")
    return ColumnName(text, cursor.span(token))
