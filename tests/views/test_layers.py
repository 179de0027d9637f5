"""Views on views: layers, diamonds, connected sets, common table expressions."""

from __future__ import annotations

import pytest

from headrace.execution.engine.lowering import programs as lowering
from histories import History
from length import choose, thorough

pytestmark = pytest.mark.spark


@pytest.mark.long
def test_views_on_views_agree_at_every_epoch(oracle):
    run = oracle(rows_per_change=50)
    run.table("t", "id INT, g INT, x INT", key="id")
    run.stream("s", "g INT, y INT")
    # Three deep.
    run.view("one", "SELECT g, sum(x) AS x, count(*) AS n FROM t GROUP BY g")
    run.view("two", "SELECT n, sum(x) AS x, count(*) AS groups FROM one GROUP BY n")
    run.view("three", "SELECT sum(x) AS x, sum(groups) AS groups FROM two WHERE n > 1")
    # Diamonds.
    run.view("evens", "SELECT g, count(*) AS n FROM t WHERE x % 2 = 0 GROUP BY g")
    run.view(
        "diamond", "SELECT one.g, one.n, evens.n AS even FROM one JOIN evens ON one.g = evens.g"
    )
    run.view("union_of_both", "SELECT g, n FROM one UNION ALL SELECT g, -n FROM evens")
    run.view("difference", "SELECT g, sum(n) AS odd FROM union_of_both GROUP BY g")
    run.view("base_and_view", "SELECT t.id, t.x, one.x AS total FROM t JOIN one ON t.g = one.g")
    run.view("itself", "SELECT a.g, b.n FROM one a JOIN one b ON a.g = b.n")
    # A stream that two views read, the second created later.
    run.view("first", "SELECT g, sum(y) AS y FROM s GROUP BY g")
    history = History(run, 9, domain=9)
    history.epochs(["t", "s"], (1, 10, 60))
    run.view("second", "SELECT s.y, one.n FROM s JOIN one ON s.g = one.g")
    run.view("copied", "SELECT * FROM diamond")
    history.epochs(["t", "s"], choose((10,), (10, 1)))
    history.epochs(["s"], (5,))
    run.truncate("t")
    run.epoch()
    assert run.rows("three") == [(None, None)]
    if thorough():
        history.epochs(["t"], (8,))
    run.drop_view("copied")
    run.drop_view("diamond")
    history.epochs(["t"], (2,))
    run.finish()


@pytest.mark.long
def test_plans_do_not_double_with_each_view_that_reads_the_one_below_twice(oracle, monkeypatch):
    monkeypatch.setattr(lowering, "MOST_REPEATED", 15)
    depth = choose(4, 7)  # plain Spark, which it is compared with, reads the lowest 2**depth times
    run = oracle(rows_per_change=400, split=True, small_rows=0)
    run.table("t", "id INT, g INT, x INT", key="id")
    run.view("d0", "SELECT g, count(*) AS n FROM t GROUP BY g")
    for i in range(depth):
        run.view(
            f"d{i + 1}",
            f"SELECT a.g, (a.n + b.n) % 7 AS n FROM d{i} AS a JOIN d{i} AS b ON a.g = b.g",
        )
    run.view("beside", "SELECT d1.g, t.x FROM d1 JOIN t ON d1.g = t.g")
    run.view("above", f"SELECT g, n FROM d2 UNION ALL SELECT g, n FROM d{depth} UNION ALL TABLE d2")
    history = History(run, 9, domain=9)
    history.epochs(["t"], choose((30,), (30, 4)))
    run.truncate("t")
    run.epoch()
    jobs = [program.jobs for program in run.db.parts.engine.programs.programs()]
    longest = max(jobs, key=len)
    assert len(longest) > 1
    lines = [str(job).count("\n") for job in longest]
    assert max(lines) < 1000
    run.finish()


@pytest.mark.long
def test_connected_sets_step_one_by_one_in_one_epoch(oracle):
    run = oracle()
    for name in "abc":
        run.table(name, "k INT, x INT", key="k")
        run.view(f"sum_{name}", f"SELECT k % 2 AS p, sum(x) AS s FROM {name} GROUP BY k % 2")
    run.table("alone", "x INT")
    run.stream("unread", "x INT")
    run.insert("unread", [(1,)])
    history = History(run, 10, domain=9)
    history.epochs(["a", "b", "c", "alone"], (8, 40))
    history.epochs(["b"], (3,))
    run.view("bridge", "SELECT a.k, b.p FROM a JOIN sum_b b ON a.k = b.s")
    history.epochs(["a", "b", "c"], (12,))
    run.view("of_unread", "SELECT count(*) AS n FROM unread")
    run.insert("unread", [(2,), (2,)])
    run.epoch()
    assert run.rows("of_unread") == [(3,)]
    run.finish()


@pytest.mark.long
def test_common_tables_and_subqueries_in_from(oracle):
    run = oracle(rows_per_change=20)
    run.table("t", "id INT, g INT, x INT", key="id")
    run.view(
        "cte",
        """WITH big AS (SELECT * FROM t WHERE x > 3), totals AS (SELECT g, sum(x) AS s FROM big GROUP BY g)
        SELECT big.id, totals.s FROM big JOIN totals ON big.g = totals.g""",
    )
    run.view(
        "cte_twice",
        "WITH c AS (SELECT g, count(*) AS n FROM t GROUP BY g) SELECT a.n, b.g FROM c a JOIN c b ON a.g = b.n",
    )
    run.view("cte_columns", "WITH c(p, q) AS (SELECT g, x FROM t) SELECT q, p FROM c WHERE p > 1")
    run.view(
        "cte_nested",
        "WITH a AS (WITH b AS (SELECT x FROM t) SELECT x + 1 AS y FROM b) SELECT sum(y) AS s FROM a",
    )
    run.view(
        "cte_shadows", "WITH t2 AS (SELECT id FROM t) SELECT id FROM t2 UNION ALL SELECT x FROM t"
    )
    run.view(
        "subquery",
        "SELECT y + 1 AS z FROM (SELECT x * 2 AS y FROM (SELECT x FROM t WHERE g > 1) AS i) AS o WHERE y > 2",
    )
    history = History(run, 11, domain=9)
    history.epochs(["t"], (50, 5))
    run.truncate("t")
    run.finish()
