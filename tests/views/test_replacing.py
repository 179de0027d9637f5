"""CREATE OR REPLACE of a view that others read: they follow the difference, in the same epoch."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.fill import Fill
from histories import History
from length import choose, each

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BASE = (
    "SELECT g, sum(x) AS x, count(*) AS n FROM t GROUP BY g",
    "SELECT g, sum(x) AS x, count(*) AS n FROM t WHERE x % 2 = 0 GROUP BY g",
    "SELECT s.g, sum(t.x + s.y) AS x, count(*) AS n FROM s JOIN t ON s.g = t.g GROUP BY s.g",
    "SELECT y AS g, sum(g) AS x, count(*) AS n FROM s GROUP BY y",
)
ABOVE = {
    "again": "SELECT n, sum(x) AS x, count(*) AS groups FROM base GROUP BY n",
    "total": "SELECT sum(x) AS x, count(*) AS n FROM base",
    "joined": "SELECT t.id, t.x, base.x AS total FROM t JOIN base ON t.g = base.g",
    "outer_": "SELECT t.id, base.n FROM t LEFT JOIN base ON t.g = base.g",
    "itself": "SELECT a.g, b.n FROM base a JOIN base b ON a.g = b.n",
    "never": "SELECT t.id FROM t WHERE NOT EXISTS (SELECT 1 FROM base WHERE base.g = t.g)",
    "windows": "SELECT g, x, rank() OVER (PARTITION BY n ORDER BY x) AS r FROM base",
    "first": "SELECT g, x FROM base ORDER BY x, g LIMIT 3",
    "kinds": "SELECT DISTINCT n % 3 AS k FROM base",
    "third": "SELECT groups, sum(x) AS x FROM again GROUP BY groups",
    "reached": "WITH RECURSIVE r(g, d) AS (SELECT g, 0 FROM base WHERE n > 1 UNION ALL"
    " SELECT CAST(base.n AS INT), d + 1 FROM r JOIN base ON r.g = base.g WHERE d < 3) SELECT * FROM r",
}


@pytest.mark.long
@pytest.mark.parametrize("small_rows", [20_000, pytest.param(0, marks=pytest.mark.long)])
def test_what_reads_a_view_follows_the_difference_of_its_queries(oracle, small_rows):
    run = oracle(rows_per_change=200, small_rows=small_rows)
    run.table("t", "id INT, g INT, x INT", key="id")
    run.stream("s", "g INT, y INT")
    run.view("base", BASE[0])
    above = choose(["again", "outer_", "first", "reached"], list(ABOVE))
    for name in above:
        run.view(name, ABOVE[name])
    history = History(run, 5, domain=7)
    history.write(["t", "s"], 40)
    for query in choose((BASE[2],), (*BASE[1:], BASE[0])):
        run.replace_view("base", query)
        history.write(["t", "s"], 12)
        run.epoch()
    run.replace_view("again", "SELECT n, max(x) AS x, count(*) AS groups FROM base GROUP BY n")
    run.view("beside", "SELECT g, count(*) AS n FROM t GROUP BY g")
    run.replace_view("beside", "SELECT g, count(*) AS n FROM base GROUP BY g")
    history.write(["t", "s"], 12)
    run.finish()
    run.reopen()
    run.replace_view("base", BASE[1])
    history.write(["t"], 5)
    run.epoch()
    run.verify(*choose(("base", "reached"), (*above, "base")))


def test_sinks_and_subscribers_of_a_view_get_the_difference(db):
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, g INT); CREATE TABLE copy (g INT, n BIGINT)")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT g, count(*) AS n FROM t GROUP BY g")
    db.sql("CREATE SINK into_copy INTO copy FROM v")
    db.sql("INSERT INTO t VALUES (1, 1), (2, 1), (3, 2)")
    db.flush()
    with db.subscribe("v") as changes:
        assert len(changes.poll()) == 2
        message = db.sql(
            "CREATE OR REPLACE MATERIALIZED VIEW v AS"
            " SELECT g, count(*) AS n FROM t WHERE k > 1 GROUP BY g"
        )
        assert str(message) == "replaced materialized view v from 3 changes"
        found = [(change.operation, tuple(change.row.values())) for change in changes.poll()]
        assert found == [("-U", (1, 2)), ("+U", (1, 1))]
    db.flush()
    assert sorted(db.sql("SELECT * FROM copy").fetchall()) == [(1, 1), (2, 1)]
    epochs = db.sql("SELECT * FROM v AS OF EPOCH 5").fetchall()
    assert sorted(epochs) == [(1, 2), (2, 1)]


@pytest.mark.parametrize(
    ("query", "above"),
    each(
        2,
        [
            ("SELECT g, count(*) AS n, 1 AS one FROM t GROUP BY g", [(1, 1)]),
            ("SELECT g, count(*) AS m FROM t GROUP BY g", None),
            ("SELECT g, sum(k) AS n FROM t GROUP BY g", [(7, 1)]),
            ("SELECT g, 1L AS n FROM t", [(1, 1)]),
        ],
    ),
)
def test_views_that_read_one_with_other_columns_follow_it_or_keep_it(db, query, above):
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, g INT)")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT g, count(*) AS n FROM t GROUP BY g")
    db.sql("CREATE MATERIALIZED VIEW w AS SELECT n, g FROM v")
    db.sql("INSERT INTO t VALUES (7, 1)")
    if above is None:
        with pytest.raises(HeadraceError, match='"w" reads view "v", and cannot follow') as caught:
            db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {query}")
        assert caught.value.code is Code.CONFLICT
        db.sql("DROP MATERIALIZED VIEW w")
    db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {query}")
    if above is not None:
        assert db.sql("SELECT * FROM w").fetchall() == above
    assert db.sql("SELECT count(*) FROM v").fetchall() == [(1,)]


@pytest.mark.parametrize("below", each(3, ["named", "v", "w"]))
def test_a_view_does_not_come_to_read_itself(db, below):
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, g INT)")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT k, g FROM t")
    db.sql("CREATE MATERIALIZED VIEW w AS SELECT k, g FROM v")
    db.sql("CREATE VIEW named AS SELECT k, g FROM w")
    with pytest.raises(HeadraceError, match='view "v" would depend on itself'):
        db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT k, g FROM {below}")


@pytest.mark.long
def test_a_query_on_whose_rows_a_view_above_fails_does_not_take_over(db):
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, g INT)")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT g, count(*) AS n FROM t GROUP BY g")
    db.sql("CREATE MATERIALIZED VIEW w AS SELECT g, 10 DIV (n - 3) AS m FROM v")
    db.sql("INSERT INTO t VALUES (1, 1), (2, 1)")
    before = [sorted(db.sql(f"SELECT * FROM {name}").fetchall()) for name in "vw"]
    with pytest.raises(HeadraceError) as caught:
        db.sql(
            "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT g, count(*) + 1 AS n FROM t GROUP BY g"
        )
    assert caught.value.code is Code.INVALID
    assert [sorted(db.sql(f"SELECT * FROM {name}").fetchall()) for name in "vw"] == before
    db.sql("INSERT INTO t VALUES (3, 2)")
    assert sorted(db.sql("SELECT * FROM w").fetchall()) == [(1, -10), (2, -5)]
    assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}


@pytest.mark.long
def test_queries_are_replaced_while_epochs_are_made(tmp_path: Path, spark: SparkSession) -> None:
    with headrace.connect(
        tmp_path / "d", spark=spark, partitions=2, continuous=True, small_rows=50, fill_rows=500
    ) as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, g INT)")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT g, count(*) AS n FROM t GROUP BY g")
        db.sql("CREATE MATERIALIZED VIEW w AS SELECT n, count(*) AS m FROM v GROUP BY n")
        db.insert("t", [(k, k % 11) for k in range(2_000)])
        db.flush()
        ended = threading.Event()

        def write() -> None:
            with db.session() as session:
                for i in range(100_000):
                    if ended.is_set():
                        return
                    session.insert("t", [((i * 7 + j) % 3_000, (i + j) % 13) for j in range(20)])
                    time.sleep(0.01)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for least in range(choose(1, 8)):
                db.sql(
                    "CREATE OR REPLACE MATERIALIZED VIEW v AS"
                    f" SELECT g, count(*) AS n FROM t WHERE g >= {least} GROUP BY g"
                )
                db.sql("VERIFY v")
        finally:
            ended.set()
            thread.join()
        db.flush()
        assert {verdict for *_, verdict in db.verify()} == {"equal to batch"}


def test_of_two_replacements_at_once_one_is_a_conflict(db, monkeypatch):
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, g INT); INSERT INTO t VALUES (1, 1), (2, 1), (3, 2)")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT g, count(*) AS n FROM t GROUP BY g")
    replace = "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT g, count(*) AS n FROM t WHERE {} GROUP BY g"
    begin, failed = Fill.begin, []

    def overtaken(fill, state, clock=None):
        """Fill a build; before it catches up, another one is filled and takes over."""
        begin(fill, state, clock)
        monkeypatch.setattr(Fill, "begin", begin)
        with db.session() as other:
            other.sql(replace.format("k > 1"))

    monkeypatch.setattr(Fill, "begin", overtaken)
    try:
        db.sql(replace.format("k < 3"))
    except HeadraceError as error:
        failed.append(error)
    assert [error.code for error in failed] == [Code.CONFLICT]
    assert sorted(db.sql("SELECT * FROM v").fetchall()) == [(1, 1), (2, 1)]
    db.sql("INSERT INTO t VALUES (4, 2)")
    assert sorted(db.sql("SELECT * FROM v").fetchall()) == [(1, 1), (2, 2)]
    assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}
