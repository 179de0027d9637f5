"""The server of a simulated ledger: SQLite, seen by each process as PostgreSQL is.

It outlives processes, may go away, and may lose the acknowledgement of a commit. So each write has
its number (``storage/ledger/transactions.py``), as in PostgreSQL.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from headrace.storage.ledger import Fence, Ledger, schema
from headrace.storage.ledger.driver_statement import DriverStatement
from headrace.storage.ledger.ledger import _head
from headrace.storage.ledger.modes import Availability, Mode
from headrace.storage.ledger.sqlite import SqliteFile
from headrace.storage.ledger.store import Store
from headrace.storage.ledger.transactions import Transactions
from headrace.storage.ledger.writers import LockedFence
from simulation.points import (
    BEGIN,
    COMMIT,
    CRASHES,
    CRASHES_AFTERWARDS,
    FAILS,
    GOES_AWAY,
    IS_LOST,
    IS_LOST_AND_AWAY,
    LOSES_MACHINE,
)
from simulation.quick import Engine, Pool, failed, opened

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.storage.ledger.writers import LedgerWriter
    from simulation.points import Life, Points

_SERVER: Final = "ledger"
_KEYS: Final = (schema.WRITER_KEY, schema.WRITTEN_KEY)
_LOCK: Final = DriverStatement(
    sa.select(schema.fence.c.token, schema.meta.c.key, schema.meta.c.value).select_from(
        schema.fence.outerjoin(schema.meta, sa.or_(*(schema.meta.c.key == key for key in _KEYS)))
    )
)


@dataclass(slots=True)
class Server:
    """The ledger's server: the database of the current history is in ``file``."""

    file: Path
    points: Points
    newest: Life | None = None
    """The process that has taken over last: nobody else may commit."""
    violations: list[str] = field(default_factory=list)
    is_file: bool = False
    """Whether processes open the file themselves, by SQLAlchemy: then a commit is never lost."""
    idle: list[sqlite3.Connection] = field(default_factory=list)

    def moved(self, file: Path, points: Points) -> None:
        """Serve another file from now on."""
        self.close()
        self.file, self.points = file, points
        self.newest = None
        self.violations.clear()

    def close(self) -> None:
        """Close all connections."""
        while self.idle:
            self.idle.pop().close()

    def open(self, life: Life, clock: Callable[[], float], fault: Callable[[str], None]) -> Ledger:
        """Return the ledger as a process sees it."""
        if self.is_file:
            self.newest = life
            return Ledger.open(self.file, clock=clock, fault=fault)
        store = Store(Seen(self.file, self, life), Mode.WRITE, None)
        store.availability = _Patience(store.place, 0, lambda: True)
        return Ledger(Transactions(store, _head, clock, fault))


class _Sessions(Pool):
    """The sessions of one process."""

    def __init__(self, server: Server, life: Life) -> None:
        super().__init__(lambda: opened(server.file), server.idle)
        self._server, self._life = server, life

    def begins(self, connection: sqlite3.Connection, *, writes: bool) -> None:
        """Begin a transaction, unless the server is away."""
        effect, points = "", self._server.points
        if writes:
            self._life.require()
            effect = points.effect(BEGIN)
            self._life.require()
            if effect == GOES_AWAY:
                points.away.add(_SERVER)
            if effect == CRASHES:
                self._life.end(BEGIN)
        if effect or _SERVER in points.away:
            points.met = True
            raise failed("BEGIN", sqlite3.OperationalError("it is away"))
        super().begins(connection, writes=writes)

    def commits(self, connection: sqlite3.Connection, *, writes: bool) -> None:
        """Commit a transaction, or not, and acknowledge that, or not."""
        if not writes:
            connection.commit()
            return
        life, server = self._life, self._server
        life.require()
        effect = server.points.effect(COMMIT)
        if effect in (CRASHES, LOSES_MACHINE):
            life.end(COMMIT, machine=effect == LOSES_MACHINE)
        if effect in (FAILS, GOES_AWAY):
            connection.rollback()
        else:
            self._require_newest()
            connection.commit()
        life.takes = False
        if effect == CRASHES_AFTERWARDS:
            life.end(COMMIT)
        if effect in (GOES_AWAY, IS_LOST_AND_AWAY):
            server.points.away.add(_SERVER)
        if effect in (FAILS, GOES_AWAY, IS_LOST, IS_LOST_AND_AWAY):
            raise failed("COMMIT", sqlite3.OperationalError("the session is lost"), lost=True)

    def _require_newest(self) -> None:
        life, server = self._life, self._server
        if life.takes:
            server.newest = life
        elif life is not server.newest:
            server.violations.append(f"{life.name} has committed after another took over")


class _Patience(Availability):
    """Waits no time for a server, but tries some times."""

    def pause(self, tried: int, seconds: float = 0.0) -> bool:
        del seconds
        return tried < 2

    def recovers(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Seen(SqliteFile):
    """The server as one process sees it."""

    server: Server
    life: Life

    def prepare(self, create: Callable[[sa.Connection], None] | None, mode: Mode) -> None:
        """Do nothing: its file is there."""

    def engine(self, mode: Mode) -> Any:
        del mode
        return Engine(_Sessions(self.server, self.life))

    def lock_fence(self, connection: sa.Connection, number: int | None) -> LockedFence:
        rows = _LOCK.rows(connection)
        kept = {key: json.loads(str(value)) for _, key, value in rows if key is not None}
        if number is not None:
            connection.exec_driver_sql(
                "UPDATE meta SET value = ? WHERE key = ?", (str(number), schema.WRITTEN_KEY)
            )
        writer = kept.get(schema.WRITER_KEY)
        return LockedFence(
            Fence(rows[0][0]),
            None if writer is None else writer["id"],
            kept.get(schema.WRITTEN_KEY),
        )

    def take(self, connection: sa.Connection, writer: LedgerWriter) -> None:
        self.life.takes = True
        values = zip(_KEYS, (json.dumps(writer.to_json()), "0"), strict=True)
        for pair in values:
            connection.exec_driver_sql(
                "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", pair
            )
