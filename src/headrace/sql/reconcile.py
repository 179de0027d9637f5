"""``RECONCILE``: compare samples of stored contents with a recomputation from the logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.sql.lexer import TokenKind
from headrace.sql.parts import Statement
from headrace.sql.sinks import take_reconciled_sink

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.sql.cursor import Cursor
    from headrace.sql.lexer import Token
    from headrace.sql.parts import Name
    from headrace.sql.sinks import ReconcileSink

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
