"""Views that quarantine rows: each is its query over the other rows, epoch by epoch."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable

    import headrace
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


def test_a_cast_in_a_projection_and_the_row_that_is_corrected(run: Oracle) -> None:
    run.table("t", "k INT, x STRING", key="k")
    run.insert("t", [(1, "1"), (2, "two"), (3, None)])
    run.view(
        "v",
        "SELECT k, CAST(x AS INT) AS n FROM t WHERE k > 0",
        "SELECT k, CAST(x AS INT) AS n FROM t WHERE k > 0 AND (x IS NULL OR x RLIKE '^[0-9]+$')",
        options=QUARANTINE,
    )
    run.check_new_views()
    assert errors(run, "v") == {("t", "2", "two"): 1}
    run.insert("t", [(4, "four"), (5, "5"), (6, "six"), (7, "7")])
    run.epoch()
    assert errors(run, "v") == {
        ("t", str(k), x): 1 for k, x in ((2, "two"), (4, "four"), (6, "six"))
    }
    run.update("t", {"x": "'44'"}, "k = 4")
    run.delete("t", "k = 6")
    run.epoch()
    assert errors(run, "v") == {("t", "2", "two"): 1}
    run.verify("v")
    run.finish()
    assert errors(run, "v") == {("t", "2", "two"): 1}


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
