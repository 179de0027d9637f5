"""Columns of type TIME: in every operator, in every way to read, and at every door for rows."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from histories import History
from length import some

pytestmark = pytest.mark.spark

VIEWS = {
    "groups": "SELECT a, count(*) AS n, min(b) AS lo, max(b) AS hi, count(DISTINCT b) AS d FROM t GROUP BY a",
    "pairs": "SELECT t.k, o.n, o.a FROM t JOIN o ON t.a = o.a",
    "outer_pairs": "SELECT t.k, o.a FROM t LEFT JOIN o ON t.b = o.a",
    "present": "SELECT DISTINCT b FROM t",
    "first": "SELECT k, a FROM t ORDER BY a DESC, k LIMIT 3",
    "ranked": "SELECT k, row_number() OVER (PARTITION BY a ORDER BY b, k) AS r, lag(b) OVER (ORDER BY b, k) AS l FROM t",
    "latest": "SELECT k FROM t WHERE a >= (SELECT max(a) FROM o)",
    "fields": """SELECT k, hour(a) AS h, minute(b) AS m, extract(SECOND FROM a) AS s, a - b AS d, CAST(a AS STRING) AS x,
        time_trunc('HOUR', a) AS f, try_add(a, INTERVAL '12' HOUR) AS c, time_diff('MINUTE', b, a) AS e,
        make_timestamp(DATE '2024-02-29', a) AS ts, CAST(TIMESTAMP '2024-02-29 07:08:09' AS TIME(0)) AS g,
        a BETWEEN TIME '06:00:00' AND TIME '12:00:00' AS w, CAST(a AS TIME(1)) AS p FROM t""",
    "nested": "SELECT array(a, b) AS l, struct(a AS f, k) AS st, map('a', a) AS mp, n FROM t",
    "lists": "SELECT a, sort_array(collect_set(b)) AS l, max_by(b, k) AS m FROM t GROUP BY a",
    "united": "SELECT a AS x FROM t UNION SELECT b FROM t EXCEPT SELECT a FROM o",
}


@pytest.mark.long
def test_times_of_day_are_kept_in_views(oracle):
    run = oracle(rows_per_change=4000)
    run.table("t", "k INT, a TIME(6), b TIME(2), n ARRAY<STRUCT<z: TIME(6)>>", key="k")
    run.table("o", "a TIME(6), n INT", key="a")
    for name, query in some(VIEWS, "groups fields nested").items():
        run.view(name, query)
    History(run, 11, domain=12).epochs(["t", "o"], (12, 30))
    run.finish()


def test_digits_beyond_the_precision_of_a_time_are_cut_at_every_door(db):
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, b TIME(3), n ARRAY<TIME(3)>)")
    fine, cut = dt.time(1, 2, 3, 456_789), dt.time(1, 2, 3, 456_000)
    db.sql("INSERT INTO t VALUES (1, TIME '01:02:03.456789', NULL), (2, '01:02:03.456789', NULL)")
    db.sql("INSERT INTO t VALUES (3, ?, NULL)", [fine])
    db.sql("INSERT INTO t SELECT 4, TIME '01:02:03.456789', array(TIME '01:02:03.456789')")
    db.insert("t", [{"k": 5, "b": fine, "n": [fine]}])
    db.insert("t", pa.table({"k": [6], "b": pa.array([fine], pa.time64("ns")), "n": [[fine]]}))
    db.sql("UPDATE t SET n = array(b + INTERVAL '0.000999' SECOND) WHERE k = 3")
    rows = db.sql("SELECT * FROM t ORDER BY k").fetchall()
    assert [row[1] for row in rows] == [cut] * 6
    assert [row[2] for row in rows] == [None, None, [cut], [cut], [cut], [cut]]
    assert db.sql("SELECT k FROM t WHERE b <> ?", [cut]).fetchall() == []
    found = db.sql("SELECT b FROM t WHERE b = CAST(? AS TIME(3)) AND k = 1", [cut])
    assert found.to_arrow().schema.field("b").type == pa.time64("ns")
    assert list(found.to_pandas()["b"]) == [cut]
    assert db.sql("DESCRIBE t").fetchall()[1][1] == "time(3)"
