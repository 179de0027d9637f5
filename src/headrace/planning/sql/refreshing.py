"""Refreshes of views: ``REFRESH``, ``ALTER MATERIALIZED VIEW``, and four dialects' clauses.

Every form becomes options of the view: ``refresh``, or the dialect's name for it.

``PAUSE FILL`` and ``RESUME FILL``: a view that is being filled waits, and goes on.

Swapping a view with its candidate: ``SWAP VIEW``, ``ROLLBACK VIEW`` and ``DROP CANDIDATE``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError
from headrace.planning.sql.lexer import TokenKind
from headrace.planning.sql.options import take_assignment, take_options
from headrace.planning.sql.parts import Name, ObjectKind, Option, Query, Statement
from headrace.planning.sql.sinks import take_percentage

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.planning.sql.cursor import Cursor
    from headrace.planning.sql.lexer import Token


_OF_SNOWFLAKE: Final = frozenset({"TARGET_LAG", "WAREHOUSE", "REFRESH_MODE", "INITIALIZE"})


@dataclass(frozen=True, slots=True)
class Refresh(Statement):
    """``REFRESH``: bring views up to date with all changes so far; ``everything``: all views.

    Without names, it waits for the views maintained by epochs, like FLUSH.
    """

    span: Span
    names: tuple[Name, ...] = ()
    everything: bool = False


@dataclass(frozen=True, slots=True)
class AlterView(Statement):
    """``ALTER MATERIALIZED VIEW ... SET``: change options of a view."""

    name: Name
    options: tuple[Option, ...]
    span: Span


def take_clauses(cursor: Cursor) -> tuple[Option, ...]:
    """Take clauses of Databricks and Snowflake that schedule a view's refreshes, as options."""
    options: tuple[Option, ...] = ()
    while (option := _clause(cursor, cursor.token)) is not None:
        options = merged_options(options, (option,))
    return options


def merged_options(first: tuple[Option, ...], more: tuple[Option, ...]) -> tuple[Option, ...]:
    """Concatenate options; raise if one is given in both."""
    known = {option.key for option in first}
    for option in more:
        if option.key in known:
            raise HeadraceError(
                Code.INVALID, f'option "{option.key}" is given twice', span=option.span
            )
    return (*first, *more)


def _clause(cursor: Cursor, first: Token) -> Option | None:
    if first.word in _OF_SNOWFLAKE and cursor.peek(1).text == "=":
        return take_assignment(cursor)
    if cursor.accept("SCHEDULE"):
        cursor.accept("REFRESH")
        if cursor.at("CRON"):
            raise HeadraceError(
                Code.UNSUPPORTED,
                "SCHEDULE CRON is not supported",
                hint="Use SCHEDULE EVERY 1 HOUR, or REFRESH the view from a scheduler of your own.",
                span=cursor.span(cursor.token, cursor.token),
            )
        return _every(cursor, first)
    if cursor.at("REFRESH", "EVERY"):
        cursor.advance()
        return _every(cursor, first)
    if cursor.accept("TRIGGER", "ON", "UPDATE"):
        return Option("refresh", "continuous", cursor.span(first, cursor.previous))
    if cursor.accept("REFRESH", "POLICY"):
        for mode in ("AUTO", "INCREMENTAL", "FULL"):
            if cursor.accept(mode):
                strict = " strict" if mode == "INCREMENTAL" and cursor.accept("STRICT") else ""
                span = cursor.span(first, cursor.previous)
                return Option("refresh_policy", mode.lower() + strict, span)
        raise cursor.expected_word("AUTO", "INCREMENTAL", "FULL")
    return None


def _every(cursor: Cursor, first: Token) -> Option:
    """Take ``EVERY 1 HOUR``, or with the duration between quotes."""
    cursor.expect("EVERY")
    begin = cursor.token
    if begin.kind is TokenKind.STRING:
        text = cursor.string("a duration")
    else:
        cursor.number("a number")
        if cursor.token.kind is not TokenKind.WORD:
            raise cursor.expected_word("MINUTES", "HOURS", "DAYS")
        cursor.advance()
        text = cursor.text(begin, cursor.previous)
    return Option("refresh", f"every {text.lower()}", cursor.span(first, cursor.previous))


def take_view_options(cursor: Cursor) -> tuple[Option, ...]:
    """Take ``WITH (...)`` or ``OPTIONS (...)`` of a view, and Materialize's options among them."""
    return take_options(cursor, special=_of_materialize)


def _of_materialize(cursor: Cursor) -> Option | None:
    """Take ``REFRESH EVERY '1 hour'``, ``REFRESH ON COMMIT`` or ``REFRESH AT CREATION``."""
    first = cursor.token
    if not cursor.at("REFRESH") or not cursor.peek(1).word:
        return None
    cursor.advance()
    here = cursor.token
    if cursor.accept("ON", "COMMIT"):
        return Option("refresh", "continuous", cursor.span(first, cursor.previous))
    if cursor.accept("AT", "CREATION"):
        return Option("refresh", "manual", cursor.span(first, cursor.previous))
    if cursor.at("EVERY"):
        option = _every(cursor, first)
        if not cursor.at("ALIGNED"):
            return option
    raise HeadraceError(
        Code.UNSUPPORTED,
        f"REFRESH {here.word} is not supported",
        hint="Use REFRESH EVERY '1 hour', counted from the last refresh, or REFRESH ON COMMIT.",
        span=cursor.span(first, here),
    )


def at_altered_view(cursor: Cursor) -> bool:
    """Return whether ``ALTER`` is followed by a view."""
    return cursor.at("ALTER", "MATERIALIZED", "VIEW") or cursor.at("ALTER", "DYNAMIC", "TABLE")


def take_alter_view(cursor: Cursor) -> AlterView | Refresh:
    """Take ``ALTER MATERIALIZED VIEW name SET (refresh = ...)`` or its forms in other dialects."""
    first = cursor.token
    for _ in range(3):
        cursor.advance()
    name = cursor.name("a view's name")
    if cursor.accept("REFRESH"):  # of Snowflake
        cursor.expect_end()
        return Refresh(cursor.span(first), (name,))
    if cursor.accept("DROP", "SCHEDULE"):  # of Databricks
        options: tuple[Option, ...] = (
            Option("refresh", "manual", cursor.span(first, cursor.previous)),
        )
    elif any(cursor.accept(word) for word in ("SET", "ADD", "ALTER")):
        if cursor.at_symbol("(") or cursor.at("OPTIONS"):
            options = take_options(cursor, "OPTIONS", bare=True)
        else:
            options = take_clauses(cursor)
        if not options:
            raise cursor.expected('"("', hint="Write SET (refresh = 'every 1 hour').")
    else:
        raise HeadraceError(
            Code.UNSUPPORTED,
            "this ALTER of a view is not supported",
            hint="Write SET (refresh = 'every 1 hour'), AS and another query, or RENAME TO.",
            span=cursor.span(first, cursor.token),
        )
    cursor.expect_end()
    return AlterView(name, options, cursor.span(first))


def take_refresh(cursor: Cursor) -> Refresh:
    """Take ``REFRESH [MATERIALIZED VIEW | TABLE | ...] [name, ... | ALL]``."""
    first = cursor.advance()
    if cursor.at_end():
        return Refresh(cursor.span(first))
    if cursor.at("ALL") and cursor.peek(1).kind is TokenKind.END:
        cursor.advance()
        return Refresh(cursor.span(first), everything=True)
    if cursor.peek(1).kind is not TokenKind.END and cursor.peek(1).text not in {".", ","}:
        accept_kind(cursor)
    names: dict[str, Name] = {}
    while True:
        token = cursor.token
        name = cursor.name("a relation's name")
        cursor.refuse_twice("relation", name.dotted, names, token)
        names[name.dotted] = name
        if not cursor.accept_symbol(","):
            break
    cursor.expect_end()
    return Refresh(cursor.span(first), tuple(names.values()))


def accept_kind(cursor: Cursor) -> None:
    """Skip the kind of the named object; the name alone identifies it."""
    any(cursor.accept(*kind.value.upper().split()) for kind in ObjectKind)


@dataclass(frozen=True, slots=True)
class PauseFill(Statement):
    """``PAUSE FILL OF [VIEW] name``: let the fills of a view, its candidate or an index wait."""

    name: Name
    span: Span


@dataclass(frozen=True, slots=True)
class ResumeFill(Statement):
    """``RESUME FILL OF [VIEW] name``: let them go on."""

    name: Name
    span: Span


def take_handled_fill(cursor: Cursor) -> PauseFill | ResumeFill:
    """Take ``PAUSE | RESUME FILL OF [VIEW] name``."""
    first = cursor.advance()
    cursor.expect("FILL")
    cursor.expect("OF")
    accept_kind(cursor)
    name = cursor.name("a view's or index's name")
    cursor.expect_end()
    kind = PauseFill if first.word == "PAUSE" else ResumeFill
    return kind(name, cursor.span(first))


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
