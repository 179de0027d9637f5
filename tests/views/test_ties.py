"""Rows that tie: the same order in views, reads and VERIFY, for all histories and columns."""

from __future__ import annotations

import pytest

import headrace
from length import choose, some

pytestmark = pytest.mark.spark

VIEWS = {
    "numbered": """SELECT tm, foo, bar, row_number() OVER (PARTITION BY bar ORDER BY tm) AS n,
        rank() OVER (PARTITION BY bar ORDER BY tm) AS r,
        dense_rank() OVER (PARTITION BY bar ORDER BY tm) AS d FROM {0}""",
    "shifted": """SELECT foo, ntile(2) OVER w AS tile, lead(foo) OVER w AS after,
        lag(foo, 1, -1) OVER w AS before FROM {0} WINDOW w AS (PARTITION BY bar ORDER BY tm DESC)""",
    "framed": """SELECT foo, sum(foo) OVER (ORDER BY tm ROWS UNBOUNDED PRECEDING) AS running,
        sum(foo) OVER (ORDER BY tm) AS peers,
        count(foo) OVER (PARTITION BY bar ORDER BY tm ROWS 1 PRECEDING) AS two FROM {0}""",
    "picked": """SELECT bar, foo, first_value(foo) OVER (ORDER BY tm) AS first,
        last_value(foo) OVER (ORDER BY tm) AS last, nth_value(foo, 2) OVER (ORDER BY tm) AS second,
        any_value(foo) OVER (PARTITION BY bar) AS any FROM {0}""",
    "several": """SELECT foo, row_number() OVER (ORDER BY tm) + 0 AS a,
        row_number() OVER (ORDER BY bar DESC) AS b, ntile(3) OVER (PARTITION BY tm ORDER BY bar) AS c
        FROM (SELECT tm, bar, 1 AS foo FROM {0})""",
    "first_of_each": """SELECT bar, foo FROM (SELECT bar, foo,
        row_number() OVER (PARTITION BY bar ORDER BY tm) AS n FROM {0}) WHERE n = 1""",
    "first_ranks": """SELECT bar, foo, n FROM (SELECT bar, foo,
        row_number() OVER (PARTITION BY bar ORDER BY tm) AS n,
        rank() OVER (PARTITION BY bar ORDER BY tm) AS r FROM {0}) WHERE n <= 2 AND r <= 1""",
    "first_of_all": """SELECT bar, foo, n FROM (SELECT bar, foo, row_number() OVER (ORDER BY tm) AS n
        FROM {0}) WHERE n <= 2""",
    "limited": "SELECT bar, foo FROM {0} ORDER BY tm LIMIT 2",
    "skipped": "SELECT foo * 2 AS twice FROM {0} ORDER BY tm LIMIT 2 OFFSET 1",
    "grouped": """SELECT tm, first(foo) AS f, last(foo) AS l, any_value(foo) AS a,
        max_by(foo, bar) AS most, min_by(foo, bar) AS least, mode(foo) AS often,
        listagg(CAST(foo AS STRING), ',') WITHIN GROUP (ORDER BY bar) AS listed, sum(bar) AS s
        FROM {0} GROUP BY tm""",
    "grouped_apart": """SELECT first(foo) AS f, count(DISTINCT bar) AS bars,
        count(DISTINCT tm) AS times, last(foo) AS l FROM {0}""",
    "by_expression": "SELECT bar % 2 AS even, last(foo) AS l FROM {0} GROUP BY bar % 2",
    "over_a_view": """SELECT n, foo, lead(n) OVER (ORDER BY tm) AS next FROM {0}_numbered""",
    "of_each": """SELECT foo, (SELECT first(x.foo) FROM {0} x WHERE x.bar = y.bar) AS f,
        (SELECT x.foo FROM {0} x WHERE x.bar = y.bar ORDER BY x.tm LIMIT 1) AS one FROM {0} y""",
    "numbered_each": """SELECT foo, (SELECT max(n) FROM (SELECT x.foo,
        row_number() OVER (ORDER BY x.tm) AS n FROM {0} x WHERE x.bar = y.bar)
        WHERE foo = 12) AS n FROM {0} y""",
    "of_all": "SELECT foo, (SELECT max_by(foo, tm) FROM {0}) AS f FROM {0}",
    "of_maps": """SELECT m, row_number() OVER (ORDER BY tm) AS n FROM
        (SELECT tm, map('a', foo, 'b', bar) AS m FROM {0})""",
    "of_doubles": """SELECT foo, d, row_number() OVER (PARTITION BY d ORDER BY tm) AS n FROM
        (SELECT tm, foo, CAST(bar AS DOUBLE) AS d FROM {0})""",
    "of_sessions": """SELECT bar, session_window.start AS b, last(foo) AS l FROM {0}
        GROUP BY bar, session_window(tm, '5 minutes')""",
    "grouped_apart_each": """SELECT bar, first(foo) AS f, count(DISTINCT foo) AS foos,
        count(DISTINCT tm) AS times, last(foo) AS l FROM {0} GROUP BY bar""",
    "called": """SELECT foo, lag(plus(foo)) OVER (PARTITION BY bar ORDER BY tm) AS l,
        row_number() OVER (PARTITION BY plus(bar) ORDER BY plus(bar)) AS n FROM {0}""",
    "grouped_calls": "SELECT plus(bar) AS b, first(foo) AS f, last(plus(foo)) AS l FROM {0} GROUP BY 1",
    "distinct_listed": """SELECT DISTINCT foo, last_value(bar) OVER (PARTITION BY tm ORDER BY tm) AS l
        FROM {0}""",
}

ROWS = [(11, 1), (12, 1), (10, 1), (11, 2), (7, 2), (12, 2), (9, 3), (10, 3), (11, 1)]
ROWS += [("NULL", 2), ("NULL", "NULL"), (5, "NULL"), (12, 2), (11, 2)]


OVER_STREAM = ("numbered", "first_of_each", "limited", "grouped")
SHORT = """numbered framed picked first_of_each first_ranks skipped grouped grouped_apart
    over_a_view of_each called"""


@pytest.mark.long
def test_views_reads_and_verify_put_rows_that_tie_in_one_order(db):
    db.sql("CREATE STREAM s (tm TIMESTAMP, foo INT, bar INT)")
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, tm TIMESTAMP, foo INT, bar INT)")
    db.register(headrace.function("plus", _plus, returns="INT", deterministic=True))
    texts = {f"t_{name}": query.format("t") for name, query in some(VIEWS, SHORT).items()}
    texts |= {f"s_{name}": VIEWS[name].format("s") for name in choose(OVER_STREAM[:2], OVER_STREAM)}
    for name, query in texts.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    early, late = "TIMESTAMP '2024-01-01 10:00:00'", "TIMESTAMP '2024-01-01 10:07:00'"
    rows = [f"{late if i % 4 == 3 else early}, {a}, {b}" for i, (a, b) in enumerate(ROWS)]
    for i, row in enumerate(rows[:3]):  # that the key, which views do not read, goes another way
        db.sql(f"INSERT INTO s VALUES ({row})")
        db.sql(f"INSERT INTO t VALUES ({9 - i}, {row})")
    for relation in ("s", "t"):
        numbered = db.sql(f"SELECT foo, n, r FROM {relation}_numbered").fetchall()
        assert sorted(numbered) == [(10, 1, 1), (11, 2, 1), (12, 3, 1)]
        first = db.sql(f"SELECT foo FROM {relation} ORDER BY tm LIMIT 2").fetchall()
        assert first == [(10,), (11,)]
    db.sql(f"INSERT INTO s VALUES {', '.join(f'({row})' for row in rows[3:])}")
    keyed = ", ".join(f"({(i * 5) % 11}, {row})" for i, row in enumerate(rows[3:]))
    db.sql(f"INSERT INTO t VALUES {keyed}")
    db.sql("DELETE FROM t WHERE foo = 12 AND bar = 1")
    db.sql("UPDATE t SET foo = 30 WHERE id = 0")
    for name, query in list(texts.items())[:: choose(4, 1)]:
        assert _bag(db.sql(query)) == _bag(db.sql(f"SELECT * FROM {name}")), name
        ((_, _, _, verdict),) = db.sql(f"VERIFY {name}")
        assert verdict == "equal to batch", name


def _plus(number):
    return None if number is None else number + 1


def _bag(result: headrace.Result) -> list[str]:
    return sorted(map(repr, result.fetchall()))
