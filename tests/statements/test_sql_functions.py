"""CREATE FUNCTION, and what depends on it."""

from __future__ import annotations

import pytest

import headrace

pytestmark = pytest.mark.spark


def refused(db, sql, message):
    with pytest.raises(headrace.HeadraceError, match=message) as caught:
        db.sql(sql)
    return caught.value.code


@pytest.mark.long
def test_a_sql_function_is_kept_called_and_dropped(tmp_path, spark):
    data = tmp_path / "data"
    with headrace.connect(data, spark=spark) as db:
        made = db.sql("CREATE FUNCTION inc(x INT) RETURNS INT RETURN x + 1")
        assert made.message == "created function inc(x INT) RETURNS INT"
        db.sql(
            "CREATE FUNCTION label(x INT) RETURNS STRING AS concat('n', inc(x));"
            "CREATE TABLE t (k INT PRIMARY KEY, v STRING);"
            "INSERT INTO t VALUES (1, 'a'), (inc(1), label(7));"
            "CREATE VIEW p AS SELECT k, label(k) AS l FROM t;"
            "CREATE MATERIALIZED VIEW m AS SELECT k, l FROM p WHERE inc(k) > 2;"
        )
        assert db.sql("SELECT * FROM m").fetchall() == [(2, "n3")]
        assert db.sql("UPDATE t SET v = label(k) WHERE k = inc(0)").message
        assert db.sql("SELECT v FROM t ORDER BY k").fetchall() == [("n2",), ("n8",)]
        used = 'function "inc" is used by function "label", plain view "p", view "m"'
        assert refused(db, "DROP FUNCTION inc", used) is headrace.Code.CONFLICT
        assert refused(db, "CREATE OR REPLACE FUNCTION inc(x INT) RETURNS INT AS x", "is used by")
        assert refused(db, "CREATE FUNCTION inc(x INT) RETURNS INT AS x", "exists already")
        assert refused(db, "CREATE FUNCTION abs(x INT) RETURNS INT AS x", "built into Spark")
        assert refused(
            db,
            "CREATE FUNCTION s(x INT) RETURNS INT AS sum(x)",
            "an aggregate function in the body",
        )
        assert refused(db, "CREATE FUNCTION s(x INT) RETURNS INT AS y", "y")
        assert refused(db, "CREATE TABLE u (k INT, c INT AS (inc(k)))", "by CREATE FUNCTION")
        assert refused(db, "CREATE TABLE u (k INT, c INT DEFAULT inc(1))", "by CREATE FUNCTION")
        function = headrace.function("inc", lambda x: x, returns="INT")
        with pytest.raises(headrace.HeadraceError, match="was created by CREATE FUNCTION"):
            db.register(function)
    with headrace.connect(data, spark=spark) as db:
        db.sql("INSERT INTO t VALUES (3, NULL)")
        assert db.sql("SELECT * FROM m ORDER BY k").fetchall() == [(2, "n3"), (3, "n4")]
        shown = db.sql("SHOW FUNCTIONS").fetchall()
        assert [(row[0], row[2], row[-1]) for row in shown] == [
            ("inc", "sql", "m, p"),
            ("label", "sql", "m, p"),
        ]
        statement = "CREATE FUNCTION inc(x INT) RETURNS INT RETURN x + 1"
        assert db.sql("SHOW CREATE FUNCTION inc").fetchall() == [("inc", statement)]
        assert refused(db, "SHOW CREATE FUNCTION nope", "does not exist")
        assert all(row[0] in {"m", "p"} for row in db.sql("SHOW VIEWS").fetchall())
        (verified,) = db.sql("VERIFY m").fetchall()
        assert verified[-1] == "equal to batch"
        dropped = db.sql("DROP FUNCTION inc CASCADE").message
        assert dropped == 'dropped function inc and function "label", plain view "p", view "m"'
        assert db.sql("SHOW FUNCTIONS").fetchall() == []
        assert refused(db, "SELECT inc(1)", "inc")
