"""Statements that change rows: ``INSERT``, ``UPDATE``, ``DELETE`` and ``TRUNCATE``.

``COPY``: rows of files into a relation, and rows of a relation or query into a file.

``CORRECT STREAM``: replace or void earlier events.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.planning.sql.fragments import QUERY_WORDS, take_expression, take_query
from headrace.planning.sql.lexer import TokenKind
from headrace.planning.sql.options import take_options
from headrace.planning.sql.parts import Fragment, Name, Statement
from headrace.planning.sql.statements import (
    Assignment,
    Delete,
    Insert,
    OnConflict,
    Truncate,
    Update,
)
from headrace.planning.sql.upkeep import Correct

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.planning.sql.cursor import Cursor
    from headrace.planning.sql.lexer import Token
    from headrace.planning.sql.parts import Option, Query


_VALUES_CLAUSES: dict[tuple[str, str], tuple[str, str]] = {
    ("ON", "DUPLICATE"): ("ON DUPLICATE KEY", "Use ON CONFLICT DO UPDATE SET ... instead."),
}

_BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
_ON = frozenset({"ON", "On", "oN", "on"})


def take_insert(cursor: Cursor) -> Insert:
    """Take ``INSERT [OR REPLACE | OR IGNORE] INTO name [(columns)] query [ON CONFLICT ...]``.

    The query may be ``VALUES ...``.
    """
    first = cursor.token
    cursor.expect("INSERT")
    choice = cursor.token
    replace = ignore = False
    if cursor.accept("OR"):
        replace, ignore = cursor.accept("REPLACE"), cursor.accept("IGNORE")
        if not (replace or ignore):
            raise cursor.expected("REPLACE", "IGNORE")
    on_conflict = OnConflict(cursor.span(choice)) if ignore else None
    cursor.expect("INTO")
    if cursor.at("TABLE") and cursor.peek(1).kind is not TokenKind.SYMBOL:
        cursor.advance()
    target = cursor.name("a stream's or table's name")
    columns = cursor.identifiers("a column's name") if _at_columns(cursor) else ()
    _refuse_upsert(cursor)
    if cursor.token.word not in QUERY_WORDS and not cursor.at_symbol("("):
        raise cursor.expected(*(() if columns else ('"("',)), "VALUES", "SELECT")
    at = _conflict_clause(cursor)
    query = take_query(cursor, at)
    if at is not None:
        if replace or ignore:
            raise cursor.expected(
                "the end of the statement", hint="OR REPLACE and OR IGNORE exclude ON CONFLICT."
            )
        on_conflict = _take_on_conflict(cursor)
    return Insert(target, query, cursor.span(first), columns, on_conflict, replace)


def _conflict_clause(cursor: Cursor) -> int | None:
    """Return the position of ``ON CONFLICT`` after the query that begins here, or None."""
    depth = 0
    for index in range(cursor.index, len(cursor.tokens) - 1):
        text = cursor.tokens[index].text
        if text in _BRACKETS:
            depth += _BRACKETS[text]
        elif depth == 0 and text in _ON and cursor.tokens[index + 1].word == "CONFLICT":
            following = cursor.tokens[index + 2]
            if following.text == "(" or following.word in {"DO", "ON"}:
                return index
    return None


def _take_on_conflict(cursor: Cursor) -> OnConflict:
    """Take ``ON CONFLICT [(columns)] DO NOTHING | DO UPDATE SET ... [WHERE ...]``."""
    first = cursor.token
    cursor.expect("ON", "CONFLICT")
    if cursor.at("ON", "CONSTRAINT"):
        raise cursor.expected('"("', "DO", hint="Name the columns of the PRIMARY KEY instead.")
    columns = cursor.identifiers("a column's name") if cursor.at_symbol("(") else ()
    cursor.expect("DO")
    if cursor.accept("NOTHING"):
        cursor.expect_end()
        return OnConflict(cursor.span(first), columns)
    if not cursor.accept("UPDATE"):
        raise cursor.expected("NOTHING", "UPDATE")
    cursor.expect("SET")
    assignments = take_assignments(cursor)
    where = take_expression(cursor) if cursor.accept("WHERE") else None
    cursor.expect_end()
    return OnConflict(cursor.span(first), columns, assignments, where)


def take_update(cursor: Cursor) -> Update:
    """Take ``UPDATE name SET column = expression, ... [WHERE expression]``."""
    first = cursor.token
    cursor.expect("UPDATE")
    target = cursor.name("a table's name")
    cursor.expect("SET")
    assignments = take_assignments(cursor)
    where = take_expression(cursor) if cursor.accept("WHERE") else None
    return Update(target, assignments, cursor.span(first), where)


def take_assignments(cursor: Cursor) -> tuple[Assignment, ...]:
    """Take ``column = expression, ...``, up to WHERE or the end."""
    assignments: dict[str, Assignment] = {}
    while True:
        column, token = cursor.identifier("a column's name")
        cursor.refuse_twice("column", column, assignments, token)
        cursor.expect_symbol("=")
        expression = take_expression(cursor, ",", "WHERE")
        assignments[column.lower()] = Assignment(column, expression, cursor.span(token))
        if not cursor.accept_symbol(","):
            return tuple(assignments.values())


def take_delete(cursor: Cursor) -> Delete:
    """Take ``DELETE FROM name [WHERE expression]``."""
    first = cursor.token
    cursor.expect("DELETE", "FROM")
    target = cursor.name("a table's name")
    where = take_expression(cursor) if cursor.accept("WHERE") else None
    cursor.expect_end("WHERE")
    return Delete(target, cursor.span(first), where)


def take_dropped_partition(cursor: Cursor, name: Name, first: Token) -> Delete:
    """Take ``DROP [IF EXISTS] PARTITION (condition, ...)``, as Spark and Hive write it.

    Rows are not partitioned: those that meet all the conditions are deleted.
    """
    cursor.expect("DROP")
    if cursor.accept("IF"):
        cursor.expect("EXISTS")
    cursor.expect("PARTITION")
    begin = cursor.token
    conditions: list[Fragment] = []
    cursor.listed(lambda: conditions.append(take_expression(cursor, ",", ")")))
    where = " AND ".join(f"({each.text})" for each in conditions)
    span = cursor.span(begin, cursor.previous)
    cursor.expect_end()
    return Delete(name, cursor.span(first), Fragment(where, span))


def take_truncate(cursor: Cursor) -> Truncate:
    """Take ``TRUNCATE [TABLE] name``."""
    first = cursor.token
    cursor.expect("TRUNCATE")
    cursor.accept("TABLE")
    target = cursor.name("a table's name")
    cursor.expect_end()
    return Truncate(target, cursor.span(first))


def _at_columns(cursor: Cursor) -> bool:
    """Return whether the parenthesis here opens a list of columns, not a query."""
    if not cursor.at_symbol("("):
        return False
    inside, after = cursor.peek(1), cursor.peek(2)
    return not (inside.text == "(" or (inside.word in QUERY_WORDS and after.text not in {",", ")"}))


def _refuse_upsert(cursor: Cursor) -> None:
    """Raise at ``RETURNING`` and similar clauses after ``VALUES``, which the query would hide."""
    if not cursor.at("VALUES"):
        return
    rest = cursor.tokens[cursor.index :]
    for here, following in pairwise(rest):
        found = _VALUES_CLAUSES.get((here.word, following.word))
        if here.word == "RETURNING":
            found = ("RETURNING", "Read the rows with SELECT: a session reads its own writes.")
        if found is not None:
            thing, hint = found
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"{thing} is not supported",
                hint=hint,
                span=cursor.span(here, here),
            )


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
