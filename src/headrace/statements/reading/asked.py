"""Parses what a program asks to follow: a name, a query, or a statement that follows one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.sql.parts import Query
from headrace.sql.statements import Print, Subscribe

if TYPE_CHECKING:
    from headrace.sql.parameters import Bound


def followed_text(query: str) -> str:
    """Return the text of a query; the name of a relation stands for all its rows."""
    return query if " " in query.strip() else f"SELECT * FROM {query}"


def followed_statement(bound: Bound) -> Query | Subscribe | Print:
    """Parse the statement to follow.

    Raises:
        HeadraceError: ``invalid`` if the text is not one query, SUBSCRIBE or PRINT.
    """
    statements = bound.statements()
    if len(statements) != 1 or not isinstance(statements[0], Query | Subscribe | Print):
        raise HeadraceError(
            Code.INVALID,
            "only a query can be followed",
            hint="Give the name of a relation, a query, or one statement SUBSCRIBE or PRINT.",
        )
    return statements[0]
