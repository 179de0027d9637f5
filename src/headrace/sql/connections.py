"""``CREATE CONNECTION``, and the streams, tables and sources that use connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.sql.options import take_keyed, take_options
from headrace.sql.parts import Option
from headrace.sql.statements import Captured, CreateConnection, CreateSource, FromSource

if TYPE_CHECKING:
    from headrace.sql.cursor import Cursor
    from headrace.sql.lexer import Token
    from headrace.sql.parts import Name

CONNECTION = "connection"
"""The option of a stream or table with the name of a connection."""


def take_connection(cursor: Cursor, first: Token, modes: tuple[bool, bool]) -> CreateConnection:
    """Take ``name TO kind (KEY value, ...)``, or ``name WITH (type = 'kind', ...)``."""
    name = cursor.name("the connection's name")
    if cursor.accept("TO"):
        kind, _ = cursor.identifier("a kind of connection: KAFKA or POSTGRES")
        options = take_keyed(cursor)
    elif cursor.at("WITH"):
        given = {option.key: option for option in take_options(cursor)}
        if "type" not in given:
            raise cursor.expected("TO", hint="Or WITH (type = 'kafka', ...).")
        kind = given.pop("type").value
        options = tuple(given.values())
    else:
        raise cursor.expected("TO", "WITH")
    cursor.expect_end()
    return CreateConnection(name, kind.lower(), options, cursor.span(first), *modes)


def take_from_connection(cursor: Cursor) -> tuple[Option, ...]:
    """Take ``FROM KAFKA CONNECTION name (TOPIC 't', ...)`` as options; return () if absent."""
    if not cursor.at("FROM", "KAFKA", "CONNECTION"):
        return ()
    cursor.accept("FROM", "KAFKA", "CONNECTION")
    name = cursor.name("a connection's name")
    return (Option(CONNECTION, name.dotted, name.span), *take_keyed(cursor))


def take_source(cursor: Cursor, name: Name, first: Token, modes: tuple[bool, bool]) -> CreateSource:
    """Take ``FROM POSTGRES CONNECTION name (...) [FOR [ALL] TABLES ...]``."""
    cursor.expect("FROM", "POSTGRES", "CONNECTION")
    or_replace, if_not_exists = modes
    if or_replace:
        raise HeadraceError(
            Code.UNSUPPORTED,
            "OR REPLACE SOURCE is not supported",
            hint="DROP SOURCE first, then CREATE it.",
            span=cursor.span(first),
        )
    connection = cursor.name("a connection's name")
    options = take_keyed(cursor)
    tables: list[Captured] = []
    all_tables = cursor.accept("FOR", "ALL", "TABLES")
    if not all_tables and cursor.accept("FOR", "TABLES"):

        def one() -> None:
            reference = cursor.name("a table of PostgreSQL")
            named = cursor.name("a table's name") if cursor.accept("AS") else None
            tables.append(Captured(reference, named))

        cursor.listed(one)
    cursor.expect_end(*(() if tables or all_tables else ("FOR",)))
    span = cursor.span(first)
    return CreateSource(name, connection, options, span, tuple(tables), all_tables, if_not_exists)


def take_from_source(cursor: Cursor) -> FromSource | None:
    """Take ``FROM SOURCE name (REFERENCE table)``; return None if absent."""
    if not cursor.accept("FROM", "SOURCE"):
        return None
    source = cursor.name("a source's name")
    cursor.expect_symbol("(")
    cursor.expect("REFERENCE")
    cursor.accept_symbol("=")
    reference = cursor.name("a table of PostgreSQL")
    cursor.expect_symbol(")")
    cursor.expect_end()
    return FromSource(source, reference)
