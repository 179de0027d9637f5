"""A slice of a view in a statement: ``INVALIDATE`` reports it, ``REPLAY`` recomputes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sql.fragments import take_expression
from headrace.sql.lexer import TokenKind
from headrace.sql.upkeep import ExplainReplay, ExplainRow, Invalidate, Replay, SliceOf

if TYPE_CHECKING:
    from headrace.sql.cursor import Cursor


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
