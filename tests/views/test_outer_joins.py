"""Outer, semi and anti joins, on keys and on any condition, while both sides change."""

from __future__ import annotations

import pytest

from histories import History

pytestmark = pytest.mark.spark

OUTER = {
    "left_by_key": "SELECT a.id, a.k, b.v FROM a LEFT JOIN b ON a.k = b.k",
    "right_by_key": "SELECT a.id, b.k, b.v FROM a RIGHT JOIN b ON a.k = b.k",
    "full_by_key": "SELECT a.id, a.k, b.k AS bk, b.v FROM a FULL JOIN b ON a.k = b.k",
    "full_null_safe": "SELECT a.id, b.v FROM a FULL JOIN b ON a.k <=> b.k",
    "left_below": "SELECT a.id, b.v FROM a LEFT JOIN b ON a.k = b.k AND a.g < b.v",
    "right_below": "SELECT a.id, b.v FROM a RIGHT JOIN b ON a.k = b.k AND a.g < b.v",
    "full_below": "SELECT a.id, b.k, b.v FROM a FULL JOIN b ON a.k = b.k AND a.g < b.v",
    "left_only_left": "SELECT a.id, b.v FROM a LEFT JOIN b ON a.k = b.k AND a.g > 20",
    "full_no_equality": "SELECT a.id, b.v FROM a FULL JOIN b ON a.k < b.k - 30",
    "using_k": "SELECT k, a.s, b.v FROM a FULL JOIN b USING (k)",
    "natural_left": "SELECT * FROM a NATURAL LEFT JOIN b",
    "counted": "SELECT a.g, count(b.v) AS n, count(*) AS m FROM a LEFT JOIN b ON a.k = b.k GROUP BY a.g",
    "twice": "SELECT a.id, b.v, c.w FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON b.v = c.k",
    "coalesced": "SELECT coalesce(a.k, b.k) AS k, a.id FROM a FULL JOIN b ON a.k = b.k WHERE b.v IS NULL OR b.v > 3",
    "padded_structs": """SELECT a.id, x.st, array(x.st) AS many FROM a
        LEFT JOIN (SELECT k, struct(v IS NULL AS unknown, v) AS st FROM b) x ON a.k = x.k""",
    "of_aggregates": """SELECT x.k, x.n, y.t FROM (SELECT k, count(*) AS n FROM a GROUP BY k) x
        FULL JOIN (SELECT k, sum(v) AS t FROM b GROUP BY k) y ON x.k = y.k""",
}

SEMI = {
    "in_": "SELECT * FROM a WHERE k IN (SELECT k FROM b)",
    "not_in": "SELECT * FROM a WHERE k NOT IN (SELECT k FROM b WHERE v > 5)",
    "not_in_nulls": "SELECT * FROM a WHERE g NOT IN (SELECT v FROM b)",
    "exists_": "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
    "not_exists": "SELECT id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
    "exists_below": "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.v < a.g)",
    "not_exists_below": """SELECT id FROM a
        WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.v < a.g)""",
    "not_in_correlated": "SELECT id FROM a WHERE k NOT IN (SELECT k FROM b WHERE b.v = a.g)",
    "in_or": "SELECT id FROM a WHERE k IN (SELECT k FROM b) OR g > 30",
    "not_in_or": "SELECT id FROM a WHERE k NOT IN (SELECT k FROM b WHERE v > 30) OR g > 30",
    "exists_or_below": """SELECT id FROM a WHERE g = 3
        OR EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.v < a.g)""",
    "in_two": "SELECT id FROM a WHERE (k, g) IN (SELECT k, v FROM b)",
    "in_in": "SELECT id FROM a WHERE k IN (SELECT k FROM b WHERE v NOT IN (SELECT w FROM c))",
    "semi_": "SELECT a.id FROM a LEFT SEMI JOIN b ON a.k = b.k AND a.s <> b.s",
    "anti_": "SELECT a.id FROM a LEFT ANTI JOIN b ON a.k <=> b.k",
    "intersect_": "SELECT k, s FROM a INTERSECT SELECT k, s FROM b",
    "except_": "SELECT k FROM a EXCEPT SELECT k FROM b",
}

OTHER = {
    "cross_": "SELECT x.id, c.k FROM a x CROSS JOIN c WHERE c.w > 30",
    "below": "SELECT x.id AS i, c.k FROM a x JOIN c ON x.g < c.w AND x.g > c.w - 4",
    "itself": "SELECT x.k AS i, y.k AS j FROM c x LEFT JOIN c y ON x.w = y.k",
    "itself_below": "SELECT x.k AS i, y.k AS j FROM c x LEFT JOIN c y ON x.w > y.w AND x.w < y.w + 3",
}


@pytest.mark.parametrize("views", [OUTER, SEMI, OTHER], ids=["outer", "semi", "other"])
def test_rows_with_and_without_a_partner_come_and_go(oracle, views):
    run = oracle(rows_per_change=2000)
    run.table("a", "id INT, k INT, g INT, s STRING", key="id")
    run.table("b", "k INT, v INT, s STRING")
    run.table("c", "k INT, w INT", key="k")
    for name, query in views.items():
        run.view(name, query)
    History(run, 7, domain=40).life(["a", "b", "c"], most=80)
    run.finish()
