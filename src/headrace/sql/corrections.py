"""``CORRECT STREAM``: replace or void earlier events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sql.change import take_assignments
from headrace.sql.fragments import take_expression
from headrace.sql.upkeep import Correct

if TYPE_CHECKING:
    from headrace.sql.cursor import Cursor
    from headrace.sql.statements import Assignment


def take_correct(cursor: Cursor) -> Correct:
    """Take ``CORRECT STREAM name REPLACE SET ... | VOID WHERE ... [BECAUSE 'reason']``."""
    first = cursor.token
    cursor.expect("CORRECT", "STREAM")
    name = cursor.name("a stream's name")
    assignments: tuple[Assignment, ...] = ()
    if cursor.accept("REPLACE"):
        cursor.expect("SET")
        assignments = take_assignments(cursor)
    elif not cursor.accept("VOID"):
        raise cursor.expected("REPLACE", "VOID")
    cursor.expect("WHERE")
    where = take_expression(cursor, "BECAUSE")
    reason = None
    if cursor.accept("BECAUSE"):
        reason = cursor.string("a reason between quotes")
    cursor.expect_end(*(() if reason is not None else ("BECAUSE",)))
    return Correct(name, assignments, where, cursor.span(first), reason)
