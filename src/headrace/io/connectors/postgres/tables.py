"""Tables of a PostgreSQL database, and their match with the tables that capture them.

Snapshots of PostgreSQL: which transactions are visible, and copies of tables.

A copy and the changes after it have neither a gap nor an overlap: a transaction is in the copy if
it is visible in the snapshot, and is applied afterwards otherwise. The position ``end`` is taken
after the snapshot, so it is after the commits of all visible transactions; for any transaction that
is committed before ``end``, the snapshot decides.

A commit is written to the server's log before it is visible. If the slot is advanced past it in
between, the transaction would be missing both in the copy and in the changes. So a copy waits for
the transactions that run when it is requested, while the slot is read, and its snapshot must see
all transactions that were read in that time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.csv as pcsv

from headrace.errors import Code, HeadraceError, meant
from headrace.io.connectors.postgres.access import PgType, Types, can_read, inferred
from headrace.io.formats.values import type_name
from headrace.planning.sql.lexer import double_quoted
from headrace.types import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headrace.io.connectors.postgres.pgoutput import RelationMessage
    from headrace.types import RelationId


_NOW: Final = "SELECT pg_current_snapshot()::text, (pg_current_wal_insert_lsn() - '0/0')::int8"
_PIECE_BYTES: Final = 4 << 20
_ROUND: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The visible transactions: those before ``xmax`` that were not ``running``.

    ``end`` is a position in the server's log after the commits of all of them.
    """

    xmax: int
    running: frozenset[int]
    end: int

    @classmethod
    def of(cls, text: str, end: int) -> Snapshot:
        """Parse PostgreSQL's text of a snapshot, ``xmin:xmax:running,...``."""
        _, xmax, running = text.split(":")
        return cls(int(xmax), frozenset(int(each) for each in running.split(",") if each), end)

    def sees(self, xid: int) -> bool:
        """Whether a committed transaction is visible, by the lower 32 bits of its id."""
        after = (xid - self.xmax) % _ROUND
        full = self.xmax + (after if after < _ROUND // 2 else after - _ROUND)
        return full < self.xmax and full not in self.running


def current(session: Any) -> Snapshot:
    """Return the current snapshot; the session must not be in a transaction."""
    text, end = session.execute(_NOW).fetchone()
    return Snapshot.of(text, end)


def taken(session: Any, tables: Sequence[CapturedTable]) -> Snapshot:
    """Begin a repeatable-read transaction in a session, and return its snapshot.

    The tables are locked first, since statements that rewrite a table ignore snapshots.
    """
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    session.execute("SET LOCAL lock_timeout = '10s'")
    names = ", ".join(table.reference.sql for table in tables)
    session.execute(f"LOCK TABLE {names} IN ACCESS SHARE MODE")
    return current(session)


def copied(session: Any, table: CapturedTable, found: PgTable) -> Iterator[list[pa.Array]]:
    """Yield the rows of a table in a session's snapshot in pieces: columns of text."""
    there = {name.lower(): name for name, _ in found.columns}
    there |= {name: name for name, _ in found.columns}
    names = [there.get(name) or there[name.lower()] for name in table.schema.names]
    listed = ", ".join(double_quoted(name) for name in names)
    yield from rows_of(session, f"SELECT {listed} FROM ONLY {table.reference.sql}", len(names))


def rows_of(session: Any, query: str, width: int) -> Iterator[list[pa.Array]]:
    """Yield the rows of a query with ``width`` columns in pieces: columns of text."""
    with (
        session.cursor() as cursor,
        cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)") as copy,
    ):
        piece: list[bytes] = []
        size = 0
        for data in copy:
            piece.append(bytes(data))
            size += len(data)
            if size >= _PIECE_BYTES:
                yield _texts(b"".join(piece), width)
                piece, size = [], 0
        if piece:
            yield _texts(b"".join(piece), width)


def _texts(data: bytes, width: int) -> list[pa.Array]:
    """Parse CSV in which only NULL is unquoted into columns of text."""
    names = [str(place) for place in range(width)]
    found = pcsv.read_csv(
        pa.BufferReader(data),
        pcsv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
        pcsv.ParseOptions(newlines_in_values=True, ignore_empty_lines=width > 1),
        pcsv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )
    return [column.combine_chunks() for column in found.columns]


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of a table in PostgreSQL, in the spelling of its catalog."""

    schema: str
    table: str

    @classmethod
    def of(cls, text: str) -> Reference:
        """Parse ``schema.table``; the default schema is ``public``."""
        schema, dot, table = text.partition(".")
        return cls(schema, table) if dot else cls("public", schema)

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def sql(self) -> str:
        """The quoted name, for SQL."""
        return f"{double_quoted(self.schema)}.{double_quoted(self.table)}"


@dataclass(frozen=True, slots=True)
class PgTable:
    """The current description of a table in a publication.

    ``columns`` are the published ones. ``key`` are the columns of the primary key, or of the index
    that is the replica identity; ``identity`` is ``d``, ``n``, ``f`` or ``i``, as in
    :class:`RelationMessage`. ``membership`` is the oid of the entry by which the table is
    published: another one if it was removed and added again.
    """

    oid: int
    reference: Reference
    identity: str
    columns: tuple[tuple[str, PgType], ...]
    key: tuple[str, ...]
    membership: int


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """A table that follows one of PostgreSQL.

    ``schema`` are the captured columns, ``key`` the primary key, empty if rows are identified by
    all their columns.
    """

    relation: RelationId
    reference: Reference
    schema: Schema
    key: tuple[str, ...]


_TABLE = """
SELECT c.oid::int8, c.relkind::text, c.relreplident::text,
  CASE WHEN p.puballtables THEN p.oid ELSE coalesce(r.oid, s.oid) END::int8,
  v.attnames::text[], v.rowfilter
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_publication p ON p.pubname = %(publication)s
LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
LEFT JOIN pg_publication_namespace s ON s.pnpubid = p.oid AND s.pnnspid = c.relnamespace
LEFT JOIN pg_publication_tables v
  ON v.pubname = p.pubname AND v.schemaname = n.nspname AND v.tablename = c.relname
WHERE n.nspname = %(schema)s AND c.relname = %(table)s AND c.relkind IN ('r', 'p')
"""
_COLUMNS = """
SELECT attname, atttypid::int8, atttypmod, attgenerated::text FROM pg_attribute
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_KEYS = """
SELECT i.indisreplident, a.attname
FROM pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
JOIN pg_attribute a ON a.attnum = k.number
WHERE i.indrelid = %s AND a.attrelid = i.indrelid AND (i.indisprimary OR i.indisreplident)
  AND k.place <= i.indnkeyatts
ORDER BY i.indisreplident, k.place
"""


def described(session: Any, reference: Reference, publication: str) -> PgTable:
    """Return the current description of a table in a publication.

    Raises:
        HeadraceError: ``invalid`` if it does not exist or is not published; ``unsupported`` if it
            is partitioned, or only some of its rows are published.
    """
    given = {"publication": publication, "schema": reference.schema, "table": reference.table}
    row = session.execute(_TABLE, given).fetchone()
    if row is None:
        raise HeadraceError(
            Code.INVALID,
            f'table "{reference}" does not exist in PostgreSQL',
            hint=_near(session, reference),
        )
    oid, kind, identity, membership, names, condition = row
    if kind == "p":
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'table "{reference}" is partitioned, which cannot be followed as a whole',
            "PostgreSQL does not report when partitions are truncated, attached or dropped.",
            "Create a table here for each partition, and a view of their UNION ALL.",
        )
    if membership is None or names is None:
        raise HeadraceError(
            Code.INVALID,
            f'table "{reference}" is not in publication "{publication}"',
            hint=f"In PostgreSQL: ALTER PUBLICATION {double_quoted(publication)}"
            f" ADD TABLE {reference.sql}",
        )
    if condition is not None:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'publication "{publication}" does not contain all rows of table "{reference}"',
            f"Its condition is {condition}.",
            "Publish the whole table, and put the condition into a view here.",
        )
    types = Types(session)
    columns = [
        (name, types.find(type_, modifier))
        for name, type_, modifier, generated in session.execute(_COLUMNS, (oid,)).fetchall()
        if name in names and not generated
    ]
    keys = session.execute(_KEYS, (oid,)).fetchall()
    key = tuple(name for of_identity, name in keys if of_identity is (identity == "i"))
    return PgTable(oid, reference, identity, tuple(columns), key, membership)


def _near(session: Any, reference: Reference) -> str | None:
    rows = session.execute(
        "SELECT schemaname || '.' || tablename FROM pg_tables"
        " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
    ).fetchall()
    return meant(str(reference), (name for (name,) in rows))


def published(session: Any, publication: str) -> list[Reference]:
    """Return all tables of a publication, by name."""
    rows = session.execute(
        "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s"
        " ORDER BY schemaname, tablename",
        (publication,),
    ).fetchall()
    return [Reference(schema, table) for schema, table in rows]


def inferred_columns(table: PgTable) -> tuple[Schema, tuple[str, ...]]:
    """Return the columns and the primary key of a table that captures one of PostgreSQL.

    Raises:
        HeadraceError: ``unsupported`` for a column whose type has no equivalent.
    """
    columns = []
    for name, type_ in table.columns:
        try:
            columns.append(Column(name, inferred(type_), name not in table.key))
        except HeadraceError as error:
            raise HeadraceError(
                error.code,
                f'column "{name}" of table "{table.reference}": {error.primary}',
                error.detail,
                error.hint,
            ) from error
    folded = [name.lower() for name, _ in table.columns]
    twice = next((name for name in folded if folded.count(name) > 1), None)
    if twice is not None:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'table "{table.reference}" has two columns that differ by case: "{twice}"',
            hint="Declare the columns of the table, one of them.",
        )
    return Schema(tuple(columns)), key_of(table)


def key_of(table: PgTable) -> tuple[str, ...]:
    """Return the columns by which changes identify a row; empty if by all columns.

    Raises:
        HeadraceError: ``invalid`` if changes do not identify rows.
    """
    if table.identity == "f" or (table.key and table.identity != "n"):
        return table.key
    raise HeadraceError(
        Code.INVALID,
        f'changes of table "{table.reference}" do not identify rows',
        "It has no primary key, or its REPLICA IDENTITY is NOTHING."
        if table.identity != "i"
        else "The index of its REPLICA IDENTITY was dropped.",
        f"In PostgreSQL: ALTER TABLE {table.reference.sql} REPLICA IDENTITY FULL",
    )


def require_declared(table: PgTable, schema: Schema, key: Sequence[str]) -> tuple[str, ...]:
    """Return the primary key of a table with declared columns, in the schema's spelling.

    Raises:
        HeadraceError: ``invalid`` if a column does not exist or has a type that cannot be read, or
            if the declared key is another one.
    """
    for column in schema.columns:
        found = _column(table.columns, column.name)
        if found is None:
            raise HeadraceError(
                Code.INVALID,
                f'table "{table.reference}" publishes no column "{column.name}"',
                hint=meant(column.name, (name for name, _ in table.columns)),
            )
        if not can_read(found[1], column.type):
            raise _other_type(column, found[1])
    spelled = {name.lower(): name for name in schema.names}
    found_key = key_of(table)
    missing = [name for name in found_key if name.lower() not in spelled]
    if missing:
        raise HeadraceError(
            Code.INVALID,
            f'column "{missing[0]}" of the key of table "{table.reference}" is not declared',
            hint="Declare all columns of its key: changes identify rows by them.",
        )
    if key and {name.lower() for name in key} != {name.lower() for name in found_key}:
        of = ", ".join(found_key)
        raise HeadraceError(
            Code.INVALID,
            f'the key of table "{table.reference}" is ({of})'
            if found_key
            else f'table "{table.reference}" has no key',
            hint="Leave PRIMARY KEY out: it is taken from PostgreSQL.",
        )
    return tuple(spelled[name.lower()] for name in found_key)


def bound(table: CapturedTable, relation: RelationMessage, types: Types) -> tuple[int, ...]:
    """Return the index of the cell in a change for each column of a captured table.

    Raises:
        HeadraceError: ``conflict`` if a column or the identity of rows has changed too much.
    """
    there = [(each.name, each) for each in relation.columns]
    cells = []
    for column in table.schema.columns:
        found = _column(there, column.name)
        if found is None:
            raise _changed(table, f'Its column "{column.name}" was dropped or renamed.')
        type_ = types.find(found[1].type, found[1].modifier)
        if not can_read(type_, column.type):
            raise _changed(
                table, f'Its column "{column.name}" is {type_.name} now, not {column.sql}.'
            )
        cells.append(next(at for at, pair in enumerate(there) if pair is found))
    identity = {each.name.lower() for each in relation.columns if each.identifies}
    if table.key and not identity.issuperset(name.lower() for name in table.key):
        raise _changed(table, "Its primary key or REPLICA IDENTITY has changed.")
    if not table.key and relation.identity != "f":
        raise _changed(table, "Its REPLICA IDENTITY is no longer FULL.")
    return tuple(cells)


def added_columns(table: CapturedTable, relation: RelationMessage) -> list[str]:
    """Return the names of a relation's columns that the captured table does not have."""
    known = {name.lower() for name in table.schema.names}
    return [each.name for each in relation.columns if each.name.lower() not in known]


def _column(columns: Iterable[Any], name: str) -> Any:
    """Return the pair whose first item is a name: exactly, or else ignoring case; None if none."""
    pairs = list(columns)
    exact = next((pair for pair in pairs if pair[0] == name), None)
    return exact or next((pair for pair in pairs if pair[0].lower() == name.lower()), None)


def _other_type(column: Column, found: PgType) -> HeadraceError:
    return HeadraceError(
        Code.INVALID,
        f'column "{column.name}" is {found.name} in PostgreSQL, and is declared as'
        f" {type_name(column.type)}",
        hint="Leave the columns out to have the types inferred, or declare it as STRING.",
    )


def _changed(table: CapturedTable, how: str) -> HeadraceError:
    return HeadraceError(
        Code.CONFLICT,
        f'table "{table.reference}" has changed in PostgreSQL',
        how,
        "CREATE OR REPLACE the table to capture its current columns.",
    )
