"""Aggregates of all kinds, window functions and sessions: groups that Spark recomputes."""

from __future__ import annotations

import pytest

from histories import History
from length import some

pytestmark = pytest.mark.spark

AGGREGATES = {
    "extrema": "SELECT k, min(v) AS a, max(v) AS b, min(s) AS c, max(m) AS d FROM a GROUP BY k",
    "extrema_of_all": "SELECT min(v) AS a, max(s) AS b, count(*) AS n FROM a",
    "distinct_one": "SELECT k, count(DISTINCT v) AS n FROM a GROUP BY k",
    "distinct_many": """SELECT k, count(DISTINCT v) AS n, sum(DISTINCT v) AS t, count(DISTINCT s) AS m,
        max(v) AS b, count(*) AS c FROM a GROUP BY k""",
    "distinct_of_all": "SELECT count(DISTINCT k, s) AS n, avg(DISTINCT v) AS m FROM a",
    "distinct_filtered": """SELECT k, count(DISTINCT v) FILTER (WHERE v > 3) AS n,
        count(*) FILTER (WHERE s = 'a') AS m FROM a GROUP BY k""",
    "booleans": """SELECT k, bool_and(v > 3) AS a, bool_or(v > 30) AS b, every(s = 'a') AS c,
        bit_xor(v) AS x FROM a GROUP BY k""",
    "moments": """SELECT k, round(stddev(v), 6) AS sd, round(var_pop(v), 6) AS vp,
        round(corr(v, m), 4) AS c FROM a GROUP BY k""",
    "percentiles": """SELECT k, percentile(v, 0.5) AS p, median(v) AS m, percentile(v, array(0.1, 0.9)) AS q,
        percentile_cont(0.3) WITHIN GROUP (ORDER BY v DESC) AS pc, percentile_disc(0.3) WITHIN GROUP (ORDER BY m) AS d,
        percentile(m, 0.7) FILTER (WHERE v > 3) AS f, max(v) AS x, count(DISTINCT s) AS n FROM a GROUP BY k""",
    "percentiles_of_all": "SELECT median(v) AS m, percentile(m, array(0.0, 0.9)) AS l FROM a",
    "percentiles_of_doubles": "SELECT k, median(f) AS m, percentile(CAST(f AS FLOAT), 0.9) AS p FROM d GROUP BY k",
    "percentiles_by_rows": "SELECT k, percentile(v, 0.5, 2) AS p, median(DISTINCT v) AS m FROM a GROUP BY k",
    "lists": """SELECT k, sort_array(collect_list(v)) AS l, sort_array(collect_set(s)) AS t,
        size(collect_set(v)) AS n FROM a GROUP BY k""",
    "array_sorted": """SELECT k, array_sort(collect_list(s)) AS l, array_sort(collect_set(v)) AS t,
        transform(array_sort(collect_list(struct(v, s))), p -> p.s) AS o FROM a GROUP BY k""",
    "array_sorted_keys": """SELECT array_sort(array(coalesce(k, 0), 1)) AS o, (SELECT count(DISTINCT b.v) FROM b WHERE b.k = a.k) AS n,
        count(*) AS m FROM a WHERE k > 3 AND v > 3 GROUP BY array_sort(array(coalesce(k, 0), 1)), 2""",
    "array_sorted_later": """SELECT k, array_sort(l) AS l, array_sort(array_sort(array(k, n))) AS o
        FROM (SELECT k, collect_list(m) AS l, size(collect_list(v)) AS n FROM a GROUP BY k)""",
    "list_of_all": "SELECT sort_array(collect_list(v)) AS l FROM a",
    "texts": "SELECT k, listagg(s, ',') WITHIN GROUP (ORDER BY s) AS l FROM a GROUP BY k",
    "max_by_": "SELECT k, max_by(s, struct(v, s)) AS x, min_by(v, struct(v, s)) AS y FROM a GROUP BY k",
    "rolled": "SELECT k, s, max(v) AS m, count(*) AS n FROM a GROUP BY ROLLUP (k, s)",
    "cubed": "SELECT k, s, count(DISTINCT v) AS n, grouping_id() AS g FROM a GROUP BY CUBE (k, s)",
    "sets": "SELECT k, s, sum(v) AS n FROM a GROUP BY GROUPING SETS ((k), (s), ())",
    "having_": "SELECT k, max(v) AS m FROM a GROUP BY k HAVING min(v) < 5 AND count(*) > 1",
    "pivoted": "SELECT * FROM (SELECT k, s, v FROM a) PIVOT (sum(v) FOR s IN ('a', 'b'))",
    "doubles": "SELECT k, round(sum(f), 6) AS s, round(avg(f), 6) AS a, max(f) AS b FROM d GROUP BY k",
    "distinct_doubles": "SELECT k, count(DISTINCT f) AS n, count(DISTINCT f, k) AS m FROM d GROUP BY k",
    "approximate": "SELECT k, approx_count_distinct(v) AS n FROM a GROUP BY k",
    "picked": """SELECT k, max_by(s, struct(v, id)) AS x, min_by(m, struct(v, id)) FILTER (WHERE v > 3) AS y, max_by(v, id) AS w,
        count(*) AS n, sum(v) AS t, min_by(s, id) AS z FROM a GROUP BY k""",
    "picked_of_all": "SELECT max_by(s, id) AS m, min_by(id, struct(v, id)) AS n FROM a",
    "mixed_doubles": "SELECT k, round(avg(f), 6) AS a, round(sum(CAST(f AS FLOAT)), 4) AS b, count(f) AS n, max_by(k, f) AS m FROM d GROUP BY k",
    "tried": "SELECT k, try_sum(v) AS n FROM a GROUP BY k",
}

WINDOWS = {
    "numbered": "SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY v, id) AS r FROM a",
    "ranked": """SELECT id, rank() OVER (PARTITION BY k ORDER BY v) AS r,
        dense_rank() OVER (PARTITION BY k ORDER BY v DESC) AS d,
        percent_rank() OVER (PARTITION BY k ORDER BY v) AS p,
        ntile(3) OVER (PARTITION BY k ORDER BY v, id) AS t FROM a""",
    "neighbours": """SELECT id, lag(v) OVER (PARTITION BY k ORDER BY id) AS p,
        lead(v, 2, -1) OVER (PARTITION BY k ORDER BY id) AS n,
        first_value(v) OVER (PARTITION BY k ORDER BY id) AS f,
        nth_value(v, 2) OVER (PARTITION BY k ORDER BY id) AS s FROM a""",
    "framed": """SELECT id, sum(v) OVER (PARTITION BY s ORDER BY id ROWS 2 PRECEDING) AS a,
        count(*) OVER (PARTITION BY s ORDER BY v RANGE BETWEEN 3 PRECEDING AND CURRENT ROW) AS b,
        max(v) OVER (PARTITION BY k) AS m, avg(v) OVER (PARTITION BY s ORDER BY id) AS r FROM a""",
    "running": """SELECT id, sum(v) OVER (PARTITION BY k ORDER BY id) AS a, count(v) OVER (PARTITION BY k ORDER BY id) AS b,
        sum(m) OVER (PARTITION BY s ORDER BY v DESC) AS c, sum(m) OVER (PARTITION BY s ORDER BY v DESC ROWS UNBOUNDED PRECEDING) AS d,
        count(*) OVER (PARTITION BY s ORDER BY v DESC) AS n, lag(v) OVER (PARTITION BY s ORDER BY v DESC) AS p,
        sum(CAST(v AS DECIMAL(5,1))) OVER (PARTITION BY k ORDER BY id) AS e FROM a""",
    "ranges": """SELECT id, sum(v) OVER (PARTITION BY s ORDER BY v DESC RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS a,
        max(id) OVER (PARTITION BY s ORDER BY v DESC RANGE BETWEEN 3 FOLLOWING AND 9 FOLLOWING) AS b,
        first_value(id) OVER (PARTITION BY s ORDER BY v DESC ROWS BETWEEN 3 PRECEDING AND 2 PRECEDING) AS c,
        lead(s, 2, 'none') OVER (PARTITION BY s ORDER BY v DESC) AS d FROM a""",
    "of_all": "SELECT id, sum(v) OVER (ORDER BY id) AS t, count(*) OVER () AS n FROM a WHERE k < 8",
    "top": """SELECT k, id, v FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS r
        FROM a) WHERE r <= 2""",
    "top_ranked": """SELECT k, id FROM (SELECT *, rank() OVER (PARTITION BY k ORDER BY v) AS r
        FROM a) WHERE r <= 2""",
    "of_bag": """SELECT k, v, dense_rank() OVER (PARTITION BY k ORDER BY v) AS r,
        sum(v) OVER (PARTITION BY k) AS t FROM b""",
    "of_aggregate": """SELECT k, n, rank() OVER (ORDER BY n) AS r
        FROM (SELECT k, count(*) AS n FROM b GROUP BY k)""",
    "of_decimals": """SELECT id, sum(m) OVER (PARTITION BY k) AS t, avg(m) OVER (PARTITION BY k ORDER BY id) AS a,
        sum(CAST(v AS DECIMAL(5,1))) OVER (PARTITION BY s) AS d, avg(1.25) OVER (PARTITION BY s) AS c,
        max(m) OVER (PARTITION BY k) - m AS gap FROM a""",
    "share": "SELECT k, sum(v) * 100 / sum(sum(v)) OVER () AS p FROM b GROUP BY k",
}

SUBQUERIES = {
    "maximum": "SELECT id, (SELECT max(v) FROM b) AS m FROM a",
    "above": "SELECT id FROM a WHERE v > (SELECT avg(v) FROM b)",
    "correlated": "SELECT id, (SELECT sum(b.v) FROM b WHERE b.k = a.k) AS t FROM a",
    "counted": "SELECT id, (SELECT count(*) FROM b WHERE b.k = a.k) AS n FROM a",
    "count_above": "SELECT id FROM a WHERE (SELECT count(*) FROM b WHERE b.k = a.k AND b.v > 5) = 0",
    "in_having": "SELECT k, sum(v) AS t FROM a GROUP BY k HAVING sum(v) > (SELECT avg(v) FROM b)",
    "in_result": "SELECT k, sum(v) / (SELECT count(*) + 1 FROM b) AS t FROM a GROUP BY k",
    "of_all": "SELECT sum(v) + (SELECT count(*) FROM b) AS t FROM a",
    "single": "SELECT id, (SELECT s FROM a x WHERE x.id = 3) AS s FROM a",
    "exists_": "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE v > 30)",
    "itself": "SELECT id FROM a WHERE v = (SELECT max(v) FROM a y WHERE y.k = a.k)",
    "lateral_": "SELECT a.id, x.t FROM a, LATERAL (SELECT sum(b.v) AS t FROM b WHERE b.k = a.k) x",
    "lateral_top": """SELECT a.id, x.v FROM a,
        LATERAL (SELECT v FROM b WHERE b.k = a.k ORDER BY v LIMIT 2) x""",
    "nested": """SELECT id FROM a WHERE v > (SELECT avg(v) FROM b
        WHERE b.v < (SELECT max(v) FROM a))""",
    "twice": """WITH t AS (SELECT k, sum(v) AS t FROM b GROUP BY k)
        SELECT k, t FROM t WHERE t = (SELECT max(t) FROM t)""",
    "nearest": "SELECT id FROM a ORDER BY abs(v - (SELECT avg(v) FROM b)), id LIMIT 3",
    "after_nearest": """SELECT id, v FROM a ORDER BY v % (SELECT count(*) + 1 FROM b) DESC NULLS LAST, id
        LIMIT 3 OFFSET 2""",
    "in_order_of_groups": """SELECT k, sum(v) AS t FROM a GROUP BY k
        ORDER BY sum(v) % (SELECT count(*) + 1 FROM b), k LIMIT 2""",
    "within_functions": """SELECT k, sum(v - (SELECT max(v) FROM b)) AS t, count(DISTINCT try_mod(v, (SELECT max(k) FROM b))) AS n,
        max_by(id, struct(try_mod(v, (SELECT max(k) FROM b)), id)) AS m FROM a GROUP BY k""",
    "in_filters": """SELECT count(*) FILTER (WHERE v > (SELECT avg(v) FROM b)) AS n,
        sum(v) FILTER (WHERE k = (SELECT min(k) FROM b)) AS t FROM a""",
    "within_functions_correlated": """SELECT k, sum((SELECT max(b.v) FROM b WHERE b.k = a.k) - v) AS t
        FROM a GROUP BY k""",
    "as_key": "SELECT (SELECT max(v) FROM b) AS m, k, count(*) AS n FROM a GROUP BY (SELECT max(v) FROM b), k",
    "in_key": """SELECT v > (SELECT avg(v) FROM b) AS h, sum(v) AS t FROM a
        GROUP BY v > (SELECT avg(v) FROM b) HAVING sum(v) > (SELECT count(*) FROM b)""",
    "in_rollup": """SELECT k, s, sum(v - (SELECT min(v) FROM b)) AS t FROM a GROUP BY ROLLUP (k, s)""",
}

BAGS = {
    "union_": "SELECT k, v FROM a UNION SELECT k, v FROM b",
    "intersect_all": "SELECT k, v FROM a INTERSECT ALL SELECT k, v FROM b",
    "except_all": "SELECT k FROM b EXCEPT ALL SELECT k FROM a",
    "minus_": "SELECT k, s FROM a MINUS SELECT k, s FROM b",
    "mixed": "(SELECT k FROM a UNION ALL SELECT k FROM b) EXCEPT (SELECT v FROM b)",
    "constants": "SELECT a.id, x.n FROM a JOIN (VALUES (1, 'one'), (2, 'two')) AS x(k, n) ON a.k = x.k",
    "with_constants": "SELECT k FROM b UNION ALL SELECT 100 AS k",
    "left_of_constants": """SELECT x.k, count(b.v) AS n FROM (VALUES (1), (2), (3)) AS x(k)
        LEFT JOIN b ON b.k = x.k GROUP BY x.k""",
}

FIRST = {
    "limited": "SELECT id, v FROM a ORDER BY v DESC, id LIMIT 5",
    "skipped": "SELECT id, s FROM a ORDER BY s, id LIMIT 4 OFFSET 3",
    "offset_only": "SELECT id FROM a ORDER BY v, id OFFSET 10",
    "nulls_last": "SELECT v, k FROM b ORDER BY v NULLS LAST, k DESC NULLS FIRST, s LIMIT 7",
    "by_expression": "SELECT id FROM a ORDER BY abs(v - 10), id LIMIT 3",
    "not_shown": "SELECT s FROM a ORDER BY v, id LIMIT 5",
    "whole_rows": "SELECT k, v, s FROM b ORDER BY k, v, s LIMIT 6",
    "of_groups": "SELECT k, count(*) AS n FROM b GROUP BY k ORDER BY count(*) DESC, k LIMIT 3",
    "nested": "SELECT a.id FROM a JOIN (SELECT k FROM b ORDER BY k, v, s LIMIT 5) x ON a.k = x.k",
    "first_of_each": """SELECT k, id, v FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS r
        FROM a) WHERE r = 1""",
    "best": "SELECT (SELECT s FROM a ORDER BY v DESC, id LIMIT 1) AS s, k FROM b",
    "dense": """SELECT k, v FROM (SELECT *, dense_rank() OVER (PARTITION BY k ORDER BY v) AS r FROM b)
        WHERE r <= 2""",
    "top_of_all": """SELECT id, r FROM (SELECT id, rank() OVER (ORDER BY v) AS r FROM a) WHERE r < 4""",
    "qualified": "SELECT id FROM a QUALIFY row_number() OVER (PARTITION BY s ORDER BY id) <= 2",
}

OF_EACH = {
    "newest": "SELECT id, (SELECT s FROM b WHERE b.k = a.k ORDER BY v DESC, s LIMIT 1) AS x FROM a",
    "second": """SELECT a.id, x.s FROM a,
        LATERAL (SELECT s FROM b WHERE b.k = a.k ORDER BY v, s LIMIT 1 OFFSET 1) x""",
    "first_two": """SELECT a.id, x.t FROM a LEFT JOIN
        LATERAL (SELECT s || '!' AS t FROM b WHERE b.k = a.k ORDER BY v DESC, s LIMIT 2) x ON true""",
    "summed_up": """SELECT id, (SELECT sum(v) OVER (ORDER BY v, s) FROM b WHERE b.k = a.k
        ORDER BY v DESC, s DESC LIMIT 1) AS x FROM a""",
    "greatest_of_two": """SELECT id, (SELECT max(v) FROM
        (SELECT v FROM b WHERE b.k = a.k ORDER BY s, v LIMIT 2)) AS x FROM a""",
    "above_last": """SELECT id FROM a WHERE v > (SELECT v FROM b WHERE b.k = a.k
        ORDER BY s DESC NULLS LAST, v DESC LIMIT 1)""",
    "any_": "SELECT id FROM a WHERE EXISTS (SELECT * FROM b WHERE b.k = a.k LIMIT 1)",
    "only_one": "SELECT id, (SELECT count(*) FROM b WHERE b.k = a.k LIMIT 1) AS x FROM a",
}
"""First rows of correlated subqueries, most by columns that are not selected: Spark itself forgets
that order, so that what is expected says it in another way."""

_NUMBERED = "(SELECT k, v, s, row_number() OVER (PARTITION BY k ORDER BY {}) AS r FROM b) x"
OF_EACH_PLAIN = {
    "newest": f"""SELECT id, x.s AS x FROM a LEFT JOIN {_NUMBERED.format("v DESC, s")}
        ON x.k = a.k AND x.r = 1""",
    "second": f"SELECT id, x.s FROM a JOIN {_NUMBERED.format('v, s')} ON x.k = a.k AND x.r = 2",
    "first_two": f"""SELECT id, x.s || '!' AS t FROM a LEFT JOIN {_NUMBERED.format("v DESC, s")}
        ON x.k = a.k AND x.r <= 2""",
    "summed_up": "SELECT id, (SELECT sum(v) FROM b WHERE b.k = a.k) AS x FROM a",
    "greatest_of_two": f"""SELECT id, max(x.v) AS x FROM a LEFT JOIN {_NUMBERED.format("s, v")}
        ON x.k = a.k AND x.r <= 2 GROUP BY id""",
    "above_last": f"""SELECT id FROM a JOIN {_NUMBERED.format("s DESC NULLS LAST, v DESC")}
        ON x.k = a.k AND x.r = 1 AND a.v > x.v""",
    "any_": "SELECT id FROM a LEFT SEMI JOIN b ON b.k = a.k",
    "only_one": "SELECT id, (SELECT count(*) FROM b WHERE b.k = a.k) AS x FROM a",
}

TIMES = {
    "sessions": """SELECT k, session_window.start AS b, session_window.end AS e, count(*) AS n, max(v) AS m
        FROM e GROUP BY k, session_window(t, '7 minutes')""",
    "sessions_of_all": """SELECT session_window.start AS b, count(*) AS n, count(DISTINCT k) AS m
        FROM e GROUP BY session_window(t, '2 minutes')""",
    "sessions_by_gap": """SELECT k, session_window AS w, sum(v) AS t FROM e GROUP BY k,
        session_window(t, CASE WHEN v > 9 THEN '1 minute' ELSE '15 minutes' END)""",
    "sessions_that_grow": """SELECT k, session_window AS w, count(v) AS n, avg(v) AS a, min(s) AS b FROM g
        WHERE v < 900 GROUP BY k, session_window(t, '3 minutes')""",
    "sessions_of_texts": """SELECT s, b, n FROM (SELECT s, session_window.start AS b, count(*) AS n,
        sum(v) FILTER (WHERE k > 3) AS t, max(session_window.end) AS l FROM e
        GROUP BY s, session_window(t, '20 minutes') HAVING count(*) > 1) WHERE l > b AND t > 2""",
    "sessions_with_rows": """SELECT k, session_window.start AS b, max_by(v, struct(t, v)) AS l, listagg(s, ',') WITHIN GROUP (ORDER BY s, v) AS t,
        max(session_window.end) AS m FROM e GROUP BY k, session_window(t, '4 minutes')""",
    "sessions_that_see_themselves": """SELECT k % 3 AS r, session_window AS w, count(DISTINCT v) AS n,
        max(session_window.end) AS m FROM e GROUP BY k % 3, session_window(t, '1 minute')""",
    "tops_of_sessions": """SELECT k, max(n) AS n, count(*) AS c FROM (SELECT k, session_window, count(*) AS n
        FROM e GROUP BY k, session_window(t, '5 minutes')) GROUP BY k""",
    "tumbled": """SELECT window.start AS b, k, max(v) AS m, count(DISTINCT s) AS n FROM e
        GROUP BY window(t, '20 minutes'), k""",
    "hopped": """SELECT window.end AS e, min(s) AS m, count(*) AS n FROM e
        GROUP BY window(t, '30 minutes', '10 minutes')""",
    "top_of_windows": """SELECT w, k, n FROM (SELECT w, k, n, rank() OVER (PARTITION BY w ORDER BY n DESC) AS r
        FROM (SELECT window.start AS w, k, count(*) AS n FROM e GROUP BY window(t, '30 minutes'), k))
        WHERE r = 1""",
}


@pytest.mark.long
def test_first_rows_of_each_outer_row(oracle):
    run = oracle(rows_per_change=200)
    run.table("a", "id INT, k INT, v INT, s STRING", key="id")
    run.table("b", "k INT, v INT, s STRING")
    chosen = some(OF_EACH, "second first_two summed_up above_last")
    for name, query in chosen.items():
        run.view(name, query, expected=OF_EACH_PLAIN[name])
    History(run, 17, domain=25).life(["a", "b"], most=40)
    run.finish()
    verdicts = {view: verdict for view, _, _, verdict in run.db.sql("VERIFY")}
    assert verdicts == dict.fromkeys(chosen, "equal to batch")


@pytest.mark.parametrize("small_rows", [20_000, pytest.param(0, marks=pytest.mark.long)])
def test_sessions_merge_and_split(oracle, small_rows):
    run = oracle(rows_per_change=2000, small_rows=small_rows)
    run.table("e", "k INT, v INT, s STRING, t TIMESTAMP")
    run.stream("g", "k INT, v INT, s STRING, t TIMESTAMP")
    chosen = "sessions sessions_by_gap sessions_that_grow sessions_with_rows sessions_of_all hopped"
    for name, query in some(TIMES, chosen).items():
        run.view(name, query)
    History(run, 5, domain=12).life(["e", "g"], most=80)
    run.finish()


def test_a_slice_of_sessions_is_corrected_and_replayed_by_itself(db):
    grouped = "FROM g GROUP BY k, session_window(t, '7 minutes')"
    db.sql(f"""CREATE STREAM g (k STRING, t TIMESTAMP, v INT);
        CREATE MATERIALIZED VIEW added_up AS SELECT k, session_window.end AS e, count(*) AS n {grouped};
        CREATE MATERIALIZED VIEW listed AS SELECT k, session_window.end AS e, array_agg(v) AS l {grouped}""")
    minutes = [f"('{k}', TIMESTAMP '2024-01-01 10:{i}5:00', {i})" for k in "ab" for i in range(3)]
    minutes += [f"('{k}', TIMESTAMP '2024-01-01 10:{i}0:00', {i})" for k in "ab" for i in range(3)]
    db.sql(f"INSERT INTO g VALUES {', '.join(minutes)}")
    assert sorted(db.sql("SELECT k, n FROM added_up").fetchall()) == [("a", 6), ("b", 6)]
    db.sql("CORRECT STREAM g VOID WHERE k = 'a' AND v = 1")
    found = sorted(db.sql("SELECT k, n FROM added_up").fetchall())
    assert found == [("a", 2), ("a", 2), ("b", 6)]
    lists = sorted(db.sql("SELECT k, l FROM listed").fetchall())
    assert lists == [("a", [0, 0]), ("a", [2, 2]), ("b", [0, 1, 2, 0, 1, 2])]
    for view in ("added_up", "listed"):
        db.sql(f"REPLAY VIEW {view} WHERE k = 'b'")
    between = [f"('a', TIMESTAMP '2024-01-01 10:{minute}:00', 3)" for minute in (12, 13)]
    db.sql(f"INSERT INTO g VALUES {', '.join(between)}")
    assert sorted(db.sql("SELECT k, n FROM added_up").fetchall()) == [("a", 6), ("b", 6)]
    verdicts = {view: verdict for view, _, _, verdict in db.sql("VERIFY")}
    assert verdicts == dict.fromkeys(("added_up", "listed"), "equal to batch")


CONDITIONS = {
    "of_groups": "SELECT k, count(*) AS n FROM e {0} HAVING session_window.end <= {1}",
    "around": "SELECT k, n FROM (SELECT k, session_window AS w, count(*) AS n FROM e {0}) WHERE w.end <= {1}",
    "computed": """SELECT k, n FROM (SELECT k, session_window.end AS b, count(*) AS n FROM e {0})
        WHERE b <= {1} AND n > 0""",
    "joined": """SELECT s.k, n FROM (SELECT k, session_window, count(*) AS n FROM e {0}) AS s
        JOIN (SELECT 1 AS one) ON s.session_window.end <= {1}""",
    "nested": "SELECT k FROM f WHERE EXISTS (SELECT 1 FROM e WHERE e.k = f.k {0} HAVING session_window.end <= {1})",
}


@pytest.mark.long
def test_conditions_on_sessions_see_whole_sessions(db):
    db.sql("CREATE TABLE e (k INT, t TIMESTAMP); CREATE TABLE f (k INT)")
    grouped = "GROUP BY k, session_window(t, '20 minutes')"
    texts = {
        name: query.format(grouped, "TIMESTAMP '2024-01-01 10:45:00'")
        for name, query in some(CONDITIONS, "of_groups computed nested").items()
    }
    for name, query in texts.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    times = [f"(1, TIMESTAMP '2024-01-01 10:{minute}:00')" for minute in ("00", "10", "20")]
    db.sql("INSERT INTO f VALUES (1), (2)")
    for last, expected in ((), [(1, 3)]), ((f"(1, TIMESTAMP '2024-01-01 10:{30}:00')",), []):
        db.sql(f"INSERT INTO e VALUES {', '.join(last or times)}")
        for name, query in texts.items():
            rows = [row[:1] for row in expected] if name == "nested" else expected
            assert db.sql(query).fetchall() == rows, name
            assert db.sql(f"SELECT * FROM {name}").fetchall() == rows, name
    verdicts = {view: verdict for view, _, _, verdict in db.sql("VERIFY")}
    assert verdicts == dict.fromkeys(texts, "equal to batch")


CHOSEN = {
    "groups": some(
        AGGREGATES,
        "extrema percentiles percentiles_of_all array_sorted_later distinct_doubles picked",
    ),
    "windows": some(WINDOWS, "neighbours framed running top of_aggregate"),
    "scalars": some(
        SUBQUERIES,
        "correlated exists_ nested as_key",
    ),
    "bags": some(BAGS, "except_all mixed left_of_constants"),
    "first": some(FIRST, "skipped by_expression nested dense"),
}


@pytest.mark.parametrize(
    "views",
    [
        pytest.param(views, id=kind, marks=[] if kind == "groups" else [pytest.mark.long])
        for kind, views in CHOSEN.items()
    ],
)
def test_groups_are_computed_anew_where_they_change(oracle, views):
    run = oracle(rows_per_change=2000)
    run.table("a", "id INT, k INT, v INT, s STRING, m DECIMAL(10,2)", key="id")
    run.table("b", "k INT, v INT, s STRING")
    run.stream("d", "k INT, f DOUBLE")
    for name, query in views.items():
        run.view(name, query)
    history = History(run, 11, domain=25)
    history.life(["a", "b"], most=60)
    inexact = [(1, 0.1), (1, 0.2), (2, None), (2, float("nan")), (None, -0.5), (None, 0.25)]
    run.insert("d", [*inexact, (3, -0.0), (3, 0.0), (3, float("nan")), (3, float("nan"))])
    run.epoch()
    run.finish()
