"""What a program asks to follow by name or by query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.sql.parts import Query

if TYPE_CHECKING:
    from headrace.sql.parameters import Bound


def followed_text(query: str) -> str:
    """Return the text of a query, which may be given as the name of a relation."""
    return query if " " in query.strip() else f"SELECT * FROM {query}"


def followed_query(bound: Bound) -> Query:
    """Return the query of a text that is to be followed.

    Raises:
        HeadraceError: ``invalid`` if it is not one query.
    """
    statements = bound.statements()
    if len(statements) != 1 or not isinstance(statements[0], Query):
        raise HeadraceError(Code.INVALID, "only a query can be followed")
    return statements[0]
