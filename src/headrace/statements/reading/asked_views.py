"""The views that a program asks for, in the forms that Python has for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.errors import Code, HeadraceError
from headrace.sql.asked_view import asked_view

if TYPE_CHECKING:
    from headrace.sql.as_of import AskedView

Views: TypeAlias = "str | Sequence[str] | Mapping[str, Sequence[str] | Mapping[str, str] | None]"
"""Views, as in SQL, such as ``name`` or ``name(column, column AS new)``; or, by the name of each,
its columns, with their new names if it is a mapping, or None for all that are not its key."""


def asked_views(views: Views) -> tuple[AskedView, ...]:
    """Return the views that a program asks for.

    Raises:
        HeadraceError: INVALID for values of another form.
    """
    if isinstance(views, str):
        return (asked_view(views),)
    if isinstance(views, Mapping):
        return tuple(
            replace(asked_view(str(name)), columns=_columns(columns))
            for name, columns in views.items()
        )
    if isinstance(views, Sequence) and all(isinstance(each, str) for each in views):
        return tuple(map(asked_view, views))
    raise HeadraceError(
        Code.INVALID,
        "views are neither names nor a mapping",
        hint="Give names, as in ['a', 'b'], or their columns, as in {'a': ['x'], 'b': None}.",
    )


def _columns(columns: Any) -> tuple[tuple[str, str], ...] | None:
    if columns is None:
        return None
    if isinstance(columns, Mapping):
        return tuple((str(name), str(new)) for name, new in columns.items())
    names = [columns] if isinstance(columns, str) else columns
    return tuple((str(name), str(name)) for name in names)
