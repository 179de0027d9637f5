"""Inner joins, while both sides change."""

from __future__ import annotations

from decimal import Decimal

import pytest

from histories import History
from length import some

pytestmark = pytest.mark.spark

TWO = {
    "plain": "SELECT a.id, a.s, b.v FROM a JOIN b ON a.k = b.k",
    "whole": "SELECT * FROM a JOIN e USING (k)",
    "natural": "SELECT * FROM c NATURAL JOIN d",
    "using_two": "SELECT k, g, a.s, d.n FROM a JOIN d USING (k, g)",
    "residual": "SELECT a.id, b.v FROM a JOIN b ON a.k = b.k AND a.id < b.v",
    "between": "SELECT a.id, b.v FROM a JOIN b ON a.k = b.k AND a.id > b.v - 9 AND a.id + 1 <= b.v + CAST(7 AS BIGINT) AND a.s <> b.s",
    "residual_or": "SELECT a.id, b.v FROM a, b WHERE a.k = b.k AND (a.s = b.s OR b.v > 5)",
    "null_safe": "SELECT a.id, b.v FROM a JOIN b ON a.k <=> b.k AND a.s = b.s",
    "null_safe_only": "SELECT a.id, d.n FROM a JOIN d ON a.s <=> d.t",
    "expression": "SELECT a.id, b.v FROM a JOIN b ON a.k + 1 = b.v AND lower(a.s) = b.s",
    "mixed_types": "SELECT a.id, c.w FROM a JOIN c ON a.k = c.big",
    "decimal_types": "SELECT a.id, c.w FROM a JOIN c ON a.k = c.m",
    "float_key": "SELECT c.k, d.n FROM c JOIN d ON c.f = d.f",
    "struct_key": "SELECT c.k, d.n FROM c JOIN d ON struct(c.k, c.g) = struct(d.k, d.g)",
    "filtered": "SELECT a.id, b.v FROM a JOIN b ON a.k = b.k WHERE a.g > 2 AND b.s <> 'a'",
    "only_left": "SELECT a.s FROM a JOIN b ON a.k = b.k",
    "no_columns": "SELECT 1 AS one FROM a JOIN b ON a.k = b.k",
    "repeated_key": "SELECT a.id, b.v FROM a JOIN b ON a.k = b.k AND a.k = b.v",
    "key_twice": "SELECT a.k AS x, b.k AS y, a.k AS z FROM a JOIN b ON a.k = b.k",
    "constant_key": "SELECT a.id, b.v FROM a JOIN b ON a.k = b.k AND a.k = 3",
}

ITSELF = {
    "neighbours": "SELECT x.id AS i, y.id AS j FROM a x JOIN a y ON x.k = y.k AND x.id < y.id",
    "parents": "SELECT x.id AS i, y.s FROM a x JOIN a y ON x.g = y.id",
    "whole_itself": "SELECT x.id, y.s FROM a x JOIN a y ON x.id = y.id",
    "grand": """SELECT x.id AS i, z.id AS j FROM a x JOIN a y ON x.g = y.id
        JOIN a z ON y.g = z.id""",
    "bag_itself": "SELECT x.v AS p, y.v AS q FROM b x JOIN b y ON x.s = y.s AND x.v = y.k",
    "filtered_itself": """SELECT x.id, y.g FROM (SELECT * FROM a WHERE k > 3) x
        JOIN (SELECT id, g + 1 AS g FROM a) y ON x.id = y.g""",
}

MANY = {
    "three": "SELECT a.id, b.v, c.w FROM a JOIN b ON a.k = b.k JOIN c ON b.v = c.k",
    "star": """SELECT o.id, a.s, c.w, d.n FROM o JOIN a ON o.a = a.id JOIN c ON o.c = c.k
        JOIN d ON o.d = d.k WHERE a.g < 9""",
    "star_total": """SELECT a.s, sum(o.m * c.w) AS total, count(*) AS n
        FROM o JOIN a ON o.a = a.id JOIN c ON o.c = c.k GROUP BY a.s""",
    "chain_of_using": "SELECT k, a.s, c.w, d.n FROM a JOIN c USING (k) JOIN d USING (k)",
    "of_unions": """SELECT x.id, c.w FROM (SELECT id, k FROM a UNION ALL SELECT v, k FROM b) x
        JOIN c ON x.k = c.k""",
    "of_aggregates": """SELECT x.k, x.n, y.t FROM (SELECT k, count(*) AS n FROM b GROUP BY k) x
        JOIN (SELECT k, sum(v) AS t FROM b GROUP BY k) y ON x.k = y.k""",
    "of_one_aggregate": "SELECT b.v, t.n FROM b JOIN (SELECT k, count(*) AS n FROM b GROUP BY k) t ON b.k = t.k",
}


def tables(run):
    run.table("a", "id INT, k INT, g INT, s STRING", key="id")
    run.table("b", "k INT, v INT, s STRING")
    run.table("c", "k INT, big BIGINT, g INT, w INT, m DECIMAL(10,0), f DOUBLE", key="k")
    run.stream("d", "k INT, g INT, n INT, t STRING, f FLOAT")
    run.table("e", "k INT, y INT")
    run.table("o", "id INT, a INT, c INT, d INT, m DECIMAL(12,2)", key="id")


CHOSEN = {
    "two": some(
        TWO,
        "between residual null_safe float_key struct_key",
    ),
    "itself": some(ITSELF, "neighbours filtered_itself"),
    "many": some(MANY, "star_total of_unions of_one_aggregate"),
}


@pytest.mark.parametrize(
    "views",
    [
        pytest.param(views, id=kind, marks=[] if kind == "two" else [pytest.mark.long])
        for kind, views in CHOSEN.items()
    ],
)
def test_pairs_come_and_go(oracle, views):
    run = oracle(rows_per_change=200)
    tables(run)
    for name, query in views.items():
        run.view(name, query)
    history = History(run, 4, domain=25)
    names = [n for n in run.models if any(f" {n}" in q for q in views.values())]
    history.epochs(names, (40, 1, 120))
    run.truncate(names[0])
    history.epochs(names[:2], (10,))
    run.finish()


def test_both_sides_of_a_join_change_in_one_epoch(oracle):
    run = oracle()
    run.table("l", "k INT, x INT")
    run.table("r", "k INT, y INT", key="k")
    run.view("j", "SELECT l.k, x, y FROM l JOIN r ON l.k = r.k")
    run.view("s", "SELECT x.k, x.x AS a, y.x AS b FROM l x JOIN l y ON x.k = y.k")
    run.insert("l", [(1, 10)])
    run.insert("r", [(1, 100)])
    run.epoch()
    assert run.rows("j") == [(1, 10, 100)]
    run.insert("l", [(1, 11)])
    run.insert("r", [(1, 101)])
    run.epoch()
    assert run.rows("j") == [(1, 10, 101), (1, 11, 101)]
    assert len(run.rows("s")) == 4
    run.log("l", [(-1, (1, 10)), (1, (1, 12))])
    run.log("r", [(-1, (1, None))])
    run.epoch()
    assert run.rows("j") == []
    run.log("r", [(1, (1, 5)), (-1, (1, None)), (1, (1, 6))])
    run.log("l", [(-1, (1, 11)), (-1, (1, 12))])
    run.epoch()
    assert run.rows("j") == run.rows("s") == []
    run.finish()


@pytest.mark.long
def test_weights_multiply_through_joins_into_sums(oracle):
    run = oracle(rows_per_change=20)
    run.table("l", "k INT, m DECIMAL(12,2)")
    run.table("r", "k INT, f INT")
    run.view("j", "SELECT l.k, m, f FROM l JOIN r ON l.k = r.k")
    run.view(
        "t",
        """SELECT k, count(*) AS n, sum(m) AS m, sum(m * f) AS mf, avg(m) AS am, sum(f) AS f,
        count(m) AS c, sum(m) FILTER (WHERE f > 1) AS big FROM j GROUP BY k""",
    )
    run.view("all_of_it", "SELECT count(*) AS n, sum(m) AS m FROM l JOIN r ON l.k = r.k")
    run.insert("l", [(1, Decimal("0.10"))] * 3 + [(1, None)] * 2 + [(2, Decimal("-9999999999.99"))])
    run.insert("r", [(1, 2)] * 4 + [(1, None), (2, 3)])
    run.epoch()
    assert ((1, Decimal("0.10"), 2)) in run.rows("j")
    assert run.rows("j").count((1, Decimal("0.10"), 2)) == 12
    assert run.rows("all_of_it") == [(26, Decimal("-9999999998.49"))]
    run.log("l", [(-1, (1, Decimal("0.10")))])
    run.log("r", [(-1, (1, 2))] * 2)
    run.epoch()
    assert run.rows("j").count((1, Decimal("0.10"), 2)) == 4
    run.truncate("r")
    run.epoch()
    assert run.rows("t") == []
    assert run.rows("all_of_it") == [(0, None)]
    run.finish()


def test_null_keys_join_nothing_unless_they_are_null_safe(oracle):
    run = oracle()
    run.table("l", "k INT, x INT")
    run.table("r", "k INT, y INT")
    run.view("equal", "SELECT x, y FROM l JOIN r ON l.k = r.k")
    run.view("safe", "SELECT x, y FROM l JOIN r ON l.k <=> r.k")
    run.view("mixed", "SELECT x, y FROM l JOIN r ON l.k <=> r.k AND l.x = r.y")
    run.insert("l", [(None, 1), (0, 2), (1, None)])
    run.insert("r", [(None, 1), (0, 4), (1, None)])
    run.epoch()
    assert run.rows("equal") == [(2, 4), (None, None)]
    assert run.rows("safe") == [(1, 1), (2, 4), (None, None)]
    assert run.rows("mixed") == [(1, 1)]
    run.delete("l", "k IS NULL")
    run.epoch()
    assert run.rows("safe") == [(2, 4), (None, None)]
    run.finish()
