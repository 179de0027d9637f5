"""Statements that correct events, and that check or repair stored contents.

A slice of a view in a statement: ``INVALIDATE`` reports it, ``REPLAY`` recomputes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.planning.sql.fragments import take_expression
from headrace.planning.sql.lexer import TokenKind
from headrace.planning.sql.parts import Statement

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.planning.sql.alter import AlterStream, DropColumns, RenameColumn, RetypeColumn
    from headrace.planning.sql.cursor import Cursor
    from headrace.planning.sql.parts import Fragment, Name
    from headrace.planning.sql.refreshing import AlterView, AlterViewQuery, RebuildView, SwapView
    from headrace.planning.sql.statements import (
        AddColumns,
        Assignment,
        CreateMaterializedView,
        CreateTableAs,
        Delete,
        Drop,
        DropFunction,
        Insert,
        Truncate,
        Update,
    )


@dataclass(frozen=True, slots=True)
class SliceOf:
    """``[WHERE condition] [SINCE timestamp]``: some rows of a view; without both, all."""

    where: Fragment | None = None
    since: Fragment | None = None


@dataclass(frozen=True, slots=True)
class Invalidate(Statement):
    """``INVALIDATE VIEW name [WHERE ...] [SINCE ...] BECAUSE 'reason'``."""

    name: Name
    slice: SliceOf
    reason: str
    span: Span


@dataclass(frozen=True, slots=True)
class Correct(Statement):
    """``CORRECT STREAM``: replace events, or void them if ``assignments`` is empty."""

    name: Name
    assignments: tuple[Assignment, ...]
    where: Fragment
    span: Span
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Repair(Statement):
    """``REPAIR``: rebuild damaged or stopped relations; one relation, or all."""

    span: Span
    name: Name | None = None


@dataclass(frozen=True, slots=True)
class Verify(Statement):
    """``VERIFY``: compare views, or all, with an independent computation of their queries."""

    span: Span
    names: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True)
class Replay(Statement):
    """``REPLAY VIEW name [WHERE ...] [SINCE ...]``: recompute a slice of a view, and replace it."""

    name: Name
    slice: SliceOf
    span: Span


@dataclass(frozen=True, slots=True)
class ExplainReplay(Statement):
    """``EXPLAIN REPLAY VIEW ...``: what a replay would read and replace."""

    replay: Replay
    span: Span


@dataclass(frozen=True, slots=True)
class ExplainChange(Statement):
    """``EXPLAIN CHANGE statement | FUNCTION name``: the effect of a change on views."""

    target: (
        Insert
        | Update
        | Delete
        | Truncate
        | Correct
        | Invalidate
        | AddColumns
        | DropColumns
        | RenameColumn
        | RetypeColumn
        | AlterStream
        | AlterView
        | AlterViewQuery
        | CreateMaterializedView
        | CreateTableAs
        | Drop
        | DropFunction
        | RebuildView
        | SwapView
        | Name
    )
    span: Span


@dataclass(frozen=True, slots=True)
class ExplainScript(Statement):
    """``EXPLAIN SCRIPT [OFFLINE] '...'``: what each statement of a script would do, or why not.

    ``offline``: without reaching any other system.
    """

    script: str
    span: Span
    offline: bool = False


@dataclass(frozen=True, slots=True)
class ExplainRow(Statement):
    """``EXPLAIN ROW name WHERE condition``: the sources of a row, or why it does not exist.

    ``deep``: through all views below, to tables and streams.
    """

    name: Name
    where: Fragment
    span: Span
    deep: bool = False


def take_slice(cursor: Cursor, *stops: str) -> SliceOf:
    """Take ``[WHERE condition] [SINCE timestamp]``, up to one of ``stops`` or the end."""
    where = take_expression(cursor, "SINCE", *stops) if cursor.accept("WHERE") else None
    since = take_expression(cursor, *stops) if cursor.accept("SINCE") else None
    return SliceOf(where, since)


def take_invalidate(cursor: Cursor) -> Invalidate:
    """Take ``INVALIDATE [MATERIALIZED] VIEW name [WHERE ...] [SINCE ...] BECAUSE 'reason'``."""
    first = cursor.token
    cursor.expect("INVALIDATE")
    cursor.accept("MATERIALIZED")
    cursor.expect("VIEW")
    name = cursor.name("a view's name")
    slice_ = take_slice(cursor, "BECAUSE")
    missing = [
        word
        for word, given in (("WHERE", slice_.where or slice_.since), ("SINCE", slice_.since))
        if given is None
    ]
    if not cursor.accept("BECAUSE"):
        raise cursor.expected(*missing, "BECAUSE")
    reason = cursor.string("a reason between quotes")
    cursor.expect_end()
    return Invalidate(name, slice_, reason, cursor.span(first))


def take_replay(cursor: Cursor) -> Replay:
    """Take ``REPLAY [MATERIALIZED] VIEW name [WHERE ...] [SINCE ...]``."""
    first = cursor.token
    cursor.expect("REPLAY")
    cursor.accept("MATERIALIZED")
    cursor.expect("VIEW")
    name = cursor.name("a view's name")
    slice_ = take_slice(cursor)
    cursor.expect_end(*(() if slice_.where or slice_.since else ("WHERE", "SINCE")))
    return Replay(name, slice_, cursor.span(first))


def at_explain_replay(cursor: Cursor) -> bool:
    """Return whether the statement is ``EXPLAIN REPLAY VIEW``."""
    words = cursor.peek(1).word, cursor.peek(2).word
    return words[0] == "REPLAY" and words[1] in ("VIEW", "MATERIALIZED")


def take_explain_replay(cursor: Cursor) -> ExplainReplay:
    """Take ``EXPLAIN REPLAY VIEW ...``."""
    first = cursor.token
    cursor.expect("EXPLAIN")
    return ExplainReplay(take_replay(cursor), cursor.span(first))


def at_explain_row(cursor: Cursor) -> bool:
    """Return whether the statement is ``EXPLAIN ROW``, not EXPLAIN of a view named so."""
    return cursor.peek(1).word == "ROW" and cursor.peek(2).kind in {
        TokenKind.WORD,
        TokenKind.BACKQUOTED,
    }


def take_explain_row(cursor: Cursor) -> ExplainRow:
    """Take ``EXPLAIN ROW name WHERE condition [DEEP]``."""
    first = cursor.token
    cursor.expect("EXPLAIN")
    cursor.expect("ROW")
    name = cursor.name("a view's name")
    cursor.expect("WHERE")
    where = take_expression(cursor, "DEEP")
    deep = cursor.accept("DEEP")
    cursor.expect_end()
    return ExplainRow(name, where, cursor.span(first), deep)
