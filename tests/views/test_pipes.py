"""Queries in Spark's pipe syntax."""

from __future__ import annotations

import pytest

from histories import History
from length import some

pytestmark = pytest.mark.spark

PIPES = {
    "filtered": "FROM a |> WHERE v > 3 |> SELECT id, k, v",
    "selected_first": "SELECT id, v FROM a |> WHERE v > 3 |> EXTEND v * 2 AS w |> DROP v",
    "changed": "TABLE a |> EXTEND v + 1 AS w |> SET v = v * 2, s = upper(s) |> DROP m |> AS x |> WHERE x.w > 2",
    "grouped": "FROM b |> AGGREGATE sum(v) AS t, count(*) AS n GROUP BY k",
    "of_all": "FROM b |> AGGREGATE max(v) AS t, count(DISTINCT k) AS n",
    "of_groups": """FROM b |> AGGREGATE sum(v) AS t GROUP BY k, s |> WHERE t > 4
        |> AGGREGATE count(*) AS n, max(t) AS m GROUP BY k""",
    "joined": """FROM a |> AS x |> JOIN b ON x.k = b.k AND x.v > b.v |> SELECT x.id, b.s
        |> AGGREGATE count(*) AS n GROUP BY id""",
    "left_joined": "FROM a |> LEFT JOIN b USING (k) |> WHERE a.v IS DISTINCT FROM b.v |> SELECT id, k, b.v",
    "sets": """FROM a |> SELECT k, v |> UNION ALL (FROM b |> SELECT k, v) |> EXCEPT ALL (SELECT k, v FROM b WHERE v > 5)
        |> INTERSECT DISTINCT (FROM a |> SELECT k, v)""",
    "first": "FROM a |> ORDER BY v DESC, id |> LIMIT 3 |> SELECT id, s",
    "numbered": """FROM a |> EXTEND row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS r |> WHERE r <= 2
        |> SELECT k, id, r""",
    "pivoted": "FROM a |> SELECT k, s, v |> PIVOT (sum(v) FOR s IN ('a', 'b'))",
    "unpivoted": "FROM a |> SELECT s, id, v |> UNPIVOT (x FOR n IN (id, v))",
    "within": """WITH big AS (FROM b |> WHERE v > 3) FROM big |> WHERE k IN (FROM a |> WHERE v < 9 |> SELECT k)
        |> SELECT k, (FROM a |> WHERE a.k = big.k |> AGGREGATE max(v)) AS m""",
    "lateral": "FROM a |> JOIN LATERAL (FROM b |> WHERE b.k = a.k |> AGGREGATE sum(v) AS t) |> SELECT id, t",
    "exploded": "FROM a |> CROSS JOIN LATERAL explode(array(id, v)) AS t(x) |> SELECT id, x",
}

FROM_FIRST = {
    "tumbled": """FROM TABLE(TUMBLE(TABLE e, DESCRIPTOR(t), INTERVAL '10' MINUTES))
        |> AGGREGATE count(*) AS n GROUP BY window_start""",
    "united": """FROM TUMBLE(e, t, INTERVAL '20 minutes') |> SELECT window_end AS w, v
        UNION ALL SELECT window_end, v FROM TUMBLE(e, t, INTERVAL '10 minutes') |> WHERE v > 3""",
    "named": """WITH w AS (FROM TUMBLE(e, t, INTERVAL '10 minutes') |> WHERE v > 1)
        FROM w |> AGGREGATE max(v) AS m GROUP BY window_start""",
    "elements": "FROM UNNEST(ARRAY[1, 2, 3]) AS x(n) |> JOIN e ON v = n |> SELECT n, s",
    "spark": "FROM e SELECT k, count(*) AS n WHERE v > 1 GROUP BY k",
}
PLAIN = {
    "tumbled": "SELECT window.start AS window_start, count(*) AS n FROM e GROUP BY window(t, '10 minutes')",
    "united": """SELECT * FROM (SELECT window.end AS w, v FROM (SELECT window(t, '20 minutes') AS window, v FROM e)
        UNION ALL SELECT window.end, v FROM (SELECT window(t, '10 minutes') AS window, v FROM e)) WHERE v > 3""",
    "named": """SELECT window.start AS window_start, max(v) AS m FROM e WHERE v > 1
        GROUP BY window(t, '10 minutes')""",
    "elements": "SELECT n, s FROM e JOIN (VALUES (1), (2), (3)) AS x(n) ON v = n",
    "spark": "SELECT k, count(*) AS n FROM e WHERE v > 1 GROUP BY k",
}


CHOSEN = some(
    PIPES,
    "selected_first changed of_groups joined sets first numbered pivoted within lateral exploded",
)


@pytest.mark.long
@pytest.mark.parametrize("part", range(2))
def test_a_pipe_is_kept_as_any_other_query(oracle, part):
    run = oracle(rows_per_change=200)
    run.table("a", "id INT, k INT, v INT, s STRING, m DECIMAL(10,2)", key="id")
    run.table("b", "k INT, v INT, s STRING")
    for name, query in list(CHOSEN.items())[part::2]:
        run.view(name, query)
    History(run, 12, domain=25).life(["a", "b"], most=40)
    run.finish()


@pytest.mark.long
def test_other_dialects_stand_before_a_pipe(oracle):
    run = oracle(rows_per_change=100)
    run.stream("e", "k INT, v INT, s STRING, t TIMESTAMP")
    for name, query in some(FROM_FIRST, "tumbled united elements").items():
        run.view(name, query, expected=PLAIN[name])
    History(run, 13, domain=12).epochs(["e"], (1, 40, 10))
    run.finish()
