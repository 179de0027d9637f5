"""Wide epochs run in stages where Arrow has Spark's values, and else as Spark runs their plans."""

from __future__ import annotations

import pytest

from histories import History
from length import some

pytestmark = pytest.mark.spark

VIEWS = {
    "counted": "SELECT g, count(*) AS n, sum(v) AS v, min(s) AS s FROM t GROUP BY g",
    "whole": "SELECT count(*) AS n, sum(v) AS v, count(DISTINCT s) AS s FROM t",
    "pairs": "SELECT t.id, e.v, t.s FROM t JOIN e ON t.g = e.g AND t.v < e.v",
    "either": "SELECT a.id, b.id AS other FROM t AS a FULL JOIN t AS b ON a.v = b.g",
    "absent": "SELECT id, g FROM t WHERE g NOT IN (SELECT v FROM e WHERE v IS NOT NULL)",
    "first": """SELECT * FROM (
        SELECT *, row_number() OVER (PARTITION BY g ORDER BY v DESC, id) AS nth FROM t
      ) WHERE nth <= 2""",
    "ranked": "SELECT id, sum(v) OVER (PARTITION BY g ORDER BY id) AS so_far FROM t",
    "overall": "SELECT id, rank() OVER (ORDER BY v) AS place FROM t",
    "lasts": "SELECT g, max_by(v, id) AS v FROM t GROUP BY g",
    "rolled": "SELECT g, v % 3 AS m, count(*) AS n FROM t GROUP BY ROLLUP (g, v % 3)",
    "all_of_both": "SELECT g, v FROM t WHERE v > 1 UNION ALL SELECT v, g FROM e",
    "apart": "SELECT id, x FROM t LATERAL VIEW OUTER explode(w) AS x",
    "above": "SELECT n, count(*) AS k FROM counted GROUP BY n",
    "above_all": "SELECT id FROM t WHERE v > (SELECT max(v) FROM e)",
}

SHORT = "counted pairs absent first ranked above"


def test_wide_epochs_run_in_stages(oracle):
    run = oracle(rows_per_change=2000, small_rows=0)
    run.table("t", "id INT, g INT, v INT, s STRING, w ARRAY<INT>", key="id")
    run.stream("e", "g INT, v INT")
    for name, query in some(VIEWS, SHORT).items():
        run.view(name, query)
    history = History(run, 5, domain=6)
    for size in (40, 15):
        history.write(["t", "e"], size)
        run.epoch()
    programs = run.db.parts.engine.programs.programs()
    found = [p.staged.why for p in programs if p.staged is not None and len(p.operators) > 10]
    assert found == [""]
    spent = run.db.parts.ledger.epochs.newest(1)[0].counters["tasks"]
    assert {"reading_ms", "operators_ms", "writing_ms"} <= spent.keys()
    run.finish()


@pytest.mark.long
def test_a_value_in_doubt_has_spark_run_the_step(oracle):
    run = oracle(small_rows=0)
    db = run.db
    db.sql("CREATE STREAM s (k INT, t STRING)")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT upper(t) AS u, count(*) AS n FROM s GROUP BY 1")
    found = []
    for text in ("plain", "straße", "plain", "ünter"):
        db.sql(f"INSERT INTO s VALUES (1, '{text}')")
        db.sql("REFRESH")
        found.append(db.parts.ledger.epochs.newest(1)[0].counters["jobs"])
    assert found == [1, 2, 1, 1]  # after the doubt, Spark runs the next steps at once
    assert sorted(db.sql("SELECT * FROM v").fetchall()) == [
        ("PLAIN", 2),
        ("STRASSE", 1),
        ("ÜNTER", 1),
    ]
    assert not list(db.directory.glob("attempts/*"))
    ((*_, verdict),) = db.sql("VERIFY v").fetchall()
    assert verdict == "equal to batch"


def test_the_runs_of_a_task_are_in_one_pack(oracle):
    run = oracle(small_rows=0)
    db = run.db
    db.sql("CREATE STREAM a (k INT, x INT); CREATE STREAM b (k INT, y INT)")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT a.k, x, y FROM a JOIN b ON a.k = b.k")
    db.sql(
        "INSERT INTO a SELECT id, id FROM range(100); INSERT INTO b SELECT id, id FROM range(99)"
    )
    db.sql("REFRESH")
    packs = list((db.directory / "runs").iterdir())
    # A task in each partition writes both sides of the join, and the rows of the view.
    assert len(packs) == 2
