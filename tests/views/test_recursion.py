"""``WITH RECURSIVE``: rows computed from rows, level by level."""

from __future__ import annotations

from decimal import Decimal

import pytest

from headrace import HeadraceError
from histories import History
from length import choose, some, thorough

pytestmark = pytest.mark.spark

REACHED = """WITH RECURSIVE reached(node, via) AS (
  SELECT node, 'start' FROM starts
  UNION ALL SELECT e.b, r.via FROM reached r JOIN edges e ON r.node = e.a)
SELECT node, via FROM reached"""

FORWARD = "e.a < e.b"
"""Edges that lead to greater nodes only make no cycle, whatever comes and goes."""


@pytest.mark.long
def test_what_is_reached_follows_edges_that_come_go_and_move(oracle):
    run = oracle(rows_per_change=30)
    run.table("edges", "id INT, a INT, b INT", key="id")
    run.table("starts", "node INT")
    run.insert("edges", [(1, 1, 2), (2, 2, 3), (3, 3, 4), (4, 5, 6)])
    run.insert("starts", [(1,)])
    run.view("reached", REACHED)
    assert [n for n, _ in run.rows("reached")] == [1, 2, 3, 4]
    run.insert("edges", [(5, 4, 5)])  # joins two stretches
    run.epoch()
    assert [n for n, _ in run.rows("reached")] == [1, 2, 3, 4, 5, 6]
    run.delete("edges", "id = 2")  # and cuts them off
    run.epoch()
    assert [n for n, _ in run.rows("reached")] == [1, 2]
    # An edge moves, another comes, a start comes and one goes: all in one epoch.
    run.insert("edges", [(1, 1, 5), (6, 2, 4), (7, 6, 7)])
    run.log("starts", [(1, (2,)), (1, (2,)), (-1, (1,))])
    run.epoch()
    assert [n for n, _ in run.rows("reached")] == [2, 2, 4, 4, 5, 5, 6, 6, 7, 7]
    run.truncate("starts")
    run.epoch()
    assert run.rows("reached") == []
    run.truncate("edges")
    run.insert("edges", [(1, 1, 2), (2, 2, 3)])
    run.insert("starts", [(1,)])
    run.epoch()
    assert [n for n, _ in run.rows("reached")] == [1, 2, 3]
    run.finish()


@pytest.mark.long
def test_paths_through_a_graph_that_changes_at_random(oracle):
    run = oracle(rows_per_change=3000)
    run.table("e", "id INT, a INT, b INT", key="id")
    run.table("start", "node INT")
    run.stream("blocked", "node INT")
    run.view(
        "paths",
        f"""WITH RECURSIVE p(node, hops) AS (
          SELECT node, 0 FROM start
          UNION ALL SELECT e.b, hops + 1 FROM p JOIN e ON p.node = e.a AND {FORWARD})
        SELECT node, hops FROM p""",
    )
    run.view(
        "open",
        f"""WITH RECURSIVE p(node, low) AS (
          SELECT node, node FROM start WHERE node IS NOT NULL
          UNION ALL SELECT e.b, low FROM p JOIN e ON p.node = e.a AND {FORWARD}
            WHERE e.b NOT IN (SELECT node FROM blocked WHERE node IS NOT NULL))
        SELECT low, count(*) AS n, max(node) AS far FROM p GROUP BY low""",
    )
    run.view("both", "SELECT p.node, p.hops, o.n FROM paths p LEFT JOIN open o ON p.node = o.low")
    history = History(run, 31, domain=8)
    history.epochs(["e", "start"], (14,))
    run.view("again", "SELECT hops, count(DISTINCT node) AS n FROM paths GROUP BY hops")
    history.epochs(["e", "start", "blocked"], choose((8,), (1, 8)))
    run.truncate("e")
    run.truncate("start")
    run.epoch()
    assert run.rows("both") == []
    if thorough():
        history.epochs(["e", "start"], (10,))
    run.finish()


@pytest.mark.long
def test_a_bill_of_materials_multiplies_along_the_path(oracle):
    run = oracle(rows_per_change=60)
    run.table("parts", "whole STRING, part STRING, n INT", key="whole, part")
    run.table("orders", "id INT, item STRING, n INT", key="id")
    run.table("prices", "item STRING, price DECIMAL(8,2)", key="item")
    run.insert(
        "parts",
        [("bike", "wheel", 2), ("wheel", "spoke", 32), ("wheel", "rim", 1), ("bike", "frame", 1)],
    )
    run.insert("orders", [(1, "bike", 3), (2, "wheel", 1)])
    run.insert(
        "prices", [("spoke", Decimal("0.10")), ("rim", Decimal(12)), ("frame", Decimal("99.90"))]
    )
    run.view(
        "needed",
        """WITH RECURSIVE bom(item, n) AS (
          SELECT item, CAST(n AS BIGINT) FROM orders
          UNION ALL SELECT p.part, b.n * p.n FROM bom b JOIN parts p ON b.item = p.whole)
        SELECT item, sum(n) AS n FROM bom GROUP BY item HAVING sum(n) > 0""",
    )
    run.view("costs", "SELECT sum(n * price) AS total FROM needed JOIN prices USING (item)")
    assert ("spoke", 224) in run.rows("needed")
    run.insert("parts", [("wheel", "spoke", 36), ("bike", "bell", 1)])
    run.update("orders", {"n": "n + 1"}, "id = 1")
    run.epoch()
    assert ("spoke", 324) in run.rows("needed")
    run.delete("parts", "part = 'wheel'")
    run.insert("parts", [("bike", "disc", 2), ("disc", "spoke", 1)])
    run.epoch()
    run.delete("orders")
    run.epoch()
    assert run.rows("costs") == [(None,)]
    run.insert("orders", [(9, "bike", 1)])
    run.epoch()
    run.finish()


@pytest.mark.long
def test_a_hierarchy_with_levels_and_paths(oracle):
    run = oracle(rows_per_change=200)
    run.table("staff", "id INT, boss INT, name STRING", key="id")
    run.insert("staff", [(1, None, "ann"), (2, 1, "bob"), (3, 1, "cid"), (4, 2, "dee")])
    run.view(
        "tree",
        """WITH RECURSIVE tree(id, level, path) AS (
          SELECT id, 0, name FROM staff WHERE boss IS NULL
          UNION ALL
          SELECT s.id, t.level + 1, concat(t.path, '/', s.name)
          FROM tree t JOIN staff s ON s.boss = t.id)
        SELECT * FROM tree""",
    )
    run.view("widths", "SELECT level, count(*) AS n, min(path) AS first FROM tree GROUP BY level")
    run.view("longest", "SELECT path, rank() OVER (ORDER BY level DESC, path) AS nth FROM tree")
    assert (4, 2, "ann/bob/dee") in run.rows("tree")
    run.update("staff", {"name": "'eve'"}, "id = 1")  # all paths
    run.epoch()
    run.update("staff", {"boss": "3"}, "id = 2")  # a branch moves, with what is below it
    run.epoch()
    assert (4, 3, "eve/cid/bob/dee") in run.rows("tree")
    run.update("staff", {"boss": "NULL"}, "id = 3")  # and becomes a tree of its own
    run.epoch()
    assert (4, 2, "cid/bob/dee") in run.rows("tree")
    run.delete("staff", "id = 2")
    run.epoch()
    assert [row[0] for row in run.rows("tree")] == [1, 3]
    run.finish()


@pytest.mark.long
def test_series_that_are_counted_out(oracle):
    run = oracle(rows_per_change=40)
    run.table("spans", "id INT, low INT, high INT", key="id")
    run.table("done", "n INT")
    run.view(
        "gaps",
        """WITH RECURSIVE s(n) AS (VALUES (1), (3) UNION ALL SELECT n + 4 FROM s WHERE n < 12)
        SELECT s.n FROM s LEFT ANTI JOIN done ON s.n = done.n""",
    )
    run.view(
        "days",
        """WITH RECURSIVE s(id, n, high) AS (
          SELECT id, low, high FROM spans UNION ALL SELECT id, n + 1, high FROM s WHERE n < high)
        SELECT id, n FROM s""",
    )
    assert {n for (n,) in run.rows("gaps")} == {1, 3, 5, 7, 9, 11, 13, 15}
    run.insert("spans", [(1, 3, 6), (2, 5, 5)])
    run.insert("done", [(7,), (1,)])
    run.epoch()
    run.insert("spans", [(1, 5, 8)])
    run.log("done", [(-1, (1,))])
    run.epoch()
    assert [n for i, n in run.rows("days") if i == 1] == [5, 6, 7, 8]
    run.finish()


STEPS = {
    "distinct": "SELECT DISTINCT e.b FROM r JOIN e ON r.n = e.a AND e.a < e.b",
    "left": "SELECT e.b FROM r LEFT JOIN e ON r.n = e.a AND e.a < e.b WHERE r.n IS NOT NULL",
    "semi": "SELECT n + 1 FROM r WHERE n < 6 AND EXISTS (SELECT 1 FROM e WHERE e.a = r.n)",
    "semi_any": "SELECT n + 1 FROM r LEFT SEMI JOIN e ON r.n = e.a AND r.n < e.b",
    "anti": "SELECT n + 1 FROM r LEFT ANTI JOIN e ON r.n = e.a WHERE n < 6",
    "in_itsel": "SELECT e.b FROM e WHERE e.a < e.b AND e.a IN (SELECT n FROM r)",
    "union": "(SELECT e.b FROM r JOIN e ON r.n = e.a AND e.a < e.b UNION ALL SELECT n + 3 FROM r WHERE n < 3)",
    "itsel": "SELECT x.n + y.n FROM r x JOIN r y ON x.n = y.n - 1 WHERE x.n BETWEEN 1 AND 4",
    "except": "SELECT n + 1 FROM (SELECT n FROM r WHERE n < 6 EXCEPT SELECT a FROM e)",
    "intersect": "SELECT n + 1 FROM (SELECT n FROM r WHERE n < 6 INTERSECT SELECT a FROM e)",
    "explode": "SELECT n + x FROM r LATERAL VIEW explode(array(1, 2)) AS x WHERE n < 4",
    "explode_joined": "SELECT x FROM (SELECT r.n AS n, e.b AS b, array(r.n + 1, e.b) AS xs FROM e JOIN r ON r.n = e.a AND e.a < e.b) LATERAL VIEW explode(xs) AS x WHERE n < 5",
    "scalar": "SELECT n + 1 FROM r WHERE n < (SELECT max(b) FROM e)",
    "lateral": "SELECT l.m FROM r, LATERAL (SELECT max(e.b) AS m FROM e WHERE e.a = r.n AND e.b > e.a) l WHERE m > n",
    "any_join": "SELECT e.b FROM r JOIN e ON r.n < e.a AND e.a < e.b",
    "stack": "SELECT stack(2, n + 1, n + 2) FROM r WHERE n < 3",
}


SHORT_STEPS = "distinct left anti in_itsel itsel explode_joined scalar any_join"


@pytest.mark.long
def test_steps_of_every_form_that_spark_has(oracle):
    run = oracle(rows_per_change=4000)
    run.table("e", "id INT, a INT, b INT", key="id")
    run.table("s", "n INT")
    queries = [
        f"SELECT '{name}' AS step, n FROM ("
        f"WITH RECURSIVE r(n) AS (SELECT n FROM s UNION ALL {step}) SELECT n FROM r)"
        for name, step in some(STEPS, SHORT_STEPS).items()
    ]
    run.view("steps", " UNION ALL ".join(queries))
    history = History(run, 33, domain=6)
    history.epochs(["e", "s"], choose((12,), (12, 3)))
    run.truncate("s")
    run.epoch()
    if thorough():
        history.epochs(["e", "s"], (6,))


@pytest.mark.long
def test_a_change_costs_a_round_for_each_level_that_it_reaches(oracle):
    run = oracle(rows_per_change=60)
    run.table("links", "id INT, a INT, b INT", key="id")
    run.table("starts", "node INT")
    # A chain, and the link at which it is cut.
    levels, cut = choose((6, 4), (12, 8))
    run.insert("links", [(n, n, n + 1) for n in range(levels)])
    run.insert("starts", [(0,)])
    run.view("reached", REACHED.replace("edges", "links"))
    assert len(run.rows("reached")) == levels + 1
    run.insert("links", [(1000, levels, levels + 1)])
    run.epoch()
    assert run.rounds == 1  # the leaf, and that nothing follows from it
    run.insert("links", [(1001 + n, n, 100 + n) for n in range(0, levels, 4)])
    run.epoch()
    assert run.rounds == 1  # leaves of many levels at once
    run.delete("links", f"id = {cut}")
    run.epoch()
    assert run.rounds == levels + 1 - cut
    run.insert("starts", [(levels - 1,), (200,)])
    run.epoch()
    assert run.rounds == 3
    run.delete("links", "id = 0")
    run.epoch()
    assert run.rounds == cut + 1
    left = {0, levels - 1, levels, levels + 1, 100, 200}
    assert {row[0] for row in run.rows("reached")} == left
    run.insert("links", [(2000, 300, 301)])  # which nobody reaches
    run.epoch()
    assert run.rounds == 0
    run.finish()


@pytest.mark.long
def test_a_cycle_stops_the_view_that_goes_around_it_and_no_other(db):
    db.sql("CREATE TABLE edges (id INT, a INT, b INT, PRIMARY KEY (id))")
    db.sql("CREATE TABLE starts (node INT)")
    db.sql("INSERT INTO edges VALUES (1, 1, 2), (2, 2, 3), (3, 8, 9), (4, 9, 8)")
    db.sql("INSERT INTO starts VALUES (1)")
    limited = REACHED.replace("reached(node, via)", "reached(node, via) MAX RECURSION LEVEL 4")
    db.sql(f"CREATE MATERIALIZED VIEW reached AS {limited}")
    db.sql("CREATE MATERIALIZED VIEW over AS SELECT count(*) AS n FROM reached")
    db.sql("CREATE MATERIALIZED VIEW beside AS SELECT count(*) AS n FROM edges")
    assert db.sql("SELECT n FROM over").fetchall() == [(3,)]
    # A cycle that comes and goes in what one epoch reads is none.
    db.sql("INSERT INTO edges VALUES (5, 3, 1)")
    db.sql("INSERT INTO edges VALUES (5, 3, 4)")
    assert db.sql("SELECT n FROM over").fetchall() == [(4,)]
    db.sql("INSERT INTO edges VALUES (6, 4, 2)")
    assert db.sql("SELECT n FROM beside").fetchall() == [(6,)]
    with pytest.raises(HeadraceError, match="a recursive WITH reached its limit of 4 levels"):
        db.sql("SELECT * FROM reached")
    with pytest.raises(HeadraceError, match="over"):
        db.sql("SELECT * FROM over")
    assert "reached" in {row[0] for row in db.sql("SHOW DIRTY").fetchall()}
    with pytest.raises(HeadraceError, match="reached its limit of 4 levels"):
        db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW looks AS {limited}")
    db.sql("DELETE FROM edges WHERE id = 6")
    db.sql("DROP MATERIALIZED VIEW over")
    db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW reached AS {limited}")
    assert sorted(db.sql("SELECT node FROM reached").fetchall()) == [(1,), (2,), (3,), (4,)]


@pytest.mark.long
def test_levels_are_limited_as_in_spark(oracle):
    run = oracle(rows_per_change=60)
    run.table("n", "high INT")
    run.view(
        "counted",
        """WITH RECURSIVE s(n) MAX RECURSION LEVEL 5 AS (
          SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < (SELECT max(high) FROM n)) SELECT n FROM s""",
    )
    run.insert("n", [(5,)])
    run.epoch()
    assert len(run.rows("counted")) == 5
    run.insert("n", [(6,)])
    with pytest.raises(HeadraceError, match="limit of 5 levels"):
        run.rows("counted")


@pytest.mark.long
def test_what_leads_out_of_the_levels_on_the_way_does_no_harm(oracle):
    run = oracle(rows_per_change=400)
    run.table("edges", "id INT, a INT, b INT", key="id")
    run.table("starts", "node INT")
    run.insert("edges", [(1, 1, 2), (2, 2, 3), (3, 5, 6)])
    run.insert("starts", [(1,), (5,)])
    run.view(
        "reached", REACHED.replace("reached(node, via)", "reached(node, via) MAX RECURSION LEVEL 6")
    )
    # The start of what becomes a cycle goes in the same epoch.
    run.insert("edges", [(9, 3, 1)])
    run.log("starts", [(-1, (1,))])
    run.epoch()
    assert [n for n, _ in run.rows("reached")] == [5, 6]
    assert run.rounds <= 6
    run.finish()


@pytest.mark.long
def test_rows_that_multiply_without_end_are_stopped(oracle):
    run = oracle(recursion_rows=2000)
    run.table("t", "n INT")
    run.view(
        "grown",
        """WITH RECURSIVE r(n, x) AS (
          SELECT n, 0L FROM t UNION ALL
          SELECT n + 1, x * 3 + d FROM r, (VALUES (0), (1), (2)) AS digits(d) WHERE n < 90)
        SELECT n, x FROM r""",
    )
    run.insert("t", [(88,)])
    run.epoch()
    assert len(run.rows("grown")) == 13
    run.insert("t", [(0,)])
    with pytest.raises(HeadraceError, match="changed by more than 2,000 rows at once"):
        run.rows("grown")
    assert run.db.parts.loop.stopped()


@pytest.mark.long
def test_the_clock_goes_with_recursion(db):
    db.sql("CREATE TABLE edges (a INT, b INT, until TIMESTAMP)")
    db.sql("CREATE TABLE starts (node INT)")
    db.sql("INSERT INTO starts VALUES (1)")
    db.sql(
        "INSERT INTO edges VALUES (1, 2, TIMESTAMP '2999-01-01 00:00:00'), (2, 3, TIMESTAMP '2999-01-01 00:00:00')"
    )
    db.sql(
        "INSERT INTO edges VALUES (1, 7, TIMESTAMP '1999-01-01 00:00:00'), (3, 4, TIMESTAMP '2999-01-02 00:00:00')"
    )
    db.sql(
        f"CREATE MATERIALIZED VIEW reached AS {REACHED} WHERE true".replace(
            "r.node = e.a", "r.node = e.a AND e.until > now()"
        )
    )
    assert sorted(db.sql("SELECT node FROM reached").fetchall()) == [(1,), (2,), (3,), (4,)]
    late = 32_472_230_400_000_000 + 3_600_000_000  # an hour into 2999-01-01
    db.parts.loop.clock = lambda: late
    db.parts.loop.advance()
    assert sorted(db.sql("SELECT node FROM reached").fetchall()) == [(1,)]
    assert [row[3] for row in db.sql("VERIFY").fetchall()] == ["equal to batch"]


@pytest.mark.long
def test_recursion_is_evaluated_by_spark_where_it_is_no_view(db):
    db.sql("CREATE TABLE edges (a INT, b INT)")
    db.sql("INSERT INTO edges VALUES (1, 2), (2, 3)")
    found = db.sql(
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT b FROM r JOIN edges ON n = a) SELECT n FROM r"
    )
    assert sorted(found.fetchall()) == [(1,), (2,), (3,)]
