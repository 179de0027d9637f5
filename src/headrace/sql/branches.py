"""``CREATE BRANCH``, ``DROP BRANCH``, ``SHOW BRANCHES``: databases that begin as this one was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.sql.as_of import AsOfEpoch, AsOfTimestamp
from headrace.sql.parts import Statement
from headrace.types import Epoch

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.sql.as_of import AsOf
    from headrace.sql.cursor import Cursor
    from headrace.sql.lexer import Token
    from headrace.sql.parts import Name


@dataclass(frozen=True, slots=True)
class CreateBranch(Statement):
    """``CREATE BRANCH name [FROM EPOCH n | TIMESTAMP '...']``; None: from now on."""

    name: Name
    span: Span
    begins: AsOf | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropBranch(Statement):
    """``DROP BRANCH [IF EXISTS] name``."""

    name: Name
    span: Span
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ShowBranches(Statement):
    """``SHOW BRANCHES``."""

    span: Span


def take_create_branch(cursor: Cursor, first: Token) -> CreateBranch:
    """Take ``[IF NOT EXISTS] name [FROM EPOCH n | TIMESTAMP '...']``, after CREATE BRANCH."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = _branch(cursor)
    begins = _begins(cursor)
    cursor.expect_end(*(() if begins else ("FROM EPOCH", "FROM TIMESTAMP")))
    return CreateBranch(name, cursor.span(first), begins, if_not_exists)


def take_drop_branch(cursor: Cursor, first: Token) -> DropBranch:
    """Take ``[IF EXISTS] name``, after DROP BRANCH."""
    if_exists = cursor.accept("IF", "EXISTS")
    name = _branch(cursor)
    cursor.expect_end()
    return DropBranch(name, cursor.span(first), if_exists)


def take_show_branches(cursor: Cursor, first: Token) -> ShowBranches:
    """Take ``BRANCHES``, after SHOW."""
    cursor.expect("BRANCHES")
    cursor.expect_end()
    return ShowBranches(cursor.span(first))


def _branch(cursor: Cursor) -> Name:
    name = cursor.name("the branch's name")
    if len(name.parts) > 1:
        raise HeadraceError(
            Code.INVALID,
            f'name "{name}" of a branch is qualified',
            "A branch has all schemas of the database.",
            "Give it a name of one part.",
            name.span,
        )
    return name


def _begins(cursor: Cursor) -> AsOf | None:
    start = cursor.token
    if not cursor.accept("FROM"):
        return None
    if cursor.accept("TIMESTAMP"):
        text = cursor.string("a timestamp between quotes")
        return AsOfTimestamp(text, cursor.span(start))
    if not cursor.accept("EPOCH"):
        raise cursor.expected("EPOCH", "TIMESTAMP")
    return AsOfEpoch(Epoch(cursor.number("an epoch's number")), cursor.span(start))
