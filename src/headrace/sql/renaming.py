"""``ALTER ... RENAME TO``: another name of a relation, an index, a schema and the like."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from headrace.sql.parts import Statement

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.sql.cursor import Cursor
    from headrace.sql.parts import Name


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
