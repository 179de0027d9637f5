"""``COPY``: rows of files into a relation, and rows of a relation or query into a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.sql.fragments import take_query
from headrace.sql.options import take_options
from headrace.sql.parts import Statement

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.sql.cursor import Cursor
    from headrace.sql.lexer import Token
    from headrace.sql.parts import Name, Option, Query


@dataclass(frozen=True, slots=True)
class Copy(Statement):
    """``COPY ... FROM``: insert the rows of a file; ``columns`` is empty for all columns."""

    target: Name
    path: str
    path_span: Span
    span: Span
    columns: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True)
class CopyTo(Statement):
    """``COPY ... TO``: write the rows of a relation or query to a file.

    ``columns`` are the relation's; empty for all columns, and for a query.
    """

    source: Query | Name
    path: str
    path_span: Span
    span: Span
    columns: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()


def take_copy(cursor: Cursor) -> Copy | CopyTo:
    """Take ``COPY name [(columns)] FROM|TO 'path' [WITH (...)]``, or ``COPY (query) TO ...``."""
    first = cursor.token
    cursor.expect("COPY")
    if cursor.at_symbol("("):
        return _copy_to(cursor, first, _bracketed_query(cursor))
    target = cursor.name("a stream's or table's name")
    columns = cursor.identifiers("a column's name") if cursor.at_symbol("(") else ()
    if cursor.at("TO"):
        return _copy_to(cursor, first, target, columns)
    if not cursor.accept("FROM"):
        raise cursor.expected(*(() if columns else ('"("',)), "FROM", "TO")
    path, path_span, options = _path(cursor)
    return Copy(target, path, path_span, cursor.span(first), columns, options)


def _bracketed_query(cursor: Cursor) -> Query:
    """Take a query between brackets."""
    depth, end = 0, cursor.index
    for end in range(cursor.index, len(cursor.tokens)):
        depth += {"(": 1, ")": -1}.get(cursor.tokens[end].text, 0)
        if depth == 0:
            break
    cursor.index += 1
    query = take_query(cursor, end)
    cursor.expect_symbol(")")
    if query.emit_changes:
        raise HeadraceError(
            Code.UNSUPPORTED,
            "COPY of changes is not supported",
            hint="CREATE SINK name WITH (connector = 'file', ...) AS query.",
            span=query.span,
        )
    return query


def _copy_to(
    cursor: Cursor, first: Token, source: Query | Name, columns: tuple[str, ...] = ()
) -> CopyTo:
    if not cursor.accept("TO"):
        raise cursor.expected("TO")
    path, path_span, options = _path(cursor)
    return CopyTo(source, path, path_span, cursor.span(first), columns, options)


def _path(cursor: Cursor) -> tuple[str, Span, tuple[Option, ...]]:
    """Take the path of a file with its place, and the options to the end of the statement."""
    place = cursor.token
    path = cursor.string("a path between quotes")
    span = cursor.span(place)
    options = take_options(cursor)
    cursor.expect_end(*(() if options else ("WITH",)))
    return path, span, options
