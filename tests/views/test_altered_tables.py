"""Views over tables that are altered: each epoch equals batch, nothing is rebuilt."""

from __future__ import annotations

import pytest

from histories import History
from length import choose, thorough

pytestmark = pytest.mark.spark

VIEWS = {
    "joined": "SELECT s.n, t.v, t.x FROM s JOIN t ON s.k = t.k",
    "counted": "SELECT x, count(*) AS n, sum(v) AS v FROM t GROUP BY x",
    "bags": "SELECT p, count(*) AS n FROM u GROUP BY p",
    "absent": "SELECT s.k, s.n FROM s LEFT ANTI JOIN t ON s.k = t.k",
    "lefts": "SELECT s.n, t.x FROM s LEFT JOIN t ON s.k = t.k AND t.v > 1",
    "met": "SELECT l.k, r.q FROM t l JOIN u r ON l.v = r.p",
    "newest": "SELECT k, v FROM (SELECT k, v, row_number() OVER (PARTITION BY x ORDER BY v, k) AS i"
    " FROM t) WHERE i <= 2",
    "uniques": "SELECT DISTINCT p, q FROM u WHERE p IN (SELECT v FROM t)",
    "above": "SELECT n, count(*) AS m FROM counted GROUP BY n",
}
RENAMED = {
    "joined": "SELECT s.n, t.value AS v, t.x FROM s JOIN t ON s.k = t.key",
    "counted": "SELECT x, count(*) AS n, sum(value) AS v FROM t GROUP BY x",
    "absent": "SELECT s.k, s.n FROM s LEFT ANTI JOIN t ON s.k = t.key",
    "lefts": "SELECT s.n, t.x FROM s LEFT JOIN t ON s.k = t.key AND t.value > 1",
    "met": "SELECT l.key AS k, r.q FROM t l JOIN u r ON l.value = r.p",
    "newest": "SELECT key AS k, value AS v FROM (SELECT key, value, row_number() OVER"
    " (PARTITION BY x ORDER BY value, key) AS i FROM t) WHERE i <= 2",
    "uniques": "SELECT DISTINCT p, q FROM u WHERE p IN (SELECT value FROM t)",
}


def without(place):
    return lambda row: (*row[:place], *row[place + 1 :])


def check_rows(run):
    """Check the stored rows of the tables: as a whole, by key, and against their logs."""
    for name in ("t", "u"):
        kept = [tuple(row) for row in run.models[name].current()]
        found = run.db.sql(f"SELECT * FROM {name}").fetchall()
        assert sorted(map(repr, found)) == sorted(map(repr, kept))
        for row in kept[:3] if name == "t" else []:
            (one,) = run.db.sql(f"SELECT * FROM t WHERE key = {row[0]}").fetchall()
            assert repr(one) == repr(row)  # NaN equals NaN
        ((*_, verdict),) = run.db.sql(f"RECONCILE TABLE {name} SAMPLE 100 PERCENT").fetchall()
        assert verdict == "equal"


@pytest.mark.parametrize("small_rows", [20_000, pytest.param(0, marks=pytest.mark.long)])
def test_views_go_on_as_columns_of_their_tables_are_altered(oracle, small_rows):
    run = oracle(rows_per_change=400, small_rows=small_rows)
    run.stream("s", "k INT, n INT")
    run.table("t", "k INT, a STRING, v INT, x STRING", key="k")
    run.table("u", "p INT, q INT")
    names = choose(["joined", "counted"], list(VIEWS))
    for name in names:
        run.view(name, VIEWS[name])
    history, every = History(run, 21, domain=6), ["s", "t", "u"]
    history.write(every, 40)
    run.alter("ALTER TABLE t DROP COLUMN a", "t", "k INT, v INT, x STRING", without(1))
    history.write(every, 30)
    run.alter(
        "ALTER TABLE u ADD COLUMN r INT", "u", "p INT, q INT, r INT", lambda row: (*row, None)
    )
    history.write(every, 30)
    first = {n: q.replace("value", "v") for n, q in RENAMED.items() if n in names}
    key = "key INT, v INT, x STRING"
    run.alter("ALTER TABLE t RENAME k TO key", "t", key, views=first, key="key")
    history.write(every, 20)
    run.alter(
        "ALTER TABLE t RENAME COLUMN v TO value",
        "t",
        "key INT, value INT, x STRING",
        views={n: q for n, q in RENAMED.items() if n in names},
    )
    run.alter(
        "ALTER TABLE t ADD COLUMNS (a INT, v FLOAT)",
        "t",
        "key INT, value INT, x STRING, a INT, v FLOAT",
        lambda row: (*row, None, None),
    )
    history.write(every, 30)
    run.epoch()
    if thorough():
        run.verify(*names)
        check_rows(run)
    run.alter(
        "ALTER TABLE t ALTER COLUMN a TYPE BIGINT",
        "t",
        "key INT, value INT, x STRING, a BIGINT, v FLOAT",
    )
    run.alter(
        "ALTER TABLE t ALTER COLUMN v TYPE DOUBLE",
        "t",
        "key INT, value INT, x STRING, a BIGINT, v DOUBLE",
    )
    run.alter("ALTER TABLE u DROP r", "u", "p INT, q INT", without(2))
    history.write(every, 30)
    run.finish()
    run.reopen()
    history.write(every, 20)
    run.epoch()
    run.verify(*names)
    check_rows(run)


@pytest.mark.long
def test_a_view_that_lags_reads_what_was_written_before_its_table_was_altered(db):
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, a INT, v INT)")
    db.sql("CREATE TABLE u (k INT PRIMARY KEY, g STRING)")
    db.sql("INSERT INTO t VALUES (1, 1, 10), (2, 2, 20)")
    db.sql("INSERT INTO u VALUES (1, 'x'), (2, 'y')")
    db.sql(
        "CREATE MATERIALIZED VIEW m WITH (refresh = 'on demand') AS"
        " SELECT t.k, t.v, u.g FROM t JOIN u ON t.k = u.k"
    )
    db.sql("UPDATE t SET v = 11 WHERE k = 1")
    db.sql("UPDATE t SET a = 5 WHERE k = 2")
    db.sql("ALTER TABLE t DROP COLUMN a")
    db.sql("INSERT INTO t VALUES (3, 30)")
    db.sql("ALTER TABLE t RENAME COLUMN v TO w")
    db.sql("ALTER TABLE u ADD COLUMN h INT")
    db.sql("INSERT INTO u VALUES (3, 'z', 1)")
    db.sql("DELETE FROM t WHERE k = 2")
    db.sql("REFRESH MATERIALIZED VIEW m")
    assert sorted(db.sql("SELECT * FROM m").fetchall()) == [(1, 11, "x"), (3, 30, "z")]
    assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}
