"""The clock and chance in INSERT, UPDATE, DELETE and SELECT: evaluated once, as it is written."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import headrace
from asked import refused, rows
from headrace import Code

pytestmark = pytest.mark.spark


@pytest.mark.long
def test_what_the_clock_says_is_written_and_stays(tmp_path, spark):
    where = {"spark": spark, "continuous": False, "partitions": 2}
    before = datetime.now(UTC)
    with headrace.connect(tmp_path / "again", **where) as db:
        db.sql("""
            CREATE TABLE t (id INT, at TIMESTAMP, day DATE);
            INSERT INTO t VALUES (1, now(), current_date()), (2, CURRENT_TIMESTAMP, CURRENT_DATE);
            INSERT INTO t SELECT id + 2, current_timestamp(), current_date FROM t WHERE at <= now();
            CREATE MATERIALIZED VIEW m AS SELECT at, day, count(*) AS n FROM t GROUP BY at, day
        """)
        after = datetime.now(UTC)
        found = rows(db, "SELECT at, day, n FROM m")
        assert [n for *_, n in found] == [2, 2]
        (first, *_), (second, *_) = found
        assert before <= first <= second <= after
        assert {day for _, day, _ in found} <= {before.date(), after.date()}
    with headrace.connect(tmp_path / "again", **where) as db:
        assert rows(db, "SELECT at, day, n FROM m") == found
        assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}
        db.sql("UPDATE t SET at = now() WHERE id = 1")
        assert rows(db, "SELECT max(at) FROM t")[0][0] > after
        db.sql("DELETE FROM t WHERE at < now() - INTERVAL 1 HOUR")
        assert len(db.sql("SELECT * FROM t")) == 4


@pytest.mark.long
def test_chance_is_taken_for_each_row(db):
    db.sql("""
        CREATE TABLE t (id STRING, v DOUBLE);
        INSERT INTO t VALUES (uuid(), rand()), ( gen_random_uuid() , (1) + 1), (uuid_string(), 0);
        INSERT INTO t (id) VALUES (generate_uuid()), ('x'), concat('a', uuid());
        INSERT INTO t SELECT uuid(), rand(7) FROM t
    """)
    found = rows(db, "SELECT id, v FROM t WHERE length(id) >= 36")
    assert len({id_ for id_, _ in found}) == 11
    assert {True, None} <= {None if v is None else 0 <= v <= 2 for _, v in found}
    db.sql("UPDATE t SET id = uuid()")
    assert len({id_ for (id_,) in db.sql("SELECT id FROM t")} - {id_ for id_, _ in found}) == 12
    assert rows(db, "SELECT id, v FROM t") == rows(db, "SELECT id, v FROM t")


def test_a_select_is_evaluated_once_too(db):
    ((now, id_),) = db.sql("SELECT now(), uuid()").fetchall()
    assert abs((datetime.now(UTC) - now).total_seconds()) < 600
    assert len(id_) == 36


@pytest.mark.parametrize(
    ("statement", "blamed"),
    [
        ("CREATE MATERIALIZED VIEW m AS SELECT now() AS n FROM t", "now()"),
        ("CREATE VIEW m AS SELECT gen_random_uuid() AS n FROM t", "gen_random_uuid()"),
        ("SELECT uuid() AS n FROM t EMIT CHANGES", "uuid()"),
        ("INSERT INTO k SELECT uuid() FROM t", "uuid()"),
        ("INSERT INTO t VALUES (current_user())", "current_user()"),
        ("INSERT INTO t VALUES (uuid()), (input_file_name())", "input_file_name()"),
        ("INSERT INTO t VALUES (uuid()), (nothing(1))", "nothing(1)"),
        ("UPDATE t SET id = version()", "version()"),
        ("SELECT current_user()", "current_user()"),
    ],
)
def test_what_is_kept_up_to_date_or_reads_the_machine_stays_refused(db, statement, blamed):
    db.sql("CREATE TABLE t (id STRING); CREATE TABLE k (id STRING) WITH (connector = 'kafka')")
    error = refused(db, statement)
    assert error.code in (Code.UNSUPPORTED, Code.INVALID)
    assert error.span.source == blamed
    assert rows(db, "SELECT * FROM t") == []
