"""Maps the error of a generated query to its place in the statement."""

from __future__ import annotations

from headrace.errors import HeadraceError, Span


def in_statement(error: HeadraceError, statement: Span) -> HeadraceError:
    """Return the error of a generated query, at its place in the statement."""
    place = error.span
    if place is not None:
        statement = place_of_text(place.text[place.start : place.end], statement)
    return HeadraceError(error.code, error.primary, error.detail, error.hint, statement)


def place_of_text(text: str, statement: Span) -> Span:
    """Return the place of a text in a statement; the whole statement if the text is not in it."""
    at = statement.text.lower().find(text.lower(), statement.start, statement.end)
    if at < 0 or not text:
        return statement
    return Span(statement.text, at, at + len(text), statement.file, statement.line)
