"""The event time of streams that declare none: ROWTIME, as ksqlDB's users write it."""

from __future__ import annotations

import time

import pytest

import headrace

pytestmark = pytest.mark.spark

MINUTE = 60_000


def rows(db: headrace.Database, query: str) -> list[tuple[object, ...]]:
    return sorted(db.sql(query).fetchall(), key=repr)


@pytest.fixture
def readings(db):
    db.sql("CREATE STREAM s (k STRING, v INT)")
    db.sql("CREATE STREAM r (k STRING, w INT)")
    db.sql(
        "CREATE TABLE windows AS SELECT k, WINDOWSTART AS b, WINDOWEND AS e, COUNT(*) AS n FROM s"
        " WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY k EMIT CHANGES"
    )
    db.sql(
        "CREATE TABLE final AS SELECT x.k, WINDOWSTART AS b, SUM(x.v) AS v FROM s x"
        " WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY x.k EMIT FINAL"
    )
    db.sql("CREATE STREAM near AS SELECT * FROM s JOIN r WITHIN 1 SECOND ON s.k = r.k")
    db.sql(
        "CREATE MATERIALIZED VIEW latest AS SELECT k, LATEST_BY_EVENT_TIME(v) AS v FROM s GROUP BY k"
    )
    db.sql("INSERT INTO s (ROWTIME, k, v) VALUES (62000, 'b', 3), (1000, 'a', 1)")
    db.sql("INSERT INTO s (v, k, rowtime) VALUES (2, 'a', 61000), (4, 'a', 2000)")
    db.sql("INSERT INTO r (rowtime, k, w) VALUES (1500, 'a', 10), (30000, 'a', 20)")
    return db


@pytest.mark.long
def test_windows_joins_and_latest_values_are_by_the_given_time(readings):
    db = readings
    assert rows(db, "SELECT k, b, e, n FROM windows") == [
        ("a", 0, MINUTE, 2),
        ("a", MINUTE, 2 * MINUTE, 1),
        ("b", MINUTE, 2 * MINUTE, 1),
    ]
    assert rows(db, "SELECT k, b, v FROM final") == [("a", 0, 5)]
    assert rows(db, "SELECT s_k, s_v, r_k, r_w FROM near") == [("a", 1, "a", 10), ("a", 4, "a", 10)]
    assert rows(db, "SELECT k, v FROM latest") == [("a", 2), ("b", 3)]
    assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}


@pytest.mark.long
def test_rowtime_is_read_in_milliseconds_and_compared_with_texts(readings):
    db = readings
    assert rows(db, "SELECT k, v FROM s") == [("a", 1), ("a", 2), ("a", 4), ("b", 3)]
    assert rows(db, "SELECT ROWTIME, * FROM s WHERE k = 'b'") == [(62000, "b", 3)]
    assert rows(
        db,
        "SELECT x.ROWTIME, y.ROWTIME AS o FROM s x JOIN r y ON x.k = y.k AND y.w = 10"
        " WHERE x.ROWTIME BETWEEN '1970-01-01T00:00:01' AND '1970-01-01T00:00:02'",
    ) == [
        (1000, 1500),
        (2000, 1500),
    ]
    assert rows(db, "SELECT v FROM s WHERE '1970-01-01T00:01:01' <= ROWTIME") == [(2,), (3,)]
    assert rows(
        db,
        "SELECT k FROM s WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY k"
        " HAVING WINDOWSTART >= '1970-01-01T00:01:00'",
    ) == [("a",), ("b",)]


def test_rows_without_a_given_time_have_that_of_their_append(db):
    db.sql("CREATE STREAM s (k STRING)")
    before = int(time.time() * 1000)
    db.sql("INSERT INTO s VALUES ('a')")
    db.insert("s", [{"k": "b"}, {"k": "c", "ROWTIME": 7}])
    found = dict(db.sql("SELECT k, ROWTIME FROM s").fetchall())
    assert before <= found["a"] <= found["b"] <= int(time.time() * 1000)
    assert found["c"] == 7


@pytest.mark.long
def test_a_text_with_a_format_is_an_event_time(db):
    db.sql(
        "CREATE STREAM s (k STRING, ts STRING) WITH (kafka_topic = 's', value_format = 'json',"
        " partitions = 1, timestamp = 'ts', timestamp_format = 'dd/MM/yyyy HH:mm')"
    )
    db.sql(
        "CREATE TABLE w AS SELECT k, WINDOWSTART AS b FROM s WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY k"
    )
    db.sql("INSERT INTO s VALUES ('a', '01/01/1970 05:30'), ('b', 'nonsense')")
    assert rows(db, "SELECT k, b FROM w") == [("a", 5 * 60 * MINUTE)]


def test_a_column_named_rowtime_is_itself(db):
    db.sql("CREATE STREAM s (rowtime BIGINT, v INT)")
    db.sql("INSERT INTO s (ROWTIME, v) VALUES (5, 6)")
    assert rows(db, "SELECT ROWTIME, v FROM s WHERE rowtime = 5") == [(5, 6)]


@pytest.mark.parametrize(
    ("columns", "options", "place"),
    [
        ("a INT", "timestamp = 'nope'", "'nope'"),
        ("a BOOLEAN", "timestamp = 'a'", "'a'"),
        ("a STRING", "timestamp = 'a'", "'a'"),
        ("a BIGINT", "timestamp = 'a', timestamp_format = 'yyyy'", "'yyyy'"),
        ("a INT", "timestamp_format = 'yyyy'", "'yyyy'"),
    ],
)
def test_an_event_time_that_cannot_be_is_refused(db, columns, options, place):
    with pytest.raises(headrace.HeadraceError) as caught:
        db.sql(f"CREATE STREAM s ({columns}) WITH (kafka_topic = 's', {options})")
    assert caught.value.code == "invalid"
    assert place in caught.value.span.source
    assert caught.value.hint


def test_times_out_of_range_and_of_tables_are_refused(db):
    db.sql("CREATE STREAM s (k STRING)")
    db.sql("CREATE TABLE t (k STRING)")
    with pytest.raises(headrace.HeadraceError) as far:
        db.sql("INSERT INTO s (ROWTIME, k) VALUES (9223372036854775807, 'a')")
    assert far.value.code == "invalid"
    with pytest.raises(headrace.HeadraceError) as unknown:
        db.sql("INSERT INTO t (ROWTIME, k) VALUES (1, 'a')")
    assert unknown.value.code == "invalid"
    assert rows(db, "SELECT k FROM s") == []


@pytest.mark.long
def test_the_bounds_of_windows_are_columns_of_a_table_of_windows(db):
    db.sql("CREATE STREAM s (k STRING, v INT)")
    db.sql(
        "CREATE TABLE w AS SELECT k, SUM(v) AS v FROM s WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY k"
    )
    db.sql(
        "CREATE TABLE b AS SELECT WINDOWSTART AS b, COUNT(*) AS n FROM s"
        " WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY k HAVING COUNT(*) > 1"
    )
    db.sql("INSERT INTO s (ROWTIME, k, v) VALUES (1000, 'a', 1), (2000, 'a', 2), (61000, 'a', 4)")
    assert rows(db, "SELECT * FROM w") == [("a", 3, 0, MINUTE), ("a", 4, MINUTE, 2 * MINUTE)]
    assert rows(db, "SELECT v FROM w WHERE k = 'a' AND WINDOWSTART >= 60000") == [(4,)]
    assert rows(db, "SELECT b, n, WINDOWEND FROM b") == [(0, 2, MINUTE)]
