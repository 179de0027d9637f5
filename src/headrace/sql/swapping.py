"""Swapping a view with its candidate: ``SWAP VIEW``, ``ROLLBACK VIEW`` and ``DROP CANDIDATE``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sql.options import take_options
from headrace.sql.parts import Name, Option, Query, Statement
from headrace.sql.reconcile import take_percentage
from headrace.sql.refreshing import accept_kind

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.sql.cursor import Cursor
    from headrace.sql.lexer import Token


@dataclass(frozen=True, slots=True)
class SwapView(Statement):
    """``SWAP VIEW name, ... [WITH (options)]``, or ``ROLLBACK VIEW name, ...``.

    ``back``: to what served before.
    """

    names: tuple[Name, ...]
    span: Span
    back: bool = False
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterViewQuery(Statement):
    """``ALTER MATERIALIZED VIEW name [WITH (auto_swap = false)] AS query``: change the query."""

    name: Name
    query: Query
    options: tuple[Option, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class RebuildView(Statement):
    """``REBUILD VIEW name [WITH DEPENDANTS] [WITH (auto_swap = false)]``: compute it again.

    ``dependants``: all views above too.
    """

    name: Name
    dependants: bool
    options: tuple[Option, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class DropCandidate(Statement):
    """``DROP CANDIDATE OF [VIEW] name, ...``: give up what does not serve."""

    names: tuple[Name, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class ShowDiff(Statement):
    """``SHOW DIFF [OF] [VIEW] name``: what a swap with the candidate would change."""

    name: Name
    span: Span


def take_show_diff(cursor: Cursor, first: Token) -> ShowDiff:
    """Take ``DIFF [OF] [VIEW] name`` after ``SHOW``."""
    cursor.expect("DIFF")
    cursor.accept("OF")
    accept_kind(cursor)
    name = cursor.name("a view's name")
    cursor.expect_end()
    return ShowDiff(name, cursor.span(first))


@dataclass(frozen=True, slots=True)
class ValidateView(Statement):
    """``VALIDATE [VIEW] name [ALL | SAMPLE n PERCENT]``: compare the candidate with its query."""

    name: Name
    span: Span
    percent: float | None = None
    """The part of the rows that is compared; None for all."""


def take_validate(cursor: Cursor) -> ValidateView:
    """Take ``VALIDATE [VIEW] name [ALL | SAMPLE n PERCENT]``."""
    first = cursor.advance()
    accept_kind(cursor)
    name = cursor.name("a view's name")
    percent = None
    if cursor.accept("SAMPLE"):
        percent = take_percentage(cursor)
    elif not cursor.accept("ALL"):
        cursor.expect_end("ALL", "SAMPLE")
    cursor.expect_end()
    return ValidateView(name, cursor.span(first), percent)


def take_swap(cursor: Cursor) -> SwapView:
    """Take ``SWAP | ROLLBACK [MATERIALIZED] VIEW name, ...``; SWAP with ``WITH (options)``."""
    first = cursor.advance()
    accept_kind(cursor)
    names = _names(cursor)
    back = first.word == "ROLLBACK"
    options = () if back else take_options(cursor, "WITH")
    cursor.expect_end('","', *(() if back or options else ("WITH",)))
    return SwapView(names, cursor.span(first), back, options)


def take_rebuild(cursor: Cursor) -> RebuildView:
    """Take ``REBUILD [MATERIALIZED] VIEW name [WITH DEPENDANTS] [WITH (options)]``."""
    first = cursor.advance()
    accept_kind(cursor)
    name = cursor.name("a view's name")
    dependants = cursor.at("WITH") and cursor.peek(1).text != "("
    if dependants:
        cursor.expect("WITH", "DEPENDANTS")
    options = take_options(cursor) if cursor.at("WITH") else ()
    more = () if options else ("WITH (auto_swap = false)",)
    cursor.expect_end(*(() if dependants or options else ("WITH DEPENDANTS",)), *more)
    return RebuildView(name, dependants, options, cursor.span(first))


def take_drop_candidate(cursor: Cursor) -> DropCandidate:
    """Take ``DROP CANDIDATE OF [VIEW] name, ...``."""
    first = cursor.token
    cursor.expect("DROP", "CANDIDATE")
    cursor.expect("OF")
    accept_kind(cursor)
    names = _names(cursor)
    cursor.expect_end('","')
    return DropCandidate(names, cursor.span(first))


def _names(cursor: Cursor) -> tuple[Name, ...]:
    """Take the names of views."""
    names = [cursor.name("a view's name")]
    while cursor.accept_symbol(","):
        names.append(cursor.name("a view's name"))
    return tuple(names)
