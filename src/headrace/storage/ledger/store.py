"""The ledger's database: opening, checking, transactions, and translation of its errors."""

from __future__ import annotations

import time
import uuid
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError

from headrace.errors import Code, HeadraceError
from headrace.postgres_session import silent_since
from headrace.storage.ledger import migrations, schema
from headrace.storage.ledger.modes import Availability, Mode, NotBegunError, corrupt
from headrace.storage.ledger.postgres import PostgresDatabase
from headrace.storage.ledger.postgres_address import SCHEMES, PostgresAddress
from headrace.storage.ledger.records import LIVE
from headrace.storage.ledger.sqlite import SqliteFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


PATIENCE_SECONDS: Final = 30.0
"""How long a transaction waits for a server that has stopped answering."""


_KEPT: Final = 2
"""The most connections of a kind that are kept: all others share a pool that is limited."""

TRIES: Final = 5
"""How often a transaction is run that is lost each time."""

T = TypeVar("T")


class UnacknowledgedError(Exception):
    """The database was lost while it committed: whether it did is not known.

    ``failure`` is the error of the database.
    """

    def __init__(self, failure: HeadraceError) -> None:
        super().__init__(str(failure))
        self.failure = failure


class Store:
    """An opened and checked database."""

    def __init__(
        self,
        database: SqliteFile | PostgresDatabase,
        mode: Mode,
        create: Callable[[sa.Connection], None] | None,
    ) -> None:
        self.mode = mode
        self.database = database
        with self._translated():
            database.prepare(create, mode)
        self.place = database.place
        self._engine = database.engine(mode)
        self._readers = _Sessions(self._engine)
        self._writers = _Sessions(self._engine.execution_options(headrace_write=True))
        served = isinstance(database, PostgresDatabase)
        patience = PATIENCE_SECONDS if served else 0.0
        self.availability = Availability(self.place, patience, database.probe)

    @classmethod
    def open(
        cls, where: str | Path | PostgresAddress, mode: Mode, now: float, *, create: bool = True
    ) -> Store:
        """Open the ledger at a file or a database URL.

        In WRITE mode, migrate one of an earlier format, and create a missing one, if it may be.

        Raises:
            HeadraceError: INVALID for a bad URL, for a missing ledger that is not created (as
                :class:`MissingLedgerError`) or, in READ mode, one of an earlier format; UNSUPPORTED
                for a newer format; CORRUPT for damage; UNAVAILABLE if the database is down.
        """
        made = partial(_create_tables, now=now) if create and mode is Mode.WRITE else None
        store = cls(_database(where), mode, made)
        try:
            store._check()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def create(
        cls, where: str | Path | PostgresAddress, fill: Callable[[sa.Connection], None]
    ) -> None:
        """Create a ledger whose tables ``fill`` fills: with all of that, or not at all.

        Raises:
            HeadraceError: CONFLICT if it exists; as :meth:`open`.
        """
        created = []

        def create(connection: sa.Connection) -> None:
            create_schema(connection)
            fill(connection)
            created.append(True)

        store = cls(_database(where), Mode.WRITE, create)
        store.close()
        if not created:
            raise HeadraceError(
                Code.CONFLICT,
                f'ledger "{store.place}" exists already',
                "Nothing was written to it.",
                "Name another database, or another schema with the setting ledger_schema.",
            )

    def close(self) -> None:
        """Close every connection."""
        self.availability.close()
        self.database.release()
        self._close_idle()
        self._engine.dispose()

    def _close_idle(self) -> None:
        self._readers.close()
        self._writers.close()

    def remove(self) -> None:
        """Remove all tables from the database, and their schema if it has nothing else."""
        self.require_writing()
        with self.writing() as connection:
            schema.metadata.drop_all(connection, checkfirst=False)
            self.database.forget(connection)

    def make_small(self) -> None:
        """Give unused space of the database back, as far as nobody else uses it at present."""
        with self._translated():
            self.database.make_small(self._engine)

    def require_writing(self) -> None:
        """Raise INVALID if the ledger was opened for reading only."""
        if self.mode is Mode.READ:
            raise HeadraceError(Code.INVALID, f'ledger "{self.place}" is open for reading only')

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Open a read transaction: it sees one consistent state of the ledger.

        It waits for a server that does not answer, as :class:`Availability` says.
        """
        connection, transaction = self._begun(self._readers)
        with self._translated(), self._readers.keeping(connection), transaction:
            yield connection

    def read(self, query: Callable[[sa.Connection], T]) -> T:
        """Run a query in a read transaction; again, if that was lost on the way."""
        for left in reversed(range(TRIES)):
            try:
                with self.reading() as connection:
                    return query(connection)
            except HeadraceError as error:
                if not left or not self.may_retry(error):
                    raise
        raise AssertionError

    def may_retry(self, error: HeadraceError) -> bool:
        """Whether a transaction failed because it was lost, and another one may be begun."""
        lost = error.code is Code.UNAVAILABLE and not isinstance(error, NotBegunError)
        return lost and self.availability.recovers()

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Open a write transaction: atomic; it waits as :meth:`reading` does.

        Raises:
            UnacknowledgedError: if the database was lost when it was asked to commit.
        """
        connection, transaction = self._begun(self._writers)
        with self._translated(), self._writers.keeping(connection):
            try:
                yield connection
            except BaseException:
                with suppress(DBAPIError):
                    transaction.rollback()
                raise
            try:
                transaction.commit()
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
                raise UnacknowledgedError(self._failure(error)) from error

    def _begun(self, sessions: _Sessions) -> tuple[sa.Connection, sa.RootTransaction]:
        """Begin a transaction, in a new session if one that was kept is lost."""
        tried = 0
        while True:
            began = time.monotonic()
            try:
                with self._translated():
                    connection = sessions.take()
                    try:
                        transaction = connection.begin()
                    except BaseException:
                        connection.invalidate()
                        connection.close()
                        raise
            except HeadraceError as error:
                if error.code is not Code.UNAVAILABLE:
                    raise
                self._close_idle()
                self.availability.fails(error)
                if not self.availability.pause(tried, time.monotonic() - began):
                    lost = error.primary, error.detail, error.hint
                    raise NotBegunError(error.code, *lost) from error
                tried += 1
            else:
                self.availability.answers()
                return connection, transaction

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise the database's errors as ``HeadraceError``, naming the ledger."""
        try:
            yield
        except DBAPIError as error:
            raise self._failure(error) from error

    def _failure(self, error: DBAPIError) -> HeadraceError:
        if isinstance(error, IntegrityError):
            return HeadraceError(
                Code.INTERNAL, "ledger refused an inconsistent change", f"{error.orig}"
            )
        silent = silent_since(error.orig)
        if silent is not None:
            self.availability.was_silent(silent)
        return self.database.failure(error, self.mode)

    def _check(self) -> None:
        with self.reading() as connection:
            self.database.check(connection)
            missing = self._missing_tables(connection)
        if schema.meta.name not in missing:
            self._require_format()
            with self.reading() as connection:
                missing = self._missing_tables(connection)
        if missing:
            raise corrupt(self.place, f"Table {', '.join(missing)} is missing.")

    def _missing_tables(self, connection: sa.Connection) -> list[str]:
        found = sa.inspect(connection).get_table_names(self.database.namespace)
        return sorted(set(schema.metadata.tables) - set(found))

    def _require_format(self) -> None:
        """Migrate a ledger of an earlier format; refuse it in READ mode."""
        with self.reading() as connection:
            found = migrations.format_of(connection)
        if found is None:
            raise corrupt(self.place, "It has no format version.")
        if not migrations.steps_from(found, self.place):
            return
        if self.mode is Mode.READ:
            raise HeadraceError(
                Code.INVALID,
                f'ledger "{self.place}" has format {found}, which is migrated first',
                f"This version reads format {schema.FORMAT}.",
                "Open it for writing once: that migrates it.",
            )
        try:
            with self.writing() as connection:
                migrations.migrate(connection, self.place, self.database.back_up)
        except UnacknowledgedError as lost:
            raise lost.failure from lost


class _Sessions:
    """Connections of one engine: some are kept between transactions.

    To take one from the engine's pool and return it costs more than a small transaction.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._idle: list[sa.Connection] = []

    def take(self) -> sa.Connection:
        """Return a connection without a transaction."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._engine.connect()

    @contextmanager
    def keeping(self, connection: sa.Connection) -> Iterator[None]:
        """Keep a connection after a block; close it if the block fails."""
        try:
            yield
        except BaseException:
            connection.close()
            raise
        if len(self._idle) < _KEPT:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close the connections that are kept."""
        while self._idle:
            self._idle.pop().close()


def _database(where: str | Path | PostgresAddress) -> SqliteFile | PostgresDatabase:
    if isinstance(where, PostgresAddress):
        return PostgresDatabase(where)
    if isinstance(where, Path):
        return SqliteFile(where)
    if where.startswith(SCHEMES):
        return PostgresDatabase(PostgresAddress.of(where))
    try:
        url = sa.make_url(where)
    except (ArgumentError, ValueError):
        raise HeadraceError(
            Code.INVALID,
            "ledger's address is not a database URL",
            hint='Write "sqlite:////path/ledger.db" or "postgresql://user@host/database".',
        ) from None
    if url.get_backend_name() != "sqlite" or not url.database:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'database "{url.render_as_string(hide_password=True)}" cannot hold a ledger',
            hint="Use a SQLite file or PostgreSQL.",
        )
    return SqliteFile(Path(url.database))


def create_schema(connection: sa.Connection) -> None:
    """Create all tables and indexes in a database that has none of them."""
    dialect = connection.dialect
    if dialect.name not in _DEFINITIONS:
        _DEFINITIONS[dialect.name] = _definitions(dialect)
    for text in _DEFINITIONS[dialect.name]:
        connection.exec_driver_sql(text)


_DEFINITIONS: dict[str, list[str]] = {}
"""The statements that create tables and indexes, by dialect: compiling them takes longest."""


def _definitions(dialect: sa.Dialect) -> list[str]:
    found: list[str] = []

    def keep(definition: sa.schema.ExecutableDDLElement, *_: object, **__: object) -> None:
        found.append(str(definition.compile(dialect=dialect)))

    schema.metadata.create_all(sa.create_mock_engine("sqlite://", keep), checkfirst=False)
    return found


def _create_tables(connection: sa.Connection, now: float) -> None:
    create_schema(connection)
    connection.execute(
        schema.meta.insert(),
        [
            {"key": schema.FORMAT_KEY, "value": schema.FORMAT},
            {"key": schema.IDENTITY_KEY, "value": uuid.uuid4().hex},
        ],
    )
    connection.execute(schema.fence.insert(), {"one": 1, "token": 0, "next_id": 1})
    connection.execute(schema.frontiers.insert(), {"id": LIVE, "epoch": None, "at": None})
    connection.execute(
        schema.epochs.insert(),
        {"epoch": 0, "committed_at": now, "attempt": "", "fence": 0, "counters": {}},
    )
