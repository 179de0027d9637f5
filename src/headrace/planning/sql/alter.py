"""Changes of the columns of a stream: ``DROP COLUMN``, ``RENAME COLUMN``, ``ALTER COLUMN TYPE``.

``ALTER STREAM ... SET`` and ``RESET``: change the options of a stream.

``ALTER ... RENAME TO``: another name of a relation, an index, a schema and the like.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.errors import Code, HeadraceError
from headrace.planning.sql.column_types import take_type
from headrace.planning.sql.options import listed_options, take_key, take_options
from headrace.planning.sql.parts import Name, Option, Statement

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.planning.sql.cursor import Cursor
    from headrace.planning.sql.lexer import Token
    from headrace.planning.sql.parts import Fragment


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


class RenamedKind(StrEnum):
    """What a statement renames; the value is the noun for messages."""

    STREAM = "stream"
    SOURCE = "source"
    TABLE = "table"
    MATERIALIZED_VIEW = "materialized view"
    VIEW = "view"
    SINK = "sink"
    INDEX = "index"
    SCHEMA = "schema"
    SECRET = "secret"  # noqa: S105  (a word of statements)
    CONNECTION = "connection"
    FUNCTION = "function"
    TOKEN = "token"  # noqa: S105  (as above)


IN_SCHEMAS: Final = frozenset({
    RenamedKind.STREAM, RenamedKind.SOURCE, RenamedKind.TABLE, RenamedKind.MATERIALIZED_VIEW,
    RenamedKind.VIEW, RenamedKind.SINK, RenamedKind.INDEX,
})  # fmt: skip
"""The kinds whose names have a schema."""

_WORDS = {
    ("STREAM",): RenamedKind.STREAM,
    ("SOURCE",): RenamedKind.SOURCE,
    ("TABLE",): RenamedKind.TABLE,
    ("MATERIALIZED", "VIEW"): RenamedKind.MATERIALIZED_VIEW,
    ("DYNAMIC", "TABLE"): RenamedKind.MATERIALIZED_VIEW,
    ("VIEW",): RenamedKind.VIEW,
    ("SINK",): RenamedKind.SINK,
    ("INDEX",): RenamedKind.INDEX,
    ("SCHEMA",): RenamedKind.SCHEMA,
    ("DATABASE",): RenamedKind.SCHEMA,
    ("SECRET",): RenamedKind.SECRET,
    ("CONNECTION",): RenamedKind.CONNECTION,
    ("FUNCTION",): RenamedKind.FUNCTION,
    ("TOKEN",): RenamedKind.TOKEN,
}


@dataclass(frozen=True, slots=True)
class Rename(Statement):
    """``ALTER kind [IF EXISTS] name RENAME TO other``."""

    kind: RenamedKind
    name: Name
    to: Name
    span: Span
    if_exists: bool = False


def at_rename(cursor: Cursor) -> bool:
    """Return whether the statement is an ALTER that ends in ``RENAME TO name``."""
    found = _kind(cursor)
    if found is None:
        return False
    ahead = 1 + len(found)
    if [cursor.peek(ahead).word, cursor.peek(ahead + 1).word] == ["IF", "EXISTS"]:
        ahead += 2
    while cursor.peek(ahead + 1).text == ".":
        ahead += 2
    return [cursor.peek(ahead + 1).word, cursor.peek(ahead + 2).word] == ["RENAME", "TO"]


def take_rename(cursor: Cursor) -> Rename:
    """Take ``ALTER kind [IF EXISTS] name RENAME TO other``."""
    first, words = cursor.token, _kind(cursor) or ()
    cursor.expect("ALTER", *words)
    if_exists = cursor.accept("IF", "EXISTS")
    kind = _WORDS[words]
    name = cursor.name(f"the {kind}'s name")
    cursor.expect("RENAME", "TO")
    to = cursor.name("its new name")
    cursor.expect_end()
    return Rename(kind, name, to, cursor.span(first), if_exists)


def _kind(cursor: Cursor) -> tuple[str, ...] | None:
    return next((words for words in _WORDS if cursor.at("ALTER", *words)), None)
