"""The source of captured tables over a simulated server: copies, transactions, and crashes."""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as t

from headrace.algebra.zset import WEIGHT
from headrace.io.connectors.postgres import pgoutput, source
from headrace.io.connectors.postgres.access import Access, PgType
from headrace.io.connectors.postgres.changes import lsn_number
from headrace.io.connectors.postgres.source import CaptureAddress, PostgresSource
from headrace.io.connectors.postgres.tables import CapturedTable, PgTable, Reference, Snapshot
from headrace.types import Column, RelationId, Schema
from length import choose

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

KEYS = 6
SCHEMA = Schema((Column("id", t.IntegerType(), nullable=False), Column("v", t.IntegerType())))
NAMES = ("a", "b", "c")
TABLES = {
    name: CapturedTable(RelationId(at), Reference("public", name), SCHEMA, ("id",))
    for at, name in enumerate(NAMES, 1)
}
OIDS = {name: 100 + table.relation for name, table in TABLES.items()}
COLUMNS = (pgoutput.RelationColumn("id", 23, -1, True), pgoutput.RelationColumn("v", 23, -1, False))  # noqa: FBT003

State = dict[str, dict[int, int]]


@dataclass
class Transaction:
    """One transaction: its changes, as (table, key, value or None)."""

    xid: int
    changes: list[tuple[str, int, int | None]] = field(default_factory=list)
    commit: int = 0
    end: int = 0
    visible: bool = False


@dataclass
class Server:
    """Transactions that run at the same time; a commit is written before it is visible."""

    chance: random.Random
    lsn: int = 1000
    xid: int = 2**32 - 20  # whose lower bits wrap around soon
    open: list[Transaction] = field(default_factory=list)
    log: list[Transaction] = field(default_factory=list)
    confirmed: int = 1000
    oldest: int = 1000

    def churn(self) -> None:
        for _ in range(self.chance.randrange(5)):
            self._step()

    def _step(self) -> None:
        hidden = [each for each in self.log if not each.visible]
        match self.chance.randrange(6):
            case 0:
                self.open.append(Transaction(self.xid))
                self.xid += 1
            case 1 | 2 | 3 if self.open:
                changed = self.chance.choice(self.open)
                table, key = self.chance.choice(NAMES), self.chance.randrange(KEYS)
                locked = {
                    (name, id_)
                    for each in (*self.open, *hidden)
                    if each is not changed
                    for name, id_, _ in each.changes
                }
                if (table, key) not in locked:
                    value = self.chance.choice([None, self.chance.randrange(100)])
                    changed.changes.append((table, key, value))
            case 4 if self.open:
                committed = self.chance.choice(self.open)
                self.open.remove(committed)
                if self.chance.random() < 0.8 and committed.changes:
                    committed.commit = self.lsn
                    committed.end = self.lsn = self.lsn + self.chance.randrange(1, 30)
                    self.log.append(committed)
            case 5 if hidden:
                self.chance.choice(hidden).visible = True

    def state(self, before: int) -> State:
        return self._applied([each for each in self.log if each.commit < before])

    def _applied(self, transactions: list[Transaction]) -> State:
        state: State = {name: {} for name in NAMES}
        for each in transactions:
            for table, key, value in each.changes:
                state[table].pop(key, None)
                if value is not None:
                    state[table][key] = value
        return state

    def snapshot(self) -> tuple[Snapshot, State]:
        hidden = {each.xid for each in self.log if not each.visible}
        seen = self._applied([each for each in self.log if each.visible])
        running = frozenset(hidden | {each.xid for each in self.open})
        return Snapshot(self.xid, running, self.lsn), seen

    def messages(self, upto: int | None, most: int) -> Iterator[pgoutput.Message]:
        told: set[str] = set()
        count = 0
        for each in self.log:
            if each.commit < self.confirmed:
                continue
            for message in self._messages(each, told):
                count += 1
                yield message
            if count >= most or (upto is not None and each.end >= upto):
                return

    def _messages(self, of: Transaction, told: set[str]) -> Iterator[pgoutput.Message]:
        before = self.state(of.commit)
        yield pgoutput.BeginMessage(of.commit, of.xid % 2**32)
        for table, key, value in of.changes:
            oid, there = OIDS[table], key in before[table]
            if table not in told:
                told.add(table)
                yield pgoutput.RelationMessage(oid, "public", table, "d", COLUMNS)
            if value is None and there:
                del before[table][key]
                yield pgoutput.DeleteMessage(oid, (b"%d" % key, None))
            elif value is not None:
                before[table][key] = value
                new = (b"%d" % key, b"%d" % value)
                yield (
                    pgoutput.UpdateMessage(oid, None, new)
                    if there
                    else pgoutput.InsertMessage(oid, new)
                )
        yield pgoutput.CommitMessage(of.end)


class Session:
    """What the source asks a session of psycopg."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.itersize = 0
        self._found: list[Any] = []

    def execute(self, query: str, given: tuple[Any, ...] = ()) -> Session:
        self.server.churn()
        if "peek" in query:
            upto = None if given[1] is None else lsn_number(given[1])
            self._found = [(each,) for each in self.server.messages(upto, given[2])]
        elif "slot_advance" in query:
            to = lsn_number(given[1])
            assert self.server.confirmed <= to <= self.server.lsn
            self.server.confirmed = to
        elif "pg_replication_slots" in query:
            self._found = [("pgoutput", False)]
        elif "pg_publication" in query:
            self._found = [(True, oid, 7) for oid in given[0]] or [(True, None, None)]
        elif "flush_lsn" in query:
            self._found = [(self.server.lsn,)]
        elif "pg_current_snapshot" in query:
            now, _ = self.server.snapshot()
            running = ",".join(map(str, sorted(now.running)))
            self._found = [(f"0:{now.xmax}:{running}", now.end)]
        elif "pg_type" in query:
            self._found = [("b", 0, -1, 0, "N", "integer")]
        elif "system_identifier" in query:
            self._found = [(42,)]
        else:
            assert "emit_message" in query
        return self

    def fetchone(self) -> Any:
        return self._found[0]

    def fetchall(self) -> list[Any]:
        return self._found

    def __iter__(self) -> Iterator[Any]:
        return iter(self._found)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield

    @contextmanager
    def cursor(self, **_: object) -> Iterator[Session]:
        yield self


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have the source read a simulated server; a small limit makes many rounds of it."""

    def begin(server: Server) -> None:
        seen: dict[str, State] = {}

        @contextmanager
        def connected(*_: object) -> Iterator[Session]:
            yield Session(server)

        def described(_session: object, reference: Reference, _name: str) -> PgTable:
            columns = (("id", PgType(23)), ("v", PgType(23)))
            return PgTable(OIDS[reference.table], reference, "d", columns, ("id",), 7)

        def taken(_session: object, _tables: object) -> Snapshot:
            snapshot, seen["now"] = server.snapshot()
            server.churn()
            return snapshot

        def copied(_session: object, table: CapturedTable, _found: object) -> Iterator[Any]:
            import pyarrow as pa

            for key, value in sorted(seen["now"][table.reference.table].items()):
                server.churn()
                yield [pa.array([str(key)]), pa.array([str(value)])]

        for name, made in [
            ("connected", connected),
            ("described", described),
            ("taken", taken),
            ("copied", copied),
            ("_MOST_CHANGES", 4),
            ("_POLL_SECONDS", 0),
        ]:
            monkeypatch.setattr(source, name, made)
        monkeypatch.setattr(pgoutput, "decoded", lambda message: message)

    return begin


@dataclass
class Landed:
    """What was landed, as a ledger has it: positions and rows, moment by moment."""

    positions: dict[RelationId, Any] = field(default_factory=dict)
    rows: State = field(default_factory=lambda: {name: {} for name in NAMES})
    staged: list[tuple[str, pa.Table]] = field(default_factory=list)

    def take(self, moment: Any) -> None:
        names = {table.relation: name for name, table in TABLES.items()}
        found = [(names[id_], part.rows) for id_, part in moment.parts]
        assert not any(part.rejects or part.unchanged for _, part in moment.parts)
        if not moment.whole:
            self.staged += found
            return
        for name, rows in [*self.staged, *found]:
            for change in rows.to_pylist():
                self.rows[name].pop(change["id"], None)
                if change[WEIGHT] > 0:
                    self.rows[name][change["id"]] = change["v"]
        self.staged.clear()
        self.positions |= {id_: part.position for id_, part in moment.parts}


@pytest.mark.parametrize("seed", range(choose(40, 600)))
def test_every_state_that_is_landed_is_one_of_the_server_whatever_crashes(
    simulated: Any, seed: int
) -> None:
    chance = random.Random(seed)
    server, landed = Server(chance), Landed()
    simulated(server)
    for _ in range(30):
        server.churn()
    server.open.clear()  # the slot is created when no transaction runs
    for each in server.log:
        each.visible = True
    server.confirmed = server.oldest = server.lsn
    followed = 1
    for _ in range(6):
        followed = min(len(NAMES), followed + chance.randrange(2))
        tables = [TABLES[name] for name in NAMES[:followed]]
        place = CaptureAddress(Access(host="h", database="d", user="u"), "p", "s", 42)
        reading = PostgresSource(place, tables, str)
        landed.staged.clear()
        known = {table.relation: landed.positions.get(table.relation) for table in tables}
        moments = reading.moments(known)
        for _ in range(chance.randrange(1, 14)):
            moment = next(moments)
            if chance.random() < 0.1:
                break  # a crash before the ledger has it
            landed.take(moment)
            server.churn()
            if moment.whole:
                # What was landed before is read again where the slot has gone back.
                read = [each["lsn"] for each in landed.positions.values()]
                there = server.state(max(moment.done, *read, 0))
                for table in tables:
                    if landed.positions.get(table.relation) is not None:
                        name = table.reference.table
                        assert landed.rows[name] == there[name], (seed, name)
        moments.close()  # a crash after it, before or after the slot is told
        if chance.random() < 0.3:  # and one of the server, which stores slots now and then
            server.confirmed = chance.randint(server.oldest, server.confirmed)


def test_a_snapshot_sees_what_was_committed_before_it_also_where_ids_wrap_around() -> None:
    near = 3 * 2**32 + 5
    snapshot = Snapshot.of(f"{near - 9}:{near}:{near - 9},{near - 2}", 0)
    seen = [xid for xid in range(near - 12, near + 4) if snapshot.sees(xid % 2**32)]
    assert seen == [n for n in range(near - 12, near) if n not in {near - 9, near - 2}]


def test_a_server_at_rest_is_asked_less_often_than_one_whose_changes_follow_each_other() -> None:
    pauses = [source.pause_after(quiet) for quiet in (0.0, 0.3, 1.0, 60.0, float("inf"))]
    assert pauses == [0.005, 0.03, 0.1, 0.1, 0.1]
