"""SHOW CREATE, DESCRIBE EXTENDED, EXPLAIN of a part, REFRESH."""

from __future__ import annotations

import pytest

import headrace
from headrace import HeadraceError

pytestmark = pytest.mark.spark


def lines(db, text):
    return [line for (line,) in db.sql(text)]


@pytest.mark.long
def test_what_was_declared_is_told_again_after_a_restart(tmp_path, spark):
    where = {"spark": spark, "continuous": False, "partitions": 2}
    made = {
        "t": "CREATE TABLE t (k INT, at TIMESTAMP, PRIMARY KEY (k) NOT ENFORCED,"
        " WATERMARK FOR at AS at - INTERVAL '5' SECOND)"
        " WITH (connector = 'jdbc', 'password' = 'hunter2')",
        "p": "CREATE VIEW p AS SELECT k + 1 AS k FROM t",
        "m": "CREATE MATERIALIZED VIEW m AS SELECT sum(k) AS k FROM p",
        "s": "CREATE SINK s FROM m WITH (connector = 'blackhole')",
    }
    with headrace.connect(tmp_path / "again", **where) as db:
        for statement in made.values():
            db.sql(statement)
        db.sql("INSERT INTO t VALUES (1, NULL), (2, NULL)")
    with headrace.connect(tmp_path / "again", **where) as db:
        for name, statement in made.items():
            expected = statement.replace("hunter2", "*******")
            assert db.sql(f"SHOW CREATE {name}").fetchall() == [(name, expected)]
        assert db.sql("SHOW CREATE TABLE t").fetchall()[0][0] == "t"
        told = {name: value for name, value, _ in db.sql("DESCRIBE EXTENDED t")}
        assert told["# watermark"] == "at AS at - INTERVAL '5' SECOND"
        assert told["# option connector"] == "jdbc"
        assert "hunter2" not in str(told)

        assert lines(db, "EXPLAIN LINEAGE VIEW m") == [
            f"view m: epoch {db.parts.ledger.head.epoch}",
            "  table t: changes [0, 0) of 2 are read",
            "  plain view p",
            "    table t: changes [0, 0) of 2 are read",
        ]
        assert "all changes so far are readable" in db.sql("REFRESH MATERIALIZED VIEW m").message
        assert lines(db, "EXPLAIN LINEAGE SELECT k FROM p")[-1] == (
            "    table t: changes [0, 2) of 2 are read"
        )
        circuit = lines(db, "EXPLAIN CIRCUIT VIEW m")
        assert circuit[0] == "-- Circuit"
        maintained = lines(db, "EXPLAIN MAINTENANCE VIEW m")
        assert [line for line in maintained if line in circuit] == circuit
        assert "    so far, per change: rows in 1, rows out 1, stored" in "\n".join(maintained)
        assert "REFRESH" not in db.sql("REFRESH").message
        with pytest.raises(HeadraceError):
            db.sql("REFRESH nothing")


def test_explain_says_why_a_query_is_no_view(db):
    db.sql("CREATE TABLE t (k INT, v INT, PRIMARY KEY (k))")
    twice = "SELECT k, sum(v) AS k FROM t GROUP BY k"
    told = lines(db, f"EXPLAIN {twice}")
    assert told[0] == "-- cannot be maintained as a view"
    assert told.index("-- Spark's optimised plan") == told.index("") + 1
    assert 'error[invalid]: column "k" is in the query twice' in told
    with pytest.raises(HeadraceError, match="in the query twice") as caught:
        db.sql(f"EXPLAIN CREATE MATERIALIZED VIEW m AS {twice}")
    assert caught.value.span.source == twice
    told = lines(db, f"EXPLAIN CIRCUIT CREATE MATERIALIZED VIEW m (a, b) AS {twice}")
    assert told[:2] == ["-- Circuit", "Integrate: the view's rows"]
    assert "by (a)" in told[2]
    told = lines(db, "EXPLAIN SELECT now() FROM t")
    assert 'error[unsupported]: function "now" is not allowed in a query' in told
