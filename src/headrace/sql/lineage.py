"""``SHOW LINEAGE``: what columns are made from, and what is made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sql.parts import Name, Statement

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.sql.cursor import Cursor
    from headrace.sql.lexer import Token


@dataclass(frozen=True, slots=True)
class ShowLineage(Statement):
    """``SHOW LINEAGE``: the inputs of columns or, if ``downstream``, what depends on them.

    ``name`` is that of a relation, or of a column of it. ``as_events``: as events of OpenLineage on
    one relation or, without a name, on all.
    """

    name: Name | None
    span: Span
    downstream: bool = False
    as_events: bool = False


def take_show_lineage(cursor: Cursor, first: Token) -> ShowLineage:
    """Take ``LINEAGE OF name[.column] [UPSTREAM | DOWNSTREAM]``, after SHOW.

    Or ``LINEAGE [OF name] FORMAT OPENLINEAGE``.
    """
    cursor.expect("LINEAGE")
    name: Name | None = None
    if cursor.accept("OF") or cursor.accept("FOR"):
        name = cursor.name("the name of a relation, or of a column of it")
    elif not cursor.at("FORMAT"):
        raise cursor.expected("OF", "FORMAT OPENLINEAGE")
    if cursor.accept("FORMAT"):
        cursor.expect("OPENLINEAGE")
        cursor.expect_end()
        return ShowLineage(name, cursor.span(first), as_events=True)
    downstream = cursor.accept("DOWNSTREAM")
    upstream = not downstream and cursor.accept("UPSTREAM")
    cursor.expect_end(*(() if downstream or upstream else ("DOWNSTREAM", "FORMAT OPENLINEAGE")))
    return ShowLineage(name, cursor.span(first), downstream)
