"""Parses what a program asks to follow: a name or a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.sql.parts import Query

if TYPE_CHECKING:
    from headrace.sql.parameters import Bound


def followed_text(query: str) -> str:
    """Return the text of a query; the name of a relation stands for all its rows."""
    return query if " " in query.strip() else f"SELECT * FROM {query}"


def followed_query(bound: Bound) -> Query:
    """Parse the query to follow.

    Raises:
        HeadraceError: ``invalid`` if the text is not one query.
    """
    statements = bound.statements()
    if len(statements) != 1 or not isinstance(statements[0], Query):
        raise HeadraceError(Code.INVALID, "only a query can be followed")
    return statements[0]
