"""``PRIMARY KEY`` of a materialized view: its columns, and its description in messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, meant
from headrace.types import require_key

if TYPE_CHECKING:
    from headrace.catalog import View
    from headrace.sql.view_columns import DeclaredKey
    from headrace.types import Schema


def declared_columns(key: DeclaredKey, schema: Schema) -> tuple[str, ...]:
    """Return the columns of a declared key, as the view's schema spells them.

    Raises:
        HeadraceError: ``invalid`` if a column does not exist, ``unsupported`` for its type.
    """
    columns = {column.name.lower(): column for column in schema.columns}
    for name in key.columns:
        if name.lower() not in columns:
            raise HeadraceError(
                Code.INVALID,
                f'column "{name}" of the PRIMARY KEY does not exist in the view',
                hint=meant(name, schema.names, f"There are: {', '.join(schema.names)}."),
                span=key.span,
            )
        try:
            require_key(columns[name.lower()].type)
        except HeadraceError as error:
            raise error.at(key.span) from error
    return tuple(columns[name.lower()].name for name in key.columns)


def key_text(view: View) -> str:
    """Describe the key of a view and what guarantees it, for a message."""
    if not view.key:
        return "at most one row" if view.single else "none is known"
    columns = f"({', '.join(view.key)})"
    if not view.declares_key:
        return f"{columns}: follows from the query"
    if view.checks_key:
        return f"PRIMARY KEY {columns}: checked in each epoch, by a lookup for each inserted row"
    return f"PRIMARY KEY {columns}: follows from the query, so it is not checked"
