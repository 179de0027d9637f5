"""Functions over the rows of a stream in the order of arrival."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import headrace
from bags import Model
from length import each, some, thorough

pytestmark = pytest.mark.spark

BY_OFFSET = {
    "latest": "SELECT k, LATEST_BY_OFFSET(v) AS v, EARLIEST_BY_OFFSET(v) AS e FROM s GROUP BY k",
    "latest_whole": "SELECT LATEST_BY_OFFSET(v) FILTER (WHERE k <> 'a') AS v, count(*) AS n FROM s",
    "with_nulls": "SELECT k, LATEST_BY_OFFSET(v, false) AS v, EARLIEST_BY_OFFSET(v, FALSE) AS e FROM s GROUP BY k",
    "several": "SELECT k, LATEST_BY_OFFSET(v, 2) AS v, EARLIEST_BY_OFFSET(v, 3, false) AS e FROM s GROUP BY k",
    "aliased": "SELECT x.k, LATEST_BY_OFFSET(x.v + 1) AS v FROM s AS x WHERE x.v > 1 GROUP BY x.k",
    "joined": "SELECT t.w, LATEST_BY_OFFSET(s.v) AS v FROM s JOIN t ON t.k = s.k GROUP BY t.w",
    "places": "SELECT ROWOFFSET, * FROM s WHERE v > 1",
    "some_columns": "SELECT ROWOFFSET AS o, * EXCLUDE k, s.* EXCEPT (v, s.n) FROM s",
    "some_structs": "SELECT COLLECT_LIST(struct(* EXCLUDE (k, n))) AS l FROM s",
    "lists": """SELECT k, COLLECT_LIST(v) AS l, ARRAY_AGG(v + 1) FILTER (WHERE v > 1) AS f, COLLECT_SET(v) AS s,
        size(collect_set(v)) AS n, sort_array(collect_list(v)) AS o FROM s GROUP BY k""",
    "with_null_elements": """SELECT k, COLLECT_LIST(v) AS l, COLLECT_SET(v) FILTER (WHERE n > 0) AS s, EARLIEST_BY_OFFSET(v) AS e
        FROM s GROUP BY k""",
    "texts": "SELECT LISTAGG(CAST(v AS STRING), '-') AS l, STRING_AGG(k) FILTER (WHERE v > 2) AS m FROM s",
    "joined_lists": "SELECT t.w, COLLECT_LIST(s.v) AS l FROM s JOIN t ON t.k = s.k GROUP BY t.w",
}


PLACELESS = {
    "counted": "SELECT array_sort(collect_list(v)) AS l, count(DISTINCT *) AS d, count(*) AS n FROM p",
    "structs": """SELECT array_sort(collect_list(struct(*))) AS l, array_sort(collect_list(struct(p.*, 1))) AS m
        FROM p""",
    "excepts": """SELECT array_sort(collect_list(struct(* EXCEPT (v)))) AS l,
        array_sort(collect_list(struct(p.* EXCEPT (p.k, g), 1 AS one))) AS m FROM p""",
    "pivoted": """SELECT array_sort(collect_list(a)) AS l, count(*) AS n
        FROM p PIVOT (sum(v) FOR k IN ('a' AS a, 'b' AS b))""",
    "left_out": "SELECT array_sort(collect_list(t.w)) AS l FROM t LEFT ANTI JOIN p ON p.k = t.k",
    "kept": "SELECT array_sort(collect_list(t.w)) AS l FROM t SEMI JOIN p USING (k)",
    "of_two": "SELECT array_sort(collect_list(p.v)) AS l FROM p SEMI JOIN p AS o ON o.v > p.v",
}
"""Queries that read the places of rows, or would if they could, and do not show them."""


def in_order(value, condition):
    """A list in the order of the column that counts the rows."""
    kept = f"if(({value}) IS NOT NULL AND {condition}, struct(n, {value} AS x), NULL)"
    return f"transform(array_sort(collect_list({kept})), p -> p.x)"


def plain():
    """The same in plain Spark, by a column that counts the rows as they come."""
    last, first = (
        "max_by(v, n) FILTER (WHERE v IS NOT NULL)",
        "min_by(v, n) FILTER (WHERE v IS NOT NULL)",
    )
    return {
        "latest": f"SELECT k, {last} AS v, {first} AS e FROM s GROUP BY k",
        "latest_whole": "SELECT max_by(v, n) FILTER (WHERE v IS NOT NULL AND k <> 'a') AS v, count(*) AS n FROM s",
        "with_nulls": "SELECT k, max_by(v, n) AS v, min_by(v, n) AS e FROM s GROUP BY k",
        "several": """SELECT k, transform(slice(array_sort(collect_list(if(v IS NULL, NULL, struct(n, v)))),
            greatest(1, CAST(count(v) AS INT) - 1), 2), x -> x.v) AS v,
            transform(slice(array_sort(collect_list(struct(n, v))), 1, 3), x -> x.v) AS e FROM s GROUP BY k""",
        "aliased": "SELECT k, max_by(v + 1, n) AS v FROM s WHERE v > 1 GROUP BY k",
        "joined": "SELECT t.w, max_by(s.v, s.n) FILTER (WHERE s.v IS NOT NULL) AS v FROM s JOIN t ON t.k = s.k GROUP BY t.w",
        "places": "SELECT n AS ROWOFFSET, * FROM s WHERE v > 1",
        "some_columns": "SELECT n AS o, v, n, k FROM s",
        "some_structs": f"SELECT {in_order('struct(v)', 'true')} AS l FROM s",
        "lists": f"""SELECT k, {in_order("v", "true")} AS l, {in_order("v + 1", "v > 1")} AS f,
            array_distinct({in_order("v", "true")}) AS s, CAST(count(DISTINCT v) AS INT) AS n,
            array_sort(collect_list(v)) AS o FROM s GROUP BY k""",
        "with_null_elements": f"""SELECT k, transform(array_sort(collect_list(struct(n, v))), p -> p.v) AS l,
            array_distinct(transform(array_sort(collect_list(if(n > 0, struct(n, v), NULL))), p -> p.v)) AS s, {first} AS e FROM s GROUP BY k""",
        "texts": f"""SELECT if(count(v) > 0, array_join({in_order("CAST(v AS STRING)", "true")}, '-'), NULL) AS l,
            if(count_if(v > 2 AND k IS NOT NULL) > 0, array_join({in_order("k", "v > 2")}, ''), NULL) AS m FROM s""",
        "joined_lists": f"SELECT t.w, {in_order('v', 'true')} AS l FROM s JOIN t ON t.k = s.k GROUP BY t.w",
    }


SHORT_BY_OFFSET = (
    """latest with_nulls several joined places some_columns lists with_null_elements texts"""
)


@pytest.mark.long
def test_the_order_of_arrival_is_that_of_the_log(oracle):
    run = oracle(rows_per_change=60)
    run.stream("s", "k STRING, v INT, n BIGINT")
    run.table("t", "k STRING, w INT", key="k")
    rows = [
        ("a", 1),
        ("b", 5),
        ("a", None),
        (None, 3),
        ("a", 7),
        ("b", None),
        ("c", None),
        (None, 9),
        ("a", 2),
    ]
    run.insert("s", [(k, v, n) for n, (k, v) in enumerate(rows)])
    run.insert("t", [("a", 1), ("b", 1), ("c", 2)])
    expected = plain()
    for name, query in some(BY_OFFSET, SHORT_BY_OFFSET).items():
        run.view(name, query, expected=expected[name])
    assert [row[:2] + row[3:4] for row in run.rows("lists")] == [
        ("a", [1, 7, 2], [1, 7, 2]),
        ("b", [5], [5]),
        ("c", [], []),
        (None, [3, 9], [3, 9]),
    ]
    assert run.rows("latest") == [("a", 2, 1), ("b", 5, 5), ("c", None, None), (None, 9, 3)]
    for n, (k, v) in enumerate([("a", 0), ("b", 2), ("c", None), ("c", 8), ("d", 4)], len(rows)):
        run.insert("s", [(k, v, n)])
        if thorough() or k == "c":
            run.epoch()
    run.insert("t", [("a", 3)])
    run.epoch()
    run.insert("s", [("a", i % 7, 14 + i) for i in range(40)])
    run.epoch()
    found = run.db.sql("SELECT LATEST_BY_OFFSET(v) AS v, max(ROWOFFSET) AS n FROM s").fetchall()
    assert found == [(39 % 7, 53)]
    run.finish()


@pytest.mark.long
def test_a_place_is_no_column_of_its_row(oracle):
    run = oracle()
    run.stream("p", "k STRING, v INT, g INT")
    run.table("t", "k STRING, w INT", key="k")
    run.insert("p", [("a", 1, 1), ("a", 1, 1), ("b", 5, 1)])
    run.insert("t", [("a", 1), ("b", 1), ("c", 2)])
    for name, query in some(PLACELESS, "counted excepts pivoted left_out of_two").items():
        run.view(name, query, expected=query)
    assert run.rows("counted") == [([1, 1, 5], 2, 3)]
    assert run.rows("pivoted") == [([2], 1)]
    run.insert("p", [("a", 1, 1), ("a", 4, 2), ("c", None, 2)])
    run.epoch()
    assert run.rows("pivoted") == [([3, 4], 2)]
    run.finish()


@pytest.mark.parametrize(
    ("query", "place"),
    each(
        3,
        [
            ("SELECT LATEST_BY_OFFSET(w) AS w FROM t", "LATEST_BY_OFFSET"),
            ("SELECT LATEST_BY_OFFSET(w) AS w FROM t ANTI JOIN s ON s.k = t.k", "LATEST_BY_OFFSET"),
            (
                "SELECT LATEST_BY_OFFSET(a) AS w FROM s PIVOT (max(v) FOR k IN ('a' AS a))",
                "LATEST_BY_OFFSET",
            ),
            ("SELECT LATEST_BY_OFFSET(v) AS v FROM u", "LATEST_BY_OFFSET"),
            ("SELECT LATEST_BY_OFFSET(v) AS v FROM (SELECT * FROM s)", "LATEST_BY_OFFSET"),
            (
                "WITH s AS (SELECT 1 AS v) SELECT EARLIEST_BY_OFFSET(v) AS v FROM s",
                "EARLIEST_BY_OFFSET",
            ),
            (
                "SELECT LATEST_BY_OFFSET(a.v) AS v FROM s a JOIN s b ON a.k = b.k",
                "LATEST_BY_OFFSET",
            ),
            ("SELECT LATEST_BY_OFFSET(v) OVER (PARTITION BY k) AS v FROM s", "LATEST_BY_OFFSET(v)"),
            ("SELECT LATEST_BY_EVENT_TIME(v) AS v FROM u", "LATEST_BY_EVENT_TIME(v)"),
            ("SELECT EARLIEST_BY_OFFSET(v, -1) AS v FROM s", "EARLIEST_BY_OFFSET(v, -1)"),
            ("SELECT LATEST_BY_OFFSET(v, n, false) AS v FROM s", "LATEST_BY_OFFSET(v, n, false)"),
        ],
    ),
)
def test_only_the_rows_of_one_stream_have_an_order(db, query, place):
    db.sql("CREATE STREAM s (k STRING, v INT)")
    db.sql("CREATE TABLE t (k STRING, w INT)")
    db.sql("CREATE MATERIALIZED VIEW u AS SELECT k, v FROM s")
    with pytest.raises(headrace.HeadraceError) as caught:
        db.sql(f"CREATE MATERIALIZED VIEW bad AS {query}")
    assert caught.value.code == "unsupported"
    assert caught.value.span.source == place
    assert caught.value.hint


KSQL_WINDOWS = {
    "tumbling": """SELECT k, WINDOWSTART, WINDOWEND, COUNT(*) AS n FROM s
        WINDOW TUMBLING (SIZE 1 HOUR, RETENTION 7 DAYS, GRACE PERIOD 10 MINUTES) WHERE v > 0 GROUP BY k""",
    "hopping": """SELECT TIMESTAMPTOSTRING(WINDOWSTART, 'HH:mm') AS b, SUM(v) AS v FROM s x
        WINDOW HOPPING (SIZE 30 MINUTES, ADVANCE BY 10 MINUTES) GROUP BY x.k HAVING WINDOWEND > 0""",
    "session": """SELECT k, WINDOWSTART AS b, WINDOWEND AS e, COUNT(*) AS n FROM s
        WINDOW SESSION (5 MINUTES, GRACE PERIOD 1 DAY) GROUP BY k""",
    "of_join": """SELECT t.w, WINDOWSTART AS b, LATEST_BY_OFFSET(s.v) AS v FROM s LEFT JOIN t ON t.k = s.k
        WINDOW TUMBLING (SIZE 1 DAY) GROUP BY t.w""",
    "rowtime": "SELECT ROWTIME, k, ROWTIME - 1 AS before FROM s WHERE ROWTIME > 0",
    "latest": "SELECT k, LATEST_BY_EVENT_TIME(v) AS v, EARLIEST_BY_EVENT_TIME(v) AS e FROM s GROUP BY k",
    "millis": "SELECT WINDOWSTART, COUNT(*) AS n FROM m WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY at - at",
}


def plain_windows():
    return {
        "tumbling": """SELECT k, unix_millis(window.start) AS WINDOWSTART, unix_millis(window.end) AS WINDOWEND, count(*) AS n
            FROM s WHERE v > 0 GROUP BY k, window(ts, '1 hour')""",
        "hopping": """SELECT date_format(window.start, 'HH:mm') AS b, sum(v) AS v FROM s
            GROUP BY k, window(ts, '30 minutes', '10 minutes')""",
        "session": """SELECT k, unix_millis(min(ts)) AS b, unix_millis(max(ts)) AS e, count(*) AS n FROM s
            GROUP BY k, session_window(ts, '5 minutes')""",
        "of_join": """SELECT t.w, unix_millis(date_trunc('DAY', s.ts)) AS b, max_by(s.v, s.n) FILTER (WHERE s.v IS NOT NULL) AS v
            FROM s LEFT JOIN t ON t.k = s.k WHERE s.ts IS NOT NULL GROUP BY t.w, date_trunc('DAY', s.ts)""",
        "rowtime": "SELECT unix_millis(ts) AS ROWTIME, k, unix_millis(ts) - 1 AS before FROM s WHERE unix_millis(ts) > 0",
        "latest": """SELECT k, max_by(v, struct(ts, v)) FILTER (WHERE v IS NOT NULL) AS v,
            min_by(v, struct(ts, v)) FILTER (WHERE v IS NOT NULL) AS e FROM s GROUP BY k""",
        "millis": "SELECT at - pmod(at, 60000L) AS WINDOWSTART, count(*) AS n FROM m GROUP BY at - pmod(at, 60000L)",
    }


@pytest.mark.long
def test_windows_are_by_the_event_time_that_the_stream_declares(oracle):
    run = oracle(rows_per_change=60)
    columns = "k STRING, v INT, ts TIMESTAMP, n BIGINT"
    run.db.sql(f"CREATE STREAM s ({columns}, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)")
    run.models["s"] = Model.of("s", columns, deletes=False)
    run.db.sql(
        "CREATE STREAM m (at BIGINT) WITH (kafka_topic = 'm', value_format = 'json', timestamp = 'AT')"
    )
    run.models["m"] = Model.of("m", "at BIGINT", deletes=False)
    run.table("t", "k STRING, w INT", key="k")
    expected = plain_windows()
    for name, query in some(KSQL_WINDOWS, "tumbling session of_join rowtime latest millis").items():
        run.view(name, query, expected=expected[name])
    at = datetime(2024, 1, 1, 10, tzinfo=UTC)
    minutes = [0, 7, 61, 3, 12, 8, 59, 2, 17, None]
    rows = [
        ("ab"[i % 2], (i * 5) % 7, None if late is None else at + timedelta(minutes=late), i)
        for i, late in enumerate(minutes)
    ]
    run.insert("t", [("a", 1)])
    for part in (rows[:1], rows[1:4], rows[4:]):
        run.insert("s", part)
        run.insert("m", [(0 if t is None else int(t.timestamp() * 1000),) for _, _, t, _ in part])
        run.epoch()
    run.finish()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT COLLECT_SET(w) AS l FROM t",
        "SELECT COLLECT_LIST(DISTINCT w) AS l FROM t",
        "SELECT COLLECT_LIST(w) AS l, count(DISTINCT k) AS n FROM t",
        "SELECT LISTAGG(DISTINCT k) AS l FROM t",
        "SELECT LISTAGG(k) AS l, count(DISTINCT w) AS n FROM t",
    ],
)
def test_lists_of_what_has_no_order_stay_refused(db, query):
    db.sql("CREATE STREAM s (k STRING, v INT); CREATE TABLE t (k STRING, w INT)")
    with pytest.raises(headrace.HeadraceError, match="is not stated") as caught:
        db.sql(f"CREATE MATERIALIZED VIEW m AS {query}")
    assert caught.value.code is headrace.Code.UNSUPPORTED
