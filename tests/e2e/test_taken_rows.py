"""Streams that do not take every row: DEDUPLICATE ON and ALLOWED LATENESS."""

from __future__ import annotations

import random

import pytest

import headrace

pytestmark = pytest.mark.spark


def source(db, name):
    listed = db.sql("SHOW SOURCES")
    rows = (dict(zip(listed.columns, row, strict=True)) for row in listed.fetchall())
    return next(row for row in rows if row["name"] == name)


@pytest.mark.long
def test_an_event_that_is_sent_again_counts_once_also_after_reopening(tmp_path, spark):
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        db.sql(
            "CREATE STREAM s (shop STRING, id BIGINT, v INT) DEDUPLICATE ON (shop, id) WITHIN INTERVAL '7' DAY"
        )
        db.sql("CREATE MATERIALIZED VIEW totals AS SELECT shop, sum(v) AS v FROM s GROUP BY shop")
        events = [(shop, number, number * 3) for shop in "ab" for number in range(200)]
        sent = events + random.Random(5).sample(events, 40)
        random.Random(6).shuffle(sent)
        for start in range(0, len(sent), 60):
            db.insert("s", sent[start : start + 60])
        said = db.sql(
            "INSERT INTO s VALUES ('a', 7, 1000), ('c', 7, 5), ('c', NULL, 6), ('c', NULL, 6)"
        )
        assert said.message == "3 rows inserted, 1 not taken: duplicate or late"
        path = tmp_path / "more.csv"
        path.write_text("shop,id,v\na,1,99\nd,1,7\nd,1,8\n")
        copied = db.sql(f"COPY s FROM '{path}'")
        assert copied.message.startswith("1 row copied, 2 not taken")
        assert source(db, "s")["duplicates"] == 43
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        db.insert("s", events[:5])
        total = 3 * sum(range(200))
        found = sorted(db.sql("SELECT shop, v FROM totals").fetchall())
        assert found == [("a", total), ("b", total), ("c", 17), ("d", 7)]
        assert source(db, "s")["duplicates"] == 48
        assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}


def test_late_rows_are_rejected_by_choice_and_counted_always(db):
    columns = "(id INT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '5' SECOND)"
    lateness = "ALLOWED LATENESS INTERVAL '1' MINUTE"
    db.sql(f"CREATE STREAM strict {columns} {lateness} ON LATE REJECT")
    db.sql(f"CREATE STREAM lenient {columns} {lateness}")
    for name in ("strict", "lenient"):
        db.sql(
            f"INSERT INTO {name} VALUES (1, TIMESTAMP '2024-01-01 10:00:00'),"
            " (2, TIMESTAMP '2024-01-01 09:58:54'), (3, TIMESTAMP '2024-01-01 09:58:55'), (4, NULL)"
        )
        db.sql(f"INSERT INTO {name} VALUES (5, TIMESTAMP '2024-01-01 10:10:00')")
        db.sql(f"INSERT INTO {name} VALUES (6, TIMESTAMP '2024-01-01 10:08:00')")
        assert source(db, name)["late"] == 2
        assert source(db, name)["watermark"] == "2024-01-01 10:09:55.000+00:00"
    assert [row[0] for row in db.sql("SELECT id FROM strict ORDER BY id").fetchall()] == [
        1,
        3,
        4,
        5,
    ]
    assert db.sql("SELECT count(*) FROM lenient").fetchall() == [(6,)]
    rejects = db.sql("SHOW REJECTS FOR strict").to_arrow().to_pylist()
    assert {row["raw"] for row in rejects} == {
        '{"id": 2, "at": "2024-01-01 09:58:54+00:00"}',
        '{"id": 6, "at": "2024-01-01 10:08:00+00:00"}',
    }
    assert all("late" in row["reason"] and row["column"] == "at" for row in rejects)
    assert db.sql("SHOW REJECTS FOR lenient").fetchall() == []
    (newest,) = db.sql("SHOW REJECTS LIMIT 1").to_arrow().to_pylist()
    assert '"id": 6' in newest["raw"]
    listed = "SELECT table_name, count(*) FROM information_schema.rejects GROUP BY table_name"
    assert db.sql(listed).fetchall() == [("strict", 2)]


@pytest.mark.parametrize(
    ("statement", "place", "code"),
    [
        ("CREATE TABLE t (id INT) DEDUPLICATE ON id", "DEDUPLICATE ON id", "unsupported"),
        ("CREATE STREAM t (id INT) DEDUPLICATE ON (ix)", "DEDUPLICATE ON (ix)", "invalid"),
        ("CREATE STREAM t (id DOUBLE) DEDUPLICATE ON (id)", "DEDUPLICATE ON (id)", "unsupported"),
        ("CREATE STREAM t (id INT) DEDUPLICATE ON (id) WITHIN 7 apples", "7 apples", "invalid"),
        (
            "CREATE STREAM t (id INT) DEDUPLICATE ON id DEDUPLICATE ON id",
            "DEDUPLICATE ON",
            "invalid",
        ),
        (
            "CREATE STREAM t (id INT) ALLOWED LATENESS INTERVAL '1' DAY ON LATE DROP",
            "DROP",
            "invalid",
        ),
        (
            "CREATE STREAM t (at STRING, WATERMARK FOR at AS at) ALLOWED LATENESS INTERVAL '1' DAY",
            "INTERVAL '1' DAY",
            "invalid",
        ),
    ],
)
def test_clauses_that_cannot_be_are_refused_at_their_place(db, statement, place, code):
    with pytest.raises(headrace.HeadraceError) as caught:
        db.sql(statement)
    assert caught.value.code == code
    assert caught.value.span.source == place
