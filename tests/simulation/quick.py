"""Connections to SQLite that execute statements of SQLAlchemy's Core as SQLAlchemy does, but faster.

SQLAlchemy compiles each statement once; pools, events, contexts and results of its own take more time than SQLite does.
"""

from __future__ import annotations

import sqlite3
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine.result import IteratorResult, SimpleResultMetaData
from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from sqlalchemy.sql.compiler import SQLCompiler

DIALECT: Final = SQLiteDialect_pysqlite(dbapi=sqlite3)
_LIMIT: Final = 10_000
_statements: dict[Any, _Compiled] = {}


def opened(file: Path) -> sqlite3.Connection:
    """Open a ledger's file, without syncs."""
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def failed(sql: str, error: sqlite3.Error, *, lost: bool = False) -> DBAPIError:
    """Return an error of SQLite as SQLAlchemy raises it."""
    found = DBAPIError.instance(sql, None, error, sqlite3.Error, connection_invalidated=lost)
    assert isinstance(found, DBAPIError)
    return found


class _Expanded(NamedTuple):
    """A statement with a value for each item of its lists, whose names are in ``lists``."""

    sql: str
    names: tuple[str, ...]
    binds: Mapping[str, Any]
    lists: Mapping[str, Sequence[str]]


class _Compiled:
    """A statement, and how its values and rows are converted."""

    __slots__ = (
        *("binds", "expanded", "expands", "lists", "metadata", "names", "processors", "sql"),
        "whole",
    )

    def __init__(self, whole: SQLCompiler) -> None:
        assert not whole.insert_prefetch
        assert not whole.update_prefetch
        self.whole, self.sql = whole, whole.string
        self.expands = bool(whole.post_compile_params)
        assert not whole.literal_execute_params
        bound = dict(whole.bind_names)
        self.lists = tuple(sorted(bound[each] for each in whole.post_compile_params))
        self.expanded: dict[tuple[int, ...], _Expanded] = {}
        self.names = tuple(whole.positiontup or ())
        self.binds: Mapping[str, Any] = whole._bind_processors
        columns = whole._result_columns or ()
        self.metadata = SimpleResultMetaData([each.keyname for each in columns])
        found = [each.type._cached_result_processor(DIALECT, None) for each in columns]
        self.processors = [(at, each) for at, each in enumerate(found) if each is not None]

    def text(self, values: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
        """Return the statement and its values, as SQLite takes them."""
        sql, names, binds = self.sql, self.names, self.binds
        if self.expands:
            expanded = self._expanded(values)
            sql, names, binds = expanded.sql, expanded.names, expanded.binds
            values = dict(values)
            for name, of_each in expanded.lists.items():
                given = values[name]
                if given and isinstance(given[0], tuple):
                    given = list(chain.from_iterable(given))
                values.update(zip(of_each, given, strict=True))
        return sql, tuple(
            binds[name](values[name]) if name in binds else values[name] for name in names
        )

    def _expanded(self, values: Mapping[str, Any]) -> _Expanded:
        """Return the statement for lists of these lengths, which is composed once."""
        lengths = tuple(len(values[name]) for name in self.lists)
        known = self.expanded.get(lengths)
        if known is None:
            state = self.whole._process_parameters_for_postcompile(dict(values))
            known = _Expanded(
                state.statement,
                tuple(state.positiontup or ()),
                {**self.binds, **state.processors},
                state.parameter_expansion,
            )
            if all(lengths):  # the values of an empty list are part of its text
                self.expanded[lengths] = known
        return known

    def rows(self, found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return rows of SQLite as those of the statement."""
        if not self.processors:
            return found
        converted = []
        for row in found:
            values = list(row)
            for at, process in self.processors:
                values[at] = process(values[at])
            converted.append(tuple(values))
        return converted


class _Result(IteratorResult):
    """The rows of a statement, and how many rows it has changed."""

    rowcount: int = -1


_NO_ROWS: Final = SimpleResultMetaData([])


class Connection:
    """A connection of a pool that has the transactions of one process; see ``sa.Connection``."""

    dialect = DIALECT

    def __init__(self, pool: Pool, *, writes: bool) -> None:
        self._pool, self._writes = pool, writes
        self.connection = pool.take()
        self.lost = False

    def begin(self) -> Transaction:
        """Begin a transaction."""
        self._pool.begins(self.connection, writes=self._writes)
        return Transaction(self)

    def execute(self, statement: Any, given: Any = None) -> Any:
        """Execute a statement, once for each of the values given."""
        many: Sequence[Mapping[str, Any]]
        many = () if given is None else [given] if isinstance(given, dict) else list(given)
        cache_key = statement._generate_cache_key()
        keys = tuple(sorted(many[0])) if many else ()
        key = (None if cache_key is None else cache_key.key, keys, len(many) > 1)
        known = None if cache_key is None else _statements.get(key)
        if known is None:
            known = _Compiled(
                statement._compiler(
                    DIALECT,
                    cache_key=cache_key,
                    column_keys=list(keys),
                    for_executemany=len(many) > 1,
                )
            )
            if cache_key is not None and len(_statements) < _LIMIT:
                _statements[key] = known
        extracted = None if cache_key is None else cache_key.bindparams
        cursor = self.connection.cursor()
        construct = known.whole.construct_params
        try:
            if len(many) > 1:
                texts = [
                    known.text(construct(m, extracted_parameters=extracted, escape_names=False))
                    for m in many
                ]
                cursor.executemany(texts[0][0], map(itemgetter(1), texts))
            else:
                values = construct(
                    many[0] if many else None, extracted_parameters=extracted, escape_names=False
                )
                cursor.execute(*known.text(values))
            rows = cursor.fetchall() if cursor.description else []
        except sqlite3.Error as error:
            raise failed(known.sql, error) from error
        metadata = known.metadata
        if cursor.description and not known.whole._result_columns:
            metadata = SimpleResultMetaData([each[0] for each in cursor.description])
        result = _Result(metadata if cursor.description else _NO_ROWS, iter(known.rows(rows)))
        result.rowcount = cursor.rowcount
        return result

    def exec_driver_sql(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Execute a statement of SQLite."""
        try:
            cursor = self.connection.execute(sql, values)
        except sqlite3.Error as error:
            raise failed(sql, error) from error
        columns = [each[0] for each in cursor.description or ()]
        return _Result(SimpleResultMetaData(columns), iter(cursor.fetchall()))

    def invalidate(self) -> None:
        """Close it for good."""
        self.lost = True

    def close(self) -> None:
        """Return it to the pool, without what was not committed."""
        if self.lost:
            self.connection.close()
            return
        if self.connection.in_transaction:
            self.connection.rollback()
        self._pool.give(self.connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Transaction:
    """A transaction; see ``sa.RootTransaction``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def commit(self) -> None:
        """Commit, as far as the pool has that done."""
        try:
            self._connection._pool.commits(
                self._connection.connection, writes=self._connection._writes
            )
        except DBAPIError:
            self._connection.lost = True
            raise

    def rollback(self) -> None:
        """Undo everything."""
        self._connection.connection.rollback()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is None:
            self.commit()
        else:
            self.rollback()


class Pool:
    """Connections to one file. ``begins`` and ``commits`` are what a transaction does there."""

    def __init__(
        self,
        opens: Callable[[], sqlite3.Connection],
        idle: list[sqlite3.Connection],
    ) -> None:
        self._opens, self._idle = opens, idle

    def take(self) -> sqlite3.Connection:
        """Return an idle connection, or another one."""
        return self._idle.pop() if self._idle else self._opens()

    def give(self, connection: sqlite3.Connection) -> None:
        """Keep a connection that is idle."""
        self._idle.append(connection)

    def begins(self, connection: sqlite3.Connection, *, writes: bool) -> None:
        """Begin a transaction."""
        connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")

    def commits(self, connection: sqlite3.Connection, *, writes: bool) -> None:
        """Commit a transaction."""
        del writes
        connection.commit()


class Engine:
    """An engine whose pool stays open when a process closes it; see ``sa.Engine``."""

    dialect = DIALECT

    def __init__(self, pool: Pool, *, writes: bool = False) -> None:
        self._pool, self._writes = pool, writes

    def connect(self) -> Connection:
        """Return a connection."""
        return Connection(self._pool, writes=self._writes)

    def execution_options(self, *, headrace_write: bool) -> Engine:
        """Return an engine whose transactions write."""
        return Engine(self._pool, writes=headrace_write)

    def dispose(self) -> None:
        """Do nothing."""
