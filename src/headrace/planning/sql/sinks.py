"""``CREATE SINK``, and the statements about existing sinks.

Push queries that end, ``EMIT CHANGES LIMIT n``, and ksqlDB's ``PRINT``.

``RECONCILE``: compare samples of stored contents with a recomputation from the logs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.planning.sql.fragments import take_query
from headrace.planning.sql.lexer import NOT_NAMES, Token, TokenKind, string_value
from headrace.planning.sql.options import take_keyed, take_options
from headrace.planning.sql.parts import Name, Option, Statement
from headrace.planning.sql.statements import Print

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.planning.sql.cursor import Cursor
    from headrace.planning.sql.parts import Query


@dataclass(frozen=True, slots=True)
class OverConnection:
    """``INTO [kind] CONNECTION name (KEY value, ...)``; the kind is in lower case."""

    name: Name
    options: tuple[Option, ...]
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class CreateSink(Statement):
    """``CREATE SINK``: deliver the changelog of a view or query to a table or elsewhere."""

    name: Name
    source: Query | Name
    span: Span
    into: Name | OverConnection | None = None
    options: tuple[Option, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterSink(Statement):
    """``ALTER SINK name SET (key = value, ...)``: change options for later deliveries."""

    name: Name
    options: tuple[Option, ...]
    span: Span


class SinkAction(StrEnum):
    """The actions of ``PAUSE``, ``RESUME`` and ``RESET SINK``."""

    PAUSE = "pause"
    RESUME = "resume"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class HandleSink(Statement):
    """``PAUSE | RESUME | RESET SINK name``."""

    action: SinkAction
    name: Name
    span: Span


@dataclass(frozen=True, slots=True)
class ReconcileSink(Statement):
    """``RECONCILE SINK name``: compare the target with the view; repair it unless ``checks``."""

    name: Name
    span: Span
    checks: bool = False


def take_into(cursor: Cursor) -> Name | OverConnection | None:
    """Take ``INTO table``, or ``INTO [kind] CONNECTION name (...)``; None if absent."""
    if not cursor.accept("INTO"):
        return None
    kind = None
    if cursor.peek(1).word == "CONNECTION" and cursor.token.kind is TokenKind.WORD:
        kind = cursor.advance().text.lower()
    elif not cursor.at("CONNECTION") or cursor.peek(1).word in NOT_NAMES:
        return cursor.name("a table's name")
    cursor.expect("CONNECTION")
    name = cursor.name("a connection's name")
    options = take_keyed(cursor) if cursor.at_symbol("(") else ()
    return OverConnection(name, options, kind)


def take_clauses_of_sink(cursor: Cursor) -> tuple[Option, ...]:
    """Take Materialize's ``KEY (a, b) [NOT ENFORCED]``, ``FORMAT JSON``, ``ENVELOPE UPSERT``."""
    found: list[Option] = []
    first = cursor.token
    if cursor.accept("KEY"):
        columns = cursor.identifiers("a column's name")
        cursor.accept("NOT", "ENFORCED")
        found.append(Option("key", ", ".join(columns), cursor.span(first, cursor.previous)))
    for clause in ("FORMAT", "ENVELOPE"):
        first = cursor.token
        if cursor.accept(clause):
            word, _ = cursor.identifier(f"a word after {clause}")
            found.append(Option(clause.lower(), word.lower(), cursor.span(first, cursor.previous)))
    return tuple(found)


def take_handled_sink(cursor: Cursor) -> HandleSink:
    """Take ``PAUSE | RESUME | RESET SINK name``."""
    first = cursor.token
    action = SinkAction(cursor.advance().word.lower())
    cursor.expect("SINK")
    name = cursor.name("a sink's name")
    cursor.expect_end()
    return HandleSink(action, name, cursor.span(first))


def take_altered_sink(cursor: Cursor) -> AlterSink:
    """Take ``ALTER SINK name SET (key = value, ...)``."""
    first = cursor.token
    cursor.expect("ALTER", "SINK")
    name = cursor.name("a sink's name")
    if not cursor.at("SET"):
        raise cursor.expected("SET")
    options = take_options(cursor, "SET")
    cursor.expect_end()
    return AlterSink(name, options, cursor.span(first))


def take_reconciled_sink(cursor: Cursor) -> ReconcileSink:
    """Take ``RECONCILE SINK name [CHECK]``."""
    first = cursor.token
    cursor.expect("RECONCILE", "SINK")
    name = cursor.name("a sink's name")
    checks = cursor.accept("CHECK")
    cursor.expect_end(*(() if checks else ("CHECK",)))
    return ReconcileSink(name, cursor.span(first), checks)


_ENDING = ("EMIT", "CHANGES", "LIMIT")
_SNAPSHOTS = (
    ("WITH", "(", "SNAPSHOT", ")"),
    ("WITH", "(", "SNAPSHOT", "=", "TRUE", ")"),
    ("WITH", "(", "SNAPSHOT", "=", "FALSE", ")"),
    ("WITH", "(", "SNAPSHOT", "TRUE", ")"),
    ("WITH", "(", "SNAPSHOT", "FALSE", ")"),
)
_MOST = 2**31 - 1


def take_whole_query(cursor: Cursor) -> Query:
    """Take a query as a whole statement, up to ``EMIT CHANGES LIMIT n``."""
    ending = cursor.tokens[-5:-1]
    if tuple(token.word for token in ending[:3]) != _ENDING or len(ending) < len(_ENDING) + 1:
        return take_query(cursor)
    limit = _rows(cursor, ending[-1])
    del cursor.tokens[-3:-1]
    return replace(take_query(cursor), limit=limit)


def take_snapshot(cursor: Cursor) -> bool:
    """Remove Materialize's ``WITH (SNAPSHOT = false)`` from the statement's end; True if absent.

    It is removed first, because a query is parsed up to the end of the statement.
    """
    for words in _SNAPSHOTS:
        ending = cursor.tokens[-1 - len(words) : -1]
        if tuple(token.text.upper() for token in ending) == words:
            del cursor.tokens[-1 - len(words) : -1]
            return "FALSE" not in words
    return True


def take_print(cursor: Cursor) -> Print:
    """Take ``PRINT topic [FROM BEGINNING] [LIMIT n]``."""
    first = cursor.token
    cursor.expect("PRINT")
    place = cursor.token
    if place.kind in {TokenKind.STRING, TokenKind.DQUOTED}:
        topic = string_value(cursor.advance())
    else:
        topic = str(cursor.name("a topic's or relation's name"))
    named = cursor.span(place)
    beginning = cursor.accept("FROM", "BEGINNING")
    if cursor.at_any("INTERVAL", "SAMPLE"):
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"{cursor.token.word} is not supported",
            hint="Leave it out, or follow a query whose WHERE chooses rows.",
            span=cursor.span(cursor.token, cursor.token),
        )
    limit = _rows(cursor, cursor.advance()) if cursor.accept("LIMIT") else None
    others = () if limit is not None else ("LIMIT",)
    cursor.expect_end(*(others if beginning or limit is not None else ("FROM BEGINNING", "LIMIT")))
    return Print(topic, named, cursor.span(first), beginning, limit)


def _rows(cursor: Cursor, token: Token) -> int:
    if token.kind is not TokenKind.NUMBER or not token.text.isdecimal():
        cursor.index = cursor.tokens.index(token)
        raise cursor.expected(
            "a number of rows", hint="Write LIMIT 10: the query ends after so many."
        )
    rows = int(token.text)
    if not 0 < rows <= _MOST:
        raise HeadraceError(
            Code.INVALID,
            f"a push query cannot end after {token.text[:40]} rows",
            hint=f"LIMIT is between 1 and {_MOST:,} here.",
            span=cursor.span(token, token),
        )
    return rows


_KINDS = (("MATERIALIZED", "VIEW"), ("VIEW",), ("TABLE",))
_WHOLE = 100.0
"""A sample of everything, in percent."""


@dataclass(frozen=True, slots=True)
class Reconcile(Statement):
    """``RECONCILE``: compare a sample of one table or view, or of all, with its logs.

    The sample has about ``rows`` rows, or ``percent`` of them; by default, one slice.
    """

    span: Span
    name: Name | None = None
    rows: int | None = None
    percent: float | None = None


def take_reconcile(cursor: Cursor) -> Reconcile | ReconcileSink:
    """Take ``RECONCILE {VIEW name | TABLE name | ALL} [SAMPLE n {ROWS | PERCENT}]``.

    Or ``RECONCILE SINK name [CHECK]``.
    """
    if cursor.at("RECONCILE", "SINK"):
        return take_reconciled_sink(cursor)
    first = cursor.token
    cursor.expect("RECONCILE")
    name = None
    if any(cursor.accept(*words) for words in _KINDS):
        name = cursor.name("a table's or view's name")
    elif not cursor.accept("ALL"):
        raise cursor.expected("VIEW", "TABLE", "ALL", "SINK")
    rows: int | None = None
    percent: float | None = None
    if cursor.accept("SAMPLE"):
        place = cursor.token
        share = _number(cursor)
        if cursor.accept("PERCENT"):
            percent = _percentage(cursor, place, share)
        elif cursor.accept("ROWS") or cursor.accept("ROW"):
            rows = int(share)
            if rows != share or rows < 1:
                raise _out_of_range(cursor, place, "a whole number of rows")
        else:
            raise cursor.expected("ROWS", "PERCENT")
        cursor.expect_end()
    else:
        cursor.expect_end("SAMPLE")
    return Reconcile(cursor.span(first), name, rows, percent)


def take_percentage(cursor: Cursor) -> float:
    """Take ``n PERCENT``: above 0, up to 100."""
    place, share = cursor.token, _number(cursor)
    cursor.expect("PERCENT")
    return _percentage(cursor, place, share)


def _percentage(cursor: Cursor, place: Token, share: float) -> float:
    if not 0 < share <= _WHOLE:
        raise _out_of_range(cursor, place, "a percentage above 0, up to 100")
    return share


def _number(cursor: Cursor) -> float:
    token = cursor.token
    if token.kind is TokenKind.NUMBER:
        try:
            value = float(token.text)
        except ValueError:
            raise cursor.expected("a number of rows, or a percentage") from None
        cursor.advance()
        return value
    raise cursor.expected("a number of rows, or a percentage")


def _out_of_range(cursor: Cursor, place: Token, wanted: str) -> HeadraceError:
    return HeadraceError(
        Code.INVALID,
        f"a sample cannot be of {place.text}",
        hint=f"Give {wanted}.",
        span=cursor.span(place, place),
    )
