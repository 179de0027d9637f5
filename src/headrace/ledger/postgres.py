"""A ledger in a schema of a PostgreSQL database.

Transactions depend on nothing that a session remembers: each names its isolation and its schema.
One that reads sees one snapshot (REPEATABLE READ, which hot standbys have too). One that writes
locks the row of the fence first and reads all else afterwards, each statement what is committed by
then (READ COMMITTED): so writers run one after another, and none reads what was before its turn.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from headrace.errors import Code, HeadraceError
from headrace.ledger import schema
from headrace.ledger.driver_statement import DriverStatement
from headrace.ledger.listener import CommitListener
from headrace.ledger.modes import Mode, corrupt, missing, read_only, unanswered
from headrace.ledger.postgres_address import client
from headrace.ledger.records import Fence
from headrace.ledger.session_lock import SessionLock, lock_key
from headrace.ledger.writers import LockedFence
from headrace.postgres_session import is_refused, said

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.directories.lock import Waits
    from headrace.ledger.availability import Availability
    from headrace.ledger.postgres_address import PostgresAddress
    from headrace.ledger.writers import LedgerWriter

_log: Final = logging.getLogger(__name__)
_DIALECT: Final = "postgresql+psycopg://"
_NOTIFY: Final = DriverStatement(
    sa.select(sa.func.pg_notify(sa.bindparam("channel", type_=sa.Text), ""))
)
_POOLED: Final = 5
_MORE: Final = 20
_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_LOCK: Final = f"""
SELECT token FROM fence FOR UPDATE;
SELECT key, value::text FROM meta WHERE key IN ('{schema.WRITER_KEY}', '{schema.WRITTEN_KEY}')
"""
_MARK: Final = "; UPDATE meta SET value = '{}' WHERE key = '" + schema.WRITTEN_KEY + "'"
_MISSING: Final = ("42P01", "42703", "3F000")
_READ_ONLY: Final = "25006"
_FORBIDDEN: Final = "42501"


class PostgresDatabase:
    """A schema with a ledger."""

    def __init__(self, address: PostgresAddress) -> None:
        self.address = address
        self.place = address.place
        self.namespace: str = address.schema
        self._begins: dict[bool, str] = {}
        self._lock: SessionLock | None = None

    def prepare(self, create: Callable[[sa.Connection], None] | None, mode: Mode) -> None:
        """Find the schema; create it and its tables if they do not exist, if ``create`` is given.

        Raises:
            HeadraceError: INVALID if the user or the database is refused, if the role may not
                create what is missing, or if the schema has other tables; UNAVAILABLE if the
                server does not answer.
        """
        engine = sa.create_engine(
            _DIALECT,
            creator=self.address.connect,
            poolclass=sa.NullPool,
            use_native_hstore=False,
        )
        try:
            with engine.connect() as connection:
                self._find(connection, mode)
            self._hook(engine)
            with engine.execution_options(headrace_write=mode is Mode.WRITE).begin() as connection:
                self._create(connection, create)
        except DBAPIError as error:
            raise self._refused(error) or self.failure(error, mode) from error
        finally:
            engine.dispose()

    def _find(self, connection: sa.Connection, mode: Mode) -> None:
        """Find the schema, and how transactions begin."""
        durable = connection.exec_driver_sql("SHOW synchronous_commit").scalar_one()
        found = connection.exec_driver_sql("SELECT current_schema()").scalar_one()
        self.namespace = self.address.schema or found
        if not self.namespace:
            raise HeadraceError(
                Code.INVALID,
                f'ledger "{self.place}" has no schema',
                "No schema of the role's search_path exists, or it may use none of them.",
                "Name one with the setting ledger_schema: it is created if it does not exist.",
            )
        quoted = connection.dialect.identifier_preparer.quote_identifier(self.namespace)
        path = f"SET LOCAL search_path = {quoted}"
        # What is acknowledged must be on disk; a role that asks for more, as remote_apply, gets it.
        synced = "; SET LOCAL synchronous_commit = on" if durable == "off" else ""
        self._begins = {False: f"{_READ}; {path}", True: f"{_WRITE}; {path}{synced}"}
        if self.namespace != "public" and not self.address.schema:
            self.place = f"{self.place}, schema {self.namespace}"
        if mode is Mode.WRITE and connection.exec_driver_sql("SELECT pg_is_in_recovery()").scalar():
            raise self._standby()

    def _create(
        self, connection: sa.Connection, create: Callable[[sa.Connection], None] | None
    ) -> None:
        """Create the tables if none exists; of several processes, one does."""
        known = set(sa.inspect(connection).get_table_names(self.namespace))
        own = set(schema.metadata.tables)
        if schema.meta.name in known:
            return
        if create is None:
            raise missing(self.place)
        lock = f"SELECT pg_advisory_xact_lock({lock_key(f'create {self.namespace}')})"
        connection.exec_driver_sql(lock)
        absent = "SELECT to_regnamespace(quote_ident(%(name)s)) IS NULL"
        if connection.exec_driver_sql(absent, {"name": self.namespace}).scalar_one():
            quoted = connection.dialect.identifier_preparer.quote_identifier(self.namespace)
            connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {quoted}")
        known = set(sa.inspect(connection).get_table_names(self.namespace))
        if schema.meta.name in known:
            return  # another process was first
        if foreign := sorted(known & own):
            raise HeadraceError(
                Code.INVALID,
                f'ledger "{self.place}" cannot be created',
                f'Schema "{self.namespace}" has a table "{foreign[0]}" of another program.',
                "Name another schema with the setting ledger_schema.",
            )
        create(connection)

    def _refused(self, error: DBAPIError) -> HeadraceError | None:
        """Return the error for what the server refuses to this user; None for any other."""
        text = said(error.orig)
        if getattr(error.orig, "sqlstate", None) == _FORBIDDEN:
            return HeadraceError(
                Code.INVALID,
                f'role may not create the tables of ledger "{self.place}"',
                f"The database says: {text}.",
                f'Have an owner GRANT USAGE, CREATE ON SCHEMA "{self.namespace}" to the role, or'
                f' CREATE SCHEMA "{self.namespace}" AUTHORIZATION it.',
            )
        if is_refused(error.orig):
            return HeadraceError(
                Code.INVALID,
                f'ledger "{self.place}" refused the user or the database',
                f"The database says: {text}.",
                "Correct the URL, or what the role may do; the database has to exist.",
            )
        return None

    def _standby(self) -> HeadraceError:
        return HeadraceError(
            Code.UNAVAILABLE,
            f'ledger "{self.place}" was on a standby server, which is read only',
            hint="Connect to the primary server: name all servers in the URL, with"
            " target_session_attrs=read-write.",
        )

    def engine(self, mode: Mode) -> sa.Engine:
        """Return what opens sessions."""
        del mode  # transactions say whether they write
        engine = sa.create_engine(
            _DIALECT,
            creator=self.address.connect,
            pool_size=_POOLED,
            max_overflow=_MORE,
            use_native_hstore=False,
        )
        self._hook(engine)
        return engine

    def _hook(self, engine: sa.Engine) -> None:
        event.listen(engine, "begin", self._begin)

    def _begin(self, connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get("headrace_write", False)
        _executed(connection, self._begins[writes])

    def check(self, connection: sa.Connection) -> None:
        """Do nothing: its server checks its files."""

    def forget(self, connection: sa.Connection) -> None:
        """Remove the schema, unless something else is in it, or it is not this role's."""
        quoted = connection.dialect.identifier_preparer.quote_identifier(self.namespace)
        try:
            with connection.begin_nested():
                connection.exec_driver_sql(f"DROP SCHEMA {quoted}")
        except DBAPIError:
            _log.info('schema "%s" was not removed', self.namespace)

    def lock_fence(self, connection: sa.Connection, number: int | None) -> LockedFence:
        """Lock the fence, and return it as it was; then store the number of this write, if any.

        This is one message. A writer that waited for the lock reads what is committed by then.
        """
        text = _LOCK + ("" if number is None else _MARK.format(number))
        tokens, kept = _executed(connection, text)[:2]
        values = {key: json.loads(value) for key, value in kept}
        writer = values.get(schema.WRITER_KEY)
        return LockedFence(
            Fence(tokens[0][0]),
            None if writer is None else writer["id"],
            values.get(schema.WRITTEN_KEY),
        )

    def take(self, connection: sa.Connection, writer: LedgerWriter) -> None:
        """Store who writes from now on."""
        meta = schema.meta
        keys = (schema.WRITER_KEY, schema.WRITTEN_KEY)
        connection.execute(meta.delete().where(meta.c.key.in_(keys)))
        rows = zip(keys, (writer.to_json(), 0), strict=True)
        connection.execute(meta.insert(), [{"key": key, "value": value} for key, value in rows])

    def hold(
        self,
        identity: str,
        waits: Waits,
        writer: Callable[[], LedgerWriter | None],
        availability: Availability,
        contended: Callable[[], None],
    ) -> None:
        """Take the lock that admits one writer, until :meth:`release`; see :class:`SessionLock`.

        ``writer`` reads who has acquired the ledger last. The session of the lock tells
        ``availability`` when the server ends it, and when it is there again; it calls ``contended``
        while another process has the lock that this one has lost.

        Raises:
            HeadraceError: CONFLICT if another process has it, and ``waits`` returns false;
                UNSUPPORTED if sessions are shared between transactions.
        """
        if self._lock is not None:
            return
        # A database that was restored beside its original has the same identity.
        key = lock_key(f"write {identity} in {self.namespace}")
        lock = SessionLock(self.address.connect, key, self.place, availability, contended)
        lock.acquire(waits, writer)
        self._lock = lock

    def release(self) -> None:
        """Release the lock, if it is held."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def probe(self) -> bool:
        """Return whether the server opens a session."""
        try:
            self.address.connect().close()
        except (client().Error, HeadraceError):
            return False
        return True

    def notify(self, connection: sa.Connection, channel: str) -> None:
        """Wake who listens, once the transaction is committed."""
        _NOTIFY.rows(connection, channel=channel)

    def listener(self, channel: str) -> CommitListener | None:
        """Return a session that listens; None if the server does not answer."""
        try:
            return CommitListener(self.address.connect, channel)
        except client().Error:
            return None

    def failure(self, error: DBAPIError, mode: Mode) -> HeadraceError:
        """Return the error for one of the database."""
        text, state = said(error.orig), getattr(error.orig, "sqlstate", None)
        if state in _MISSING:
            return corrupt(self.place, f"The database says: {text}.")
        if state == _READ_ONLY and mode is Mode.READ:
            return read_only(self.place, text)
        if state == _READ_ONLY:
            return self._standby()
        return unanswered(self.place, text)

    def make_small(self, engine: sa.Engine) -> None:
        """Do nothing: the server does so by itself."""

    def back_up(self, suffix: str) -> None:
        """Do nothing: copies of the database are for whoever runs its server."""


def _executed(connection: sa.Connection, text: str) -> list[list[tuple[Any, ...]]]:
    """Execute statements in one message; return the rows of those that have any.

    Raises:
        DBAPIError: as SQLAlchemy does.
    """
    driver = connection.dialect.loaded_dbapi
    found: list[list[tuple[Any, ...]]] = []
    try:
        cursor: Any = connection.connection.cursor()
        cursor.execute(text, prepare=False)
        while True:
            if cursor.description is not None:
                found.append(cursor.fetchall())
            if not cursor.nextset():
                return found
    except driver.Error as error:
        raise DBAPIError.instance(text, None, error, driver.Error) from error
