"""A sink into a table of Cassandra: rows are upserted and deleted, each with a timestamp.

Cassandra keeps the value of the latest timestamp, whatever arrives last. Each write of epochs has a
timestamp of its own, later than that of all before it, which is recorded before it is used. So what
was sent earlier, and arrives late or again, has no effect.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.cassandra.access import (
    Access,
    Consistency,
    Session,
    connected,
    failure,
    library,
)
from headrace.connectors.cassandra.types import Cells, targets
from headrace.connectors.marks import (
    belongs_to_another,
    decoded,
    encoded,
    pieces,
    refused_rows,
    require_own,
)
from headrace.connectors.options import Alters, option
from headrace.connectors.sinks import at_once, require_key
from headrace.connectors.text_values import require_readable
from headrace.errors import Code, HeadraceError
from headrace.serving import by_key
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headrace.connectors.sinks import SinkContext
    from headrace.runtime.ports import Refused

_MARKS: Final = "headrace_sinks"
"""The table with the epochs of the sinks of a keyspace."""
_CONCURRENCY: Final = 64
_PIECE: Final = 1_000_000
"""How many characters of a text with refused rows a row of marks has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Access):
    """Which table is written, and how. ``concurrency`` is how many rows are written at once."""

    keyspace: str = option(alters=Alters.NEVER)
    table: str = option(alters=Alters.NEVER)
    consistency: Consistency = option(default=Consistency.LOCAL_QUORUM, alters=Alters.FREELY)
    concurrency: int = option(
        "concurrency", default=_CONCURRENCY, convert=at_once, alters=Alters.FREELY
    )
    create_table: bool = option("create_table", "create table", default=False, alters=Alters.NEVER)

    @property
    def what(self) -> str:
        """The table, as messages name it."""
        return f'table "{self.keyspace}.{self.table}" of Cassandra at "{self.place}"'

    @property
    def named(self) -> str:
        """The table, as CQL names it."""
        return f"{quoted(self.keyspace)}.{quoted(self.table)}"

    @property
    def marks(self) -> str:
        """The table of marks, as CQL names it."""
        return f"{quoted(self.keyspace)}.{_MARKS}"


def quoted(name: str) -> str:
    """Return a name as CQL has it, with its case."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns that a sink writes, and those of them that are the table's primary key."""

    cells: tuple[Cells, ...]
    key: tuple[Cells, ...]


def check(options: Options, context: SinkContext) -> None:
    """Refuse rows that the table cannot have, and a table that another sink writes.

    Creates what is missing: the table of marks, and with ``create_table`` the table.

    Raises:
        HeadraceError: ``invalid``, ``conflict`` if another sink writes there, or what the cluster
            says.
    """
    require_key(context, "a sink into Cassandra")
    require_readable(context.schema, "Cassandra")
    session = connected(options, context.secrets.value, options.consistency)
    try:
        with _failing(options):
            _require_keyspace(options, session)
            if options.create_table and not context.exists:
                session.session.execute(_definition(options, context))
            if _MARKS not in session.metadata.keyspaces[options.keyspace].tables:
                session.session.execute(
                    f"CREATE TABLE IF NOT EXISTS {options.marks} (target text PRIMARY KEY,"
                    " owner text, epoch bigint, stamp bigint, refused text)"
                )
            shape_of(options, context, session)
            query = f"SELECT owner FROM {options.marks} WHERE target = %s"
            owner = session.session.execute(query, (options.table,)).one()
    finally:
        session.close()
    require_own(owner and owner[0], context, options.what, _removed(options))


def opened(options: Options, context: SinkContext) -> CassandraSink:
    """Return the writer of a sink."""
    return CassandraSink(options, context)


def shape_of(options: Options, context: SinkContext, session: Session) -> Shape:
    """Return the columns of the table that a sink writes.

    Raises:
        HeadraceError: ``invalid`` if the table does not exist, or is none for these rows.
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
            f"The rows are told apart by ({', '.join(context.key)}): several would be one.",
            f"{_definition(options, context)}, under another name; or GROUP BY the primary key.",
        )
    return Shape(tuple(cells), tuple(by_name[name] for name in primary))


def _require_keyspace(options: Options, session: Session) -> None:
    if options.keyspace not in session.metadata.keyspaces:
        raise HeadraceError(
            Code.INVALID,
            f'Cassandra at "{options.place}" has no keyspace "{options.keyspace}"',
            hint=f"CREATE KEYSPACE {quoted(options.keyspace)} WITH replication = ...",
        )


def _definition(options: Options, context: SinkContext) -> str:
    columns = ", ".join(f"{quoted(c.name)} {targets(c.type)[0]}" for c in context.schema.columns)
    key = ", ".join(map(quoted, context.key))
    return f"CREATE TABLE IF NOT EXISTS {options.named} ({columns}, PRIMARY KEY ({key}))"


def _piece(options: Options, at: int) -> str:
    """Return what a piece of the refused rows is kept under."""
    return f"{options.table}/{at}"


def _removed(options: Options) -> str:
    """Return what removes the mark."""
    target = options.table.replace("'", "''")
    return f"DELETE FROM {options.marks} WHERE target = '{target}'"


@contextmanager
def _failing(options: Access) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        drivers = (
            library("cassandra").DriverException,
            library("cassandra.cluster").NoHostAvailable,
        )
        if not isinstance(error, (*drivers, OSError)):
            raise
        raise failure(error, options) from error


@dataclass(slots=True)
class _Open:
    """A session with the columns of the table, and prepared statements."""

    session: Session
    shape: Shape
    upsert: Any
    delete: Any
    stamp: int
    """The timestamp that the mark has."""


@dataclass(slots=True)
class CassandraSink:
    """Writes rows by the table's primary key, which is a unique key of them."""

    options: Options
    context: SinkContext
    clock: Callable[[], int] = field(default=lambda: time.time_ns() // 1000)
    """The time in microseconds."""
    _open: _Open | None = None

    @property
    def guarantee(self) -> str:
        """The guarantee."""
        return "exact effect: each write has a later timestamp than all before it"

    @property
    def target(self) -> str:
        """The table, as messages name it."""
        return self.options.what

    # -- the port --------------------------------------------------------------------------

    def durable(self) -> Epoch | None:
        """Return the epoch in the mark.

        Raises:
            HeadraceError: ``conflict`` if another sink writes there; or what the cluster says.
        """
        self.close()
        options = self.options
        session = connected(options, self.context.secrets.value, options.consistency)
        try:
            with _failing(options):
                there, stamp = self._claim(session)
                shape = shape_of(options, self.context, session)
                self._open = _Open(session, shape, *_prepared(options, shape, session), stamp)
        except BaseException:
            session.close()
            raise
        return there

    def last_refused(self) -> Sequence[Refused]:
        """Return the rows that were refused in the epoch of the mark."""
        with self._using() as open_:
            query = f"SELECT refused FROM {self.options.marks} WHERE target = %s"
            first = open_.session.session.execute(query, (self.options.table,)).one()
            count = int((first and first[0]) or 0)
            found = [
                open_.session.session.execute(query, (_piece(self.options, at),)).one()[0]
                for at in range(count)
            ]
        return decoded("".join(found))

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[Refused]:
        """Write the changes up to an epoch; see :class:`headrace.runtime.ports.SinkWriter`."""
        with self._using() as open_:
            self._begin(open_)
            key = tuple(each.column.name for each in open_.shape.key)
        refused: list[Refused] = []
        for part in parts:
            rows, gone = by_key(part, key)
            refused += self._put(epoch, part, rows)
            self._remove(gone)
        if refused and self.context.stops:
            return refused
        with self._using() as open_:
            kept = pieces(encoded(refused), _PIECE) if refused else []
            for at, piece in enumerate(kept):
                insert = f"INSERT INTO {self.options.marks} (target, refused) VALUES (%s, %s)"
                open_.session.session.execute(insert, (_piece(self.options, at), piece))
            self._mark(open_, "epoch = %s, refused = %s", (int(epoch), str(len(kept))))
        return refused

    def stored(self) -> Iterator[pa.Table] | None:
        """Yield the rows of the table."""
        return self._rows()

    def clear(self) -> None:
        """Delete all rows of the table, and the epoch of the mark."""
        self.durable()
        with self._using() as open_:
            self._begin(open_)
            key = [each.column.name for each in open_.shape.key]
        for rows in self._rows():
            self._remove(rows.select(key))
        with self._using() as open_:
            self._mark(open_, "epoch = %s, refused = %s", (None, None))
        self.close()

    def close(self) -> None:
        """Close the session; a later use opens another."""
        if self._open is not None:
            self._open.session.close()
            self._open = None

    # -- the mark --------------------------------------------------------------------------

    def _claim(self, session: Session) -> tuple[Epoch | None, int]:
        """Return the epoch and timestamp of the mark, which is made if there is none."""
        inserted = session.session.execute(
            f"INSERT INTO {self.options.marks} (target, owner, stamp) VALUES (%s, %s, %s)"
            " IF NOT EXISTS",
            (self.options.table, self.context.identity, 0),
        )
        found = dict(zip(inserted.column_names, inserted.one(), strict=True))
        if found["[applied]"]:
            return None, 0
        if found["owner"] != self.context.identity:
            raise belongs_to_another(self.options.what, _removed(self.options))
        epoch = found["epoch"]
        return None if epoch is None else Epoch(epoch), found["stamp"]

    def _begin(self, open_: _Open) -> None:
        """Record the timestamp of a write before it is used."""
        stamp = max(self.clock(), open_.stamp + 1)
        self._mark(open_, "stamp = %s", (stamp,))
        open_.stamp = stamp

    def _mark(self, open_: _Open, assigned: str, values: tuple[Any, ...]) -> None:
        """Change the mark, if no other session has."""
        done = open_.session.session.execute(
            f"UPDATE {self.options.marks} SET {assigned} WHERE target = %s"
            " IF owner = %s AND stamp = %s",
            (*values, self.options.table, self.context.identity, open_.stamp),
        )
        if not done.was_applied:
            raise HeadraceError(
                Code.UNAVAILABLE,
                f"another session writes into {self.options.what}",
                hint="It is tried again.",
            )

    @contextmanager
    def _using(self) -> Iterator[_Open]:
        """Use the session, which is opened if there is none; after a failure it is closed."""
        if self._open is None:
            self.durable()
        open_ = self._open
        if open_ is None:
            raise HeadraceError(Code.INTERNAL, "a sink has no session")
        try:
            with _failing(self.options):
                yield open_
        except BaseException:
            self.close()
            raise

    # -- rows ------------------------------------------------------------------------------

    def _rows(self) -> Iterator[pa.Table]:
        with self._using() as open_:
            cells = open_.shape.cells
            names = ", ".join(quoted(each.name) for each in cells)
            found = open_.session.session.execute(f"SELECT {names} FROM {self.options.named}")
        while True:
            rows = found.current_rows
            if rows:
                columns = zip(*rows, strict=True)
                arrays = [each.read(values) for each, values in zip(cells, columns, strict=True)]
                yield pa.Table.from_arrays(arrays, schema=self.context.schema.arrow)
            if not found.has_more_pages:
                return
            with self._using():
                found.fetch_next_page()

    def _put(self, epoch: Epoch, part: pa.Table, rows: pa.Table) -> list[Refused]:
        """Write rows of a part, one per key; return those that cannot be written."""
        if not rows.num_rows:
            return []
        with self._using() as open_:
            cells, key, stamp = open_.shape.cells, open_.shape.key, open_.stamp
            wrong: dict[int, str] = {}
            for each in cells:
                if each in key:
                    missing = rows[each.column.name].is_null()
                    wrong.update(dict.fromkeys(_places(missing), "a column of its key is NULL"))
                found = each.refused(rows[each.column.name])
                if found is not None:
                    wrong.update(dict.fromkeys(found[1], found[0]))
            places = [at for at in range(rows.num_rows) if at not in wrong]
            kept = rows.take(pa.array(places, pa.int64())) if wrong else rows
            columns = [each.written(kept[each.column.name]) for each in cells]
            given = ((*row, stamp) for row in zip(*columns, strict=True))
            refused = self._run(open_, open_.upsert, given)
            wrong.update({places[at]: why for at, why in refused.items()})
        names = [each.column.name for each in key]
        return refused_rows(epoch, part, rows, names, wrong)

    def _remove(self, keys: pa.Table) -> None:
        """Delete the rows of keys; those that cannot be written are not there."""
        with self._using() as open_:
            key, stamp = open_.shape.key, open_.stamp
            columns = [each.written(keys[each.column.name]) for each in key]
            whole = (row for row in zip(*columns, strict=True) if None not in row)
            self._run(open_, open_.delete, ((stamp, *row) for row in whole))

    def _run(
        self, open_: _Open, statement: Any, given: Iterable[tuple[Any, ...]]
    ) -> dict[int, str]:
        """Run a statement for each of some values; return the places of those that are invalid.

        Raises:
            Exception: the client's, for the first failure that is of no row. No more are sent then.
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
            open_.session.session,
            statement,
            until_failure(),
            concurrency=self.options.concurrency,
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
        if refused:
            self._require_table(open_)
        return refused

    def _require_table(self, open_: _Open) -> None:
        """Raise if the table is no longer what it was: then it is not the rows that are wrong."""
        open_.session.cluster.refresh_table_metadata(self.options.keyspace, self.options.table)
        if shape_of(self.options, self.context, open_.session) != open_.shape:
            raise HeadraceError(
                Code.UNAVAILABLE,
                f"{self.options.what} was changed",
                hint="It is tried again, with the table as it is now.",
            )


def _prepared(options: Options, shape: Shape, session: Session) -> tuple[Any, Any]:
    """Return the statements that write and delete a row."""
    names = [quoted(each.name) for each in shape.cells]
    key = [f"{quoted(each.name)} = ?" for each in shape.key]
    values = ", ".join("?" * len(names))
    insert = f"INSERT INTO {options.named} ({', '.join(names)}) VALUES ({values})"
    texts = (
        f"{insert} USING TIMESTAMP ?",
        f"DELETE FROM {options.named} USING TIMESTAMP ? WHERE {' AND '.join(key)}",
    )
    upsert, delete = (session.session.prepare(text) for text in texts)
    upsert.is_idempotent = delete.is_idempotent = True
    return upsert, delete


def _places(which: Any) -> list[int]:
    found: list[int] = pc.indices_nonzero(which).to_pylist()
    return found
