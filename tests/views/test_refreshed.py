"""Views that are refreshed apart from the epochs, through Spark: each VERIFYs where it stands."""

from __future__ import annotations

from random import Random

import pytest

import headrace
from headrace.errors import Code, HeadraceError
from spoiling import spoil
from waiting import until


def rows(db, query):
    return sorted(db.sql(query).fetchall())


def verified(db):
    found = {name: verdict for name, _, _, verdict in db.sql("VERIFY").fetchall()}
    assert all(verdict.startswith("equal to batch") for verdict in found.values()), found


def freshness(db):
    found = db.sql("SHOW FRESHNESS").to_arrow().to_pylist()
    return {each["view"]: each for each in found}


@pytest.mark.long
def test_a_view_shows_its_inputs_as_of_its_last_refresh(db):
    db.sql("""
        CREATE STREAM s (k INT, v INT);
        CREATE TABLE t (k INT, name STRING, PRIMARY KEY (k));
        CREATE MATERIALIZED VIEW live AS SELECT k, sum(v) AS total FROM s GROUP BY k;
        CREATE MATERIALIZED VIEW late WITH (refresh = 'manual') AS
            SELECT name, sum(v) AS total FROM s JOIN t ON s.k = t.k GROUP BY name;
        CREATE MATERIALIZED VIEW both WITH (refresh = 'manual') AS
            SELECT l.k, l.total, t.name FROM live l LEFT JOIN t ON l.k = t.k;
        CREATE MATERIALIZED VIEW over AS SELECT count(*) AS n, max(total) AS most FROM late;
        INSERT INTO t VALUES (1, 'a'), (2, 'b');
        INSERT INTO s VALUES (1, 10), (2, 20), (1, 1)
    """)
    assert rows(db, "SELECT * FROM live") == [(1, 11), (2, 20)]
    assert rows(db, "SELECT * FROM late") == rows(db, "SELECT * FROM both") == []
    assert rows(db, "SELECT * FROM over") == [(0, None)]
    assert "refreshed 2 views" in db.sql("REFRESH late, both").message
    assert rows(db, "SELECT * FROM late") == [("a", 11), ("b", 20)]
    assert rows(db, "SELECT * FROM both") == [(1, 11, "a"), (2, 20, "b")]
    assert rows(db, "SELECT * FROM over") == [(2, 20)]
    db.sql("UPDATE t SET name = 'c' WHERE k = 2; INSERT INTO s VALUES (2, 5); FLUSH")
    assert rows(db, "SELECT * FROM late") == [("a", 11), ("b", 20)]
    found = db.sql("SELECT * FROM late")
    assert found.freshness.pending == 2
    assert found.freshness.frontier == freshness(db)["late"]["epoch"] < found.epoch
    assert db.sql("SELECT * FROM live").freshness.frontier is None
    about = freshness(db)
    assert (about["late"]["changes_behind"], about["late"]["state"]) == (2, "lagging")
    assert (about["live"]["changes_behind"], about["live"]["state"]) == (0, "running")
    assert about["late"]["refresh"] == "manual"
    assert about["over"]["changes_behind"] == 2
    verified(db)
    db.sql("REFRESH both")
    assert rows(db, "SELECT * FROM both") == [(1, 11, "a"), (2, 25, "c")]
    assert rows(db, "SELECT * FROM late") == [("a", 11), ("b", 20)]
    db.sql("REFRESH ALL")
    assert rows(db, "SELECT * FROM late") == [("a", 11), ("c", 25)]
    assert rows(db, "SELECT * FROM over") == [(2, 25)]
    assert freshness(db)["late"]["changes_behind"] == 0
    verified(db)


@pytest.mark.long
def test_views_agree_that_read_one_that_lags_with_it_through_a_maintained_one(db):
    db.sql("""
        CREATE TABLE s (id INT PRIMARY KEY, k STRING, x INT);
        CREATE MATERIALIZED VIEW a WITH (refresh = 'manual') AS
            SELECT k, sum(x) AS s FROM s GROUP BY k;
        CREATE MATERIALIZED VIEW b AS SELECT k, s + 1 AS z FROM a;
        CREATE MATERIALIZED VIEW c WITH (refresh = 'manual') AS
            SELECT a.k, a.s, b.z FROM a JOIN b ON a.k = b.k;
        INSERT INTO s VALUES (1, 'a', 10)
    """)
    db.sql("REFRESH c, a")
    assert rows(db, "SELECT * FROM c") == [("a", 10, 11)]
    db.sql("INSERT INTO s VALUES (2, 'a', 1000), (3, 'b', 5)")
    db.sql("REFRESH ALL")
    assert rows(db, "SELECT * FROM c") == [("a", 1010, 1011), ("b", 5, 6)]
    verified(db)


@pytest.mark.long
def test_verify_reads_the_rows_that_a_view_below_had_before_its_query_was_replaced(db):
    db.sql("""
        CREATE TABLE t (id INT PRIMARY KEY, k STRING, x INT);
        INSERT INTO t VALUES (1, 'a', 10), (2, 'b', 20), (3, 'a', 30);
        CREATE MATERIALIZED VIEW low AS SELECT k, sum(x) AS s FROM t GROUP BY k;
        CREATE MATERIALIZED VIEW mid AS SELECT k, s + 1 AS s FROM low;
        CREATE MATERIALIZED VIEW late WITH (refresh = 'manual') AS
            SELECT m.k, m.s, l.s AS low FROM mid m JOIN low l ON m.k = l.k WHERE m.s > 5;
        CREATE OR REPLACE MATERIALIZED VIEW low AS SELECT k, sum(-x) AS s FROM t GROUP BY k
    """)
    was = [("a", 41, 40), ("b", 21, 20)]
    assert rows(db, "SELECT * FROM late") == was
    found = {name: (different, verdict) for name, _, different, verdict in db.sql("VERIFY")}
    by = ", by the stored rows of low, replaced or altered since the view was refreshed"
    assert found["late"] == (0, "equal to batch" + by)
    assert found["low"] == found["mid"] == (0, "equal to batch")
    spoil(db, "late", lambda row: {**row, "s": 7} if row["k"] == "a" else row)
    ((_, _, different, verdict),) = db.sql("VERIFY late").fetchall()
    assert different == 2
    assert verdict.startswith("differs: ")
    assert verdict.endswith(by)
    db.sql("CREATE OR REPLACE MATERIALIZED VIEW low AS SELECT k, sum(x) AS s FROM t GROUP BY k")
    assert "by the stored rows" not in db.sql("VERIFY late").fetchall()[0][3]


@pytest.mark.long
def test_a_stream_that_only_views_read_that_lag_makes_no_epochs(db):
    db.sql("CREATE STREAM s (v INT)")
    db.sql("CREATE MATERIALIZED VIEW late WITH (refresh = 'manual') AS SELECT sum(v) AS n FROM s")
    epoch = db.last_epoch()
    db.sql("INSERT INTO s VALUES (1), (2)")
    assert rows(db, "SELECT * FROM late") == [(None,)]
    assert db.last_epoch() == epoch
    assert freshness(db)["late"]["changes_behind"] == 2
    db.sql("REFRESH late")
    assert rows(db, "SELECT * FROM late") == [(3,)]
    db.sql("INSERT INTO s VALUES (4)")
    assert [line for (line,) in db.sql("EXPLAIN LINEAGE VIEW late").fetchall()] == [
        f"view late: epoch {freshness(db)['late']['epoch']}",
        "  stream s: changes [0, 2) of 3 are read",
    ]
    db.sql("REFRESH late")
    db.sql("CREATE MATERIALIZED VIEW live AS SELECT max(v) AS most FROM s")
    db.sql("INSERT INTO s VALUES (5)")
    assert rows(db, "SELECT * FROM live") == [(5,)]
    assert rows(db, "SELECT * FROM late") == [(7,)]
    verified(db)


@pytest.mark.long
def test_a_view_can_join_the_epochs_and_leave_them(db):
    db.sql("CREATE TABLE t (k INT, v INT, PRIMARY KEY (k)); CREATE STREAM s (v INT)")
    query = "SELECT (SELECT sum(v) FROM t) AS a, (SELECT count(*) FROM s) AS b"
    db.sql(f"CREATE MATERIALIZED VIEW m WITH (refresh = 'manual') AS {query}")
    db.sql("INSERT INTO t VALUES (1, 1), (2, 2); INSERT INTO s VALUES (1)")
    assert rows(db, "SELECT * FROM m") == [(None, 0)]
    assert "continuous" in db.sql("ALTER MATERIALIZED VIEW m SET (refresh = 'continuous')").message
    assert rows(db, "SELECT * FROM m") == [(3, 1)]
    db.sql("INSERT INTO t VALUES (3, 3); INSERT INTO s VALUES (1)")
    assert rows(db, "SELECT * FROM m") == [(6, 2)]
    verified(db)
    db.sql("ALTER MATERIALIZED VIEW m SET (refresh = 'every 2 hours')")
    db.sql("DELETE FROM t WHERE k = 3; INSERT INTO s VALUES (1); FLUSH")
    assert rows(db, "SELECT * FROM m") == [(6, 2)]
    about = freshness(db)["m"]
    assert (about["refresh"], about["changes_behind"]) == ("every 2 hours", 2)
    assert about["next_refresh"] > about["committed_at"]
    verified(db)
    db.sql("REFRESH m")
    assert rows(db, "SELECT * FROM m") == [(3, 3)]
    verified(db)


WRITTEN = {
    "MATERIALIZED VIEW {} WITH (refresh = 'every 90 seconds')": "every 90 seconds",
    "MATERIALIZED VIEW {} WITH (refresh = 'on write')": "on write",
    "MATERIALIZED VIEW {} OPTIONS (enable_refresh = false)": "manual",
    "MATERIALIZED VIEW {} OPTIONS (refresh_interval_minutes = 60)": "every 1 hour",
    "MATERIALIZED VIEW {} WITH (REFRESH EVERY '1 day')": "every 1 day",
    "MATERIALIZED VIEW {} WITH (REFRESH ON COMMIT)": "continuous",
    "MATERIALIZED VIEW {} SCHEDULE EVERY 2 HOURS": "every 2 hours",
    "MATERIALIZED VIEW {} REFRESH POLICY INCREMENTAL STRICT": "continuous",
    "MATERIALIZED VIEW {} TRIGGER ON UPDATE": "continuous",
    "DYNAMIC TABLE {} TARGET_LAG = '5 minutes' WAREHOUSE = w": "every 5 minutes",
    "TABLE {} WITH (refresh = 'manual')": "manual",
}


@pytest.mark.long
def test_each_dialect_says_when_a_view_is_refreshed(db):
    db.sql("CREATE STREAM s (v INT)")
    for number, written in enumerate(WRITTEN):
        db.sql(f"CREATE {written.format(f'm{number}')} AS SELECT count(*) AS n FROM s")
    about = freshness(db)
    assert [about[f"m{number}"]["refresh"] for number in range(len(WRITTEN))] == [*WRITTEN.values()]


REFUSED = [
    ("WITH (refresh = 'hourly')", Code.INVALID, "refresh policy"),
    ("WITH (refresh = 'every month')", Code.INVALID, "interval"),
    ("WITH (refresh = 'every 0 seconds')", Code.INVALID, "interval"),
    ("WITH (refresh = 'manual', target_lag = '1 hour')", Code.INVALID, "contradict"),
    ("WITH (refresh_interval_minutes = -1)", Code.INVALID, "interval"),
    ("WITH (REFRESH AT '2026-01-01')", Code.UNSUPPORTED, "REFRESH AT"),
    ("SCHEDULE CRON '0 0 * * *'", Code.UNSUPPORTED, "CRON"),
    ("TARGET_LAG = DOWNSTREAM", Code.UNSUPPORTED, "DOWNSTREAM"),
    ("REFRESH POLICY NEVER", Code.INVALID, "AUTO"),
]


def test_what_says_nothing_is_refused_at_its_place(db):
    db.sql("CREATE STREAM s (v INT)")
    for written, code, said in REFUSED:
        with pytest.raises(HeadraceError) as caught:
            db.sql(f"CREATE MATERIALIZED VIEW m {written} AS SELECT count(*) AS n FROM s")
        assert (caught.value.code, caught.value.span is not None) == (code, True)
        assert said in caught.value.primary


@pytest.mark.long
def test_a_write_returns_when_a_view_shows_it(tmp_path, spark):
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False, partitions=2) as db:
        db.sql("CREATE STREAM s (k INT, v INT); CREATE TABLE t (k INT, PRIMARY KEY (k))")
        db.sql("CREATE MATERIALIZED VIEW below AS SELECT k, sum(v) AS total FROM s GROUP BY k")
        query = "SELECT count(*) AS n FROM below JOIN t ON below.k = t.k"
        db.sql(f"CREATE MATERIALIZED VIEW m WITH (refresh = 'on write') AS {query}")
        db.sql("CREATE TABLE apart (k INT, PRIMARY KEY (k))")
        relation = db.parts.reader.catalog.resolve("m")

        def shown():
            return db.parts.reader.contents(db.parts.reader.published, relation).whole().to_pylist()

        db.sql("INSERT INTO s VALUES (1, 1)")
        db.sql("INSERT INTO t VALUES (1), (2)")
        assert shown() == [{"n": 1}]
        db.insert("s", [(2, 5)])
        assert shown() == [{"n": 2}]
        db.sql("DELETE FROM t WHERE k = 1")
        assert shown() == [{"n": 1}]
        epoch = db.last_epoch()
        db.sql("INSERT INTO apart VALUES (1)")
        assert db.last_epoch() == epoch
        verified(db)


@pytest.mark.long
def test_recursions_windows_and_the_clock_are_right_where_a_view_stands(tmp_path, spark):
    now = [1_700_000_000_000_000]
    with headrace.connect(
        tmp_path / "db", spark=spark, continuous=False, partitions=2, clock=lambda: now[0]
    ) as db:
        db.sql("CREATE TABLE edges (a INT, b INT, PRIMARY KEY (a, b))")
        db.sql("CREATE STREAM events (k INT, at TIMESTAMP)")
        db.sql("""
            CREATE MATERIALIZED VIEW reach WITH (refresh = 'manual') AS
                WITH RECURSIVE r(a, b) AS (SELECT a, b FROM edges UNION ALL
                    SELECT r.a, e.b FROM r JOIN edges e ON r.b = e.a) SELECT a, b FROM r;
            CREATE MATERIALIZED VIEW ranked WITH (refresh = 'manual') AS
                SELECT a, b, row_number() OVER (PARTITION BY a ORDER BY b) AS nth FROM edges;
            CREATE MATERIALIZED VIEW recent WITH (refresh = 'manual') AS
                SELECT k, count(*) AS n FROM events WHERE at > now() - INTERVAL '1' HOUR GROUP BY k;
            INSERT INTO edges VALUES (1, 2), (2, 3);
            INSERT INTO events VALUES (1, timestamp_micros(1700000000000000)),
                (2, timestamp_micros(1700003000000000));
            REFRESH ALL
        """)
        assert rows(db, "SELECT * FROM reach") == [(1, 2), (1, 3), (2, 3)]
        assert rows(db, "SELECT * FROM ranked") == [(1, 2, 1), (2, 3, 1)]
        assert rows(db, "SELECT * FROM recent") == [(1, 1), (2, 1)]
        verified(db)
        now[0] += 3_700_000_000
        db.sql("INSERT INTO edges VALUES (3, 1), (1, 0); DELETE FROM edges WHERE a = 2; FLUSH")
        assert rows(db, "SELECT * FROM reach") == [(1, 2), (1, 3), (2, 3)]
        assert rows(db, "SELECT * FROM recent") == [(1, 1), (2, 1)]
        verified(db)
        db.sql("REFRESH reach, ranked, recent")
        assert rows(db, "SELECT * FROM reach") == [(1, 0), (1, 2), (3, 0), (3, 1), (3, 2)]
        assert rows(db, "SELECT * FROM ranked") == [(1, 0, 1), (1, 2, 2), (3, 1, 1)]
        assert rows(db, "SELECT * FROM recent") == [(2, 1)]
        verified(db)
        db.sql("ALTER MATERIALIZED VIEW recent SET (refresh = 'continuous')")
        now[0] += 3_700_000_000
        assert rows(db, "SELECT * FROM recent") == []


@pytest.mark.long
def test_indexes_sinks_and_followers_get_one_difference_for_each_refresh(db):
    db.sql("CREATE TABLE t (k INT, g STRING, v INT, PRIMARY KEY (k))")
    db.sql("CREATE TABLE out (g STRING, n BIGINT, PRIMARY KEY (g))")
    db.sql("""
        CREATE MATERIALIZED VIEW m WITH (refresh = 'manual') AS
            SELECT g, sum(v) AS n FROM t GROUP BY g;
        CREATE INDEX ON m (n); CREATE SINK s INTO out FROM m
    """)
    with db.sql("SUBSCRIBE m") as followed:
        followed.poll()
        for v in (1, 2, 3):
            db.sql(f"INSERT INTO t VALUES ({v}, 'a', {v}); FLUSH")
        assert followed.poll() == []
        db.sql("REFRESH m")
        (change,) = followed.poll()
        assert (change.operation, change.row) == ("+I", {"g": "a", "n": 6})
    assert rows(db, "SELECT g FROM m WHERE n = 6") == [("a",)]
    db.sql("FLUSH")
    assert rows(db, "SELECT * FROM out") == [("a", 6)]
    verified(db)


@pytest.mark.long
def test_a_query_that_fails_leaves_the_view_where_it_stands(db):
    db.sql("CREATE TABLE t (k INT, v INT, PRIMARY KEY (k))")
    db.sql("CREATE MATERIALIZED VIEW m WITH (refresh = 'manual') AS SELECT k, 10 / v AS n FROM t")
    db.sql("INSERT INTO t VALUES (1, 2); REFRESH m; INSERT INTO t VALUES (2, 0)")
    with pytest.raises(HeadraceError) as caught:
        db.sql("REFRESH m")
    assert caught.value.code is Code.INVALID
    assert rows(db, "SELECT * FROM m") == [(1, 5.0)]
    verified(db)
    db.sql("UPDATE t SET v = 5 WHERE k = 2; REFRESH m")
    assert rows(db, "SELECT * FROM m") == [(1, 5.0), (2, 2.0)]


@pytest.mark.long
def test_damage_is_repaired_where_the_view_stands(db):
    db.sql("CREATE TABLE t (k INT, v INT, PRIMARY KEY (k)); INSERT INTO t VALUES (1, 2)")
    db.sql("CREATE MATERIALIZED VIEW m WITH (refresh = 'manual') AS SELECT sum(v) AS n FROM t")
    db.sql("INSERT INTO t VALUES (2, 3); FLUSH")
    relation = db.parts.reader.catalog.resolve("m")
    for run in db.parts.reader.published.runs(relation):
        (db.directory / "runs" / run.file.pack).write_bytes(b"not a run")
    db.sql("REPAIR m")
    assert rows(db, "SELECT * FROM m") == [(2,)]
    verified(db)
    db.sql("REFRESH m")
    assert rows(db, "SELECT * FROM m") == [(5,)]
    verified(db)


def test_a_reader_does_not_wait_for_what_a_view_has_not_read(tmp_path, spark):
    with headrace.connect(tmp_path / "db", spark=spark, partitions=2) as db:
        db.sql("CREATE STREAM s (v INT)")
        query = "SELECT sum(v) AS n FROM s"
        db.sql(f"CREATE MATERIALIZED VIEW often WITH (refresh = 'every 1 second') AS {query}")
        db.sql(f"CREATE MATERIALIZED VIEW late WITH (refresh = 'manual') AS {query}")
        db.sql("INSERT INTO s VALUES (1), (2)")
        assert rows(db, "SELECT * FROM late") == [(None,)]
        until(lambda: rows(db, "SELECT * FROM often") == [(3,)])
        session = db.session()
        with pytest.raises(HeadraceError) as caught, session.at_most_behind(0.0):
            session.sql("SELECT * FROM late")
        assert caught.value.code is Code.UNAVAILABLE
        verified(db)


@pytest.mark.long
def test_many_views_on_one_table_and_one_stream_are_one_job_and_one_scan(db):
    db.parts.loop.widths.small_rows = 0
    db.sql("CREATE TABLE t (k INT, v INT, m MAP<STRING, INT>, PRIMARY KEY (k))")
    db.sql("CREATE STREAM s (k INT, v INT)")
    for number in range(6):
        db.sql(
            f"CREATE MATERIALIZED VIEW v{number} WITH (refresh = 'manual') AS SELECT t.k % {number + 2}"
            f" AS g, sum(s.v + t.v) AS n, max(m['a']) AS a FROM t JOIN s ON t.k = s.k GROUP BY 1"
        )
    db.sql(
        "CREATE MATERIALIZED VIEW whole WITH (refresh = 'manual') AS SELECT count(m) AS n FROM t"
    )
    db.sql("INSERT INTO t VALUES (1, 1, map('a', 1)), (2, 2, NULL), (3, 3, map('a', 3))")
    db.sql("INSERT INTO s VALUES (1, 10), (2, 20), (1, 30), (9, 9); REFRESH ALL")
    made = db.parts.ledger.epochs.newest(1)[0].counters
    assert (made["jobs"], made["rows_scanned"], made["refreshed"]) == (1, 7, 7)
    assert rows(db, "SELECT g, n, a FROM v0") == [(0, 22, None), (1, 42, 1)]
    assert rows(db, "SELECT * FROM whole") == [(2,)]
    verified(db)
    db.sql("DELETE FROM t WHERE k = 1; INSERT INTO s VALUES (3, 1); REFRESH ALL")
    made = db.parts.ledger.epochs.newest(1)[0].counters
    assert (made["jobs"], made["rows_scanned"]) == (1, 2)
    assert rows(db, "SELECT g, n, a FROM v0") == [(0, 22, None), (1, 4, 3)]
    verified(db)


@pytest.mark.long
def test_a_view_on_a_schedule_that_failed_is_repaired_where_it_then_stands(db):
    db.sql("CREATE TABLE t (k INT, v INT, PRIMARY KEY (k))")
    query = "SELECT k, 10 / v AS n FROM t"
    db.sql(f"CREATE MATERIALIZED VIEW m WITH (refresh = 'every 1 second') AS {query}")
    db.sql("CREATE MATERIALIZED VIEW over AS SELECT sum(n) AS n FROM m")
    db.sql("INSERT INTO t VALUES (1, 0), (2, 5); FLUSH")
    refreshes = db.parts.pump.refreshes
    until(lambda: refreshes.run_due() is None and freshness(db)["m"]["state"] == "stopped")
    with pytest.raises(HeadraceError, match="stopped"):
        db.sql("SELECT * FROM over")
    db.sql("UPDATE t SET v = 1 WHERE k = 1; REPAIR m")
    assert rows(db, "SELECT * FROM m") == [(1, 10.0), (2, 2.0)]
    assert rows(db, "SELECT * FROM over") == [(12.0,)]
    assert freshness(db)["m"]["state"] == "lagging"
    verified(db)
    db.sql("DELETE FROM t WHERE k = 1; REFRESH m")
    assert rows(db, "SELECT * FROM over") == [(2.0,)]
    verified(db)


HISTORY = {
    "live": ("continuous", "SELECT g, count(*) AS n, sum(v) AS s FROM t GROUP BY g"),
    "events": ("manual", "SELECT k, count(*) AS n, max(v) AS m FROM s GROUP BY k"),
    "joined": ("manual", "SELECT t.g, s.v FROM t JOIN s ON t.k = s.k"),
    "outer_": ("manual", "SELECT l.g, l.n, e.m FROM live l FULL JOIN events e ON l.n = e.n"),
    "chained": ("manual", "SELECT g, count(DISTINCT v) AS n FROM joined GROUP BY g"),
    "above": (
        "continuous",
        "SELECT j.g, count(*) AS n FROM joined j JOIN t ON j.g = t.g GROUP BY j.g",
    ),
    "mixed": ("manual", "SELECT a.g, a.n, t.k FROM above a LEFT JOIN t ON a.g = t.g"),
    "ranked": ("manual", "SELECT g, k, row_number() OVER (PARTITION BY g ORDER BY k) AS i FROM t"),
}


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_any_order_of_writes_and_refreshes_is_right_at_every_frontier(db, seed):
    """Views over tables, streams, and each other, maintained and not; each VERIFYs at any time."""
    chance = Random(seed)
    db.sql("CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k)); CREATE STREAM s (k INT, v INT)")
    for name, (refresh, query) in HISTORY.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} WITH (refresh = '{refresh}') AS {query}")

    def number(most):
        return chance.randrange(most)

    def write():
        kind = number(5)
        if kind < 2:
            db.sql(f"INSERT INTO s VALUES ({number(4)}, {number(5)}), ({number(4)}, {number(5)})")
        elif kind < 4:
            db.sql(f"INSERT INTO t VALUES ({number(6)}, {number(3)}, {number(9)})")
        else:
            db.sql(f"DELETE FROM t WHERE k = {number(6)}")

    def refresh():
        names = [name for name in HISTORY if chance.random() < 0.4]
        db.sql(f"REFRESH {', '.join(names)}" if names else "REFRESH ALL")

    def alter():
        name = chance.choice(list(HISTORY))
        refresh = chance.choice(["continuous", "manual", "on write", "every 1 day"])
        db.sql(f"ALTER MATERIALIZED VIEW {name} SET (refresh = '{refresh}')")

    def replace():
        name = chance.choice(["events", "ranked", "chained"])
        refresh, query = HISTORY[name]
        db.sql(
            f"CREATE OR REPLACE MATERIALIZED VIEW {name} WITH (refresh = '{refresh}') AS {query}"
        )

    acts = [write] * 6 + [refresh] * 3 + [alter, replace, db.compact, lambda: db.sql("FLUSH")]
    for turn in range(40):
        chance.choice(acts)()
        if turn % 10 == 9:
            verified(db)
    db.sql("REFRESH ALL")
    verified(db)
    about = freshness(db)
    assert {each["changes_behind"] for each in about.values()} == {0}


@pytest.mark.long
def test_a_view_that_stands_where_one_below_it_still_lagged_is_right_there(db):
    db.sql("CREATE TABLE t (k INT, v INT, PRIMARY KEY (k)); INSERT INTO t VALUES (1, 1)")
    db.sql("CREATE MATERIALIZED VIEW m WITH (refresh = 'manual') AS SELECT count(*) AS n FROM t")
    db.sql("CREATE VIEW doubled AS SELECT 2 * n AS n FROM m")
    db.sql("""
        CREATE MATERIALIZED VIEW u WITH (refresh = 'manual') AS
            SELECT t.k, m.n, doubled.n AS twice FROM t CROSS JOIN m CROSS JOIN doubled
    """)
    db.sql("REFRESH ALL; INSERT INTO t VALUES (2, 2); FLUSH; REFRESH u")
    assert rows(db, "SELECT * FROM u") == [(1, 1, 2), (2, 1, 2)]
    verified(db)
    db.sql("ALTER MATERIALIZED VIEW m SET (refresh = 'continuous'); INSERT INTO t VALUES (3, 3)")
    assert rows(db, "SELECT * FROM m") == [(3,)]
    assert rows(db, "SELECT * FROM u") == [(1, 1, 2), (2, 1, 2)]
    found = {name: verdict for name, _, _, verdict in db.sql("VERIFY")}
    by = ", by the stored rows of m, replaced or altered since the view was refreshed"
    assert found == {"m": "equal to batch", "u": "equal to batch" + by}
    db.sql("REFRESH u")
    assert rows(db, "SELECT k, n, twice FROM u") == [(1, 3, 6), (2, 3, 6), (3, 3, 6)]
    verified(db)
