"""``name`` or ``name(column, column AS new, ...)``: a view, and the columns that are read of it."""

from __future__ import annotations

from headrace.sql.as_of import AskedView
from headrace.sql.cursor import Cursor
from headrace.sql.lexer import StatementText


def asked_view(text: str) -> AskedView:
    """Return the view that a text names.

    Raises:
        HeadraceError: ``invalid``, at the place in the text.
    """
    cursor = Cursor(StatementText(text, 0, len(text)))
    found = take_asked_view(cursor)
    cursor.expect_end("(")
    return AskedView(found.name, found.columns)


def take_asked_view(cursor: Cursor) -> AskedView:
    """Take a view's name, and the columns after it between parentheses, if there are any."""
    name, columns = cursor.name("the name of a view"), dict[str, tuple[str, str]]()

    def one() -> None:
        column, token = cursor.identifier("a column")
        new = column
        if cursor.accept("AS"):
            new, token = cursor.identifier("a name")
        cursor.refuse_twice("column", new, columns, token)
        columns[new.lower()] = (column, new)

    if not cursor.at_symbol("("):
        return AskedView(name.dotted, None, name.span)
    cursor.listed(one)
    return AskedView(name.dotted, tuple(columns.values()), name.span)
