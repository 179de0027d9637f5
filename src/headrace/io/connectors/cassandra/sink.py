"""A sink into a table of Cassandra: rows are upserted and deleted, each with a timestamp.

Cassandra keeps the value of the latest timestamp, in whatever order requests arrive. Each write has
a timestamp later than that of all writes before it, which is recorded before it is used. So earlier
requests that arrive late or repeatedly have no effect.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.io.connectors import stores
from headrace.io.connectors.cassandra.access import (
    Access,
    CassandraConnection,
    Cells,
    Consistency,
    connected,
    failure,
    library,
    targets,
)
from headrace.io.connectors.options import Alters, option
from headrace.io.connectors.sinks import at_once, pieces
from headrace.io.connectors.stores import StoreSink, another_session
from headrace.planning.sql.lexer import double_quoted
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.io.connectors.sinks import SinkContext


_MARKS: Final = "headrace_sinks"
"""The table with the marks of a keyspace's sinks."""
_CONCURRENCY: Final = 64
_PIECE: Final = 1_000_000
"""The most characters of refused rows in one row of the table of marks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Access):
    """Options of a sink; ``concurrency`` is how many requests are sent concurrently."""

    keyspace: str = option(alters=Alters.NEVER)
    table: str = option(alters=Alters.NEVER)
    consistency: Consistency = option(default=Consistency.LOCAL_QUORUM, alters=Alters.FREELY)
    concurrency: int = option(
        "concurrency", default=_CONCURRENCY, convert=at_once, alters=Alters.FREELY
    )
    create_table: bool = option("create_table", "create table", default=False, alters=Alters.NEVER)

    @property
    def what(self) -> str:
        """The table, for messages."""
        return f'table "{self.keyspace}.{self.table}" of Cassandra at "{self.place}"'

    @property
    def named(self) -> str:
        """The quoted name of the table in CQL."""
        return f"{double_quoted(self.keyspace)}.{double_quoted(self.table)}"

    @property
    def marks(self) -> str:
        """The quoted name of the table of marks in CQL."""
        return f"{double_quoted(self.keyspace)}.{_MARKS}"


@dataclass(frozen=True, slots=True)
class WrittenColumns:
    """The columns that a sink writes, and those among them of the table's primary key."""

    cells: tuple[Cells, ...]
    key: tuple[Cells, ...]


def check(options: Options, context: SinkContext) -> None:
    """Refuse rows or a table that cannot be used; see ``check``."""
    stores.check(CassandraStore(options, context))


def opened(options: Options, context: SinkContext) -> StoreSink[CassandraSession]:
    """Return the writer of a sink."""
    return StoreSink(CassandraStore(options, context))


def written_columns(
    options: Options, context: SinkContext, session: CassandraConnection
) -> WrittenColumns:
    """Match the columns of the rows with those of the table.

    Raises:
        HeadraceError: ``invalid`` if the table does not exist, or cannot contain these rows.
    """
    _require_keyspace(options, session)
    table = session.metadata.keyspaces[options.keyspace].tables.get(options.table)
    if table is None:
        raise HeadraceError(
            Code.INVALID,
            f"{options.what} does not exist",
            hint=f"{_definition(options, context)}, or create_table = true.",
        )
    cells = []
    for column in context.schema.columns:
        found = table.columns.get(column.name) or table.columns.get(column.name.lower())
        if found is None or found.is_static:
            raise HeadraceError(
                Code.INVALID,
                f'{options.what} has no column "{column.name}" for each row',
                hint=f"Add it, as {targets(column.type)[0]}; or leave it out of the query.",
            )
        type_ = str(found.cql_type)
        if type_ not in targets(column.type):
            raise HeadraceError(
                Code.INVALID,
                f'column "{column.name}" of type {column.sql.upper()} cannot be written into one'
                f" of type {type_}",
                hint=f"Declare that as {' or '.join(targets(column.type))}.",
            )
        cells.append(Cells(column, found.name, type_))
    by_name = {each.name: each for each in cells}
    primary = [each.name for each in table.primary_key]
    missing = [name for name in primary if name not in by_name]
    if missing:
        raise HeadraceError(
            Code.INVALID,
            f'the rows have no column "{missing[0]}" of the primary key of {options.what}',
            hint="Add it to the query.",
        )
    written = {by_name[name].column.name for name in primary}
    uncovered = [name for name in context.key if name not in written]
    if uncovered:
        raise HeadraceError(
            Code.INVALID,
            f'column "{uncovered[0]}" is not in the primary key of {options.what}',
            f"The rows are identified by ({', '.join(context.key)}): several would become one.",
            f"{_definition(options, context)}, under another name; or GROUP BY the primary key.",
        )
    return WrittenColumns(tuple(cells), tuple(by_name[name] for name in primary))


def _require_keyspace(options: Options, session: CassandraConnection) -> None:
    if options.keyspace not in session.metadata.keyspaces:
        raise HeadraceError(
            Code.INVALID,
            f'Cassandra at "{options.place}" has no keyspace "{options.keyspace}"',
            hint=f"CREATE KEYSPACE {double_quoted(options.keyspace)} WITH replication = ...",
        )


def _definition(options: Options, context: SinkContext) -> str:
    columns = ", ".join(
        f"{double_quoted(c.name)} {targets(c.type)[0]}" for c in context.schema.columns
    )
    key = ", ".join(map(double_quoted, context.key))
    return f"CREATE TABLE IF NOT EXISTS {options.named} ({columns}, PRIMARY KEY ({key}))"


def _piece(options: Options, at: int) -> str:
    """Return the key in the table of marks of a piece of the refused rows."""
    return f"{options.table}/{at}"


@dataclass(frozen=True, slots=True)
class CassandraStore:
    """The table of a sink, with its mark in the same keyspace."""

    options: Options
    context: SinkContext
    clock: Callable[[], int] = lambda: time.time_ns() // 1000
    """Returns the time in microseconds since 1970."""
    system: ClassVar[str] = "Cassandra"
    guarantee: ClassVar[str] = "exact effect: each write has a later timestamp than all before it"

    @property
    def target(self) -> str:
        """The table, for messages."""
        return self.options.what

    @property
    def removal(self) -> str:
        """The statement that removes the mark."""
        target = self.options.table.replace("'", "''")
        return f"DELETE FROM {self.options.marks} WHERE target = '{target}'"

    def prepare(self) -> str | None:
        """Create the table of marks, and with ``create_table`` the table; return the mark's owner.

        Raises:
            HeadraceError: ``invalid`` if the table is missing or does not fit, or an error of the
                cluster.
        """
        options = self.options
        cluster = self._connected()
        try:
            _require_keyspace(options, cluster)
            there, tries = cluster.metadata.keyspaces[options.keyspace].tables, self.context.tries
            if tries and options.create_table and options.table not in there:
                return None
            if options.create_table and not self.context.exists and not tries:
                cluster.session.execute(_definition(options, self.context))
            if tries and _MARKS not in there:
                written_columns(options, self.context, cluster)
                return None
            if _MARKS not in there:
                cluster.session.execute(
                    f"CREATE TABLE IF NOT EXISTS {options.marks} (target text PRIMARY KEY,"
                    " owner text, epoch bigint, stamp bigint, refused text)"
                )
            written_columns(options, self.context, cluster)
            query = f"SELECT owner FROM {options.marks} WHERE target = %s"
            owner = cluster.session.execute(query, (options.table,)).one()
        finally:
            cluster.close()
        return None if owner is None else owner[0]

    def begin(self) -> CassandraSession | None:
        """Connect, and read the mark, creating it if necessary."""
        options = self.options
        cluster = self._connected()
        try:
            inserted = cluster.session.execute(
                f"INSERT INTO {options.marks} (target, owner, stamp) VALUES (%s, %s, %s)"
                " IF NOT EXISTS",
                (options.table, self.context.identity, 0),
            )
            found = dict(zip(inserted.column_names, inserted.one(), strict=True))
            stamp, epoch = 0, None
            if not found["[applied]"]:
                if found["owner"] != self.context.identity:
                    cluster.close()
                    return None
                stamp, epoch = found["stamp"], found["epoch"]
            columns = written_columns(options, self.context, cluster)
            upsert, delete = _prepared(options, columns, cluster)
        except BaseException:
            cluster.close()
            raise
        known = None if epoch is None else Epoch(epoch)
        return CassandraSession(self, cluster, columns, upsert, delete, stamp, known)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Translate errors of the client to HeadraceError."""
        try:
            yield
        except Exception as error:
            drivers = (
                library("cassandra").DriverException,
                library("cassandra.cluster").NoHostAvailable,
            )
            if not isinstance(error, (*drivers, OSError)):
                raise
            raise failure(error, self.options) from error

    def _connected(self) -> CassandraConnection:
        return connected(self.options, self.context.secrets.value, self.options.consistency)


@dataclass(slots=True)
class CassandraSession:
    """A connection with prepared statements, and the table's columns when it began."""

    store: CassandraStore
    cluster: CassandraConnection
    columns: WrittenColumns
    upsert: Any
    delete: Any
    stamp: int
    """The timestamp in the mark, in microseconds since 1970."""
    epoch: Epoch | None

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the primary key."""
        return tuple(each.column.name for each in self.columns.key)

    def begin(self) -> None:
        """Record the timestamp of the next write in the mark."""
        stamp = max(self.store.clock(), self.stamp + 1)
        self._mark("stamp = %s", (stamp,))
        self.stamp = stamp

    def unfit(self, rows: pa.Table) -> dict[int, str]:
        """Return the indices of rows with values that the table's types cannot represent."""
        wrong: dict[int, str] = {}
        for each in self.columns.cells:
            found = each.refused(rows[each.column.name])
            if found is not None:
                wrong.update(dict.fromkeys(found[1], found[0]))
        return wrong

    def put(self, _epoch: Epoch, rows: pa.Table) -> dict[int, str]:
        """Upsert rows with the timestamp of this write."""
        columns = [each.written(rows[each.column.name]) for each in self.columns.cells]
        given = ((*row, self.stamp) for row in zip(*columns, strict=True))
        return self._run(self.upsert, given)

    def remove(self, _epoch: Epoch, keys: pa.Table) -> dict[int, str]:
        """Delete the rows of keys; keys that cannot be written are skipped: they have no row."""
        columns = [each.written(keys[each.column.name]) for each in self.columns.key]
        whole = (row for row in zip(*columns, strict=True) if None not in row)
        return self._run(self.delete, ((self.stamp, *row) for row in whole))

    def changed(self) -> bool:
        """Whether the table's columns have changed since the session began."""
        options = self.store.options
        self.cluster.cluster.refresh_table_metadata(options.keyspace, options.table)
        return written_columns(options, self.store.context, self.cluster) != self.columns

    def finish(self, epoch: Epoch, refused: str) -> None:
        """Write the text in pieces, then the epoch and the number of pieces into the mark."""
        options, kept = self.store.options, pieces(refused, _PIECE)
        for at, piece in enumerate(kept):
            insert = f"INSERT INTO {options.marks} (target, refused) VALUES (%s, %s)"
            self.cluster.session.execute(insert, (_piece(options, at), piece))
        self._mark("epoch = %s, refused = %s", (int(epoch), str(len(kept))))

    def refused(self) -> str:
        """Return the text, joined from its pieces."""
        options = self.store.options
        query = f"SELECT refused FROM {options.marks} WHERE target = %s"
        first = self.cluster.session.execute(query, (options.table,)).one()
        count = int((first and first[0]) or 0)
        targets_ = ((_piece(options, at),) for at in range(count))
        return "".join(self.cluster.session.execute(query, each).one()[0] for each in targets_)

    def rows(self) -> Iterator[pa.Table]:
        """Yield the rows of the table by page."""
        cells = self.columns.cells
        names = ", ".join(double_quoted(each.name) for each in cells)
        found = self.cluster.session.execute(f"SELECT {names} FROM {self.store.options.named}")
        while True:
            rows = found.current_rows
            if rows:
                columns = zip(*rows, strict=True)
                arrays = [each.read(values) for each, values in zip(cells, columns, strict=True)]
                yield pa.Table.from_arrays(arrays, schema=self.store.context.schema.arrow)
            if not found.has_more_pages:
                return
            found.fetch_next_page()

    def clear(self) -> None:
        """Delete all rows of the table, and the epoch of the mark."""
        self.begin()
        for rows in self.rows():
            self.remove(Epoch(0), rows.select(self.key))
        self._mark("epoch = %s, refused = %s", (None, None))

    def close(self) -> None:
        """Close the connections."""
        self.cluster.close()

    def _mark(self, assigned: str, values: tuple[Any, ...]) -> None:
        """Update the mark by a conditional write; raise if another session has changed it."""
        options = self.store.options
        done = self.cluster.session.execute(
            f"UPDATE {options.marks} SET {assigned} WHERE target = %s IF owner = %s AND stamp = %s",
            (*values, options.table, self.store.context.identity, self.stamp),
        )
        if not done.was_applied:
            raise another_session(self.store)

    def _run(self, statement: Any, given: Iterable[tuple[Any, ...]]) -> dict[int, str]:
        """Run a statement for each tuple of values; return the indices of invalid ones, and why.

        Raises:
            Exception: the first error of the client that is not about a single row. Nothing is sent
                after it.
        """
        invalid = library("cassandra").InvalidRequest
        concurrent = library("cassandra.concurrent").execute_concurrent_with_args
        failed: list[Exception] = []
        refused: dict[int, str] = {}

        def until_failure() -> Iterator[tuple[Any, ...]]:
            for values in given:
                if failed:
                    return
                yield values

        answers = concurrent(
            self.cluster.session,
            statement,
            until_failure(),
            concurrency=self.store.options.concurrency,
            raise_on_first_error=False,
            results_generator=True,
        )
        for at, (done, answer) in enumerate(answers):
            if done:
                continue
            if isinstance(answer, invalid):
                refused[at] = " ".join(str(answer).split())
            else:
                failed.append(answer)
        if failed:
            raise failed[0]
        return refused


def _prepared(
    options: Options, columns: WrittenColumns, session: CassandraConnection
) -> tuple[Any, Any]:
    """Prepare the statements that upsert and delete a row."""
    names = [double_quoted(each.name) for each in columns.cells]
    key = [f"{double_quoted(each.name)} = ?" for each in columns.key]
    values = ", ".join("?" * len(names))
    insert = f"INSERT INTO {options.named} ({', '.join(names)}) VALUES ({values})"
    texts = (
        f"{insert} USING TIMESTAMP ?",
        f"DELETE FROM {options.named} USING TIMESTAMP ? WHERE {' AND '.join(key)}",
    )
    upsert, delete = (session.session.prepare(text) for text in texts)
    upsert.is_idempotent = delete.is_idempotent = True
    return upsert, delete
