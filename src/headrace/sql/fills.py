"""``PAUSE FILL`` and ``RESUME FILL``: a view that is being filled waits, and goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sql.parts import Name, Statement
from headrace.sql.refreshing import accept_kind

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.sql.cursor import Cursor


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
