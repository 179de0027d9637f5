"""Tables of a PostgreSQL database, followed through one logical replication slot.

The slot retains the server's log until it is advanced. It is read by SQL, with
``pg_logical_slot_peek_binary_changes``, and advanced (``pg_replication_slot_advance``) only after
the changes are stored in the ledger; changes that are read again are recognised by their position.
The position of a table is a position in the server's log: transactions committed before it are
stored, or do not change the table.

A moment has whole transactions, so its size is that of the largest transaction or more: its values
are in memory as columns until it is stored.
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.ports import Moment, Part
from headrace.io.connectors.postgres import pgoutput
from headrace.io.connectors.postgres.access import Types, connected, failure, library
from headrace.io.connectors.postgres.changes import TableChanges, lsn_text
from headrace.io.connectors.postgres.tables import (
    PgTable,
    added_columns,
    bound,
    copied,
    current,
    described,
    require_declared,
    taken,
)
from headrace.planning.sql.lexer import double_quoted
from headrace.storage.ledger import Reject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headrace.io.connectors.postgres.access import Access
    from headrace.io.connectors.postgres.tables import CapturedTable, Snapshot
    from headrace.types import RelationId


_MOST_CHANGES: Final = 20_000
"""The approximate number of changes that are read at once; a transaction is read whole."""
_FETCHED: Final = 2_000
_POLL_SECONDS: Final = 0.1
_BUSY_POLL_SECONDS: Final = 0.005
_CANCEL_SECONDS: Final = 5
STOPPED: Final = "stopped"
"""The key in a table's position with the error that stopped it."""

_PEEK: Final = """
SELECT data FROM pg_logical_slot_peek_binary_changes(
  %s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)
"""
_SLOT: Final = """
SELECT plugin, coalesce(wal_status, '') = 'lost' FROM pg_replication_slots WHERE slot_name = %s
"""
_MEMBERS: Final = """
SELECT p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate, c.oid::int8,
  CASE WHEN p.puballtables THEN p.oid ELSE coalesce(r.oid, s.oid) END::int8
FROM pg_publication p
LEFT JOIN pg_class c ON c.oid = ANY (%s)
LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
LEFT JOIN pg_publication_namespace s ON s.pnpubid = p.oid AND s.pnnspid = c.relnamespace
WHERE p.pubname = %s
"""


@dataclass(frozen=True, slots=True)
class CaptureAddress:
    """How captured tables are read: a database, a publication and a replication slot."""

    access: Access
    publication: str
    slot: str
    system: int
    """The server's ``system_identifier``, which differs for another data directory."""


@dataclass(slots=True)
class _Followed:
    """A followed table: its description in PostgreSQL, and its changes that are not stored yet.

    Transactions committed before ``after``, and those visible in the ``snapshot``, if any, are
    skipped. ``beside`` are PostgreSQL's columns that the table does not have.
    """

    table: CapturedTable
    oid: int
    membership: int
    beside: list[str]
    after: int
    changes: TableChanges
    snapshot: Snapshot | None = None
    stopped: HeadraceError | None = None
    touched: bool = False

    def position(self, lsn: int) -> dict[str, Any]:
        found = {"lsn": lsn, "oid": self.oid, "member": self.membership, "beside": self.beside}
        if self.stopped is not None:
            error = self.stopped
            found[STOPPED] = [error.code, error.primary, error.detail, error.hint]
        return found


def stopped_with(position: Mapping[str, Any] | None) -> HeadraceError | None:
    """Return the error that stopped a table; None if it is followed."""
    found = (position or {}).get(STOPPED)
    return None if found is None else HeadraceError(Code(found[0]), *found[1:])


@dataclass(slots=True)
class PostgresSource:
    """The captured tables of one address; ``secret`` returns the value of a secret."""

    address: CaptureAddress
    tables: Sequence[CapturedTable]
    secret: Callable[[str], str]
    _closed: threading.Event = field(default_factory=threading.Event)
    _sessions: list[Any] = field(default_factory=list)
    _by_oid: dict[int, _Followed] = field(default_factory=dict)
    _recent: set[int] = field(default_factory=set)
    """Transactions that were read since a copy was requested: its snapshot must see them."""
    _advanced: int = 0
    """The position to which the slot was advanced last."""
    _seen: int = 0
    """The end of the server's log at the time when all of it had been read."""
    _arrived: float = -math.inf
    """When the server's log was longer than before, last."""

    def __post_init__(self) -> None:
        """Refuse two tables that follow the same table of PostgreSQL.

        Raises:
            HeadraceError: ``conflict``.
        """
        references = [table.reference for table in self.tables]
        if len(set(references)) < len(references):
            raise HeadraceError(
                Code.CONFLICT,
                "two tables follow the same table of a source",
                hint="DROP one of them.",
            )

    def close(self) -> None:
        """Make :meth:`moments` end soon, and cancel running statements."""
        self._closed.set()
        for session in tuple(self._sessions):
            with suppress(Exception):  # the server may not answer
                session.cancel_safe(timeout=_CANCEL_SECONDS)

    def moments(self, positions: Mapping[RelationId, Mapping[str, Any] | None]) -> Iterator[Moment]:
        """Yield copies of tables without a position, then transactions as they arrive.

        Raises:
            HeadraceError: ``unavailable`` if the server does not answer, or refuses access;
                ``conflict`` if changes were lost before they were read.
        """
        try:
            with self._session() as session:
                yield from self._moments(session, positions)
        except library().Error as error:
            if self._closed.is_set():
                return
            raise self._failure(error) from error

    @contextmanager
    def _session(self) -> Iterator[Any]:
        try:
            opened = connected(self.address.access, self.secret)
        except HeadraceError as error:
            raise _tried_again(error) from error
        with opened as session:
            self._sessions.append(session)
            try:
                yield session
            finally:
                self._sessions.remove(session)

    def _moments(
        self, session: Any, positions: Mapping[RelationId, Mapping[str, Any] | None]
    ) -> Iterator[Moment]:
        self._require_slot(session, positions)
        fresh = []
        for table in self.tables:
            position = positions.get(table.relation)
            if position is None:
                fresh.append(table)
            elif STOPPED not in position:
                followed = _Followed(
                    table,
                    position["oid"],
                    position["member"],
                    list(position["beside"]),
                    position["lsn"],
                    TableChanges(table),
                )
                self._by_oid[followed.oid] = followed
        if fresh:
            yield from self._begin(session, fresh)
        while not self._closed.is_set():
            yield from self._round(session)
            self._recent.clear()

    # -- following -------------------------------------------------------------------------

    def _round(self, session: Any) -> Iterator[Moment]:
        """Yield transactions committed since the last round, or a moment without parts."""
        flushed = _flushed(session)
        if flushed == self._seen:
            yield Moment((), flushed, flushed)
            self._closed.wait(pause_after(time.monotonic() - self._arrived))
            return
        self._arrived = time.monotonic()
        yield from self._read_to(session, flushed, None)

    def _read_to(self, session: Any, flushed: int, upto: int | None) -> Iterator[Moment]:
        """Yield the next transactions, up to the position ``upto``; then advance the slot."""
        reached, all_read = self._read(session, upto)
        if all_read:
            reached = max(reached, upto or flushed)
        self._require_published(session)
        if self._closed.is_set():
            return
        yield Moment(self._parts(reached), reached, max(reached, flushed))
        session.execute(
            "SELECT pg_replication_slot_advance(%s, %s::pg_lsn)",
            (self.address.slot, lsn_text(reached)),
        )
        self._advanced = reached
        if all_read:
            self._seen = reached

    def _parts(self, reached: int) -> tuple[tuple[RelationId, Part], ...]:
        """Return the changes of each table, except those whose copy is not complete."""
        parts = []
        for oid, followed in list(self._by_oid.items()):
            if followed.snapshot is not None or not followed.touched:
                continue
            part = followed.changes.part(followed.position(reached))
            parts.append((followed.table.relation, part))
            followed.touched, followed.after = False, reached
            if followed.stopped is not None:
                del self._by_oid[oid]
        return tuple(parts)

    def _read(self, session: Any, upto: int | None) -> tuple[int, bool]:
        """Read transactions; return the end of the last one, and whether all have been read."""
        reached = count = 0
        types = Types(session)
        reading = _Reading(self._by_oid, types, self._recent)
        given = (
            self.address.slot,
            None if upto is None else lsn_text(upto),
            _MOST_CHANGES,
            double_quoted(self.address.publication),
        )
        with session.transaction(), session.cursor(name="changes", binary=True) as cursor:
            cursor.itersize = _FETCHED
            cursor.execute(_PEEK, given)
            for (data,) in cursor:
                count += 1
                if self._closed.is_set():
                    break
                end = reading.take(pgoutput.decoded(data))
                reached = reached if end is None else end
        return reached, count < _MOST_CHANGES

    # -- beginning -------------------------------------------------------------------------

    def _begin(self, session: Any, tables: Sequence[CapturedTable]) -> Iterator[Moment]:
        """Yield copies of tables, and their later changes up to the position of all tables."""
        yield from self._wait(session)
        while not self._closed.is_set():
            known, refused = self._described(session, tables)
            if refused:
                yield Moment(tuple(refused))
            tables = [table for table, _ in known]
            if not tables:
                return
            with self._session() as reader:
                snapshot = taken(reader, tables)
                if not all(snapshot.sees(xid) for xid in self._recent):
                    self._closed.wait(_POLL_SECONDS)
                    continue
                for table, found in known:
                    self._by_oid[found.oid] = _followed(table, found, snapshot)
                # Committing this message flushes the server's log past the snapshot's end.
                session.execute("SELECT pg_logical_emit_message(true, 'headrace', '')")
                yield from self._catch_up(session, snapshot)
                starting = [self._by_oid[found.oid] for _, found in known]
                if any(each.changes.depends_on_rows() for each in starting):
                    for each in starting:
                        del self._by_oid[each.oid]
                    continue  # changes need rows of a copy that is not stored yet: copy again
                for (table, found), followed in zip(known, starting, strict=True):
                    for part in self._copies(reader, table, found, snapshot):
                        yield Moment(((table.relation, part),), whole=False)
                        if self._closed.is_set():
                            return
                    followed.touched = True
            for followed in starting:
                followed.snapshot = None
            self._recent.clear()
            yield Moment(self._parts(self._advanced), self._advanced, self._advanced)
            return

    def _wait(self, session: Any) -> Iterator[Moment]:
        """Follow the other tables until all currently running transactions have ended."""
        before = now = current(session)
        while not self._closed.is_set() and not before.running.isdisjoint(now.running):
            yield from self._round(session)
            now = current(session)
            self._recent = {xid for xid in self._recent if not now.sees(xid)}

    def _described(
        self, session: Any, tables: Sequence[CapturedTable]
    ) -> tuple[list[tuple[CapturedTable, PgTable]], list[tuple[RelationId, Part]]]:
        """Return tables with their descriptions, and parts that stop those that do not fit."""
        known, refused = [], []
        for table in tables:
            try:
                found = described(session, table.reference, self.address.publication)
                require_declared(found, table.schema, table.key)
            except HeadraceError as error:
                nothing = _Followed(table, 0, 0, [], 0, TableChanges(table), stopped=error)
                refused.append((table.relation, nothing.changes.part(nothing.position(0))))
            else:
                known.append((table, found))
        return known, refused

    def _catch_up(self, session: Any, snapshot: Snapshot) -> Iterator[Moment]:
        """Read all tables up to the snapshot's end; the new ones gather their changes."""
        while not self._closed.is_set():
            yield from self._read_to(session, snapshot.end, snapshot.end)
            if self._advanced >= snapshot.end:
                return

    def _copies(
        self, reader: Any, table: CapturedTable, found: PgTable, snapshot: Snapshot
    ) -> Iterator[Part]:
        row = 0
        for texts in copied(reader, table, found):
            changes = TableChanges(table)
            changes.copied(texts, (snapshot.end, row))
            row += len(texts[0])
            yield changes.part({})

    # -- checks ------------------------------------------------------------------------------

    def _require_slot(
        self, session: Any, positions: Mapping[RelationId, Mapping[str, Any] | None]
    ) -> None:
        """Refuse a server whose log does not continue what was read.

        Raises:
            HeadraceError: ``conflict``.
        """
        row = session.execute(_SLOT, (self.address.slot,)).fetchone()
        if row is None or row[1]:
            lost = "has lost changes: the server no longer retains them"
            raise self._lost("does not exist" if row is None else lost)
        if row[0] != "pgoutput":
            raise self._lost(f"has plugin {row[0]}, not pgoutput")
        read = max((position["lsn"] for position in positions.values() if position), default=0)
        if system_of(session) != self.address.system or _flushed(session) < read:
            raise HeadraceError(
                Code.CONFLICT,
                f'PostgreSQL at "{self.address.access.place}" is another server than before',
                "It was set up again, or restored from a backup: its log does not continue from the"
                " position that was read.",
                "DROP SOURCE ... CASCADE, and create it and its tables again.",
            )

    def _require_published(self, session: Any) -> None:
        """Stop tables whose membership in the publication has changed since they were copied.

        It is called after changes are read and before they are stored, so no change is missed while
        the publication is different.

        Raises:
            HeadraceError: ``conflict`` if the publication was dropped, or omits kinds of changes.
        """
        rows = session.execute(_MEMBERS, (list(self._by_oid), self.address.publication)).fetchall()
        if not rows or not rows[0][0]:
            raise HeadraceError(
                Code.CONFLICT,
                f'publication "{self.address.publication}" no longer contains all changes',
                "It was dropped." if not rows else "Its option publish leaves some out.",
                "Create it as it was, and CREATE OR REPLACE the tables: they have missed changes.",
            )
        there = {oid: membership for _, oid, membership in rows}
        for followed in self._by_oid.values():
            if followed.stopped is None and there.get(followed.oid) != followed.membership:
                dropped = followed.oid not in there
                followed.stopped = HeadraceError(
                    Code.CONFLICT,
                    f'table "{followed.table.reference}" was '
                    + ("dropped" if dropped else "taken out of the publication")
                    + " in PostgreSQL",
                    "Some of its changes may have been missed." if not dropped else None,
                    "DROP the table here, or CREATE OR REPLACE it once it is published again.",
                )
                followed.touched = True

    def _lost(self, how: str) -> HeadraceError:
        return HeadraceError(
            Code.CONFLICT,
            f'replication slot "{self.address.slot}" {how}',
            "Changes were deleted before they were read.",
            "DROP SOURCE ... CASCADE, and create it and its tables again.",
        )

    def _failure(self, error: Any) -> HeadraceError:
        """Translate an error of the client."""
        said = " ".join(str(error).split()).rstrip(".")
        if error.sqlstate in {"55000", "42704"}:
            return HeadraceError(
                Code.CONFLICT,
                f'replication slot "{self.address.slot}" cannot be read',
                f"PostgreSQL says: {said}.",
                "DROP SOURCE ... CASCADE, and create it and its tables again.",
            )
        if error.sqlstate == "55006":
            return HeadraceError(
                Code.UNAVAILABLE,
                f'replication slot "{self.address.slot}" is read by another client',
                f"PostgreSQL says: {said}.",
                "End the other reader: changes that it consumes are missing here.",
            )
        return _tried_again(failure(error, self.address.access))


@dataclass(slots=True)
class _Reading:
    """Adds the changes in a sequence of messages to their tables."""

    by_oid: Mapping[int, _Followed]
    types: Types
    recent: set[int]
    _commit: int = 0
    _xid: int = 0
    _number: int = 0
    _relations: dict[int, pgoutput.RelationMessage] = field(default_factory=dict)
    """The last message about each relation; it is sent once, possibly in a skipped transaction."""
    _bound: set[int] = field(default_factory=set)

    def take(self, message: pgoutput.Message) -> int | None:
        """Apply a message; return the position after the transaction if it is its end."""
        match message:
            case pgoutput.InsertMessage(oid, new):
                if (followed := self._following(oid)) is not None:
                    followed.changes.insert(new, self._place())
            case pgoutput.UpdateMessage(oid, old, new):
                if (followed := self._following(oid)) is not None:
                    followed.changes.update(old, new, self._place())
            case pgoutput.DeleteMessage(oid, old):
                if (followed := self._following(oid)) is not None:
                    followed.changes.delete(old, self._place())
            case pgoutput.TruncateMessage(oids):
                for oid in oids:
                    if (followed := self._following(oid)) is not None:
                        followed.changes.truncate()
            case pgoutput.BeginMessage(commit, xid):
                self._commit, self._xid, self._number = commit, xid, 0
                self.recent.add(xid)
            case pgoutput.CommitMessage(end):
                return end
            case pgoutput.RelationMessage():
                self._relations[message.oid] = message
                self._bound.discard(message.oid)
        return None

    def _place(self) -> tuple[int, int]:
        self._number += 1
        return self._commit, self._number

    def _following(self, oid: int) -> _Followed | None:
        """Return the table of a change; None if it is not followed or has the change already."""
        followed = self.by_oid.get(oid)
        if followed is None or followed.stopped is not None or self._commit < followed.after:
            return None
        if followed.snapshot is not None and followed.snapshot.sees(self._xid):
            return None
        followed.touched = True
        if oid not in self._bound:
            self._bind(followed)
        return None if followed.stopped is not None else followed

    def _bind(self, followed: _Followed) -> None:
        """Match a table's columns with a relation; stop a table that can no longer be read."""
        relation = self._relations.get(followed.oid)
        if relation is None:
            raise HeadraceError(
                Code.INTERNAL,
                f'PostgreSQL has not sent the columns of table "{followed.table.reference}"',
            )
        try:
            followed.changes.bind(bound(followed.table, relation, self.types))
        except HeadraceError as error:
            followed.stopped = error
            return
        self._bound.add(followed.oid)
        beside = added_columns(followed.table, relation)
        followed.changes.notes += [
            Reject(
                f"{followed.table.reference}@{lsn_text(self._commit)}",
                self._number,
                name,
                "a column that was added in PostgreSQL, and that the table does not have",
                "",
            )
            for name in beside
            if name not in followed.beside
        ]
        followed.beside = beside


def _followed(table: CapturedTable, found: PgTable, snapshot: Snapshot) -> _Followed:
    """Return a table that begins with a copy in a snapshot."""
    taken_columns = {name.lower() for name in table.schema.names}
    beside = [name for name, _ in found.columns if name.lower() not in taken_columns]
    return _Followed(table, found.oid, found.membership, beside, 0, TableChanges(table), snapshot)


def _tried_again(error: HeadraceError) -> HeadraceError:
    """Return an error as ``unavailable``, so that it is retried.

    A wrong password or a missing permission is usually corrected on one of the two sides.
    """
    return HeadraceError(Code.UNAVAILABLE, error.primary, error.detail, error.hint)


def pause_after(quiet: float) -> float:
    """Return how many seconds to wait for the server's log, after it was the same for ``quiet``.

    Where changes follow each other, the next ones are noticed sooner; a server at rest is asked
    ten times a second.
    """
    return min(max(quiet / 10, _BUSY_POLL_SECONDS), _POLL_SECONDS)


def _flushed(session: Any) -> int:
    """Return the end of the server's log on disk, in bytes."""
    (found,) = session.execute("SELECT (pg_current_wal_flush_lsn() - '0/0')::int8").fetchone()
    return int(found)


def system_of(session: Any) -> int:
    """Return the server's ``system_identifier``."""
    (found,) = session.execute("SELECT system_identifier FROM pg_control_system()").fetchone()
    return int(found)
