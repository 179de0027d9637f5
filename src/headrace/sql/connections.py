"""``CREATE CONNECTION``, and what is read over connections: streams, tables and sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.sql.lexer import Kind, string_value
from headrace.sql.options import listed_options, take_key, take_options
from headrace.sql.parts import Option
from headrace.sql.statements import Captured, CreateConnection, CreateSource, FromSource

if TYPE_CHECKING:
    from headrace.sql.cursor import Cursor
    from headrace.sql.lexer import Token
    from headrace.sql.parts import Name

_LITERALS = frozenset({Kind.STRING, Kind.NUMBER})
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
    """Take ``FROM KAFKA CONNECTION name (TOPIC 't', ...)`` as options; return () if not next."""
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
    """Take ``FROM SOURCE name (REFERENCE table)``; return None if it is not next."""
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


def take_keyed(cursor: Cursor) -> tuple[Option, ...]:
    """Take ``(SASL USERNAME 'u', PORT = 5432, ...)``: keys of several words, with or without ``=``.

    Keys are returned in lower case, with one blank between their words.
    """
    return listed_options(cursor, lambda: _take_keyed_option(cursor))


def _take_keyed_option(cursor: Cursor) -> Option:
    first = cursor.token
    words = [take_key(cursor)]
    while True:
        if cursor.accept_symbol("=") or cursor.token.kind in _LITERALS or cursor.at_symbol("("):
            break
        if cursor.at("SECRET") and cursor.peek(1).kind in {Kind.WORD, Kind.BACKQUOTED}:
            break
        if len(words) > 1 and (cursor.at_symbol(",") or cursor.at_symbol(")")):
            # The last word is the value, as in SSL MODE disable.
            return Option(" ".join(words[:-1]), words[-1], cursor.span(first))
        words.append(take_key(cursor))
    key = " ".join(words)
    if cursor.accept("SECRET"):
        name = cursor.name("a secret's name").dotted
        return Option(key, name, cursor.span(first), secret=True)
    value = _take_list(cursor) if cursor.at_symbol("(") else _take_value(cursor)
    return Option(key, value, cursor.span(first))


def _take_list(cursor: Cursor) -> str:
    """Take ``('a:9092', 'b:9092')`` as one value with commas."""
    values: list[str] = []
    cursor.listed(lambda: values.append(cursor.string("a string")))
    return ",".join(values)


def _take_value(cursor: Cursor) -> str:
    token = cursor.token
    if token.kind in {Kind.STRING, Kind.DQUOTED}:
        return string_value(cursor.advance())
    if token.kind in {Kind.NUMBER, Kind.WORD}:
        return cursor.advance().text
    raise cursor.expected("a string", "a number", "a word")
