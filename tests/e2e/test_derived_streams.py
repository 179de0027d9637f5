"""CREATE STREAM AS: streams of streams, with event times, into which rows are inserted."""

from __future__ import annotations

import random

import pytest

import headrace

pytestmark = pytest.mark.spark


def rows(db, query):
    return sorted(db.sql(query).fetchall(), key=repr)


@pytest.fixture
def chain(db):
    db.sql("CREATE STREAM s (k STRING, v INT)")
    db.sql("INSERT INTO s (ROWTIME, k, v) VALUES (1000, 'a', 1), (61000, 'a', 2), (1000, 'b', -1)")
    db.sql("CREATE STREAM e AS SELECT k, v * 10 AS w FROM s WHERE v > 0 EMIT CHANGES")
    db.sql("CREATE STREAM f AS SELECT w, x.k FROM e x WHERE w < 1000")
    db.sql(
        "CREATE TABLE c AS SELECT k, WINDOWSTART AS b, COUNT(*) AS n FROM f"
        " WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY k"
    )
    return db


@pytest.mark.long
def test_event_times_go_down_a_chain_and_rows_are_inserted_anywhere(chain):
    db = chain
    assert rows(db, "SELECT k, b, n FROM c") == [("a", 0, 1), ("a", 60000, 1)]
    db.sql("INSERT INTO e (ROWTIME, k, w) VALUES (62000, 'a', 6)")
    db.sql("INSERT INTO f (k, w, ROWTIME) VALUES ('z', 7, 5)")
    db.sql("INSERT INTO s (ROWTIME, k, v) VALUES (3000, 'a', 3)")
    assert rows(db, "SELECT ROWTIME, k, w FROM f") == [
        (1000, "a", 10),
        (3000, "a", 30),
        (5, "z", 7),
        (61000, "a", 20),
        (62000, "a", 6),
    ]
    assert rows(db, "SELECT * FROM e") == [("a", 10), ("a", 20), ("a", 30), ("a", 6)]
    assert rows(db, "SELECT k, b, n FROM c") == [("a", 0, 2), ("a", 60000, 2), ("z", 0, 1)]
    assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}


@pytest.mark.long
def test_a_joined_stream_has_the_time_of_its_latest_row(db):
    db.sql("CREATE STREAM l (k INT)")
    db.sql("CREATE STREAM r (k INT, at TIMESTAMP, WATERMARK FOR at AS at)")
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, name STRING)")
    db.sql("CREATE STREAM pairs AS SELECT l.k FROM l JOIN r WITHIN 1 HOUR ON l.k = r.k")
    db.sql("CREATE STREAM named AS SELECT p.k, t.name FROM pairs p JOIN t ON p.k = t.k")
    db.sql("INSERT INTO t VALUES (1, 'one')")
    db.sql("INSERT INTO l (ROWTIME, k) VALUES (1000, 1), (90000, 1), (9000000, 1)")
    db.sql("INSERT INTO r VALUES (1, TIMESTAMP '1970-01-01 00:00:30')")
    assert rows(db, "SELECT ROWTIME, name FROM named") == [(30000, "one"), (90000, "one")]


def test_insert_select_into_a_derived_stream_goes_on(chain):
    db = chain
    said = db.sql("INSERT INTO e SELECT k, v FROM s WHERE v = 2")
    assert said.message.startswith("started job insert_into_e")
    db.sql("INSERT INTO s VALUES ('q', 2)")
    assert ("q", 2) in rows(db, "SELECT k, w FROM e")
    with pytest.raises(headrace.HeadraceError, match="insert_into_e"):
        db.sql("DROP STREAM e")
    db.sql("DROP STREAM e CASCADE")
    assert [row[0] for row in db.sql("SHOW TABLES").fetchall()] == ["s"]
    assert [relation.name for relation in db.parts.reader.catalog] == ["s"]


@pytest.mark.long
def test_replacing_keeps_what_was_inserted_and_refuses_under_event_times(chain):
    db = chain
    db.sql("INSERT INTO f (w, k) VALUES (7, 'z')")
    with pytest.raises(headrace.HeadraceError, match='"c" uses the event times') as caught:
        db.sql("CREATE OR REPLACE STREAM f AS SELECT w + 1 AS w, k FROM e")
    assert caught.value.code == "conflict"
    db.sql("DROP TABLE c")
    db.sql("CREATE OR REPLACE STREAM f AS SELECT w + 1 AS w, k FROM e")
    assert rows(db, "SELECT k, w FROM f") == [("a", 11), ("a", 21), ("z", 7)]
    assert rows(db, "SELECT ROWTIME FROM f WHERE k = 'a'") == [(1000,), (61000,)]
    db.sql("CREATE OR REPLACE STREAM f AS SELECT k FROM e")
    assert rows(db, "SELECT * FROM f") == [("a",), ("a",)]


@pytest.mark.long
def test_queries_that_group_are_views_as_before(chain):
    db = chain
    said = db.sql("CREATE STREAM g AS SELECT k, COUNT(*) AS n FROM s GROUP BY k")
    assert said.message.startswith("created materialized view")
    with pytest.raises(headrace.HeadraceError, match="cannot be written to"):
        db.sql("INSERT INTO g VALUES ('a', 1)")
    with pytest.raises(headrace.HeadraceError, match='"e" is append-only'):
        db.sql("DELETE FROM e WHERE k = 'a'")
    with pytest.raises(headrace.HeadraceError, match='does not exist in stream "e"'):
        db.sql("INSERT INTO e (nope) VALUES (1)")


@pytest.mark.long
def test_a_chain_equals_its_query_after_random_inserts_and_reopening(tmp_path, spark):
    chance, sent, direct = random.Random(3), [], []
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        db.sql("CREATE STREAM s (k INT, v INT)")
        db.sql("CREATE STREAM e AS SELECT k, v FROM s WHERE v % 3 <> 0")
        db.sql(
            "CREATE TABLE c AS SELECT k, WINDOWSTART AS b, SUM(v) AS v FROM e"
            " WINDOW TUMBLING (SIZE 1 SECOND) GROUP BY k"
        )
        for _ in range(4):
            for name, kept in (("s", sent), ("e", direct)):
                given = [
                    {
                        "k": chance.randrange(3),
                        "v": chance.randrange(50),
                        "ROWTIME": chance.randrange(5000),
                    }
                    for _ in range(chance.randrange(6))
                ]
                db.insert(name, given)
                kept.extend(given)
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        last = {"k": 1, "v": 4, "ROWTIME": 4321}
        db.insert("e", [last])
        expected: dict[tuple[int, int], int] = {}
        for row in [*(row for row in sent if row["v"] % 3), *direct, last]:
            window = row["k"], row["ROWTIME"] // 1000 * 1000
            expected[window] = expected.get(window, 0) + row["v"]
        assert rows(db, "SELECT k, b, v FROM c") == sorted(
            ((k, b, v) for (k, b), v in expected.items()), key=repr
        )
        assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}
