"""``CREATE``: streams, tables, views and materialized views.

``CREATE CONNECTION``, and the streams, tables and sources that use connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.planning.sql.access import take_token
from headrace.planning.sql.alter import (
    at_rename,
    at_stream_options,
    take_altered_columns,
    take_rename,
    take_stream_options,
)
from headrace.planning.sql.ask import take_create_branch
from headrace.planning.sql.change import take_dropped_partition
from headrace.planning.sql.columns import EVERY_ROW, Columns, ViewColumns, at_only_key, take_taken
from headrace.planning.sql.fragments import take_query
from headrace.planning.sql.lexer import TokenKind
from headrace.planning.sql.options import take_keyed, take_options
from headrace.planning.sql.parts import Name, ObjectKind, Option, Query
from headrace.planning.sql.refreshing import (
    AlterViewQuery,
    at_altered_view,
    merged_options,
    take_alter_view,
    take_clauses,
    take_view_options,
)
from headrace.planning.sql.rewritten import take_function
from headrace.planning.sql.sinks import (
    CreateSink,
    take_altered_sink,
    take_clauses_of_sink,
    take_into,
)
from headrace.planning.sql.statements import (
    AddColumns,
    Captured,
    CreateConnection,
    CreateIndex,
    CreateMaterializedView,
    CreateSchema,
    CreateSecret,
    CreateSource,
    CreateStream,
    CreateTable,
    CreateTableAs,
    CreateView,
    FromSource,
    SecretSource,
)

if TYPE_CHECKING:
    from headrace.planning.sql.alter import AlteredColumn, AlterStream, Rename
    from headrace.planning.sql.cursor import Cursor
    from headrace.planning.sql.lexer import Token
    from headrace.planning.sql.parts import Statement
    from headrace.planning.sql.refreshing import AlterView, Refresh
    from headrace.planning.sql.sinks import AlterSink
    from headrace.planning.sql.statements import Delete


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


_STORAGE = frozenset({"PARQUET", "DELTA", "ORC", "ICEBERG", "HUDI"})
"""Spark's storage formats of tables."""

_CLAUSES: dict[str, str] = {
    "USING": "Use WITH (connector = ..., format = ...).",
    "PARTITIONED": "Leave the clause out: state is partitioned automatically.",
    "PARTITION": "Leave the clause out: state is partitioned automatically.",
    "CLUSTER": "Leave the clause out: arrangements are stored by the keys that queries use.",
    "CLUSTERED": "Leave the clause out: arrangements are stored by the keys that queries use.",
    "DISTRIBUTED": "Leave the clause out: state is partitioned automatically.",
    "LOCATION": "Use WITH (connector = ..., ...): names and statements are never paths.",
    "TBLPROPERTIES": "Use WITH (key = value, ...).",
    "COMMENT": "Use COMMENT '...' after a column, or an SQL comment.",
    "CLONE": "Create a view of the other relation, or a table, and INSERT its rows.",
    "FROM": "Declare the columns, and WITH (connector = ..., ...).",
    "ON": "SUBSCRIBE to the table, or create a view of it: both have its changes.",
    "LIKE": "Write the columns out, or create a view of the other relation.",
    "REFRESH": "Use WITH (refresh = 'every 1 hour'), or 'manual', 'on write' or 'continuous'.",
    "SCHEDULE": "Use it with a MATERIALIZED VIEW, as SCHEDULE EVERY 1 HOUR.",
    "TARGET_LAG": "Use it with a MATERIALIZED VIEW or a DYNAMIC TABLE.",
}
"""Clauses of other systems that are refused, each with an alternative."""


def take_create(cursor: Cursor) -> Statement:
    """Take a ``CREATE`` statement to its end."""
    first = cursor.token
    cursor.expect("CREATE")
    or_replace = cursor.accept("OR", "REPLACE")
    if or_replace and cursor.at_any("SCHEMA", "DATABASE"):
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"OR REPLACE {cursor.token.word} is not supported",
            hint="DROP SCHEMA first, then CREATE it.",
            span=cursor.span(cursor.token, cursor.token),
        )
    if cursor.accept("SCHEMA") or cursor.accept("DATABASE"):
        return _schema(cursor, first)
    if not or_replace and cursor.accept("TOKEN"):
        return take_token(cursor, first)
    if not or_replace and cursor.accept("INDEX"):
        return _index(cursor, first)
    if not or_replace and cursor.accept("BRANCH"):
        return take_create_branch(cursor, first)
    if cursor.accept("FUNCTION"):
        return take_function(cursor, first, or_replace=or_replace)
    apart = next((word for word in ("SECRET", "CONNECTION") if cursor.accept(word)), None)
    kind = None if apart else _kind(cursor)
    at_if = cursor.token
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    if or_replace and if_not_exists:
        raise HeadraceError(
            Code.INVALID,
            "OR REPLACE and IF NOT EXISTS exclude each other",
            hint="Keep OR REPLACE to have the new definition, IF NOT EXISTS to keep the old one.",
            span=cursor.span(at_if),
        )
    modes = or_replace, if_not_exists
    if kind is None:
        take = _secret if apart == "SECRET" else take_connection
        return take(cursor, first, modes)
    name = cursor.name(f"the {kind}'s name")
    if cursor.at("FROM", "POSTGRES", "CONNECTION") and kind is ObjectKind.STREAM:
        return take_source(cursor, name, first, modes)
    if kind is ObjectKind.SINK:
        return _sink(cursor, name, first, modes)
    if kind in {ObjectKind.VIEW, ObjectKind.MATERIALIZED_VIEW}:
        return _view(cursor, kind, name, first, modes)
    return _relation(cursor, kind, name, first, modes)


def _schema(cursor: Cursor, first: Token) -> CreateSchema:
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name("the schema's name")
    cursor.expect_end()
    return CreateSchema(name, cursor.span(first), if_not_exists)


def _index(cursor: Cursor, first: Token) -> CreateIndex:
    """Take ``[IF NOT EXISTS] [name] ON relation (column, ...)``."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = None if cursor.at("ON") else cursor.name("the index's name")
    cursor.expect("ON")
    relation = cursor.name("a table's or view's name")
    columns = cursor.identifiers("a column's name")
    cursor.expect_end()
    return CreateIndex(name, relation, columns, cursor.span(first), if_not_exists)


def _secret(cursor: Cursor, first: Token, modes: tuple[bool, bool]) -> CreateSecret:
    """Take ``name FROM ENV 'X' | FILE 'path'``."""
    name = cursor.name("the secret's name")
    if not cursor.accept("FROM"):
        raise HeadraceError(
            Code.INVALID,
            "a secret is a reference, and this statement has none",
            detail="The value itself is never stored.",
            hint=f"Use CREATE SECRET {name} FROM ENV 'VARIABLE', or FROM FILE 'path'.",
            span=cursor.span(cursor.token, cursor.token),
        )
    for source in SecretSource:
        if cursor.accept(source.value.upper()):
            where = cursor.string("a name between quotes")
            cursor.expect_end()
            return CreateSecret(name, source, where, cursor.span(first), *modes)
    raise cursor.expected_word("ENV", "FILE")


def _sink(cursor: Cursor, name: Name, first: Token, modes: tuple[bool, bool]) -> CreateSink:
    """Take ``[INTO ...] FROM view [WITH (...)]`` or ``... [WITH (...)] AS query``.

    ``INTO`` may also follow the view.
    """
    into = take_into(cursor)
    source: Query | Name | None = None
    if cursor.accept("FROM"):
        source = cursor.name("a view's name")
        into = into or take_into(cursor)
    clauses = take_clauses_of_sink(cursor)
    options = (*clauses, *take_options(cursor))
    if source is None:
        if not cursor.at("AS"):
            into_ = () if into else ("INTO",)
            raise cursor.expected(*into_, "FROM", *(() if options else ("WITH",)), "AS")
        source = _defining_query(cursor, ())
    else:
        cursor.expect_end(*(() if options else ("WITH",)))
    return CreateSink(name, source, cursor.span(first), into, options, *modes)


def _kind(cursor: Cursor) -> ObjectKind:
    if cursor.accept("MATERIALIZED"):
        cursor.expect("VIEW")
        return ObjectKind.MATERIALIZED_VIEW
    if cursor.accept("DYNAMIC", "TABLE"):  # of Snowflake
        return ObjectKind.MATERIALIZED_VIEW
    if cursor.accept("LOCAL", "VIEW"):  # of Feldera
        return ObjectKind.VIEW
    for kind in (ObjectKind.STREAM, ObjectKind.TABLE, ObjectKind.VIEW, ObjectKind.SINK):
        if cursor.accept(kind.value.upper()):
            return kind
    if cursor.accept("SOURCE"):
        named = cursor.peek(1).kind is not TokenKind.SYMBOL  # ksqlDB's CREATE SOURCE TABLE name
        if named and cursor.accept("TABLE"):
            return ObjectKind.TABLE
        if named:
            cursor.accept("STREAM")
        return ObjectKind.STREAM
    raise cursor.expected_word(
        "STREAM",
        "TABLE",
        "SOURCE",
        "VIEW",
        "MATERIALIZED VIEW",
        "SCHEMA",
        "SECRET",
        "CONNECTION",
        "SINK",
        "FUNCTION",
    )


def _view(
    cursor: Cursor, kind: ObjectKind, name: Name, first: Token, modes: tuple[bool, bool]
) -> Statement:
    declared = ViewColumns(cursor)
    if cursor.at_symbol("("):
        declared.take()
    columns, key = declared.names, declared.key
    if kind is ObjectKind.VIEW:
        if key is not None:
            raise HeadraceError(
                Code.UNSUPPORTED,
                "a PRIMARY KEY of a plain view is not supported",
                detail="A plain view stores no rows, so nothing would check its key.",
                hint="CREATE MATERIALIZED VIEW instead, or leave PRIMARY KEY out.",
                span=key.span,
            )
        query = _defining_query(cursor, () if columns else ('"("',))
        return CreateView(name, query, cursor.span(first), columns, *modes)
    if cursor.accept("IN", "CLUSTER"):
        cursor.name("a cluster's name")  # Materialize's IN CLUSTER, which has no effect
    clauses = take_clauses(cursor)
    options = merged_options(clauses, take_view_options(cursor))
    choices = () if options else (("WITH",) if columns or key else ('"("', "WITH"))
    query = _defining_query(cursor, choices)
    return CreateMaterializedView(name, query, cursor.span(first), columns, options, *modes, key)


def _relation(
    cursor: Cursor, kind: ObjectKind, name: Name, first: Token, modes: tuple[bool, bool]
) -> Statement:
    if kind is ObjectKind.TABLE and cursor.at("FROM", "SOURCE"):
        captured = take_from_source(cursor)
        return CreateTable(name, (), cursor.span(first), (), None, (), *modes, captured)
    keyed = cursor.at_symbol("(") and kind is ObjectKind.TABLE and at_only_key(cursor)
    if keyed or not cursor.at_symbol("("):
        declared = ViewColumns(cursor)
        if keyed:
            declared.take()
        _storage(cursor)
        options = take_options(cursor)
        query = _defining_query(cursor, () if options else ('"("', "WITH"))
        span = cursor.span(first)
        return CreateTableAs(kind, name, query, span, options, *modes, declared.key)
    columns = Columns(cursor, kind)
    columns.take()
    at_append = cursor.token
    if kind is ObjectKind.TABLE and cursor.accept("APPEND", "ONLY"):
        kind = ObjectKind.STREAM
        if columns.primary_key:
            raise HeadraceError(
                Code.INVALID,
                "an APPEND ONLY table has a PRIMARY KEY",
                hint="Leave one of them out: rows of a key are replaced, those of a stream stay.",
                span=cursor.span(at_append, cursor.previous),
            )
    if kind is ObjectKind.TABLE and cursor.at("FROM", "SOURCE"):
        return _captured(cursor, columns, name, first, modes)
    _storage(cursor)
    taken = take_taken(cursor)
    options = (*take_from_connection(cursor), *take_options(cursor))
    if taken is EVERY_ROW:
        taken = take_taken(cursor)
    some = taken.unique or taken.lateness is not None
    if some and (kind is ObjectKind.TABLE or columns.primary_key):
        raise HeadraceError(
            Code.UNSUPPORTED,
            "a table takes every row",
            hint="Create a STREAM without a PRIMARY KEY; a table keeps the last row of a key.",
            span=taken.span,
        )
    if cursor.at("AS"):
        raise HeadraceError(
            Code.INVALID,
            "columns are declared, and a query is given",
            hint="Leave the columns out: the query names and types them.",
            span=cursor.span(cursor.token, cursor.token),
        )
    if not cursor.at_end():
        _refuse_clause(cursor)
    cursor.expect_end(*(() if options else ("WITH",)))
    definitions = tuple(columns.definitions.values())
    or_replace, if_not_exists = modes
    if kind is ObjectKind.TABLE:
        return CreateTable(
            name,
            definitions,
            cursor.span(first),
            columns.primary_key,
            columns.watermark,
            options,
            or_replace,
            if_not_exists,
            taken=taken,
        )
    return CreateStream(
        name,
        definitions,
        cursor.span(first),
        columns.primary_key,
        columns.message_key,
        columns.watermark,
        options,
        or_replace,
        if_not_exists,
        taken,
    )


def _captured(
    cursor: Cursor, columns: Columns, name: Name, first: Token, modes: tuple[bool, bool]
) -> CreateTable:
    """Take ``FROM SOURCE`` after columns, which have names and types only."""
    for each in columns.definitions.values():
        if each.computed or each.metadata or each.default or each.type is None:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'column "{each.name}" of a table FROM SOURCE has more than a type',
                hint="Leave it out, and compute it in a view over the table.",
                span=each.span,
            )
    captured = take_from_source(cursor)
    definitions, span = tuple(columns.definitions.values()), cursor.span(first)
    key = columns.primary_key
    return CreateTable(name, definitions, span, key, None, (), *modes, captured)


def take_alter(
    cursor: Cursor,
) -> (
    AddColumns
    | AlteredColumn
    | AlterStream
    | AlterView
    | AlterViewQuery
    | AlterSink
    | Delete
    | Refresh
    | Rename
):
    """Take ``ALTER STREAM | TABLE name ADD [COLUMN] name type``, or ``ADD [COLUMNS] (...)``.

    Or another change of its columns; ``DROP PARTITION (...)``, which deletes rows;
    ``ALTER STREAM name SET | RESET (...)``; ``ALTER MATERIALIZED VIEW``; ``ALTER SINK``;
    or ``ALTER ... RENAME TO``.
    """
    if at_rename(cursor):
        return take_rename(cursor)
    if cursor.at("ALTER", "SINK"):
        return take_altered_sink(cursor)
    if at_altered_view(cursor):
        altered = _altered_query(cursor)
        return take_alter_view(cursor) if altered is None else altered
    first = cursor.token
    cursor.expect("ALTER")
    kind = ObjectKind.TABLE if cursor.at("TABLE") else ObjectKind.STREAM
    if not any(cursor.accept(word) for word in ("TABLE", "STREAM", "SOURCE")):
        raise _no_alteration(cursor, first)
    name = cursor.name("a stream's name")
    if kind is ObjectKind.STREAM and at_stream_options(cursor):
        return take_stream_options(cursor, name, first)
    if cursor.at("DROP", "PARTITION") or cursor.at("DROP", "IF"):
        return take_dropped_partition(cursor, name, first)
    of_columns = take_altered_columns(cursor, name, first)
    if of_columns is not None:
        return of_columns
    if not cursor.accept("ADD"):
        raise _no_alteration(cursor, first)
    cursor.accept("COLUMNS") or cursor.accept("COLUMN")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    columns = Columns(cursor, kind)
    if cursor.at_symbol("("):
        columns.take()
    else:
        columns.take_one()
    if columns.primary_key or columns.watermark is not None:
        raise _no_alteration(cursor, first)
    cursor.expect_end()
    added = tuple(columns.definitions.values())
    return AddColumns(name, added, cursor.span(first), if_not_exists)


def _no_alteration(cursor: Cursor, first: Token) -> HeadraceError:
    return HeadraceError(
        Code.UNSUPPORTED,
        "this ALTER is not supported",
        hint="Write ALTER STREAM name ADD COLUMN column type, DROP COLUMN column, RENAME COLUMN"
        " column TO other, ALTER COLUMN column TYPE type, or SET (retention = '90 days')."
        " Otherwise CREATE a relation with the definition that you need, and INSERT INTO it SELECT"
        " the rows of this one.",
        span=cursor.span(first, cursor.previous),
    )


def _storage(cursor: Cursor) -> None:
    """Skip Spark's ``USING parquet``: Headrace chooses how rows are stored."""
    if cursor.at("USING") and cursor.peek(1).word in _STORAGE:
        cursor.advance()
        cursor.advance()


def _altered_query(cursor: Cursor) -> AlterViewQuery | None:
    """Take ``ALTER MATERIALIZED VIEW name [WITH (...)] AS query``; None for another change."""
    ahead = 3
    while cursor.peek(ahead + 1).text == ".":
        ahead += 2
    if cursor.peek(ahead + 1).word not in {"AS", "WITH", "OPTIONS"}:
        return None
    first = cursor.token
    for _ in range(3):
        cursor.advance()
    name = cursor.name("a view's name")
    options = take_view_options(cursor)
    query = _defining_query(cursor, ())
    return AlterViewQuery(name, query, options, cursor.span(first))


def _defining_query(cursor: Cursor, choices: tuple[str, ...]) -> Query:
    """Take ``AS query``. ``AS OF`` is refused: a view has no fixed epoch."""
    if not cursor.at("AS"):
        _refuse_clause(cursor)
        raise cursor.expected(*choices, "AS")
    cursor.advance()
    query = take_query(cursor)
    if query.as_of is not None:
        raise HeadraceError(
            Code.UNSUPPORTED,
            "AS OF in a view is not supported",
            hint="Leave it out, and read the view AS OF an epoch or timestamp.",
            span=query.as_of.span,
        )
    return query


def _refuse_clause(cursor: Cursor) -> None:
    token = cursor.token
    if token.word in _CLAUSES:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"{token.word} is not supported",
            hint=_CLAUSES[token.word],
            span=cursor.span(token, token),
        )
