"""Reconciliation: wrong rows are found, kept as evidence, and repaired, quarantined or reported."""

from __future__ import annotations

import json
import threading
import time

import pytest

import headrace
from headrace.errors import Code, HeadraceError
from headrace.lifecycle.history.reconciler import Reconciler
from headrace.storage.ledger import DirtyState
from spoiling import spoil

GROUPS = 1100


@pytest.fixture
def shop(db):
    db.sql(f"""CREATE STREAM sales (g INT, x INT);
        INSERT INTO sales SELECT id % {GROUPS}, id % 7 FROM explode(sequence(0, {3 * GROUPS - 1})) AS t(id);
        CREATE MATERIALIZED VIEW totals AS SELECT g, count(*) AS n, sum(x) AS s FROM sales GROUP BY g;
        CREATE MATERIALIZED VIEW by_count AS SELECT n, count(*) AS m FROM totals GROUP BY n""")
    return db


def verdicts(db, statement):
    return {view: rest[-1] for view, *rest in db.sql(statement).fetchall()}


@pytest.mark.long
def test_a_round_covers_every_row_and_finds_what_is_wrong(shop):
    names = ("relation", "rows", "differences", "covered", "wrong_at_most", "verdict")
    result = shop.sql("RECONCILE VIEW totals")
    assert result.columns == names
    ((view, rows, differences, covered, bound, verdict),) = result.fetchall()
    assert (view, differences, verdict) == ("totals", 0, "equal")
    first = rows
    assert 150 < rows < 450
    assert covered == 0.25
    assert bound == pytest.approx(1 - 0.05 ** (1 / rows), rel=1e-3)
    ((_, rows, _, covered, bound, _),) = shop.sql("RECONCILE VIEW totals SAMPLE 100 PERCENT")
    assert (rows, covered) == (GROUPS, 1.0)
    listed = shop.sql("SHOW RECONCILIATION FOR totals").fetchall()
    assert [row[:-1] for row in listed] == [("totals", 2, GROUPS + first, 0, 0, 1.0, bound)]
    assert shop.sql("SHOW EVIDENCE").fetchall() == []
    # One row is wrong, one is missing, and one is there that should not be.
    wrong = {5: {"n": 9}, 6: None}
    assert spoil(shop, "totals", lambda row: _changed(row, wrong)) == 2
    assert verdicts(shop, "VERIFY totals")["totals"].startswith("differs")
    samples = 0
    while (found := shop.sql("RECONCILE VIEW totals").fetchall()[0])[2] == 0:
        samples += 1
        assert samples <= 4, "a round has four slices"
    assert found[5].startswith(f"{found[2]} row")
    assert "; recomputed, and equal in epoch" in found[5]
    (*_, evidence) = shop.sql("SHOW EVIDENCE FOR totals").fetchall()  # the first that was found
    view, _, _, where, differences, expected, stored, inputs, circuit, outcome = evidence
    assert (view, differences, outcome) == ("totals", found[2], found[5].partition("; ")[2])
    assert "pmod(xxhash64(" in where
    assert {row["g"] for row in json.loads(expected)} <= {5, 6}
    assert all(row["g"] == 5 and row["n"] == 9 for row in json.loads(stored))
    assert inputs == f"sales {3 * GROUPS:,}"
    assert circuit.startswith("3:")
    assert set(verdicts(shop, "VERIFY").values()) == {"equal to batch"}
    assert shop.sql("SHOW DIRTY").fetchall() == []
    shop.sql("INSERT INTO sales VALUES (5, 1)")
    assert set(verdicts(shop, "VERIFY").values()) == {"equal to batch"}


def _changed(row, wrong):
    if row["g"] not in wrong:
        return row
    change = wrong[row["g"]]
    return None if change is None else {**row, **change}


@pytest.mark.parametrize("policy", ["quarantine", pytest.param("report", marks=pytest.mark.long)])
def test_what_differs_is_quarantined_or_reported(opened_with, policy):
    db = opened_with(on_difference=policy)
    db.sql("""CREATE TABLE t (k INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1), (2, 2);
        CREATE MATERIALIZED VIEW v AS SELECT v, count(*) AS n FROM t GROUP BY v;
        CREATE MATERIALIZED VIEW above AS SELECT sum(n) AS n FROM v""")
    spoil(db, "v", lambda row: {**row, "n": row["n"] + 1})
    assert verdicts(db, "RECONCILE ALL")["v"].startswith("2 rows differ")
    (entry, *stopped) = [e for e in db.parts.ledger.head.dirty if e.cause != "stopped"]
    assert not stopped
    assert entry.cause == "reconciliation"
    if policy == "report":
        assert entry.state is DirtyState.REPORTED
        assert sorted(db.sql("SELECT * FROM v").fetchall()) == [(1, 2), (2, 2)]
        return
    assert entry.state is DirtyState.QUARANTINED
    for name in ("v", "above"):
        with pytest.raises(HeadraceError) as refused:
            db.sql(f"SELECT * FROM {name}")
        assert refused.value.code is Code.UNAVAILABLE
        assert "quarantined" in str(refused.value)
    db.sql("INSERT INTO t VALUES (3, 2)")
    db.sql("REPAIR v")
    assert sorted(db.sql("SELECT * FROM v").fetchall()) == [(1, 1), (2, 2)]
    assert db.sql("SELECT * FROM above").fetchall() == [(3,)]
    assert db.parts.ledger.head.dirty == ()
    assert set(verdicts(db, "VERIFY").values()) == {"equal to batch"}


@pytest.mark.long
def test_a_table_is_what_its_log_says_and_what_reads_it_follows(db):
    db.sql("""CREATE TABLE t (k INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1), (2, 2);
        CREATE MATERIALIZED VIEW v AS SELECT v, count(*) AS n FROM t GROUP BY v;
        CREATE MATERIALIZED VIEW late WITH (refresh = 'manual') AS SELECT k, v FROM t;
        INSERT INTO t VALUES (3, 2); FLUSH""")
    assert verdicts(db, "RECONCILE ALL") == dict.fromkeys(("t", "v", "late"), "equal")
    assert spoil(db, "t", lambda row: {**row, "v": 7} if row["k"] == 1 else row) == 1
    assert verdicts(db, "VERIFY v") == {"v": "equal to batch"}, "it has read nothing wrong"
    found = verdicts(db, "RECONCILE TABLE t")
    assert found["t"].startswith("1 row differs; recomputed, and equal")
    (evidence,) = [e for e in db.sql("SHOW EVIDENCE").fetchall() if e[0] == "t"]
    assert [json.loads(each) for each in evidence[5:7]] == [[{"k": 1, "v": 1}], [{"k": 1, "v": 7}]]
    assert sorted(db.sql("SELECT * FROM t").fetchall()) == [(1, 1), (2, 2), (3, 2)]
    assert sorted(db.sql("SELECT * FROM v").fetchall()) == [(1, 1), (2, 2)]
    db.sql("DELETE FROM t WHERE k = 1")
    assert db.sql("SELECT * FROM v").fetchall() == [(2, 2)]
    assert db.parts.ledger.head.dirty == ()


@pytest.mark.long
def test_views_that_lag_are_compared_and_repaired_where_they_stand(db):
    db.sql("""CREATE TABLE t (k INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1), (2, 2);
        CREATE MATERIALIZED VIEW late WITH (refresh = 'manual') AS SELECT k, v FROM t;
        CREATE MATERIALIZED VIEW over AS SELECT v, count(*) AS n FROM late GROUP BY v;
        INSERT INTO t VALUES (3, 2); DELETE FROM t WHERE k = 1; FLUSH""")
    assert verdicts(db, "RECONCILE ALL") == dict.fromkeys(("t", "late", "over"), "equal")
    assert spoil(db, "late", lambda row: {**row, "v": 7} if row["k"] == 1 else row) == 1
    found = verdicts(db, "RECONCILE VIEW late")
    assert found["late"].startswith("1 row differs; recomputed, and equal"), found
    assert sorted(db.sql("SELECT * FROM late").fetchall()) == [(1, 1), (2, 2)]
    assert spoil(db, "over", lambda row: {**row, "n": 5} if row["v"] == 2 else row) == 1
    found = verdicts(db, "RECONCILE VIEW over")
    assert found["over"].startswith("1 row differs; recomputed, and equal"), found
    db.sql("REFRESH late")
    assert sorted(db.sql("SELECT * FROM over").fetchall()) == [(2, 2)]
    assert verdicts(db, "RECONCILE ALL") == dict.fromkeys(("t", "late", "over"), "equal")
    assert set(verdicts(db, "VERIFY").values()) == {"equal to batch"}
    assert db.parts.ledger.head.dirty == ()


@pytest.fixture
def opened_with(tmp_path, spark):
    made = []

    def connect(**settings):
        made.append(
            headrace.connect(
                tmp_path / f"d{len(made)}", spark=spark, partitions=2, continuous=False, **settings
            )
        )
        return made[-1]

    yield connect
    for each in made:
        each.close()


@pytest.mark.long
def test_in_the_background_all_is_compared_until_nothing_changes(db):
    db.sql("""CREATE STREAM sales (g INT, x INT); INSERT INTO sales VALUES (1, 2), (1, 3), (2, 4);
        CREATE MATERIALIZED VIEW totals AS SELECT g, sum(x) AS s FROM sales GROUP BY g;
        CREATE MATERIALIZED VIEW above AS SELECT count(*) AS n FROM totals""")
    reconciler = Reconciler(db.parts.reconciling, budget=0.5, processors=2, first=0.0, idle=0.01)
    assert reconciler.turn() > reconciler.idle, "the longer a comparison, the longer the pause"
    assert compared(db) == {"totals": (1, 2, 0, 1.0), "above": (1, 1, 0, 1.0)}
    assert reconciler.turn() == reconciler.idle, "nothing has changed"
    db.sql("INSERT INTO sales VALUES (3, 1); FLUSH")
    others = set(threading.enumerate())
    reconciler.start()
    until = time.monotonic() + 120
    while {samples for samples, *_ in compared(db).values()} != {2}:
        assert time.monotonic() < until
        time.sleep(0.05)
    reconciler.close()
    assert reconciler.error is None
    left = set(threading.enumerate()) - others
    assert not any(thread.name == "headrace-reconciliation" for thread in left)


def compared(db):
    return {
        row[0]: (row[1], row[2], row[3], row[5]) for row in db.sql("SHOW RECONCILIATION").fetchall()
    }


def test_a_mistake_is_shown_at_its_place(db):
    db.sql("CREATE STREAM sales (g INT)")
    for statement, said in {
        "RECONCILE totals": 'expected VIEW, TABLE, ALL or SINK, found "totals"',
        "RECONCILE ALL SAMPLE 0 PERCENT": "a sample cannot be of 0",
        "RECONCILE ALL SAMPLE 2.5 ROWS": "a sample cannot be of 2.5",
        "RECONCILE VIEW sales": 'stream "sales" has no stored rows',
        "SHOW EVIDENCE FOR sales": 'stream "sales" has no stored rows',
    }.items():
        with pytest.raises(HeadraceError) as refused:
            db.sql(statement)
        assert said in refused.value.primary
        assert refused.value.span is not None
