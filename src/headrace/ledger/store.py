"""The ledger's database: opening, checking, transactions, and translation of its errors.

A new SQLite ledger is built under another name and moved into place. So a ledger file that is
empty, truncated or not a ledger is damaged, and never mistaken for a new ledger: a new ledger
names no files, and the sweep at start would delete all data.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from contextlib import closing, contextmanager
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError

from headrace.errors import BACKUPS, Code, HeadraceError
from headrace.ledger import migrations, schema
from headrace.ledger.driver_statement import DriverStatement
from headrace.ledger.records import LIVE

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC: Final = b"SQLite format 3\x00"
_RESTORE: Final = (
    "Restore the file from a backup together with the data directory; "
    f"the files it names are unchanged, so keep them. {BACKUPS}"
)
_DAMAGE: Final = ("malformed", "not a database", "no such table", "no such column")
_BUSY_SECONDS: Final = 10.0
_BEGIN: Final = DriverStatement(sa.text("BEGIN"))
_BEGIN_WRITING: Final = DriverStatement(sa.text("BEGIN IMMEDIATE"))


class Mode(Enum):
    """Whether a ledger is opened for writing or only for reading."""

    WRITE = auto()
    READ = auto()


def corrupt(place: str, detail: str) -> HeadraceError:
    """Return the error for a damaged ledger."""
    return HeadraceError(Code.CORRUPT, f'ledger "{place}" is damaged', detail, _RESTORE)


class Store:
    """An opened and checked database."""

    def __init__(self, url: sa.URL, mode: Mode) -> None:
        self.mode = mode
        self._file = _sqlite_file(url)
        self.place = str(self._file) if self._file else url.render_as_string(hide_password=True)
        self._engine = _engine(url, mode, self._file)
        self._writer = self._engine.execution_options(headrace_write=True)

    @classmethod
    def open(cls, where: str | Path, mode: Mode, now: float) -> Store:
        """Open the ledger at a file or a database URL.

        In WRITE mode, create a missing one, and migrate one of an earlier format.

        Raises:
            HeadraceError: INVALID for a bad URL or, in READ mode, a missing ledger or one of an
                earlier format; UNSUPPORTED for a newer format; CORRUPT for damage; UNAVAILABLE if
                the database is down.
        """
        url = _url(where)
        file = _sqlite_file(url)
        if file is not None:
            if not file.exists():
                _create_file(file, mode, now)
            _check_header(file)
        store = cls(url, mode)
        try:
            store._check(now)
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Open a read transaction: it sees one consistent state of the ledger."""
        with translated(self.place), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Open a write transaction: atomic."""
        with translated(self.place), self._writer.begin() as connection:
            yield connection

    def _check(self, now: float) -> None:
        with self.reading() as connection:
            if self._file is not None:
                found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
                if found != "ok":
                    raise corrupt(self.place, f"SQLite says: {found}.")
            missing = _missing_tables(connection)
        if self._file is None and len(missing) == len(schema.metadata.tables):
            _require_creation(self.place, self.mode)
            with self.writing() as connection:
                _create_tables(connection, now)
        elif schema.meta.name not in missing:
            self._require_format()
        with self.reading() as connection:
            missing = _missing_tables(connection)
        if missing:
            raise corrupt(self.place, f"Table {', '.join(missing)} is missing.")

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
        with self.writing() as connection:
            migrations.migrate(connection, self.place, self._back_up)

    def _back_up(self, suffix: str) -> None:
        """Copy a SQLite ledger as of its last commit to a file beside it, durably.

        A database of PostgreSQL is not copied: that is for whoever runs its server.

        Raises:
            HeadraceError: UNAVAILABLE if the copy cannot be written.
        """
        if self._file is None:
            return
        file = self._file.with_name(f"{self._file.name}.{suffix}")
        draft = _draft_of(file)
        try:
            with (
                closing(sqlite3.connect(_address(self._file, Mode.READ), uri=True)) as source,
                closing(sqlite3.connect(draft)) as copy,
            ):
                source.backup(copy)
            with draft.open("rb") as written:
                os.fsync(written.fileno())
            _move(draft, file)
        except (OSError, sqlite3.Error) as error:
            draft.unlink(missing_ok=True)
            raise HeadraceError(
                Code.UNAVAILABLE,
                f'copy "{file}" of the ledger could not be written',
                f"{error}.",
                "The ledger was not migrated: open it again once there is space for the copy.",
            ) from error


def _missing_tables(connection: sa.Connection) -> list[str]:
    return sorted(set(schema.metadata.tables) - set(sa.inspect(connection).get_table_names()))


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Raise the database's errors as ``HeadraceError``, naming the ledger."""
    try:
        yield
    except IntegrityError as error:
        raise HeadraceError(
            Code.INTERNAL, "ledger refused an inconsistent change", f"{error.orig}"
        ) from error
    except DBAPIError as error:
        message = str(error.orig)
        if any(sign in message for sign in _DAMAGE):
            raise corrupt(place, f"The database says: {message}.") from error
        if "readonly" in message:
            raise HeadraceError(
                Code.INVALID, f'ledger "{place}" is open for reading only', f"{message}."
            ) from error
        raise HeadraceError(
            Code.UNAVAILABLE,
            f'ledger "{place}" did not answer',
            f"The database says: {message}.",
            "Nothing was changed: try again once the database answers.",
        ) from error


def _url(where: str | Path) -> sa.URL:
    if isinstance(where, Path):
        return sa.URL.create("sqlite", database=str(where))
    try:
        url = sa.make_url(where)
    except ArgumentError as error:
        raise HeadraceError(
            Code.INVALID,
            "ledger's address is not a database URL",
            hint='Write "sqlite:////path/ledger.db" or "postgresql://user@host/database".',
        ) from error
    family = url.get_backend_name()
    if family not in {"sqlite", "postgresql"} or (family == "sqlite" and not url.database):
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'database "{url.render_as_string(hide_password=True)}" cannot hold a ledger',
            hint="Use a SQLite file or PostgreSQL.",
        )
    return url


def _sqlite_file(url: sa.URL) -> Path | None:
    return Path(url.database or "") if url.get_backend_name() == "sqlite" else None


def _engine(url: sa.URL, mode: Mode, file: Path | None) -> sa.Engine:
    if file is None:
        try:
            return sa.create_engine(url)
        except (ImportError, NoSuchModuleError) as error:
            raise HeadraceError(
                Code.INVALID,
                "driver for PostgreSQL is not installed",
                f"{error}.",
                'Install it: pip install "psycopg[binary]".',
            ) from error
    address = _address(file, mode)

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(address, _BUSY_SECONDS, check_same_thread=False, uri=True)

    engine = sa.create_engine("sqlite://", creator=connect, poolclass=sa.QueuePool)
    event.listen(engine, "connect", _prepare_reader if mode is Mode.READ else _prepare_writer)
    event.listen(engine, "begin", _begin)
    return engine


def _address(file: Path, mode: Mode) -> str:
    return f"file:{quote(str(file.resolve()))}?mode={'ro' if mode is Mode.READ else 'rw'}"


def _draft_of(file: Path) -> Path:
    return file.with_name(f".{file.name}.{uuid.uuid4().hex}")


def _move(draft: Path, file: Path) -> None:
    """Give a synced draft the name of a file, durably."""
    draft.replace(file)
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _prepare_reader(connection: Any, _record: object) -> None:
    connection.isolation_level = None
    connection.execute("PRAGMA query_only = ON")


def _prepare_writer(connection: Any, _record: object) -> None:
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin(connection: sa.Connection) -> None:
    """Begin a transaction; one that may write takes the write lock now, so none is upgraded."""
    writes = connection.get_execution_options().get("headrace_write", False)
    (_BEGIN_WRITING if writes else _BEGIN).run(connection, {})


def _require_creation(place: str, mode: Mode) -> None:
    if mode is Mode.READ:
        raise HeadraceError(
            Code.INVALID,
            f'ledger "{place}" does not exist',
            hint="Open it for writing once to create it.",
        )


def _create_file(file: Path, mode: Mode, now: float) -> None:
    _require_creation(str(file), mode)
    if not file.parent.is_dir():
        raise HeadraceError(Code.INVALID, f'directory "{file.parent}" does not exist')
    orphan = next(file.parent.rglob("*.arrow"), None)
    if orphan is not None:
        raise HeadraceError(
            Code.CORRUPT,
            f'ledger "{file}" is missing',
            f'The directory contains data of a missing ledger, such as "{orphan}".',
            f"Restore the ledger from a backup, or start with an empty directory. {BACKUPS}",
        )
    draft = _draft_of(file)
    with translated(str(file)):
        draft.touch()
        engine = _engine(_url(draft), Mode.WRITE, draft)
        try:
            with engine.begin() as connection:
                _create_tables(connection, now)
        finally:
            engine.dispose()
    _move(draft, file)


def _create_tables(connection: sa.Connection, now: float) -> None:
    schema.metadata.create_all(connection, checkfirst=False)
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


def _check_header(file: Path) -> None:
    if file.is_dir():
        raise HeadraceError(Code.INVALID, f'ledger "{file}" is a directory')
    try:
        with file.open("rb") as opened:
            magic = opened.read(len(_MAGIC))
    except OSError as error:
        raise HeadraceError(
            Code.UNAVAILABLE, f'ledger "{file}" could not be read', f"{error}."
        ) from error
    if magic != _MAGIC:
        what = "is empty" if not magic else "is not a SQLite database"
        raise corrupt(str(file), f"The file {what}.")
