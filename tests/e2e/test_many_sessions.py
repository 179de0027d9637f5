"""Eight sessions at once run random statements; every read is what its epoch must show.

Some statements make wide steps, so that two connected sets of views go at different paces.

What an epoch must show is worked out in Python from the log, up to the offsets that the epoch and
those before it have read, and from nothing that was maintained.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.errors import HeadraceError
from headrace.storage.log import read_range
from headrace.types import Offset
from length import choose

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headrace.types import Epoch, RelationId

SESSIONS = 8
LEAST_READS = 4
KEYS = 40
SECONDS = choose(1, 60)
Table = dict[int, tuple[int, int]]
"""The rows of a table: by key, its group and value."""


def counted(t: Table, *_: Table) -> Counter[Any]:
    groups: dict[int, list[int]] = {}
    for group, x in t.values():
        groups.setdefault(group, []).append(x)
    return Counter((group, len(xs), sum(xs)) for group, xs in groups.items())


def joined(t: Table, u: Table, _: Table) -> Counter[Any]:
    return Counter((k, x, u[k][1]) for k, (_, x) in t.items() if k in u)


def odd(t: Table, *_: Table) -> Counter[Any]:
    return Counter((k, x) for k, (_, x) in t.items() if x % 2)


def apart(_t: Table, _u: Table, w: Table) -> Counter[Any]:
    return Counter((k, x) for k, (g, x) in w.items() if g < 3)


VIEWS: dict[str, tuple[str, Callable[..., Counter[Any]]]] = {
    "counted": ("SELECT g, count(*) AS n, sum(x) AS total FROM t GROUP BY g", counted),
    "joined": ("SELECT t.k, t.x, u.x AS y FROM t JOIN u ON t.k = u.k", joined),
    "odd": ("SELECT k, x FROM t WHERE x % 2 = 1", odd),
    "apart": ("SELECT k, x FROM w WHERE g < 3", apart),
}


def _where(rows: Counter[Any], column: int, values: set[int]) -> Counter[Any]:
    return Counter({row: n for row, n in rows.items() if row[column] in values})


def _added(rows: Counter[Any]) -> Counter[Any]:
    return Counter((k, x + y) for k, x, y in rows.elements() if k < 9)


def _total(rows: Counter[Any]) -> Counter[Any]:
    xs = [x for _, x in rows.elements()]
    return Counter([(len(xs), sum(xs) if xs else None)])


READS: tuple[tuple[str, str, Callable[[Counter[Any]], Counter[Any]]], ...] = (
    ("counted", "SELECT * FROM counted", lambda rows: rows),
    ("counted", "SELECT * FROM counted WHERE g = 2", lambda rows: _where(rows, 0, {2})),
    ("joined", "SELECT * FROM joined", lambda rows: rows),
    ("joined", "SELECT k, x + y FROM joined WHERE k < 9", _added),
    ("odd", "SELECT * FROM odd WHERE k IN (3, 5, 8)", lambda rows: _where(rows, 0, {3, 5, 8})),
    ("odd", "SELECT count(*), sum(x) FROM odd", _total),
    ("apart", "SELECT * FROM apart", lambda rows: rows),
)


@dataclass
class Seen:
    """One read: what it returned, and the offsets that it had to show."""

    view: str
    query: str
    wanted: Callable[[Counter[Any]], Counter[Any]]
    epoch: Epoch
    rows: Counter[Any]
    awaited: dict[RelationId, Offset]


@dataclass
class Client:
    """One session that runs random statements until a time."""

    db: headrace.Database
    number: int
    until: float
    seen: list[Seen] = field(default_factory=list)
    failure: BaseException | None = None
    ran: Counter[str] = field(default_factory=Counter)

    def run(self) -> None:
        chosen = random.Random(self.number)
        try:
            with self.db.session() as session:
                while time.monotonic() < self.until or len(self.seen) < LEAST_READS:
                    what = chosen.choices(
                        [self.write, self.read, self.set_consistency, self.define, self.verify],
                        [40, 50, 4, 3, 1],
                    )[0]
                    what(session, chosen)
                    self.ran[what.__name__] += 1
        except BaseException as error:  # noqa: BLE001 - raised by the test
            self.failure = error

    def write(self, session: headrace.Session, chosen: random.Random) -> None:
        table, k = chosen.choice("ttuww"), chosen.randrange(KEYS)
        match chosen.randrange(6):
            case 0:
                session.sql(f"DELETE FROM {table} WHERE k = {k}")
            case 1:
                session.sql(f"UPDATE {table} SET x = x + 1 WHERE g = {chosen.randrange(5)}")
            case 2:
                session.sql(
                    f"INSERT INTO {table} VALUES ({k}, 1, {self.number}) ON CONFLICT (k) DO NOTHING"
                )
            case _:
                rows = [
                    (chosen.randrange(KEYS), chosen.randrange(5), chosen.randrange(100))
                    for _ in range(chosen.randrange(1, 5))
                ]
                session.insert(table, rows)

    def read(self, session: headrace.Session, chosen: random.Random) -> None:
        view, query, wanted = chosen.choice(READS)
        client, ends = session._client, dict(self.db.parts.ledger.head.ends)
        level = client.properties["consistency"]
        awaited = {"session": dict(client.awaited), "strict": ends}.get(level, {})
        result = session.sql(query)
        rows = Counter(result.fetchall())
        self.seen.append(Seen(view, query, wanted, result.epoch, rows, awaited))

    def set_consistency(self, session: headrace.Session, chosen: random.Random) -> None:
        session.sql(f"SET consistency = '{chosen.choice(['session', 'latest', 'strict'])}'")

    def define(self, session: headrace.Session, chosen: random.Random) -> None:
        """Create or drop a view that only this session knows, over what all write to."""
        name, (query, _) = f"own_{self.number}", chosen.choice(list(VIEWS.values()))
        session.sql(f"CREATE OR REPLACE MATERIALIZED VIEW {name} AS {query}")
        if chosen.random() < 0.5:
            session.sql(f"DROP MATERIALIZED VIEW {name}")

    def verify(self, session: headrace.Session, chosen: random.Random) -> None:
        verdict = session.sql(f"VERIFY {chosen.choice(list(VIEWS))}").fetchall()[0][3]
        assert verdict == "equal to batch"


@dataclass
class History:
    """What each epoch has read of each log, and the tables that this makes."""

    db: headrace.Database

    def __post_init__(self) -> None:
        ledger, catalog = self.db.parts.ledger, self.db.parts.reader.catalog
        self.ids = {name: catalog.resolve(name).id for name in "tuw"}
        self.logs: dict[str, list[dict[str, int]]] = {}
        for name, id_ in self.ids.items():
            end = ledger.head.log_end(id_)
            segments = ledger.log.segments(id_, Offset(0), end)
            batches = read_range(self.db.directory / "log", segments, Offset(0), end)
            self.logs[name] = [row for batch in batches for row in batch.to_pylist()]
        at: dict[RelationId, Offset] = dict.fromkeys(self.ids.values(), Offset(0))
        self.positions = {0: dict(at)}
        for record in reversed(ledger.epochs.newest(1_000_000)):
            at |= {read.relation: read.to_offset for read in record.reads}
            self.positions[record.epoch] = dict(at)

    def table(self, name: str, epoch: Epoch) -> Table:
        rows: Table = {}
        for row in self.logs[name][: self.positions[epoch][self.ids[name]]]:
            rows.pop(row["k"], None)
            if row["__weight"] > 0:
                rows[row["k"]] = (row["g"], row["x"])
        return rows


@pytest.mark.long
def test_every_read_of_many_sessions_is_what_its_epoch_shows(
    tmp_path: Path, spark: SparkSession
) -> None:
    with headrace.connect(
        tmp_path / "d",
        spark=spark,
        partitions=2,
        continuous=True,
        history_epochs=1_000_000,
        small_rows=3,
    ) as db:
        for table in "tuw":
            db.sql(f"CREATE TABLE {table} (k INT PRIMARY KEY, g INT, x INT)")
            db.insert(table, [(k, k % 5, k) for k in range(0, KEYS, 2)])
        for name, (query, _) in VIEWS.items():
            db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        until = time.monotonic() + SECONDS
        clients = [Client(db, number, until) for number in range(SESSIONS)]
        threads = [threading.Thread(target=client.run) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for client in clients:
            if client.failure is not None:
                raise client.failure
        ran = sum((client.ran for client in clients), Counter[str]())
        assert set(ran) >= {"write", "read"}
        history, made = History(db), {}
        reads = [seen for client in clients for seen in client.seen]
        for seen in reads:
            key = (seen.view, seen.epoch)
            if key not in made:
                tables = [history.table(name, seen.epoch) for name in "tuw"]
                made[key] = VIEWS[seen.view][1](*tables)
            assert seen.rows == seen.wanted(made[key]), (seen.query, seen.epoch)
            for id_, end in seen.awaited.items():
                if id_ in history.ids.values() and _is_read(seen.view, id_, history):
                    assert history.positions[seen.epoch][id_] >= end, (seen.query, seen.epoch)
        for client in clients:  # no session sees time go back
            epochs = [seen.epoch for seen in client.seen]
            assert epochs == sorted(epochs)
        assert len(reads) >= SESSIONS * LEAST_READS
        assert {verdict for *_, verdict in db.verify()} == {"equal to batch"}


def _is_read(view: str, id_: RelationId, history: History) -> bool:
    below = {"joined": "tu", "apart": "w"}.get(view, "t")
    return any(id_ == history.ids[name] for name in below)


@pytest.mark.long
def test_a_slow_or_failing_statement_holds_up_nobody(tmp_path: Path, spark: SparkSession) -> None:
    with headrace.connect(tmp_path / "d", spark=spark, partitions=2, continuous=True) as db:
        db.sql("CREATE STREAM s (k INT); CREATE MATERIALIZED VIEW v AS SELECT k FROM s")
        db.sql("INSERT INTO s VALUES (1)")
        db.sql("CREATE TABLE many (k INT)")
        db.insert("many", [(k,) for k in range(160)])

        def slowly(k: int) -> int:
            time.sleep(0.1)
            return k

        db.register("slowly", slowly, returns="INT", arguments=["INT"], deterministic=True)
        slow, begun = db.session(), threading.Event()
        found: list[BaseException] = []

        def run() -> None:
            begun.set()
            try:
                slow.sql("SELECT sum(slowly(k)) FROM many")
            except HeadraceError as error:
                found.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        assert begun.wait(60)
        with db.session() as other:
            assert other.sql("SELECT * FROM v").fetchall() == [(1,)]
            with pytest.raises(HeadraceError):
                other.sql("SELECT * FROM nothing")
            other.sql("INSERT INTO s VALUES (2)")
            assert sorted(other.sql("SELECT k + 0 FROM v").fetchall()) == [(1,), (2,)]
            assert not other.cancel()
        while thread.is_alive():
            slow.cancel()
            thread.join(0.2)
        assert [str(error).partition(":")[0] for error in found] == ["error[cancelled]"], found
        with pytest.raises(HeadraceError, match="the session is closed"):
            other.sql("SELECT 1")


def test_the_settings_of_a_session_are_its_own(db: headrace.Database) -> None:
    one, two = db.session(), db.session()
    one.sql("SET consistency = 'latest'")
    for session, level in ((one, "latest"), (two, "session")):
        assert session.sql("SHOW consistency").fetchall()[0][:2] == ("consistency", level)
    db.sql("CREATE STREAM s (k INT); CREATE MATERIALIZED VIEW v AS SELECT k FROM s")
    db.sql("INSERT INTO s VALUES (1)")
    assert one.sql("SELECT * FROM v").fetchall() == []  # no epoch has read it, and nobody asked
    assert two.sql("SELECT * FROM v").fetchall() == []  # it was written after two had begun
    two.sql("SET consistency = 'strict'")
    assert two.sql("SELECT * FROM v").fetchall() == [(1,)]
    assert one.sql("SELECT * FROM v").fetchall() == [(1,)]
