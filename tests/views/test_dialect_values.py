"""Functions, intervals and lists of other dialects over changing rows, and their values.

What a form is read as is run by plain Spark over the same rows; that it is read as the other
dialect means it is seen by values that are written out.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta

import pytest

import headrace
from bags import Model
from headrace.errors import Span
from headrace.planning.dialects import spark_text
from histories import History

pytestmark = pytest.mark.spark

DECLARED = {
    "meant": r"""SELECT k, FROM_UNIXTIME(k * 1000) AS a, INITCAP(s) AS c, LOG(k, v) AS d, SIGN(v) AS e, SUBSTRING(s, k - 5, 2) AS f,
        ROUND(v, 1) AS h, REDUCE(l, k, (t, x) => t + x) AS o, REDUCE(m, k, (t, x, y) => t + y) AS p,
        SPLIT(b, TO_BYTES('b', 'utf8')) AS q, AS_MAP(ARRAY[s, 'z', s], l) AS r, l[1] AS t FROM d""",
    "summed": "SELECT s, SUM(k) AS a, AVG(v) AS b, SUM(k) FILTER (WHERE k > 5) AS c FROM d GROUP BY s",
    "joined": "SELECT d.k, d.s, e.s FROM d JOIN e ON d.k = e.k",
    "cubed": "SELECT k, CUBE_EXPLODE(ARRAY[k, CAST(v AS INT)]) AS c FROM d",
}
"""Queries over a table that was declared as in ksqlDB."""

QUERIES = {
    "contained": """SELECT k, JSON_ARRAY_CONTAINS('[1, 2.5, "a", null]', s) AS a FROM e""",
    "greatest": "SELECT s, ARG_MAX(k, v) AS a, ARG_MIN(k, v) FILTER (WHERE k > 2) AS b FROM e GROUP BY s",
    "numbered": "SELECT k, x, n FROM e CROSS JOIN UNNEST(l) WITH ORDINALITY AS u(x, n)",
    "numbered_left": "SELECT k, u, ordinality FROM e LEFT JOIN UNNEST(l) WITH ORDINALITY AS u ON TRUE",
    "ranged": "SELECT k, r.id FROM e JOIN range(2, 9) AS r ON r.id = e.k",
    "ranged_by": "SELECT k, id FROM e, range(e.k)",
    "existing": "SELECT k FROM e WHERE EXISTS (SELECT v FROM d WHERE d.k = e.k LIMIT 1)",
    "intervals": """SELECT k, ts + INTERVAL k DAY AS a, ts - INTERVAL '1' QUARTER AS b, (day - other) DAY > INTERVAL '1' DAY(3) AS c,
        (day - other) MONTH > INTERVAL '0' MONTH AS f, coalesce((ts - TIMESTAMP '2024-01-01 00:00:00') HOUR, INTERVAL '0' HOUR) AS g FROM e""",
    "typed": "SELECT k, CAST(array(s) AS STRING ARRAY) AS a, ROW(k, s) AS b FROM e",
}

LISTS = {
    "listed": "SELECT s, array_agg(k) AS a FROM e GROUP BY s",
    "told": "SELECT k, listagg(s, '-') AS a, count(*) AS n FROM e GROUP BY k",
    "both": "SELECT array_agg(v) FILTER (WHERE k > 1) AS a, string_agg(s, ',') AS b, max(k) AS m FROM e",
    "over_a_join": "SELECT d.k, collect_list(e.v) AS l FROM d JOIN e ON d.k = e.k GROUP BY d.k",
    "pivoted": "SELECT * FROM (SELECT k, s, v FROM e) PIVOT (collect_list(v) FOR s IN ('a' AS a, 'b' AS b))",
    "in_a_subquery": "SELECT k, l[0] AS first FROM (SELECT k, collect_list(v) AS l FROM (SELECT k, v FROM e) GROUP BY k) WHERE size(l) > 1",
}
"""Lists without an order of their own, in that of rows that tie."""


def lists_in_spark():
    """The same in plain Spark."""
    return {
        "listed": "SELECT s, sort_array(collect_list(k)) AS a FROM e GROUP BY s",
        "told": "SELECT k, if(count(s) = 0, NULL, array_join(sort_array(collect_list(s)), '-')) AS a, count(*) AS n FROM e GROUP BY k",
        "both": """SELECT transform(sort_array(collect_list(struct(k, s, v)) FILTER (WHERE k > 1 AND v IS NOT NULL)), x -> x.v) AS a,
            if(count(s) = 0, NULL, array_join(transform(sort_array(collect_list(struct(k, s, v)) FILTER (WHERE s IS NOT NULL)), x -> x.s), ',')) AS b,
            max(k) AS m FROM e""",
        "pivoted": "SELECT k, sort_array(a) AS a, sort_array(b) AS b FROM (SELECT k, s, v FROM e) PIVOT (collect_list(v) FOR s IN ('a' AS a, 'b' AS b))",
        "in_a_subquery": "SELECT k, min(v) AS first FROM e GROUP BY k HAVING count(v) > 1",
        "over_a_join": "SELECT d.k, sort_array(collect_list(e.v)) AS l FROM d JOIN e ON d.k = e.k GROUP BY d.k",
    }


@pytest.mark.long
def test_forms_of_other_dialects_are_maintained_as_spark_computes_what_they_are_read_as(oracle):
    run = oracle(rows_per_change=200)
    columns = "k INT, s STRING, v DECIMAL(6,2), l ARRAY<INT>"
    more = f"{columns}, m MAP<STRING, INT>, b BINARY"
    run.db.sql(f"CREATE TABLE d ({more}) WITH (kafka_topic = 'd', value_format = 'json')")
    run.models["d"] = Model.of("d", more)
    run.table("e", f"{columns}, ts TIMESTAMP, day DATE, other DATE")
    run.db.sql(
        "CREATE FUNCTION next(x INT) RETURNS INT AS x + 1;"
        "CREATE FUNCTION shown(n INT, s STRING) RETURNS STRING RETURN concat_ws(':', next(n), s)"
    )
    run.view(
        "called",
        "SELECT shown(k, s) AS a, count(*) AS n FROM e WHERE next(k) > 2 GROUP BY shown(k, s)",
        expected="SELECT concat_ws(':', k + 1, s) AS a, count(*) AS n FROM e WHERE k + 1 > 2 GROUP BY 1",
    )
    relations = {relation.name: relation for relation in run.db.parts.reader.catalog}
    for name, query in (DECLARED | QUERIES).items():
        run.view(name, query, expected=spark_text(Span.whole(query), relations).text)
    for name, query in LISTS.items():
        run.view(name, query, expected=lists_in_spark()[name])
    history = History(run, 3, domain=9)
    history.epochs(["d", "e"], (30, 3))
    listed = run.db.sql("SELECT s, array_agg(k) AS a FROM e GROUP BY s").fetchall()
    assert sorted(listed, key=repr) == sorted(run.rows("listed"), key=repr)
    run.truncate("e")
    run.finish()


VALUES = [
    ("FROM_UNIXTIME(1589234313000)", datetime(2020, 5, 11, 21, 58, 33, tzinfo=UTC)),
    ("REDUCE(CAST(NULL AS ARRAY<INT>), 2, (s, x) => s + x)", 2),
    ("REDUCE(ARRAY[1, 2], CAST(NULL AS INT), (s, x) => 7)", None),
    ("REDUCE(CAST(NULL AS MAP<STRING, INT>), 2, (s, k, v) => s + v)", 2),
    ("SPLIT(TO_BYTES(concat('a.b..', e), 'ascii'), TO_BYTES('.', 'utf8'))", [b"a", b"b", b"", b""]),
    ("SPLIT(TO_BYTES(concat('1A2B2E', e), 'hex'), TO_BYTES('A2', 'hex'))", [b"\x1a\x2b\x2e"]),
    ("SPLIT(TO_BYTES(concat('ab', e), 'ascii'), TO_BYTES('', 'utf8'))", [b"a", b"b"]),
    ("SPLIT(concat('a.b', e), '.')", ["a", "b"]),
    ("ROUND(-2.55D, 1)", -2.5),
    ("ROUND(-2.65D, 1)", -2.6),
    ("ROUND(-2.651D, 1)", -2.7),
    ("ROUND(2.55D, 1)", 2.6),
    ("ROUND(-1235, -1)", -1230),
    ("ROUND(-2.5D)", -2),
    ("LOG(2, 8)", 3.0),
    ("LOG(2, 0)", -math.inf),
    ("SIGN(-3.5D)", -1),
    ("INITCAP('  a-b  cD')", "A-b  Cd"),
    ("SUBSTRING('abc', -5, 2)", "ab"),
    ("SUBSTRING('abc', -2, 1)", "b"),
    (
        "ENTRIES(AS_MAP(ARRAY['a', 'b', 'a'], ARRAY[1, 2, 3]), true)",
        [{"K": "a", "V": 3}, {"K": "b", "V": 2}],
    ),
    (
        "ENTRIES(AS_MAP(ARRAY['a', 'b'], ARRAY[1]), true)",
        [{"K": "a", "V": 1}, {"K": "b", "V": None}],
    ),
    ("TRANSFORM(ARRAY[5, NULL], x => x * 2)", [10, None]),
    ("JSON_ARRAY_CONTAINS('[1, 2.5, \"a\", null]', 2.5D)", True),
    ("JSON_ARRAY_CONTAINS('[1, \"1\"]', '1')", True),
    ("JSON_ARRAY_CONTAINS('[1]', '1')", False),
    ("JSON_ARRAY_CONTAINS('[null]', CAST(NULL AS STRING))", True),
    ("JSON_ARRAY_CONTAINS('{\"a\": 1}', 1)", False),
]


@pytest.mark.long
def test_functions_have_the_values_of_ksqldb_where_a_relation_is_declared_as_there(db):
    db.sql(
        "CREATE TABLE one (k INT, e STRING) WITH (kafka_topic = 'one');"
        "INSERT INTO one VALUES (1, '')"
    )
    calls = ", ".join(f"{call} AS c{i}" for i, (call, _) in enumerate(VALUES))
    (row,) = db.sql(f"SELECT {calls} FROM one").fetchall()
    for (call, value), found in zip(VALUES, row, strict=True):
        assert _plain(found) == value, call
    rows = db.sql("SELECT CUBE_EXPLODE(ARRAY[k, NULL, 2]) AS c FROM one").fetchall()
    assert [r for (r,) in rows] == [
        [None, None, None], [None, None, 2], [1, None, None], [1, None, 2]
    ]  # fmt: skip
    (millis, seconds) = (
        db.sql(f"SELECT UNIX_TIMESTAMP() AS n FROM {source}").fetchall()[0][0]
        for source in ("one", "range(1)")
    )
    assert 0 <= seconds - millis // 1000 < 600
    (row,) = db.sql(
        "SELECT (DATE '2024-03-31' - DATE '2024-01-31') DAY + INTERVAL '0' DAY AS a,"
        " concat((DATE '2024-03-31' - DATE '2024-01-31') MONTH, '') AS b,"
        " DATE '2024-01-31' + INTERVAL '1' QUARTER AS c"
    ).fetchall()
    assert row == (timedelta(days=60), "INTERVAL '0-2' YEAR TO MONTH", date(2024, 4, 30))


@pytest.mark.long
def test_a_stream_by_a_query_has_the_functions_of_ksqldb_or_says_that_it_is_undecided(db):
    db.sql(
        "CREATE STREAM t (k STRING KEY, millis BIGINT) WITH (kafka_topic='t', value_format='JSON');"
        "CREATE STREAM o AS SELECT k, from_unixtime(millis) AS ts FROM t;"
        "INSERT INTO t VALUES ('a', 1589234313000);"
        "CREATE STREAM u (k STRING, millis BIGINT, m MAP<STRING, INT>, c ARRAY<MAP<STRING, INT>>);"
    )
    moment = datetime(2020, 5, 11, 21, 58, 33, tzinfo=UTC)
    assert db.sql("SELECT * FROM o").fetchall() == [("a", moment)]
    assert db.sql("SELECT unix_timestamp(ts) AS n FROM o").fetchall() == [(1589234313000,)]
    for query in (
        "CREATE STREAM p AS SELECT k, from_unixtime(millis) AS ts FROM u",
        "CREATE TABLE p WITH (kafka_topic = 'p') AS SELECT k, ln(max(millis)) AS n FROM u GROUP BY k",
    ):
        with pytest.raises(headrace.HeadraceError, match="different meanings") as caught:
            db.sql(query)
        assert caught.value.code is headrace.Code.UNSUPPORTED
    made = db.sql("CREATE MATERIALIZED VIEW v AS SELECT k, c[1]['p'] AS x FROM u")
    assert "array indexes begin at 0: [1] is element 2" in made.message
    explained = db.sql("EXPLAIN SELECT c[1]['p'] AS x FROM u").fetchall()
    assert explained[0] == ("-- Array indexes: array indexes begin at 0: [1] is element 2",)
    db.sql("CREATE MATERIALIZED VIEW w AS SELECT LATEST_BY_OFFSET(m) AS m, k FROM u GROUP BY k")
    db.sql("INSERT INTO u VALUES ('a', 1, map('x', 1), NULL), ('a', 2, map('y', 2), NULL)")
    assert db.sql("SELECT k, map_keys(m) AS m FROM w").fetchall() == [("a", ["y"])]


def _plain(value: object) -> object:
    return float(value) if type(value).__name__ == "Decimal" else value
