"""Captures: sources of several tables, each with a publication and a replication slot."""

from __future__ import annotations

import re
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError, unknown
from headrace.io.connectors.options import Given, option, read_options
from headrace.io.connectors.postgres.access import connected, failure, library
from headrace.io.connectors.postgres.source import CaptureAddress, PostgresSource, system_of
from headrace.io.connectors.postgres.tables import Reference, described, published
from headrace.planning.sql.lexer import double_quoted
from headrace.storage.ledger.named_settings import NamedSettings, named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headrace.errors import Span
    from headrace.io.connectors.postgres.tables import CapturedTable, PgTable
    from headrace.io.connectors.registry import Connections
    from headrace.storage.ledger import Ledger


_SETTING: Final = "captures"
_OLDEST_VERSION: Final = 150_000
_CREATE_SECONDS: Final = 60
_LEAVE_SECONDS: Final = 5.0
_SLOT_NAME: Final = re.compile(r"[a-z0-9_]{1,63}")


def _slot(text: str) -> str:
    if _SLOT_NAME.fullmatch(text) is None:
        raise HeadraceError(
            Code.INVALID,
            f"'{text}' is not the name of a replication slot",
            hint="Use lower-case letters, digits and underscores, at most 63.",
        )
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """The options of ``CREATE SOURCE``."""

    publication: str = option("publication")
    slot: str | None = option("slot", default=None, convert=_slot)


@dataclass(frozen=True, slots=True)
class PostgresCapture:
    """A source of several tables; ``system`` is PostgreSQL's ``system_identifier``."""

    name: str
    connection: str
    publication: str
    slot: str
    system: int

    @property
    def identity(self) -> str:
        """The identity of the source: its server and slot, which no other source uses."""
        return f"postgres|{self.system}|{self.slot}"


@dataclass(frozen=True, slots=True)
class Captures:
    """The captures of one database."""

    ledger: Ledger
    connections: Connections

    @property
    def _kept(self) -> NamedSettings:
        return NamedSettings(self.ledger, _SETTING)

    def __iter__(self) -> Iterator[PostgresCapture]:
        """Yield the captures by name."""
        for stored in self._kept.all().values():
            yield PostgresCapture(**stored)

    def __contains__(self, name: object) -> bool:
        """Whether a capture of a name exists."""
        return name in self._kept.all()

    def find(self, name: str, span: Span | None = None) -> PostgresCapture:
        """Return the capture of a name.

        Raises:
            HeadraceError: ``invalid``, at the span, if it does not exist.
        """
        known = {capture.name: capture for capture in self}
        created = f"CREATE SOURCE {name} FROM POSTGRES CONNECTION name (PUBLICATION 'p')."
        return named("source", name, known, created, span)

    def prepared(self, name: str, connection: str, given: Iterable[Given]) -> PostgresCapture:
        """Check the server and publication of a new capture, and return it without storing it.

        Raises:
            HeadraceError: ``invalid``, ``unsupported`` or ``unavailable`` if the publication cannot
                be followed.
        """
        options = read_options(CaptureOptions, given, "a postgres source")
        with self.session(connection) as session:
            _require_server(session)
            _require_publication(session, options.publication)
            database = self.ledger.settings.identity.replace("-", "")[:8]
            slot = options.slot or re.sub(r"[^a-z0-9_]", "_", f"headrace_{database}_{name}")[:63]
            return PostgresCapture(name, connection, options.publication, slot, system_of(session))

    def add(self, capture: PostgresCapture) -> None:
        """Store a capture, and create its slot, or use an existing one of its name.

        Raises:
            HeadraceError: ``invalid`` if that is not permitted; ``unavailable`` if long
                transactions delay it. The capture is not stored then.
        """
        self._kept.put(capture.name, asdict(capture))
        try:
            with self.session(capture.connection) as session:
                _create_slot(session, capture.slot)
        except BaseException:
            self.remove(capture.name)
            raise

    def remove(self, name: str) -> None:
        """Remove a stored capture."""
        self._kept.remove(name)

    def drop_slot(self, capture: PostgresCapture) -> None:
        """Drop the slot of a capture, so that the server no longer retains its log.

        Raises:
            HeadraceError: ``unavailable`` or ``invalid`` if that fails.
        """
        until = time.monotonic() + _LEAVE_SECONDS
        with self.session(capture.connection) as session:
            while True:
                try:
                    session.execute("SELECT pg_drop_replication_slot(%s)", (capture.slot,))
                except library().Error as error:
                    if error.sqlstate == "42704":
                        return
                    if error.sqlstate == "55006" and time.monotonic() < until:
                        time.sleep(0.1)  # its reader is disconnecting
                        continue
                    raise
                return

    def described(self, capture: PostgresCapture, reference: Reference) -> PgTable:
        """Return the current description of a captured table; see :func:`tables.described`.

        Raises:
            HeadraceError: also ``invalid`` if the user may not read it.
        """
        with self.session(capture.connection) as session:
            found = described(session, reference, capture.publication)
            asked = "SELECT has_table_privilege(%s::oid, 'SELECT'), current_user"
            may, user = session.execute(asked, (found.oid,)).fetchone()
            if not may:
                raise HeadraceError(
                    Code.INVALID,
                    f'user "{user}" may not read table "{reference}"',
                    hint=f"In PostgreSQL: GRANT SELECT ON {reference.sql} TO {double_quoted(user)}",
                )
            return found

    def published(self, capture: PostgresCapture) -> list[Reference]:
        """Return all tables in the publication of a capture."""
        with self.session(capture.connection) as session:
            return published(session, capture.publication)

    def source(self, capture: PostgresCapture, tables: Sequence[CapturedTable]) -> PostgresSource:
        """Return the source of the tables of a capture."""
        access = self.connections.find(capture.connection, "postgres").options
        place = CaptureAddress(access, capture.publication, capture.slot, capture.system)
        return PostgresSource(place, tables, self.connections.secrets.value)

    def session(self, connection: str) -> _Session:
        """Return a context manager for a session over a connection, which translates errors."""
        return _Session(self.connections, connection)


@dataclass(slots=True)
class _Session:
    connections: Connections
    name: str
    _open: Any = None

    def __enter__(self) -> Any:
        access = self.connections.find(self.name, "postgres").options
        self._open = connected(access, self.connections.secrets.value)
        return self._open

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        self._open.close()
        if isinstance(error, library().Error):
            access = self.connections.find(self.name, "postgres").options
            raise failure(error, access) from error


def _require_server(session: Any) -> None:
    version, level, encoding = session.execute(
        "SELECT current_setting('server_version_num')::int, current_setting('wal_level'),"
        " current_setting('server_encoding')"
    ).fetchone()
    if version < _OLDEST_VERSION:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"PostgreSQL {version // 10_000} is not supported as a source",
            hint="Use PostgreSQL 15 or newer.",
        )
    if encoding == "SQL_ASCII":
        raise HeadraceError(
            Code.UNSUPPORTED,
            "a database in encoding SQL_ASCII is not supported as a source",
            "The encoding of its text is unknown.",
            "Move it into a database in encoding UTF8.",
        )
    if level != "logical":
        raise HeadraceError(
            Code.INVALID,
            f"the server's log does not contain changes of rows: wal_level is {level}",
            hint="In PostgreSQL: ALTER SYSTEM SET wal_level = logical; then restart the server.",
        )


def _require_publication(session: Any, publication: str) -> None:
    row = session.execute(
        "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate FROM pg_publication"
        " WHERE pubname = %s",
        (publication,),
    ).fetchone()
    if row is None:
        names = [name for (name,) in session.execute("SELECT pubname FROM pg_publication")]
        created = f'In PostgreSQL: CREATE PUBLICATION "{publication}" FOR TABLE a, b'
        raise unknown("publication", publication, names, created)
    if not row[0]:
        raise HeadraceError(
            Code.INVALID,
            f'publication "{publication}" does not contain all changes',
            hint=f'In PostgreSQL: ALTER PUBLICATION "{publication}"'
            " SET (publish = 'insert, update, delete, truncate')",
        )


def _create_slot(session: Any, slot: str) -> None:
    """Create a slot unless it exists; PostgreSQL waits for all open transactions."""
    session.execute(f"SET statement_timeout = '{_CREATE_SECONDS}s'")
    try:
        session.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
    except library().Error as error:
        if error.sqlstate == "42710":
            return
        said = " ".join(str(error).split())
        if error.sqlstate == "57014":
            raise HeadraceError(
                Code.UNAVAILABLE,
                f'replication slot "{slot}" was not created within {_CREATE_SECONDS} seconds',
                "PostgreSQL waits for the transactions that were open at the request.",
                "End them: pg_stat_activity shows them. Then try again.",
            ) from error
        if error.sqlstate == "53400":
            raise HeadraceError(
                Code.INVALID,
                f'replication slot "{slot}" cannot be created: all are in use',
                f"PostgreSQL says: {said}.",
                "Raise max_replication_slots and restart the server, or drop an unused slot.",
            ) from error
        raise
