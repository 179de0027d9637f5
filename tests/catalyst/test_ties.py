"""The columns by which rows that tie go: those of the query as it is written, where they matter."""

from __future__ import annotations

import pytest

from headrace.planning.circuit.digest import digest
from headrace.planning.circuit.explain import explain

pytestmark = pytest.mark.spark

TIES = {
    "SELECT s, k, row_number() OVER (PARTITION BY g ORDER BY x DESC) AS n FROM t": "t.s, t.k",
    "SELECT k, n FROM (SELECT k, s, m, lead(s) OVER (ORDER BY x) AS n FROM t)": "t.k, t.s, t.m",
    "SELECT k, last_value(s) OVER (PARTITION BY g ORDER BY x) AS n FROM t": "t.k, t.s",
    "SELECT k, sum(x) OVER (ORDER BY g ROWS UNBOUNDED PRECEDING) AS n FROM t": "t.k, t.x",
    "SELECT g, max_by(s, x) AS b FROM t GROUP BY g": "t.x, t.s",
    "SELECT s, first(x) FILTER (WHERE k > 2) AS f FROM t GROUP BY s": "t.k, t.x",
    "SELECT k, mp, ntile(2) OVER (ORDER BY g) AS n FROM t": "t.k, sort_array(map_entries(t.mp), true)",
    "SELECT k, ntile(2) OVER (ORDER BY g) AS n FROM (SELECT k, g, array(mp) AS a FROM t) u": "u.k",
    "SELECT s COLLATE UTF8_LCASE AS c, ntile(2) OVER (ORDER BY g) AS n FROM t": "CAST(c AS STRING)",
}
NO_TIES = [
    "SELECT k, rank() OVER (ORDER BY x) AS r, dense_rank() OVER (ORDER BY x) AS d FROM t",
    "SELECT k, percent_rank() OVER (ORDER BY x) AS r, cume_dist() OVER (ORDER BY x) AS d FROM t",
    "SELECT k, sum(x) OVER (PARTITION BY g ORDER BY x) AS s, max(x) OVER (PARTITION BY g) AS m FROM t",
    "SELECT k, sum(x) OVER (ORDER BY x ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS s FROM t",
    "SELECT g, sum(d) AS s, median(x) AS m, min(s) AS l FROM t GROUP BY g",
]


@pytest.mark.parametrize(("query", "ties"), TIES.items(), ids=TIES)
def test_rows_that_tie_go_by_the_columns_of_their_select(planned, query, ties):
    lines = explain(planned.circuit(query), planned.names.__getitem__, {})
    (line,) = [line for line in lines if "ties ordered by" in line]
    assert line.partition("; ties ordered by ")[2] == ties


@pytest.mark.parametrize("query", NO_TIES)
def test_what_gives_rows_that_tie_one_value_sees_no_order_of_them(planned, query):
    lines = explain(planned.circuit(query), planned.names.__getitem__, {})
    assert not [line for line in lines if "rows that tie" in line]


def test_limit_and_first_rows_go_on_with_the_columns_of_their_select(planned):
    limited = "SELECT s, k FROM t ORDER BY x DESC LIMIT 3"
    numbered = (
        "SELECT k FROM (SELECT s, k, {} OVER (PARTITION BY g ORDER BY x) AS n FROM t) WHERE n <= 3"
    )
    texts = {
        limited: "row_number 1 to 3, ordered by t.x DESC, t.s, t.k",
        numbered.format("row_number()"): "row_number 1 to 3, ordered by t.x, t.s, t.k",
        numbered.format("rank()"): "rank 1 to 3, ordered by t.x",
    }
    for query, text in texts.items():
        (line,) = [
            line
            for line in explain(planned.circuit(query), planned.names.__getitem__, {})
            if "FirstRows" in line
        ]
        assert line.partition(": ")[2] == text


def test_windows_of_one_select_follow_each_other_as_it_shows_them(planned):
    query = """SELECT {}, k FROM t WINDOW a AS (ORDER BY x), b AS (PARTITION BY g ORDER BY x),
        c AS (PARTITION BY s ORDER BY g)"""
    columns = [f"row_number() OVER {name} AS {name}" for name in "cab"]
    digests = {digest(planned.circuit(query.format(", ".join(columns)))) for _ in range(4)}
    assert len(digests) == 1
    lines = explain(
        planned.circuit(query.format(", ".join(columns))), planned.names.__getitem__, {}
    )
    windows = [line.partition("; ")[2] for line in lines if "Window" in line]
    assert [text.count(",") for text in windows] == sorted(
        (text.count(",") for text in windows), reverse=True
    )
    assert windows[0].endswith("c, a")
