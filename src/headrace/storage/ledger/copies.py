"""Copies of a ledger: a SQLite file with the same tables and rows, wherever the ledger is.

A copy is what a backup has, and what a ledger is restored from. It belongs to no data directory, no
store and no writer, so nobody who opens it can take files of another database for its own. It keeps
no small file: a backup has each as a file. Nor does it name files that are to be deleted.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import schema
from headrace.storage.ledger.settings import STORE_SETTING
from headrace.storage.ledger.sqlite import SqliteFile
from headrace.storage.ledger.store import Store, create_schema

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from headrace.storage.ledger.postgres_address import PostgresAddress


_BATCH: Final = 5_000
_OF_PLACES: Final = (
    schema.DIRECTORY_KEY,
    schema.WRITER_KEY,
    schema.WRITTEN_KEY,
    STORE_SETTING,
)
"""The keys in ``meta`` that say where a ledger is, who writes to it, and where its files are."""


def copy_ledger(store: Store, file: Path) -> None:
    """Copy a ledger as of one moment to a new SQLite file.

    Raises:
        HeadraceError: UNAVAILABLE if it cannot be read or written.
    """
    try:
        if isinstance(store.database, SqliteFile):
            store.database.copy(file)
        else:
            with store.reading() as connection:
                _copy_rows(connection, file)
        with closing(sqlite3.connect(file)) as copied:
            placed = f"DELETE FROM meta WHERE key IN ({', '.join('?' * len(_OF_PLACES))})"
            copied.execute(placed, _OF_PLACES)
            for table in (schema.small_files, schema.replaced_files):
                copied.execute(f"DELETE FROM {table.name}")
            copied.commit()
            copied.execute("PRAGMA journal_mode = DELETE")  # all of it is in one file
    except (OSError, sqlite3.Error) as error:
        raise _not_copied(file, error) from error


def _copy_rows(connection: sa.Connection, file: Path) -> None:
    engine = sa.create_engine("sqlite://", creator=lambda: sqlite3.connect(file))
    try:
        with engine.begin() as copied:
            create_schema(copied)
            _insert_rows(connection, copied)
    finally:
        engine.dispose()


def create_ledger(address: PostgresAddress, copy: Path, values: Mapping[str, Any]) -> None:
    """Create a ledger in PostgreSQL from a copy, with ``values`` in ``meta``: in one transaction.

    Raises:
        HeadraceError: CONFLICT if it exists; as :meth:`Store.create`.
    """
    engine = sa.create_engine("sqlite://", creator=lambda: sqlite3.connect(copy))

    def fill(connection: sa.Connection) -> None:
        with engine.connect() as copied:
            _insert_rows(copied, connection)
        _set_values(connection, values)

    try:
        Store.create(address, fill)
    finally:
        engine.dispose()


def _insert_rows(source: sa.Connection, target: sa.Connection) -> None:
    """Insert all rows of a ledger into the empty tables of another one."""
    streamed = source.execution_options(stream_results=True, yield_per=_BATCH)
    for table in schema.metadata.sorted_tables:
        insert = table.insert().values({column.name: _value(column) for column in table.c})
        for rows in streamed.execute(sa.select(table)).mappings().partitions():
            target.execute(insert, [dict(row) for row in rows])
    if target.dialect.name == "postgresql":
        _advance_sequences(target)


def _set_values(connection: sa.Connection, values: Mapping[str, Any]) -> None:
    """Set values in ``meta``."""
    if values:
        meta = schema.meta
        connection.execute(meta.delete().where(meta.c.key.in_(list(values))))
        rows = [{"key": key, "value": value} for key, value in values.items()]
        connection.execute(meta.insert(), rows)


def _value(column: sa.Column[Any]) -> sa.BindParameter[Any]:
    """Return the parameter of a column: None is NULL where a column may have that."""
    kind = column.type
    if isinstance(kind, sa.JSON):
        kind = sa.JSON(none_as_null=bool(column.nullable))
    return sa.bindparam(column.name, type_=kind)


def _advance_sequences(connection: sa.Connection) -> None:
    """Advance the sequences of ids past the inserted rows: PostgreSQL counts apart."""
    for table in schema.metadata.sorted_tables:
        column = table.autoincrement_column
        if column is not None:
            last = connection.execute(sa.select(sa.func.max(column))).scalar()
            if last is not None:
                sequence = sa.func.pg_get_serial_sequence(table.name, column.name)
                connection.execute(sa.select(sa.func.setval(sequence, last)))


def _not_copied(file: Path, error: Exception) -> HeadraceError:
    return HeadraceError(
        Code.UNAVAILABLE,
        f'copy "{file}" of the ledger could not be written',
        f"{error}.",
        "Nothing was changed: try again once there is space for it.",
    )
