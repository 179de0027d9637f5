"""Views over existing rows: backfilled in parts, then maintained."""

from __future__ import annotations

import pytest

from histories import History
from length import choose, some, thorough

pytestmark = pytest.mark.spark

VIEWS = {
    "rows": "SELECT id, g + 1 AS h FROM t WHERE x > 2",
    "groups": "SELECT g, count(*) AS n, sum(m) AS m FROM t GROUP BY g",
    "joined": "SELECT t.id, b.y FROM t JOIN b ON t.g = b.g",
    "itself": "SELECT p.y AS p, q.y AS q FROM b p JOIN b q ON p.g = q.y",
    "streamed": "SELECT s.z, groups.n FROM s JOIN groups ON s.g = groups.g",
    "total": "SELECT count(*) AS n, sum(y) AS y FROM b",
    "total_of_joined": "SELECT count(*) AS n, sum(y) AS y FROM joined",
    "distinct_rows": "SELECT DISTINCT g, y FROM b",
    "united": "SELECT g FROM t UNION ALL SELECT g FROM b UNION ALL SELECT z FROM s",
}


@pytest.mark.parametrize(
    ("fill_rows", "small_rows"),
    [(9, 0), *choose([], [(9, 20_000), (1_000_000, 0), (1_000_000, 20_000)])],
)
def test_views_are_filled_in_parts_of_any_size(oracle, fill_rows, small_rows):
    run = oracle(fill_rows=fill_rows, small_rows=small_rows, rows_per_change=50)
    run.table("t", "id INT, g INT, x INT, m DECIMAL(8,2)", key="id")
    run.table("b", "g INT, y INT")
    run.stream("s", "g INT, z INT")
    history = History(run, 13, domain=14)
    history.epochs(["t", "b", "s"], choose((40,), (60, 20)))
    run.insert("s", [(1, 1), (None, 2)])
    for name, query in some(VIEWS, "groups joined streamed").items():
        run.view(name, query)
    history.epochs(["t", "b", "s"], choose((20,), (1, 20)))
    run.view("later", "SELECT g, sum(n) AS n FROM streamed JOIN groups USING (n) GROUP BY g")
    if thorough():
        history.epochs(["t", "s"], (6,))
    run.truncate("b")
    run.finish()


@pytest.mark.long
def test_views_created_over_nothing_start_empty(oracle):
    run = oracle()
    run.table("t", "id INT, g INT", key="id")
    run.stream("s", "g INT")
    run.view("joined", "SELECT t.id FROM t JOIN s ON t.g = s.g")
    run.view("groups", "SELECT g, count(*) AS n FROM s GROUP BY g")
    run.view("total", "SELECT count(*) AS n, sum(g) AS s FROM s")
    run.view("of_total", "SELECT n + 1 AS m FROM total")
    run.view("total_of_total", "SELECT sum(n) AS n, count(*) AS rows FROM total")
    run.view("united", "SELECT n FROM total UNION ALL SELECT n FROM groups")
    assert run.rows("total") == [(0, None)]
    assert run.rows("total_of_total") == [(0, 1)]
    run.insert("s", [(1,), (2,)])
    run.insert("t", [(1, 1)])
    run.epoch()
    assert run.rows("joined") == [(1,)]
    run.finish()


@pytest.mark.long
def test_a_fill_in_this_process_takes_no_job_and_goes_on_as_jobs_where_rows_are_many(
    oracle, monkeypatch
):
    run = oracle(fill_rows=40, small_rows=10)
    run.stream("s", "k INT, v INT")
    run.stream("u", "k INT, w DECIMAL(9,2)")
    run.insert("s", [(i % 9, i) for i in range(90)])
    run.insert("u", [(i % 9, i) for i in range(45)])
    run.epoch()
    jobs, steps = run.db.parts.engine._jobs, []
    run_jobs = jobs.run

    def counted(step, program):
        steps.append(sum(share.rows for share in step.shares.values()))
        return run_jobs(step, program)

    monkeypatch.setattr(jobs, "run", counted)
    run.view("sums", "SELECT k, sum(v) AS v, count(DISTINCT v % 5) AS n FROM s GROUP BY k")
    run.view("joined", "SELECT s.v, u.w FROM s JOIN u ON s.k = u.k WHERE upper('x' || s.v) <> 'X7'")
    assert steps == []
    monkeypatch.setattr("headrace.execution.engine.engine.MOST_FILLING", 60)
    run.view("many", "SELECT s.v, u.w FROM s JOIN u ON s.k = u.k AND s.v + u.w > 3")
    assert steps, "a part of 40 rows has hundreds of partners"
    assert max(steps) <= 40, "what was filled before is not filled again"
    made = len(steps)
    run.view("placed", "SELECT *, row_number() OVER (PARTITION BY k ORDER BY v) AS r FROM s")
    assert len(steps) > made, "groups of several parts are recomputed by jobs"
    run.insert("s", [(i % 9, i) for i in range(90, 95)])
    run.epoch()
    run.finish()


@pytest.mark.parametrize("kind", ["STREAM", "TABLE"])
def test_a_part_with_too_many_rows_on_their_way_is_divided(oracle, monkeypatch, kind):
    monkeypatch.setattr("headrace.execution.engine.engine.MOST_FILLING", 300)
    monkeypatch.setattr("headrace.execution.runtime.fill_parts._LEAST", 4)
    run = oracle(small_rows=10_000, reuse_rows=1, rows_per_change=9000)
    run.table("t", "k INT, w INT", key="k")
    if kind == "STREAM":
        run.stream("s", "g INT, v INT")
    else:
        run.table("s", "g INT, v INT")
    run.insert("t", [(i, i % 3) for i in range(40)])
    run.insert("s", [(i % 40, i) for i in range(800)])
    run.epoch()
    jobs, steps = run.db.parts.engine._jobs, []
    monkeypatch.setattr(jobs, "run", lambda step, _program: steps.append(step))
    run.view("joined", "SELECT t.w, s.v FROM t JOIN s ON t.k = s.g")
    run.view("pairs", "SELECT a.v, b.v AS w FROM s a JOIN s b ON a.g = b.g AND a.v < b.v")
    run.view("sums", "SELECT t.w, max(s.v) AS v FROM t JOIN s ON t.k = s.g GROUP BY t.w")
    assert not steps
    run.insert("t", [(i, 5) for i in range(0, 50, 7)])
    run.insert("s", [(i % 45, i) for i in range(30)])
    monkeypatch.undo()
    run.epoch()
    run.finish()
