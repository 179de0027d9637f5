"""A ledger in a schema of a PostgreSQL database.

Transactions depend on nothing that a session remembers: each names its isolation and its schema.
One that reads sees one snapshot (REPEATABLE READ, which hot standbys have too). One that writes
locks the row of the fence first and reads all else afterwards, each statement what is committed by
then (READ COMMITTED): so writers run one after another, and none reads what was before its turn.

A session that listens for the commits of a ledger in PostgreSQL.

The lock that admits one writer of a ledger in PostgreSQL: an advisory lock of one session.

The server releases it as soon as the session ends: with the process, even by a crash, or when the
server stops. Safety comes from the fence in the ledger, which every write checks: this lock only
keeps others from taking the fence of a writer that is alive.
"""

from __future__ import annotations

import hashlib
import json
import logging
import select
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from headrace.errors import Code, HeadraceError
from headrace.files.directories import open_elsewhere
from headrace.postgres_session import is_refused, said
from headrace.storage.ledger import schema
from headrace.storage.ledger.driver_statement import DriverStatement
from headrace.storage.ledger.modes import Mode, corrupt, missing, read_only, unanswered
from headrace.storage.ledger.postgres_address import client
from headrace.storage.ledger.records import Fence
from headrace.storage.ledger.writers import LockedFence

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.files.directories import Waits
    from headrace.storage.ledger.modes import Availability
    from headrace.storage.ledger.postgres_address import PostgresAddress
    from headrace.storage.ledger.writers import LedgerWriter


class CommitListener:
    """A session that listens to a channel."""

    def __init__(self, connect: Callable[[], Any], channel: str) -> None:
        self._session = connect()
        try:
            self._session.execute(f'LISTEN "{channel}"')
        except BaseException:
            self.close()
            raise

    def wait(self, seconds: float) -> bool:
        """Wait until it is notified, or for some seconds; return whether the session goes on."""
        if self._pending():
            return True
        try:
            select.select([self._session.fileno()], [], [], seconds)
            self._session.pgconn.consume_input()
        except (client().Error, OSError, ValueError):  # ValueError: of a descriptor that is closed
            return False
        self._pending()
        return not self._session.closed

    def _pending(self) -> bool:
        """Take all notifications that have come; return whether there were any."""
        found = False
        while self._session.pgconn.notifies() is not None:
            found = True
        return found

    def close(self) -> None:
        """End the session."""
        with suppress(Exception):
            self._session.close()


_log: Final = logging.getLogger(__name__)
_WAIT_MILLISECONDS: Final = 1000
_RETRY_SECONDS: Final = 0.5
_NOT_AVAILABLE: Final = "55P03"
_SETTINGS: Final = (
    "SELECT set_config(name, value, false) FROM (VALUES"
    " ('idle_session_timeout', '0'), ('statement_timeout', '0'), ('tcp_keepalives_idle', '10'),"
    " ('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3')) AS wanted (name, value)"
    " WHERE current_setting(name, true) IS NOT NULL"
)
"""The server drops a session of a machine that is gone, and keeps one that is idle."""


def lock_key(name: str) -> int:
    """Return the key of an advisory lock, of 64 bits, for a name."""
    digest = hashlib.sha256(f"headrace {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


class SessionLock:
    """Holds an advisory lock from :meth:`acquire` to :meth:`release`.

    A lost session, as when the server restarts, is replaced in the background. If another process
    has the lock by then, it has taken over, or is about to: ``contended`` is called, again and
    again until the lock is taken again or released.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        key: int,
        place: str,
        availability: Availability,
        contended: Callable[[], None],
    ) -> None:
        self._availability = availability
        self._connect = connect
        self._contended = contended
        self._key = key
        self._place = place
        self._session: Any = None
        self._closed = threading.Event()
        self._ours, self._theirs = socket.socketpair()
        self._thread = threading.Thread(target=self._keep, name="headrace-fence", daemon=True)

    def acquire(self, waits: Waits, writer: Callable[[], LedgerWriter | None]) -> None:
        """Take the lock, and keep it from now on.

        Raises:
            HeadraceError: CONFLICT if another process has it and ``waits`` returns false;
                UNAVAILABLE if the server does not answer, likewise; UNSUPPORTED if sessions are
                shared between transactions.
        """
        failure = self._attempt(writer, wait=False)
        while failure is not None:
            if not waits(failure):
                self._lost()
                raise failure
            if failure.code is Code.UNAVAILABLE:
                self._closed.wait(_RETRY_SECONDS)
            failure = self._attempt(writer, wait=True)
        self._require_own_session()
        self._thread.start()

    def release(self) -> None:
        """Release the lock."""
        self._closed.set()
        with suppress(OSError):
            self._ours.send(b"x")
        if self._thread.is_alive():
            self._thread.join()
        self._lost()
        self._ours.close()
        self._theirs.close()

    def _attempt(
        self, writer: Callable[[], LedgerWriter | None], *, wait: bool
    ) -> HeadraceError | None:
        """Try to take the lock; return why it is not taken."""
        try:
            if self._took(wait=wait):
                return None
            holder = writer()
        except client().Error as error:
            self._lost()
            return self._unreachable(error)
        except HeadraceError as error:
            self._lost()
            if error.code is not Code.UNAVAILABLE:
                raise
            return error
        who = "another process" if holder is None else str(holder)
        return open_elsewhere(f'ledger "{self._place}"', who)

    def _took(self, *, wait: bool) -> bool:
        """Try to take the lock, or wait for it for a second; return whether it is taken."""
        if self._session is None:
            self._session = self._connect()
            self._session.execute(_SETTINGS)
        if not wait:
            query = f"SELECT pg_try_advisory_lock({self._key})"
            return bool(self._session.execute(query).fetchone()[0])
        try:
            self._session.execute(f"SET lock_timeout = {_WAIT_MILLISECONDS}")
            self._session.execute(f"SELECT pg_advisory_lock({self._key})")
        except Exception as error:
            if getattr(error, "sqlstate", None) != _NOT_AVAILABLE:
                raise
            return False
        return True

    def _require_own_session(self) -> None:
        """Refuse a pooler that gives the session of the lock to others while it is idle."""
        query = "SELECT pg_backend_pid()"
        (own,) = self._session.execute(query).fetchone()
        with self._connect() as another:
            (other,) = another.execute(query).fetchone()
        if own == other:
            self._lost()
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'ledger "{self._place}" through a pool of transactions is not supported',
                "The lock that admits one writer belongs to a session.",
                "Connect to the server, or to a pool of sessions (pgbouncer: pool_mode = session).",
            )

    def _keep(self) -> None:
        """Notice the loss of the session, and take the lock again, until it is released."""
        while not self._closed.is_set():
            if self._session is not None and self._is_alive():
                continue
            if self._closed.is_set():
                return
            self._lost()
            failure = self._attempt(lambda: None, wait=False)
            if failure is None:
                _log.warning('the lock of ledger "%s" was lost, and taken again', self._place)
                continue
            self._lost()
            if failure.code is Code.UNAVAILABLE:
                self._availability.fails(failure)
            else:
                self._contended()
            self._closed.wait(_RETRY_SECONDS)

    def _is_alive(self) -> bool:
        """Wait until something happens; return whether the session goes on."""
        try:
            heard, _, _ = select.select([self._session.fileno(), self._theirs], [], [])
            if self._theirs in heard:
                return False
            self._session.pgconn.consume_input()
            while self._session.pgconn.notifies() is not None:
                pass
        except Exception:  # noqa: BLE001 - psycopg's error, or that of a closed descriptor
            return False
        return not self._session.closed

    def _lost(self) -> None:
        """Close the session."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):
                session.close()

    def _unreachable(self, error: Exception) -> HeadraceError:
        return HeadraceError(
            Code.UNAVAILABLE,
            f'ledger "{self._place}" did not answer',
            f"The database says: {said(error)}.",
            "Try again once the database answers.",
        )


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
                f'An owner can GRANT USAGE, CREATE ON SCHEMA "{self.namespace}" to the role, or'
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
