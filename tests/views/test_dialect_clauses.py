"""Clauses of other dialects: row limits, time zones, and joins of streams within a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

import headrace
from bags import Model
from length import choose, some

pytestmark = pytest.mark.spark

AT = datetime(2024, 1, 1, 10, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
BERLIN = "Europe/Berlin"

FIRST = {
    "first": "SELECT k, v FROM t ORDER BY v DESC, k FETCH FIRST 2 ROWS ONLY",
    "one": "SELECT max(v) AS v, k FROM t GROUP BY k ORDER BY 1, k FETCH FIRST ROW ONLY",
    "page": "SELECT k, v FROM t ORDER BY v, k OFFSET 1 ROWS FETCH NEXT (3) ROWS ONLY",
    "postgresql": "SELECT k, v FROM t ORDER BY v, k OFFSET 2 LIMIT 2",
    "all_but": "SELECT k, v FROM t ORDER BY v, k OFFSET 3 ROWS",
    "of_each": "SELECT * FROM (SELECT DISTINCT ON (v) v, k FROM t ORDER BY v, k FETCH FIRST 3 ROWS ONLY) WHERE k <> 'x'",
}
FIRST_IN_SPARK = {
    "first": "SELECT k, v FROM t ORDER BY v DESC, k LIMIT 2",
    "one": "SELECT max(v) AS v, k FROM t GROUP BY k ORDER BY 1, k LIMIT 1",
    "page": "SELECT k, v FROM t ORDER BY v, k LIMIT 3 OFFSET 1",
    "postgresql": "SELECT k, v FROM t ORDER BY v, k LIMIT 2 OFFSET 2",
    "all_but": "SELECT k, v FROM t ORDER BY v, k OFFSET 3",
    "of_each": "SELECT v, min(k) AS k FROM t GROUP BY v ORDER BY v LIMIT 3",
}


@pytest.mark.long
def test_fetch_is_limit(oracle):
    run = oracle(rows_per_change=60)
    run.table("t", "k STRING, v INT", key="k")
    for name, query in some(FIRST, "one page all_but of_each").items():
        run.view(name, query, expected=FIRST_IN_SPARK[name])
    run.insert("t", [(k, i % 3) for i, k in enumerate("abcdefg")])
    run.epoch()
    assert run.rows("page") == [("b", 1), ("d", 0), ("g", 0)]
    pulled = run.db.sql(
        "SELECT k FROM t ORDER BY k DESC OFFSET 1 ROW FETCH NEXT 2 ROWS ONLY"
    ).fetchall()
    assert pulled == [("f",), ("e",)]
    run.delete("t", "k IN ('a', 'g')")
    run.epoch()
    run.insert("t", [("a", 9), ("b", 0)])
    run.finish()


ZONES = {
    "shown": f"SELECT k, at AT TIME ZONE '{BERLIN}' AS at FROM z",
    "moments": f"SELECT k, z.wall AT TIME ZONE '{BERLIN}' AS wall FROM z",
    "moved": f"SELECT k, (wall AT TIME ZONE 'UTC') AT TIME ZONE '{BERLIN}' AS wall FROM z",
    "there_and_back": f"SELECT k, at AT TIME ZONE '{BERLIN}' AT TIME ZONE '{BERLIN}' AS at FROM z",
    "hours": f"SELECT EXTRACT(HOUR FROM at AT TIME ZONE '{BERLIN}') AS hour, count(*) AS n FROM z GROUP BY 1",
    "cast": f"SELECT k, '2024-07-01 00:00'::timestamp_ntz AT TIME ZONE '{BERLIN}' < at AS late FROM z WHERE at AT TIME ZONE 'UTC' > wall",
}


def zones_in_spark():
    later = (
        "TIMESTAMP_NTZ '2024-03-31 03:00:00' <= {0} AND {0} < TIMESTAMP_NTZ '2024-10-27 02:00:00'"
    )
    shown = f"CAST(from_utc_timestamp(at, '{BERLIN}') AS TIMESTAMP_NTZ)"
    moment = f"CAST({{0}} AS TIMESTAMP) - if({later}, INTERVAL 2 HOURS, INTERVAL 1 HOUR)"
    return {
        "shown": f"SELECT k, {shown} AS at FROM z",
        "moments": f"SELECT k, {moment.format('wall')} AS wall FROM z",
        "moved": f"SELECT k, CAST(from_utc_timestamp(CAST(wall AS TIMESTAMP), '{BERLIN}') AS TIMESTAMP_NTZ) AS wall FROM z",
        "there_and_back": f"SELECT k, {moment.format(f'({shown})')} AS at FROM z",
        "hours": f"SELECT hour({shown}) AS hour, count(*) AS n FROM z GROUP BY 1",
        "cast": "SELECT k, at > TIMESTAMP '2024-06-30 22:00:00' AS late FROM z WHERE CAST(at AS TIMESTAMP_NTZ) > wall",
    }


@pytest.mark.long
def test_at_time_zone_is_as_in_postgresql(oracle):
    run = oracle(rows_per_change=60)
    run.table("z", "k INT, at TIMESTAMP, wall TIMESTAMP_NTZ", key="k")
    expected = zones_in_spark()
    for name, query in ZONES.items():
        run.view(name, query, expected=expected[name])
    begins, ends = datetime(2024, 3, 31, tzinfo=UTC), datetime(2024, 10, 27, tzinfo=UTC)
    times = [
        around + 30 * i * MINUTE
        for around in (AT, begins, ends, ends + 99 * MINUTE)
        for i in range(9)
    ]
    run.insert("z", [(k, at, at.replace(tzinfo=None)) for k, at in enumerate(times)])
    run.insert("z", [(100, None, None)])
    run.epoch()
    zone = ZoneInfo(BERLIN)
    for k, moment in run.rows("moments"):
        # Of an hour that is shown twice, the second; in one that is left out, the offset before it.
        wall = None if k == 100 else times[k].replace(tzinfo=zone)
        skipped = wall is not None and wall.utcoffset() != wall.replace(fold=1).utcoffset()
        fold = int(skipped and wall.month == 10)
        assert moment == (wall and wall.replace(fold=fold).astimezone(UTC)), k
    run.delete("z", "k % 3 = 0")
    run.finish()


WITHIN = {
    "both_ways": "SELECT s.k, s.v, r.w FROM s JOIN r WITHIN 10 MINUTES ON s.k = r.k",
    "uneven": "SELECT a.k, a.v, b.w FROM s a INNER JOIN r AS b WITHIN (0 SECONDS, 1 HOUR) ON a.k = b.k WHERE a.v > 1",
    "kept": """SELECT s.k, s.v, r.w FROM s LEFT JOIN r WITHIN (5 MINUTES, 2 MINUTES) GRACE PERIOD 1 DAY
        ON s.k = r.k OR r.w = 0""",
    "either": "SELECT s.v, r.w FROM s FULL OUTER JOIN r WITHIN 1 MINUTE ON s.k = r.k",
    "exploded": """SELECT s.k, r.w, e.x FROM s JOIN r WITHIN 10 MINUTES ON s.k = r.k
        LATERAL VIEW explode(array(v, w)) e AS x""",
    "counted": """SELECT s.k, WINDOWSTART AS b, COUNT(*) AS n FROM s JOIN t ON t.k = s.k
        WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY s.k""",
    "of_three": """SELECT s.v, r.w, m.x, t.y FROM s JOIN r WITHIN 10 MINUTES ON s.k = r.k LEFT JOIN t ON t.k = s.k
        JOIN m WITHIN (0 SECONDS, 20 MINUTES) ON m.k = s.k AND m.x > 0 PARTITION BY s.k""",
}


def apart(left, right, before, after):
    return (
        f"unix_micros({right}) BETWEEN unix_micros({left}) - {before * 60_000_000}"
        f" AND unix_micros({left}) + {after * 60_000_000}"
    )


def within_in_spark():
    s, r = "unix_micros(s.ts)", "unix_micros(r.ts)"
    last = f"timestamp_micros(CASE WHEN {s} > {r} THEN {s} ELSE {r} END)"
    return {
        "both_ways": f"SELECT s.k, v, w FROM s JOIN r ON s.k = r.k AND {apart('s.ts', 'r.ts', 10, 10)}",
        "uneven": f"SELECT s.k, v, w FROM s JOIN r ON s.k = r.k AND {apart('s.ts', 'r.ts', 0, 60)} WHERE v > 1",
        "kept": f"SELECT s.k, v, w FROM s LEFT JOIN r ON {apart('s.ts', 'r.ts', 5, 2)} AND (s.k = r.k OR w = 0)",
        "either": f"SELECT v, w FROM s FULL JOIN r ON s.k = r.k AND {apart('s.ts', 'r.ts', 1, 1)}",
        "exploded": f"""SELECT k, w, explode(array(v, w)) AS x FROM
            (SELECT s.k, v, w FROM s JOIN r ON s.k = r.k AND {apart("s.ts", "r.ts", 10, 10)})""",
        "counted": """SELECT s.k, unix_millis(date_trunc('HOUR', s.ts)) AS b, count(*) AS n FROM s JOIN t ON t.k = s.k
            WHERE ts IS NOT NULL GROUP BY s.k, date_trunc('HOUR', s.ts)""",
        "of_three": f"""SELECT v, w, x, y FROM s JOIN r ON s.k = r.k AND {apart("s.ts", "r.ts", 10, 10)}
            LEFT JOIN t ON t.k = s.k
            JOIN m ON m.k = s.k AND {apart(last, "timestamp_millis(m.at)", 0, 20)} AND x > 0""",
    }


def declare(run, name, columns, ending=""):
    watermark = "" if ending else ", WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
    run.db.sql(f"CREATE STREAM {name} ({columns}{watermark}){ending}")
    run.models[name] = Model.of(name, columns, deletes=False)


@pytest.mark.long
def test_streams_join_within_a_time_of_each_other_whatever_comes_first(oracle):
    run = oracle(rows_per_change=200)
    declare(run, "s", "k STRING, v INT, ts TIMESTAMP")
    declare(run, "r", "k STRING, w INT, ts TIMESTAMP")
    millis = " WITH (kafka_topic = 'm', value_format = 'json', timestamp = 'at')"
    declare(run, "m", "k STRING, x INT, at BIGINT", millis)
    run.table("t", "k STRING, y INT", key="k")
    expected = within_in_spark()
    for name, query in some(WITHIN, "both_ways uneven kept either of_three").items():
        run.view(name, query, expected=expected[name])
    # Apart by exactly the length, by a microsecond more, and late on either side.
    micro = timedelta(microseconds=1)
    run.insert("t", [("a", 1)])
    run.insert("s", [("a", 2, AT), ("b", 3, AT), ("a", 4, None)])
    run.epoch()
    run.insert("r", [("a", 1, AT + 10 * MINUTE), ("a", 2, AT + 10 * MINUTE + micro)])
    run.insert("m", [("a", 5, int((AT + 30 * MINUTE).timestamp() * 1000)), ("a", 0, 0)])
    run.epoch()
    assert run.rows("both_ways") == [("a", 2, 1)]
    assert run.rows("of_three") == [(2, 1, 5, 1)]
    run.insert("r", [("a", 3, AT - 10 * MINUTE), ("a", 4, AT - 10 * MINUTE - micro), ("b", 0, AT)])
    run.epoch()
    assert run.rows("both_ways") == [("a", 2, 1), ("a", 2, 3), ("b", 3, 0)]
    assert run.rows("uneven") == [("a", 2, 1), ("a", 2, 2), ("b", 3, 0)]
    for i in range(choose(2, 6)):
        run.insert("s", [("ab"[i % 2], i, AT + i * MINUTE)])
        run.insert("r", [("ab"[i % 3 % 2], i, AT - i * MINUTE)])
        run.insert("t", [("b", i)])
        run.epoch()
    run.finish()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "SELECT s.k FROM s JOIN u WITHIN 1 HOUR ON s.k = u.k",
            "stream u, which has no event time",
        ),
        (
            "SELECT s.k FROM u JOIN s WITHIN 1 HOUR ON s.k = u.k",
            "stream u, which has no event time",
        ),
        ("SELECT s.k FROM s JOIN t WITHIN 1 HOUR ON s.k = t.k", "anything but a stream"),
        ("SELECT s.k FROM t JOIN s WITHIN 1 HOUR ON s.k = t.k", "anything but a stream"),
        (
            "SELECT s.k FROM s JOIN (SELECT k FROM s) r WITHIN 1 HOUR ON s.k = r.k",
            "anything but a stream",
        ),
        (
            "SELECT s.k FROM (SELECT k FROM s) r JOIN s WITHIN 1 HOUR ON s.k = r.k",
            "anything but a stream",
        ),
    ],
)
def test_only_streams_with_an_event_time_join_within_one(db, query, message):
    db.sql(
        "CREATE STREAM s (k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts);"
        "CREATE STREAM u (k INT, at STRING, WATERMARK FOR at AS at); CREATE TABLE t (k INT)"
    )
    with pytest.raises(headrace.HeadraceError, match=message) as caught:
        db.sql(f"CREATE MATERIALIZED VIEW m AS {query}")
    assert caught.value.code is headrace.Code.UNSUPPORTED
    assert caught.value.span.source == "WITHIN"
    assert "BETWEEN" in caught.value.hint


@pytest.mark.parametrize(
    "query",
    [
        "SELECT x AT TIME ZONE 'UTC' AS x FROM (SELECT ts AS x FROM s)",
        "SELECT CAST(wall AS TIMESTAMP) AS ts FROM s ORDER BY ts AT TIME ZONE 'UTC' LIMIT 1",
        "SELECT ts AT TIME ZONE 'UTC' AS x FROM s JOIN t USING (k)",
        "SELECT date_trunc('DAY', ts) AT TIME ZONE 'UTC' AS x FROM s",
        "SELECT ts - INTERVAL '1' DAY AT TIME ZONE 'UTC' AS x FROM s",
        "SELECT (ts - INTERVAL '1' DAY) AT TIME ZONE 'UTC' AS x FROM s",
    ],
)
def test_what_time_a_value_is_has_to_be_evident(db, query):
    db.sql("CREATE STREAM s (k INT, ts TIMESTAMP, wall TIMESTAMP_NTZ)")
    db.sql("CREATE STREAM t (k INT, ts TIMESTAMP_NTZ)")
    with pytest.raises(headrace.HeadraceError, match="AT TIME ZONE of this value") as caught:
        db.sql(query)
    assert caught.value.code is headrace.Code.UNSUPPORTED
    assert "to_utc_timestamp" in caught.value.hint
