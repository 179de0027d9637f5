"""A circuit as people see it."""

from __future__ import annotations

import pytest

from headrace.planning.circuit.explain import explain, growing, summary

pytestmark = pytest.mark.spark

QUERY = """SELECT t.s, count(*) AS n, sum(u.v) AS total FROM t JOIN u ON t.k = u.k AND t.g < u.v
WHERE t.x > 3 GROUP BY t.s HAVING count(*) > 1"""

GOLDEN = """\
Integrate: the view's rows
    stores 9/rows by (s): 3 columns
    per change: one row written; no lookup, no recompute
  Filter (n > 1L), linear
    GroupAggregate by (t.s): count(1), sum(u.v)
        stores 9/aggregate2.groups by (t.s): 1 columns
        per change: one lookup of the totals of its group, at most two output rows; no recompute
      Project (s, v), linear
        InnerJoin on t.k = u.k, then (t.g < u.v), bilinear
            stores 9/join1.left by (k): 3 columns
            stores 9/join1.right by (k): 2 columns
            per change: the rows of the other side within its range, and the pairs that it adds or removes; no recompute
          Project (k, g, s), linear
            Filter (((t.x IS NOT NULL) AND (t.x > 3L)) AND ((t.k IS NOT NULL) AND (t.g IS NOT NULL))), linear
              Source t (k, g, x, s)
          Filter ((u.k IS NOT NULL) AND (u.v IS NOT NULL)), linear
            Source u (k, v)"""


def test_every_operator_says_what_it_keeps_and_what_a_change_costs(planned):
    assert explain(planned.circuit(QUERY), planned.names.__getitem__, {}) == GOLDEN.split("\n")


LINES = {
    "SELECT t.k, u.v FROM t LEFT JOIN u ON t.k = u.k": "LeftJoin on t.k = u.k",
    "SELECT k FROM t WHERE k NOT IN (SELECT v FROM u)": "AntiJoin on t.k = u.v",
    "SELECT t.k, u.v FROM t FULL JOIN u ON t.k = u.k AND t.x > u.v": "Matches: the number of pairs of each row of the right",
    "SELECT t.k FROM t JOIN u ON t.x > u.v": "per change: the rows of the other side within its range, and the pairs that it adds",
    "SELECT t.k FROM t JOIN u ON t.x % 3 > u.v": "per change: all rows of the other side, since the join has no equality; no recompute",
    "SELECT g, max(x) AS m FROM t GROUP BY g": "stores 9/aggregate1.values0 by (t.g): 2 columns",
    "SELECT abs(k) AS a, count(*) AS n FROM t GROUP BY abs(k)": "GroupAggregate by (abs(t.k)): count(1)",
    "SELECT s, sum(x) OVER (PARTITION BY abs(k) ORDER BY x) AS w FROM t": "OVER (PARTITION BY abs(t.k) ORDER BY t.x",
    "SELECT count(*) AS n FROM (SELECT k, x + 1 AS y FROM t) GROUP BY y": "GroupAggregate by (y): count(1)",
    "SELECT k FROM t ORDER BY x DESC, k LIMIT 3": "FirstRows by (): row_number 1 to 3, ordered by t.x DESC, t.k",
    "SELECT g, median(x) AS m FROM t GROUP BY g": "per change: one lookup of the totals of its group",
    "SELECT g, percentile(x, 0.5, k) AS m FROM t GROUP BY g": "per change: recomputes its group, since percentile(t.x, 0.5D, t.k) needs all rows of its group",
    "SELECT g, approx_percentile(x, 0.5) AS m FROM t GROUP BY g": "needs all rows of its group, which percentile does not",
    "SELECT g, approx_count_distinct(x) AS m FROM t GROUP BY g": "needs all rows of its group, which count(DISTINCT ...) does not",
    "WITH RECURSIVE r(n) AS (SELECT k FROM t UNION ALL SELECT v FROM r JOIN u ON n = k) SELECT n FROM r": "per change: one round for each level that it reaches",
    "WITH RECURSIVE r(n) MAX RECURSION LEVEL 9 AS (SELECT k FROM t UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n FROM r": "Loop, up to level 8",
    "SELECT stddev(d) AS s FROM t": "recomputes all rows, which are one group, since stddev(t.d) needs all rows",
    "SELECT sum(d) AS s, max_by(x, k) AS m FROM t": "per change: one lookup of the totals of its group",
    "SELECT lag(x) OVER (PARTITION BY g ORDER BY k) AS w FROM t": "per change: reads the rows near it, and recomputes those",
    "SELECT rank() OVER (PARTITION BY g ORDER BY k) AS w FROM t": "per change: recomputes the rows after it in its group",
}

FIRST = "SELECT g, x FROM (SELECT *, {} OVER (PARTITION BY g ORDER BY x, k) AS n FROM t) WHERE {}"
NUMBERED = {
    ("row_number()", "n <= 3"): False,
    ("row_number()", "4 > n"): False,
    ("row_number()", "1 = n"): False,
    ("rank()", "n < 3"): False,
    ("dense_rank()", "n <= 2"): False,
    ("row_number()", "n = 2"): True,
    ("row_number()", "n <= 3 AND n <> 2"): True,
    ("row_number()", "n <= 3 AND x > 2"): True,
    ("sum(x)", "n <= 3"): True,
}


@pytest.mark.long
def test_first_rows_are_numbered_only_where_their_numbers_matter(planned):
    for (function, condition), numbered in NUMBERED.items():
        circuit = planned.circuit(FIRST.format(function, condition))
        text = "\n".join(explain(circuit, planned.names.__getitem__, {}))
        assert ("OVER (" in text) is numbered, text
    shown = FIRST.replace("g, x", "g, x, n").format("row_number()", "n <= 3")
    text = "\n".join(explain(planned.circuit(shown), planned.names.__getitem__, {}))
    assert "OVER (" in text, text


@pytest.mark.parametrize(("query", "line"), LINES.items(), ids=LINES)
def test_an_operator_is_explained(planned, query, line):
    text = "\n".join(explain(planned.circuit(query), planned.names.__getitem__, {}))
    assert line in text, text


def test_what_makes_the_cost_of_a_change_grow_is_said_with_what_does_not(planned):
    def said(query: str) -> tuple[str, ...]:
        return growing(planned.circuit(query))

    assert said("SELECT g, avg(d) AS a, max_by(x, k) AS m FROM t GROUP BY g") == ()
    assert said("SELECT lag(x) OVER (PARTITION BY g ORDER BY k) AS w FROM t") == ()
    assert said(FIRST.format("row_number()", "n <= 3")) == ()
    (lists,) = said("SELECT g, sort_array(collect_list(x)) AS l FROM t GROUP BY g")
    assert "its group, since collect_list(t.x) needs all rows of its group; a group for" in lists
    (numbers,) = said("SELECT row_number() OVER (PARTITION BY g ORDER BY k) AS n FROM t")
    assert "the rows after it" in numbers
    assert "QUALIFY" in numbers
    (shares,) = said("SELECT percent_rank() OVER (ORDER BY k) AS n FROM t")
    assert "its partition, which is the whole input, since its window functions may" in shares


def test_recomputation_is_announced(planned):
    assert "No part is recomputed" in summary(planned.circuit(QUERY))
    by_group = summary(planned.circuit("SELECT g, stddev(x) AS m FROM t GROUP BY g"))
    assert by_group.endswith("none recomputes its whole input.")
    rounds = "WITH RECURSIVE r(n) AS (SELECT k FROM t UNION ALL SELECT v FROM r JOIN u ON n = k) SELECT n FROM r"
    assert "one more round for each level" in summary(planned.circuit(rounds))
    assert "a single group" in summary(planned.circuit("SELECT stddev(x) AS m FROM t"))
