"""Outer, semi and anti joins, on keys and on any condition, while both sides change."""

from __future__ import annotations

import pytest

from headrace.errors import Code, HeadraceError
from histories import History
from length import some

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
    "left_between": "SELECT a.id, b.v FROM a LEFT JOIN b ON a.k = b.k AND b.v BETWEEN a.g - 3 AND a.g + 2",
    "full_between": "SELECT a.id, b.v FROM a FULL JOIN b ON b.v + 30 >= a.g AND b.v + 25 < a.g",
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

SINGLE = {
    "by_key": "SELECT a.id, (SELECT w FROM c WHERE c.k = a.k) AS w FROM a",
    "by_key_null_safe": "SELECT a.id, (SELECT w FROM c WHERE c.k <=> a.k) AS w FROM a",
    "by_sum": "SELECT a.id, a.g + (SELECT w FROM c WHERE c.k + 1 = a.k + a.g) AS w FROM a",
    "by_key_and_order": "SELECT a.id, (SELECT w FROM c WHERE c.k = a.k AND c.w > a.g) AS w FROM a",
    "by_order": "SELECT g, (SELECT k FROM c WHERE c.k + 1 > a.g AND c.k <= a.g) AS k FROM a",
    "by_left": "SELECT a.id, (SELECT w FROM c WHERE c.k = a.k AND a.g > 20) AS w FROM a",
    "of_maps": "SELECT a.id, (SELECT map('x', array(w, k)) FROM c WHERE c.k = a.k) AS m FROM a",
    "of_structs": "SELECT a.id, (SELECT struct(w, k) FROM c WHERE c.k = a.k) AS x FROM a",
    "compared_": "SELECT id FROM a WHERE g > (SELECT w FROM c WHERE c.k = a.k)",
    "compared_as_null": "SELECT id FROM a WHERE g <=> (SELECT w FROM c WHERE c.k = a.k)",
    "having_": """SELECT k, sum(g) AS t FROM a GROUP BY k
        HAVING sum(g) > (SELECT w FROM c WHERE c.k = a.k)""",
    "nested": "SELECT a.id, (SELECT w FROM c WHERE k = a.k AND w IN (SELECT v FROM b)) AS w FROM a",
    "two": """SELECT a.id, (SELECT w FROM c WHERE c.k = a.k) AS w,
        (SELECT x.n FROM (SELECT v, count(*) AS n FROM b GROUP BY v) x WHERE x.v = a.g) AS n FROM a""",
    "in_case": """SELECT a.id, CASE WHEN a.g > 20 THEN (SELECT w FROM c WHERE c.k = a.k) ELSE a.k END AS w
        FROM a""",
    "below_joins": """SELECT a.id, b.v FROM a
        JOIN b ON a.k = b.k WHERE b.v > (SELECT w FROM c WHERE c.k = a.k)""",
}

OTHER = {
    "cross_": "SELECT x.id, c.k FROM a x CROSS JOIN c WHERE c.w > 30",
    "below": "SELECT x.id AS i, c.k FROM a x JOIN c ON x.g < c.w AND x.g > c.w - 4",
    "itself": "SELECT x.k AS i, y.k AS j FROM c x LEFT JOIN c y ON x.w = y.k",
    "itself_below": "SELECT x.k AS i, y.k AS j FROM c x LEFT JOIN c y ON x.w > y.w AND x.w < y.w + 3",
}


CHOSEN = {
    "outer": some(
        OUTER,
        "right_by_key full_null_safe full_below left_between",
    ),
    "semi": some(
        SEMI,
        "not_in_nulls not_exists_below exists_or_below",
    ),
    "single": some(
        SINGLE, "by_key_null_safe by_key_and_order by_order of_maps compared_as_null in_case"
    ),
    "other": some(OTHER, "below itself_below"),
}


@pytest.mark.parametrize(
    "views",
    [
        pytest.param(
            views, id=kind, marks=[pytest.mark.long] if kind in {"single", "other"} else []
        )
        for kind, views in CHOSEN.items()
    ],
)
def test_rows_with_and_without_a_partner_come_and_go(oracle, views):
    run = oracle(rows_per_change=2000)
    run.table("a", "id INT, k INT, g INT, s STRING", key="id")
    run.table("b", "k INT, v INT, s STRING")
    run.table("c", "k INT, w INT", key="k")
    for name, query in views.items():
        run.view(name, query)
    History(run, 7, domain=40).life(["a", "b", "c"], most=80)
    run.finish()


@pytest.mark.parametrize(
    "condition",
    [
        pytest.param("c.k = a.k", id="="),
        pytest.param("c.k = a.k AND c.w > a.w", id=">", marks=pytest.mark.long),
    ],
)
def test_a_second_row_of_a_subquery_is_an_error_where_a_row_asks_for_it(db, condition):
    db.sql("CREATE TABLE a (k INT, w INT)")
    db.sql("CREATE TABLE c (k INT, w INT)")
    query = f"SELECT a.k, (SELECT w FROM c WHERE {condition}) AS w FROM a"
    db.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
    db.sql("INSERT INTO a VALUES (1, 0), (1, 0), (2, 0)")
    db.sql("INSERT INTO c VALUES (1, 5), (3, 5), (3, 5)")
    assert sorted(db.sql("SELECT * FROM v").fetchall(), key=str) == [(1, 5), (1, 5), (2, None)]
    assert [row[-1] for row in db.sql("VERIFY v")] == ["equal to batch"]
    db.sql("INSERT INTO c VALUES (1, 5)")
    with pytest.raises(HeadraceError, match='view "v" stopped') as stopped:
        db.sql("SELECT * FROM v")
    assert "more than one row returned by a subquery" in stopped.value.detail


@pytest.mark.long
def test_a_subquery_of_rows_that_tells_zeros_apart_is_refused(db):
    db.sql("CREATE TABLE a (x DOUBLE)")
    db.sql("CREATE TABLE c (k STRING, w DOUBLE)")
    rows = "SELECT (SELECT w FROM c WHERE {}) AS w FROM a"
    with pytest.raises(HeadraceError, match='computes with "x"') as refused:
        db.sql("CREATE MATERIALIZED VIEW v AS " + rows.format("c.k < CAST(a.x AS STRING)"))
    assert refused.value.code is Code.UNSUPPORTED
    db.sql("CREATE MATERIALIZED VIEW v AS " + rows.format("c.w < a.x"))
    db.sql("INSERT INTO a VALUES (0.0D), (-0.0D), (1D)")
    db.sql("INSERT INTO c VALUES ('a', -0.0D)")
    assert sorted(db.sql("SELECT * FROM v").fetchall(), key=str) == [(0.0,), (None,), (None,)]
