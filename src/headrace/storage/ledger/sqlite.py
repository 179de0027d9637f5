"""A ledger in a SQLite file: created, opened, checked and copied.

A new file is built under another name and moved into place. So a ledger file that is empty,
truncated or not a ledger is damaged, and never mistaken for a new ledger: a new ledger names no
files, and the sweep at start would delete all data.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event

from headrace.algebra.spine import sync_directory
from headrace.errors import BACKUPS, Code, HeadraceError
from headrace.storage.ledger import schema
from headrace.storage.ledger.driver_statement import DriverStatement
from headrace.storage.ledger.modes import Mode, corrupt, missing, read_only, unanswered
from headrace.storage.ledger.records import Fence
from headrace.storage.ledger.writers import LockedFence

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sqlalchemy.exc import DBAPIError

    from headrace.files.directories import Waits
    from headrace.storage.ledger.modes import Availability
    from headrace.storage.ledger.writers import LedgerWriter


_MAGIC: Final = b"SQLite format 3\x00"
_DAMAGE: Final = ("malformed", "not a database", "no such table", "no such column")
_BUSY_SECONDS: Final = 10.0
_UNUSED_PAGES: Final = 64
_UNUSED_SHARE: Final = 4
"""How many unused pages are left, and how large a share of all."""
_MOST_PAGES: Final = 1 << 14
"""The pages of a file that is written again, 64 MiB: in a larger one, which takes seconds, unused
pages are left for what is written next."""
_BEGIN: Final = DriverStatement(sa.text("BEGIN"))
_BEGIN_WRITING: Final = DriverStatement(sa.text("BEGIN IMMEDIATE"))
_FENCE: Final = DriverStatement(sa.select(schema.fence.c.token))


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """A file with a ledger."""

    file: Path

    @property
    def place(self) -> str:
        """The path, for messages."""
        return str(self.file)

    @property
    def namespace(self) -> None:
        """The schema of the tables: there is none."""
        return

    def prepare(self, create: Callable[[sa.Connection], None] | None, mode: Mode) -> None:
        """Create a missing file, if ``create`` is given, and refuse one that is no database.

        Raises:
            HeadraceError: INVALID, CORRUPT or UNAVAILABLE.
        """
        del mode
        if not self.file.exists():
            if create is None:
                if self.file.parent.is_dir():
                    _refuse_orphans(self.file)
                raise missing(self.place)
            self._create(create)
        _check_header(self.file)

    def engine(self, mode: Mode) -> sa.Engine:
        """Return what opens connections."""
        address = _address(self.file, mode)

        def connect() -> sqlite3.Connection:
            return sqlite3.connect(address, _BUSY_SECONDS, check_same_thread=False, uri=True)

        engine = sa.create_engine("sqlite://", creator=connect, poolclass=sa.QueuePool)
        event.listen(engine, "connect", _prepare_reader if mode is Mode.READ else _prepare_writer)
        event.listen(engine, "begin", _begin)
        return engine

    def check(self, connection: sa.Connection) -> None:
        """Raise CORRUPT for a damaged file."""
        found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
        if found != "ok":
            raise corrupt(self.place, f"SQLite says: {found}.")

    def forget(self, connection: sa.Connection) -> None:
        """Do nothing: a file has no schema."""

    def lock_fence(self, connection: sa.Connection, number: int | None) -> LockedFence:
        """Return the fence: the transaction that writes has the database to itself already."""
        del number  # whether a file has a commit is never in doubt
        ((token,),) = _FENCE.rows(connection)
        return LockedFence(Fence(token))

    def hold(
        self,
        identity: str,
        waits: Waits,
        writer: Callable[[], LedgerWriter | None],
        availability: Availability,
        contended: Callable[[], None],
    ) -> None:
        """Do nothing: the lock of the data directory admits one writer."""

    def take(self, connection: sa.Connection, writer: LedgerWriter) -> None:
        """Do nothing, as above."""

    def release(self) -> None:
        """Do nothing, as above."""

    def probe(self) -> bool:
        """Return True: a file is there."""
        return True

    def notify(self, connection: sa.Connection, channel: str) -> None:
        """Do nothing: readers of a file ask it."""

    def listener(self, channel: str) -> None:
        """Return None: nothing is woken."""

    def failure(self, error: DBAPIError, mode: Mode) -> HeadraceError:
        """Return the error for one of the database."""
        del mode
        message = str(error.orig)
        if any(sign in message for sign in _DAMAGE):
            return corrupt(self.place, f"The database says: {message}.")
        if "readonly" in message:
            return read_only(self.place, message)
        return unanswered(self.place, message)

    def make_small(self, engine: sa.Engine) -> None:
        """Write the file again if much of it is unused, and end the file of what was written last.

        Readers in other processes go on; while one reads an earlier state, the latter is not done.
        """
        with engine.connect() as connection:
            connection.rollback()
            driver: Any = connection.connection.driver_connection
            ((pages,),) = driver.execute("PRAGMA page_count")
            ((unused,),) = driver.execute("PRAGMA freelist_count")
            if pages <= _MOST_PAGES and unused > max(_UNUSED_PAGES, pages // _UNUSED_SHARE):
                driver.execute("VACUUM")
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def back_up(self, suffix: str) -> None:
        """Copy the ledger as of its last commit to a file beside it, durably.

        Raises:
            HeadraceError: UNAVAILABLE if the copy cannot be written.
        """
        file = self.file.with_name(f"{self.file.name}.{suffix}")
        draft = _draft_of(file)
        try:
            self.copy(draft)
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

    def copy(self, file: Path) -> None:
        """Copy the ledger as of its last commit to a new file.

        Raises:
            OSError, sqlite3.Error: if it cannot be written.
        """
        with (
            closing(sqlite3.connect(_address(self.file, Mode.READ), uri=True)) as source,
            closing(sqlite3.connect(file)) as copied,
        ):
            source.backup(copied)

    def _create(self, create: Callable[[sa.Connection], None]) -> None:
        file = self.file
        if not file.parent.is_dir():
            raise HeadraceError(Code.INVALID, f'directory "{file.parent}" does not exist')
        _refuse_orphans(file)
        draft = _draft_of(file)
        draft.touch()
        engine = SqliteFile(draft).engine(Mode.WRITE)
        try:
            with engine.begin() as connection:
                create(connection)
        finally:
            engine.dispose()
        _move(draft, file)


def orphan_in(directory: Path) -> Path | None:
    """Return a file in a directory that a ledger names; None if there is none."""
    found = chain(directory.rglob("*.arrow"), directory.glob("log/*.parquet"))
    return next(found, None)


def _refuse_orphans(file: Path) -> None:
    """Raise CORRUPT if the directory of a missing ledger has files that it named."""
    orphan = orphan_in(file.parent)
    if orphan is not None:
        raise HeadraceError(
            Code.CORRUPT,
            f'ledger "{file}" is missing',
            f'The directory contains data of a missing ledger, such as "{orphan}".',
            f"Restore the ledger from a backup, or start with an empty directory. {BACKUPS}",
        )


def _address(file: Path, mode: Mode) -> str:
    return f"file:{quote(str(file.resolve()))}?mode={'ro' if mode is Mode.READ else 'rw'}"


def _draft_of(file: Path) -> Path:
    return file.with_name(f".{file.name}.{uuid.uuid4().hex}")


def _move(draft: Path, file: Path) -> None:
    """Give a synced draft the name of a file, durably."""
    draft.replace(file)
    sync_directory(file.parent)


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
