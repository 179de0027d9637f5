"""Views that quarantine rows: each is its query over the other rows, epoch by epoch."""

from __future__ import annotations

import json
import re
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headrace
from bags import bag_of
from headrace.errors import Code, HeadraceError
from headrace.planning.catalyst.scala import collect_arrow
from length import choose
from sessions import batch_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from harness import Oracle

QUARANTINE = "WITH (on_error = 'quarantine')"


@pytest.fixture
def run(oracle: Callable[..., Oracle]) -> Oracle:
    return oracle(isolates=True)


def errors(run: Oracle, view: str) -> Counter[tuple[str, ...]]:
    """Return the rows in quarantine, each as its relation and values, with its copies."""
    found: Counter[tuple[str, ...]] = Counter()
    for relation, row, copies, error, since in run.db.sql(f"SHOW ERRORS FOR {view}").fetchall():
        assert error
        assert since
        found[(relation, *map(str, json.loads(row).values()))] += copies
    return found


@pytest.mark.long
def test_a_cast_in_a_projection_and_the_row_that_is_corrected(run: Oracle) -> None:
    run.table("t", "k INT, x STRING, f DOUBLE", key="k")
    run.insert("t", [(1, "1", 0.5), (2, "two", -0.0), (3, None, 0.0)])
    run.view(
        "v",
        "SELECT k, CAST(x AS INT) AS n, f FROM t WHERE k > 0",
        "SELECT k, CAST(x AS INT) AS n, f FROM t WHERE k > 0 AND (x IS NULL OR x RLIKE '^[0-9]+$')",
        options=QUARANTINE,
    )
    run.check_new_views()
    assert errors(run, "v") == {("t", "2", "two", "-0.0"): 1}
    run.insert("t", [(4, "four", 1.5), (5, "5", None), (6, "six", 1.5), (7, "7", 1.5)])
    run.epoch()
    assert errors(run, "v") == {
        ("t", str(k), x, f): 1
        for k, x, f in ((2, "two", "-0.0"), (4, "four", "1.5"), (6, "six", "1.5"))
    }
    run.update("t", {"x": "'44'"}, "k = 4")
    run.delete("t", "k = 6")
    run.epoch()
    assert errors(run, "v") == {("t", "2", "two", "-0.0"): 1}
    run.verify("v")
    run.finish()
    assert errors(run, "v") == {("t", "2", "two", "-0.0"): 1}


@pytest.mark.long
def test_copies_of_a_row_that_fails_follow_it(run: Oracle) -> None:
    run.table("t", "x STRING")
    run.view(
        "v",
        "SELECT sum(CAST(x AS INT)) AS n, count(*) AS rows FROM t",
        "SELECT sum(CAST(x AS INT)) AS n, count(*) AS rows FROM t WHERE x <> 'bad'",
        options=QUARANTINE,
    )
    run.insert("t", [("1",), ("bad",), ("2",)])
    run.epoch()
    run.insert("t", [("bad",), ("bad",)])
    run.epoch()
    assert errors(run, "v") == {("t", "bad"): 3}
    run.log("t", [(-1, ("bad",)), (-1, ("bad",)), (1, ("4",))])
    run.epoch()
    assert errors(run, "v") == {("t", "bad"): 1}
    run.verify("v")
    run.log("t", [(-1, ("bad",))])
    run.epoch()
    assert not errors(run, "v")


@pytest.mark.long
def test_in_a_filter_an_aggregate_and_views_above(run: Oracle) -> None:
    run.table("t", "g INT, a INT, b INT")
    good = "FROM t WHERE b <> 0"
    run.view(
        "f", "SELECT g FROM t WHERE a / b > 1", f"SELECT g {good} AND a / b > 1", options=QUARANTINE
    )
    run.view(
        "a",
        "SELECT g, max(a % b) AS m, count(DISTINCT a / b) AS n FROM t GROUP BY g",
        f"SELECT g, max(a % b) AS m, count(DISTINCT a / b) AS n {good} GROUP BY g",
        options=QUARANTINE,
    )
    run.view("above", "SELECT m, count(*) AS n FROM a GROUP BY m")
    run.insert("t", [(1, 4, 2), (1, 4, 0), (2, 9, 2), (2, 3, 0), (3, 1, 0)])
    run.epoch()
    expected = {("t", "1", "4", "0"): 1, ("t", "2", "3", "0"): 1, ("t", "3", "1", "0"): 1}
    assert errors(run, "f") == errors(run, "a") == expected
    run.update("t", {"b": "1"}, "g = 1 AND b = 0")
    run.epoch()
    run.verify("f", "a", "above")
    run.finish()


@pytest.mark.long
def test_of_a_join_the_row_that_came_last_is_kept_apart_and_comes_back(run: Oracle) -> None:
    run.table("l", "k INT, v INT", key="k")
    run.table("r", "k INT, d INT", key="k")
    run.insert("l", [(1, 10), (2, 20), (3, 30)])
    run.view(
        "j",
        "SELECT l.k, l.v / r.d AS q FROM l LEFT JOIN r ON l.k = r.k",
        "SELECT l.k, l.v / r.d AS q FROM l LEFT JOIN r ON l.k = r.k AND r.d <> 0",
        options=QUARANTINE,
    )
    run.insert("r", [(1, 5), (2, 0), (9, 0)])
    run.epoch()
    assert errors(run, "j") == {("r", "2", "0"): 1}
    run.verify("j")
    run.update("r", {"d": "4"}, "k = 2")
    run.epoch()
    assert not errors(run, "j")
    run.finish()


def test_a_failure_that_no_inserted_row_is_to_blame_for_stops_the_view(
    db: headrace.Database,
) -> None:
    db.sql("""
        CREATE TABLE t (k INT PRIMARY KEY, n INT);
        INSERT INTO t VALUES (1, 1), (2, -1), (3, 5);
        CREATE MATERIALIZED VIEW share WITH (on_error = 'quarantine') AS SELECT 100 / sum(n) AS p FROM t;
        DELETE FROM t WHERE k = 3""")
    with pytest.raises(HeadraceError) as failed:
        db.sql("SELECT * FROM share")
    assert "no inserted row is to blame" in (failed.value.detail or "")
    ((relation, row, copies, error, _),) = db.sql("SHOW ERRORS FOR share").fetchall()
    assert (relation, row, copies) == (None, None, None)
    assert "division by zero" in error
    db.sql("INSERT INTO t VALUES (4, 10)")
    assert db.sql("REPAIR share").fetchall()[0][2].endswith("and running")
    assert db.sql("SELECT * FROM share").fetchall() == [(10.0,)]


@pytest.mark.long
def test_a_view_that_has_stopped_goes_on_when_it_is_to_quarantine_rows(
    db: headrace.Database,
) -> None:
    db.sql("""
        CREATE TABLE t (k INT PRIMARY KEY, x STRING);
        CREATE MATERIALIZED VIEW v AS SELECT CAST(x AS INT) AS n FROM t;
        CREATE MATERIALIZED VIEW above AS SELECT sum(n) AS n FROM v;
        INSERT INTO t VALUES (1, '1');
        SELECT * FROM above;
        INSERT INTO t VALUES (2, 'two'), (3, '3')""")
    with pytest.raises(HeadraceError, match="SET \\(on_error = 'quarantine'\\)"):
        db.sql("SELECT * FROM above")
    db.sql("ALTER MATERIALIZED VIEW v SET (on_error = 'quarantine'); REPAIR v")
    assert db.sql("SELECT * FROM above").fetchall() == [(4,)]
    ((_, row, *_),) = db.sql("SHOW ERRORS FOR v").fetchall()
    assert json.loads(row) == {"x": "two"}
    assert db.sql("SHOW VIEWS LIKE 'v'").fetchall()[0][-1] == "running, 1 row in quarantine"
    assert "without rows on which the query fails" in str(db.sql("EXPLAIN VIEW v").fetchall())
    db.sql("INSERT INTO t VALUES (2, '2')")
    assert db.sql("SELECT * FROM above").fetchall() == [(6,)]


def test_what_cannot_be_quarantined_is_refused_at_its_place(db: headrace.Database) -> None:
    db.sql("""
        CREATE TABLE t (k INT PRIMARY KEY, m MAP<STRING, INT>);
        CREATE MATERIALIZED VIEW v AS SELECT k FROM t""")
    refused = {
        "CREATE MATERIALIZED VIEW w WITH (on_error = 'quarantine') AS SELECT k FROM v": "over view",
        "CREATE MATERIALIZED VIEW w WITH (on_error = 'quarantine') AS SELECT m['a'] AS a FROM t": "MAP",
        "CREATE MATERIALIZED VIEW w WITH (on_error = 'quarantine', refresh = 'manual') AS "
        "SELECT k FROM t": "refresh is manual",
        "CREATE MATERIALIZED VIEW w WITH (on_error = 'quarantin') AS SELECT k FROM t": "quarantin",
        "ALTER MATERIALIZED VIEW v SET (on_error = 'quarantine', refresh = 'manual')": "altered alone",
    }
    for statement, said in refused.items():
        with pytest.raises(HeadraceError) as failed:
            db.sql(statement)
        assert failed.value.code in (Code.UNSUPPORTED, Code.INVALID)
        assert said in failed.value.primary
        assert failed.value.hint
        assert failed.value.span is not None
    assert "w" not in {name for _, name in db.relations()}


@pytest.mark.long
def test_repair_and_another_function_try_rows_again(db: headrace.Database) -> None:
    @headrace.function(returns="INT", deterministic=True)
    def half(x: int) -> int:
        if x == 13:
            raise ValueError("unlucky")
        return x // 2

    db.register(half)
    db.sql("""
        CREATE TABLE l (k INT PRIMARY KEY, v INT); CREATE TABLE r (k INT PRIMARY KEY, d INT);
        INSERT INTO r VALUES (1, 0), (2, 5);
        CREATE MATERIALIZED VIEW j WITH (on_error = 'quarantine') AS
          SELECT l.k, half(l.v) AS h, l.v / r.d AS q FROM l JOIN r ON l.k = r.k;
        CREATE MATERIALIZED VIEW above AS SELECT sum(h) AS h FROM j;
        INSERT INTO l VALUES (1, 10), (2, 13)""")
    assert db.sql("SELECT * FROM above").fetchall() == [(None,)]
    found = {row: error for _, row, _, error, _ in db.sql("SHOW ERRORS FOR j").fetchall()}
    assert "division by zero" in found['{"k":1,"v":10}']
    assert "unlucky" in found['{"k":2,"v":13}']
    db.sql("UPDATE r SET d = 2 WHERE k = 1")
    assert db.sql("REPAIR j").fetchall()[-1][1:] == (
        "2 in quarantine",
        "tried again in epoch 8: 1 still in quarantine",
    )
    assert db.sql("SELECT * FROM above").fetchall() == [(5,)]

    def patient(x: int) -> int:
        return x // 2

    patient.__name__ = "half"
    db.register(headrace.function(returns="INT", deterministic=True)(patient), replace=True)
    assert db.sql("SELECT * FROM above").fetchall() == [(11,)]
    assert db.sql("SHOW ERRORS FOR j").fetchall() == []
    assert {verdict for *_, verdict in db.sql("VERIFY above").fetchall()} == {"equal to batch"}


@pytest.mark.long
def test_fills_replays_reconciliation_and_corrections_leave_the_same_rows_out(
    opened: Callable[[], headrace.Database],
) -> None:
    db = opened()
    db.sql("""
        CREATE STREAM e (k INT, x STRING);
        INSERT INTO e VALUES (1, '1'), (2, 'b'), (3, '3'), (4, 'c'), (4, '4');
        CREATE MATERIALIZED VIEW v WITH (on_error = 'quarantine') AS
          SELECT k, sum(CAST(x AS INT)) AS n FROM e GROUP BY k;
        CREATE MATERIALIZED VIEW above AS SELECT count(*) AS c, sum(n) AS n FROM v""")

    def check(rows: tuple[int, int], kept: set[str]) -> None:
        assert db.sql("SELECT * FROM above").fetchall() == [rows]
        assert {json.loads(row)["x"] for _, row, *_ in db.sql("SHOW ERRORS FOR v")} == kept
        for name in ("v", "above"):
            assert db.sql(f"VERIFY {name}").fetchall()[0][2:] == (0, "equal to batch")

    check((3, 8), {"b", "c"})
    db.sql("REPLAY VIEW v WHERE k >= 3; REPLAY VIEW v")
    check((3, 8), {"b", "c"})
    assert db.sql("RECONCILE VIEW v SAMPLE 100 PERCENT").fetchall()[0][-1] == "equal"
    db.sql("CORRECT STREAM e REPLACE SET x = '20' WHERE x = 'b'")
    check((4, 28), {"c"})
    db.close()
    db = opened()
    check((4, 28), {"c"})
    with pytest.raises(HeadraceError, match="cannot be cast") as caught:
        db.sql("ALTER MATERIALIZED VIEW v SET (on_error = 'stop')")
    assert str(caught.value.hint).startswith("SHOW ERRORS FOR v lists the rows")
    db.sql("CORRECT STREAM e VOID WHERE x = 'c'")
    check((4, 28), set())
    db.sql("INVALIDATE VIEW v WHERE k = 4 BECAUSE 'a test'; REPAIR v")
    check((4, 28), set())


POISON = ["x", "9999999999", ""]
SHAPES = {
    "projected": "SELECT k, CAST(a AS INT) + 1 AS n FROM t",
    "filtered": "SELECT k FROM t WHERE CAST(a AS INT) > 2",
    "grouped": "SELECT g, sum(CAST(a AS INT)) AS s, max(10 / b) AS m FROM t GROUP BY g",
    "joined": "SELECT t.k, 100 / u.d AS q FROM t JOIN u ON t.g = u.g",
    "padded": "SELECT t.k, u.d, t.b / u.d AS q FROM t LEFT JOIN u ON t.g = u.g AND u.d < 3",
    "ranked": "SELECT g, k, row_number() OVER (PARTITION BY g ORDER BY CAST(a AS INT), k) AS n FROM t",
    "own": "SELECT x.k, y.k AS l, x.b / y.b AS q FROM t x JOIN t y ON x.g = y.g AND x.k < y.k",
}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(choose(2, 40)))
def test_random_histories_with_poison_equal_batch_over_the_rest(
    db: headrace.Database, spark: SparkSession, seed: int
) -> None:
    """After each epoch a view is its query over what is not listed, by plain Spark batch."""
    random = Random(seed)
    db.sql("""
        CREATE TABLE t (k INT PRIMARY KEY, g INT, a STRING, b INT);
        CREATE TABLE u (g INT, d INT)""")
    names = random.sample(sorted(SHAPES), 4)
    for number, name in enumerate(names):
        if number == 2:
            _write(db, random)
        db.sql(f"CREATE MATERIALIZED VIEW {name} {QUARANTINE} AS {SHAPES[name]}")
    for _ in range(3):
        _write(db, random)
        for name in names:
            table = db.sql(f"SELECT * FROM {name}").to_arrow()
            assert bag_of(table) == bag_of(_over_the_rest(db, batch_session(spark), name)), (
                seed,
                name,
            )
    if random.random() < 0.3:
        found = db.sql("VERIFY").fetchall()
        assert {verdict for *_, verdict in found} == {"equal to batch"}, seed


def _write(db: headrace.Database, random: Random) -> None:
    rows = []
    for _ in range(random.randint(1, 8)):
        a = random.choice(POISON) if random.random() < 0.2 else str(random.randint(0, 9))
        b = 0 if random.random() < 0.2 else random.randint(1, 5)
        rows.append(f"({random.randint(0, 12)}, {random.randint(0, 3)}, '{a}', {b})")
    db.sql(f"INSERT INTO t VALUES {', '.join(rows)}")
    pairs = [f"({random.randint(0, 3)}, {random.choice([0, 1, 2, 5])})" for _ in range(2)]
    db.sql(f"INSERT INTO u VALUES {', '.join(pairs)}")
    if random.random() < 0.4:
        db.sql(f"DELETE FROM t WHERE k % 4 = {random.randint(0, 3)}")
    if random.random() < 0.4:
        db.sql(f"DELETE FROM u WHERE d = {random.choice([0, 1, 2])}")
    if random.random() < 0.3:
        db.sql("UPDATE t SET a = '7', b = 1 WHERE k % 3 = 0")


def _over_the_rest(db: headrace.Database, batch: SparkSession, name: str) -> Any:
    """Return a view's query by Spark batch over the rows that it has not in quarantine."""
    kept = {"t": Counter[tuple[Any, ...]](), "u": Counter[tuple[Any, ...]]()}
    columns: dict[str, list[str]] = {}
    for relation, row, copies, *_ in db.sql(f"SHOW ERRORS FOR {name}").fetchall():
        values = json.loads(row)
        columns[relation] = list(values)
        kept[relation][tuple(values.values())] += copies
    text = SHAPES[name]
    for relation, gone in kept.items():
        table = db.sql(f"SELECT * FROM {relation}").to_arrow()
        left = []
        for row in table.to_pylist():
            place = tuple(row[column] for column in columns.get(relation, ()))
            if gone[place] > 0:
                gone[place] -= 1
            else:
                left.append(row)
        assert not +gone, "rows in quarantine are rows of their relation"
        frame = batch.createDataFrame(pa.Table.from_pylist(left, table.schema))
        frame.createOrReplaceTempView(f"rest_{relation}")
        named = rf"\b(FROM|JOIN) {relation}\b( [xy]\b)?"
        text = re.sub(named, lambda m, r=relation: f"{m[1]} rest_{r}{m[2] or f' {r}'}", text)
    return collect_arrow(batch.sql(text))
