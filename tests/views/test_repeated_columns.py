"""Inputs with a repeated column, as in ``SELECT k, k``: stored once, returned twice."""

from __future__ import annotations

import pytest

from histories import History
from length import some, thorough

pytestmark = pytest.mark.spark

WINDOWED = """(SELECT k AS k, v AS v, t AS t,
    count(*) OVER (PARTITION BY v % 2 ORDER BY k ROWS 2 PRECEDING) AS c FROM a) x"""
"""Spark names the columns that ORDER BY needs beside those that are shown: ``k`` is there twice."""

VIEWS = {
    "groups_below": f"SELECT k, avg(c) AS m FROM {WINDOWED} WHERE k < (SELECT max(v) FROM b) GROUP BY k",
    "groups_equal": f"SELECT v, c FROM {WINDOWED} WHERE k = (SELECT max(k) FROM b)",
    "generated": f"""SELECT x.c, x.k AS kk, e FROM {WINDOWED} LATERAL VIEW explode(array(x.v, x.k)) AS e
        WHERE x.k >= (SELECT min(k) FROM b)""",
    "both_values": f"""SELECT k, c FROM {WINDOWED} WHERE k > (SELECT min(k) FROM b)
        AND v > (SELECT count(*) FROM b WHERE b.k = x.v)""",
    "in_time": f"""SELECT k, c FROM {WINDOWED} WHERE t > now() - INTERVAL 1 DAY
        AND v > (SELECT count(*) FROM b WHERE b.k = x.v)""",
    "first": f"""SELECT * FROM (SELECT v, c, row_number() OVER (PARTITION BY v ORDER BY k) AS r FROM {WINDOWED}
        WHERE k > (SELECT min(k) FROM b)) WHERE r < 3""",
    "cube": f"SELECT v, c, sum(k) AS s FROM {WINDOWED} WHERE k > (SELECT min(k) FROM b) GROUP BY CUBE (v, c)",
}

SHOWN = {
    "filtered (p, q, r)": "SELECT k, k, v FROM a WHERE k > (SELECT min(k) FROM b)",
    "grouped (p, q, r)": "SELECT v, v, count(*) AS c FROM a GROUP BY v HAVING c > (SELECT count(*) FROM b)",
    "correlated (p, q, r)": """SELECT v, v, count(*) AS c FROM a GROUP BY v
        HAVING c > (SELECT count(*) FROM b WHERE b.k = v)""",
    "joined (p, q, r, s, t)": "SELECT * FROM (SELECT k, v, k FROM a) x LEFT JOIN b ON x.k = b.k",
    "window (p, q, r, s)": "SELECT k, v, k, count(*) OVER (PARTITION BY v) FROM a",
    "top (p, q, r)": "SELECT k, v, k FROM a ORDER BY v, k LIMIT 3",
    "united (p, q, r)": "SELECT k, v, k FROM a WHERE k > (SELECT min(k) FROM b) UNION ALL SELECT k, v, v FROM b",
    "exploded (p, q, r, s)": """SELECT * FROM (SELECT v, v, max(k) AS c FROM a GROUP BY v) x
        LATERAL VIEW explode(array(v, c)) AS f WHERE c > (SELECT min(k) FROM b)""",
    "exploded_join (p, q, r, s, t, u)": """SELECT * FROM (SELECT k, v, k FROM a) x JOIN b ON x.k = b.k
        LATERAL VIEW explode(array(x.v, b.v)) AS f""",
}


@pytest.mark.long
def test_a_column_that_is_there_twice_is_kept_once(oracle):
    run = oracle(rows_per_change=4000)
    run.table("a", "k INT, v INT, t TIMESTAMP", key="k")
    run.table("b", "k INT, v INT")
    for name, query in some(VIEWS, "groups_below generated both_values cube").items():
        run.view(name, query)
    History(run, 23, domain=12).life(["a", "b"], most=30)
    run.finish()


SHORT = ("filtered", "grouped", "joined", "exploded_join")


@pytest.mark.long
def test_a_column_that_is_shown_twice_is_where_it_was(db):
    db.sql("CREATE TABLE a (k INT, v INT, PRIMARY KEY (k)); CREATE TABLE b (k INT, v INT)")
    shown = {
        name: query
        for name, query in SHOWN.items()
        if thorough() or name.split()[0] in (*SHORT, "window")
    }
    for name, query in shown.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    changes = (
        "INSERT INTO a VALUES (1, 1), (2, 1), (3, 1), (4, 2), (5, NULL), (6, 2)",
        "INSERT INTO b VALUES (1, 2), (1, 3), (3, 1), (NULL, 7)",
        "DELETE FROM a WHERE k IN (2, 6)",
        "DELETE FROM b",
    )
    for number, change in enumerate(changes):
        db.sql(change)
        if number != len(changes) - 2 and not thorough():
            continue
        verdicts = {view: verdict for view, _, _, verdict in db.sql("VERIFY")}
        assert verdicts == {name.split()[0]: "equal to batch" for name in shown}
    assert db.sql("SELECT * FROM window WHERE p = 3").fetchall() == [(3, 1, 3, 2)]
