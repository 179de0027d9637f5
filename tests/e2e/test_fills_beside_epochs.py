"""Fills go on beside epochs, beside each other, and are right at the point where they join."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import headrace
from headrace.errors import Code, HeadraceError
from length import choose, some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

ROWS = choose(4_000, 12_000)
VIEWS = {
    "counted": "SELECT g, count(*) AS n, sum(x) AS total, max(x) AS most FROM t GROUP BY g",
    "joined": "SELECT t.k, t.x, s.y FROM t JOIN s ON t.k = s.k WHERE t.x % 3 = 0",
    "over": "SELECT n, count(*) AS groups FROM base GROUP BY n",
    "outer_": "SELECT s.k, s.y, t.x FROM s LEFT JOIN t ON s.k = t.k",
    "recent": "SELECT g, count(*) AS n FROM t WHERE at > now() - INTERVAL 4 SECONDS GROUP BY g",
    "unread": "SELECT k % 7 AS k, count(*) AS n FROM u GROUP BY k % 7",
}


@pytest.fixture
def db(tmp_path: Path, spark: SparkSession) -> Iterator[headrace.Database]:
    with headrace.connect(
        tmp_path / "d",
        spark=spark,
        partitions=2,
        continuous=True,
        fill_rows=ROWS // 6,
        small_rows=500,
    ) as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, g INT, x INT, at TIMESTAMP)")
        db.sql("CREATE STREAM s (k INT, y INT)")
        db.sql("CREATE STREAM u (k INT)")
        db.sql("CREATE MATERIALIZED VIEW base AS SELECT g, count(*) AS n FROM t GROUP BY g")
        k = range(ROWS)
        db.insert("t", timed(arrow(k=k, g=[i % 50 for i in k], x=[i * 7 % 1000 for i in k])))
        db.insert("s", arrow(k=[i * 5 % ROWS for i in range(2000)], y=range(2000)))
        db.insert("u", arrow(k=k))
        db.flush()
        yield db


def arrow(**columns: object) -> pa.Table:
    return pa.table({name: pa.array(list(v), pa.int32()) for name, v in columns.items()})  # type: ignore[call-overload]


def timed(rows: pa.Table) -> pa.Table:
    """Return rows with the time at which they were made, and up to three seconds before or after."""
    now = datetime.now(UTC)
    at = [now + timedelta(milliseconds=37 * i % 6000 - 3000) for i in range(rows.num_rows)]
    return rows.append_column("at", pa.array(at, pa.timestamp("us", "UTC")))


def writing(db: headrace.Database, ended: threading.Event) -> None:
    """Insert, replace, delete and append, until the fills have ended."""
    session, i = db.session(), 0
    while not ended.is_set():
        i += 1
        k = [(i * 37 + j * 11) % (ROWS + 500) for j in range(40)]
        rows = len(set(k))
        session.insert("t", timed(arrow(k=sorted(set(k)), g=[i % 60] * rows, x=[i] * rows)))
        session.insert("s", arrow(k=k[:5], y=[i] * 5))
        session.insert("u", arrow(k=k))
        if i % 4 == 0:
            session.sql(f"DELETE FROM t WHERE k = {k[0]} OR k = {k[1]}")
        time.sleep(0.02)


def beside(work: list[Callable[[], object]]) -> None:
    """Run functions at once, each on a thread; raise the first failure."""
    failures: list[BaseException] = []

    def run(each: Callable[[], object]) -> None:
        try:
            each()
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.long
def test_views_filled_beside_writers_and_each_other_are_right(db: headrace.Database) -> None:
    ended = threading.Event()
    writer = threading.Thread(target=writing, args=(db, ended))
    writer.start()
    before = db.last_epoch()
    chosen = some(VIEWS, "counted unread joined recent")

    def create(*names: str) -> None:
        with db.session() as session:
            for name in filter(chosen.__contains__, names):
                session.sql(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}")

    try:
        beside(
            [
                lambda: create("counted", "outer_", "unread"),
                lambda: create("joined", "recent", "over"),
            ]
        )
        with db.session() as session:
            session.sql(f"CREATE MATERIALIZED VIEW again AS {VIEWS['unread']}")
    finally:
        ended.set()
        writer.join()
    made = [e for e in db.parts.ledger.epochs.newest() if e.epoch > before]
    assert len([e for e in made if "filled" not in e.counters]) > 3
    verdicts = {name: verdict for name, _, _, verdict in db.verify()}
    assert set(verdicts) == {"base", "again", *chosen}
    assert set(verdicts.values()) == {"equal to batch"}


@pytest.mark.long
def test_a_fill_is_cancelled_and_leaves_nothing(db: headrace.Database) -> None:
    files = {path.name for path in (db.directory / "runs").iterdir()}
    with db.session() as session:

        def cancel(_made: headrace.Progress) -> None:
            session.cancel()

        with pytest.raises(HeadraceError, match="cancelled"):
            session.sql(f"CREATE MATERIALIZED VIEW v AS {VIEWS['counted']}", progress=cancel)
    assert ("materialized view", "v") not in db.relations()
    assert {path.name for path in (db.directory / "runs").iterdir()} <= files
    db.sql(f"CREATE MATERIALIZED VIEW v AS {VIEWS['counted']}")
    assert db.verify("v").fetchall()[0][3] == "equal to batch"


def test_a_fill_whose_input_is_dropped_meanwhile_is_refused(db: headrace.Database) -> None:
    with db.session() as session, db.session() as other:
        dropped = []

        def drop(_made: headrace.Progress) -> None:
            if not dropped:
                dropped.append(other.sql("DROP STREAM u"))

        with pytest.raises(HeadraceError, match="meanwhile") as refused:
            session.sql(f"CREATE MATERIALIZED VIEW v AS {VIEWS['unread']}", progress=drop)
        assert refused.value.code is Code.CONFLICT
    assert db.sql("SELECT count(*) FROM base").fetchall() == [(50,)]
