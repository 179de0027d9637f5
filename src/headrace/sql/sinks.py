"""``CREATE SINK``, and the statements about existing sinks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from headrace.sql.keywords import NOT_NAMES
from headrace.sql.lexer import TokenKind
from headrace.sql.options import take_keyed, take_options
from headrace.sql.parts import Name, Option, Statement

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.sql.cursor import Cursor
    from headrace.sql.parts import Query


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
