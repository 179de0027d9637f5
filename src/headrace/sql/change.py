"""Statements that change rows: ``INSERT``, ``UPDATE``, ``DELETE`` and ``TRUNCATE``."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.sql.fragments import QUERY_WORDS, take_expression, take_query
from headrace.sql.lexer import TokenKind
from headrace.sql.parts import Fragment, Name
from headrace.sql.statements import (
    Assignment,
    Delete,
    Insert,
    OnConflict,
    Truncate,
    Update,
)

if TYPE_CHECKING:
    from headrace.sql.cursor import Cursor
    from headrace.sql.lexer import Token

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
