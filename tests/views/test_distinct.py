"""DISTINCT and UNION: aggregates without functions."""

from __future__ import annotations

import pytest

from histories import History
from length import some

pytestmark = pytest.mark.spark

VIEWS = {
    "rows": "SELECT DISTINCT g, h FROM t",
    "whole": "SELECT DISTINCT * FROM t",
    "one": "SELECT DISTINCT g FROM t",
    "expression": "SELECT DISTINCT g % 3 AS r, upper(h) AS u FROM t",
    "constant": "SELECT DISTINCT 1 AS one FROM t",
    "constant_beside": "SELECT DISTINCT g, 'x' AS x FROM t",
    "float": "SELECT DISTINCT f FROM t",
    "nested": "SELECT DISTINCT st FROM t",
    "repeated": "SELECT DISTINCT g AS a, g AS b FROM t",
    "filtered": "SELECT DISTINCT h FROM t WHERE g > 3",
    "united": "SELECT g, h FROM t UNION SELECT a, b FROM o",
    "united_itself": "SELECT g FROM t UNION SELECT g FROM t",
    "united_types": "SELECT g FROM t UNION SELECT a + 0L FROM o UNION SELECT 1.5",
    "of_distinct": "SELECT DISTINCT r FROM (SELECT DISTINCT g % 3 AS r, h FROM t)",
    "counted": "SELECT count(*) AS n FROM (SELECT DISTINCT h FROM t)",
    "counted_by": "SELECT g, count(*) AS n FROM (SELECT DISTINCT g, h FROM t) GROUP BY g",
    "of_groups": "SELECT DISTINCT n FROM (SELECT g, count(*) AS n FROM t GROUP BY g)",
    "joined": "SELECT x.h, o.a FROM (SELECT DISTINCT h FROM t) x JOIN o ON x.h = o.b",
}


SHORT_VIEWS = "whole constant constant_beside float nested of_distinct counted_by"


@pytest.mark.long
def test_present_rows_once(oracle):
    run = oracle(rows_per_change=20)
    run.table("t", "g INT, h STRING, f DOUBLE, st STRUCT<a: INT, b: ARRAY<STRING>>")
    run.table("o", "a INT, b STRING", key="a")
    for name, query in some(VIEWS, SHORT_VIEWS).items():
        run.view(name, query)
    history = History(run, 8, domain=8)
    history.epochs(["t", "o"], (20, 100, 2))
    run.truncate("t")
    run.epoch()
    assert run.rows("constant") == []
    history.epochs(["t"], (3,))
    run.finish()


def test_duplicates_keep_a_row_until_the_last_one_goes(oracle):
    run = oracle()
    run.table("t", "x INT")
    run.view("v", "SELECT x FROM t")
    run.view("d", "SELECT DISTINCT x FROM t")
    run.insert("t", [(1,), (1,), (1,), (None,)])
    run.epoch()
    run.log("t", [(-1, (1,))])
    run.epoch()
    assert run.rows("v") == [(1,), (1,), (None,)]
    assert run.rows("d") == [(1,), (None,)]
    run.log("t", [(-1, (1,))] * 2)
    run.epoch()
    assert run.rows("d") == [(None,)]
    run.log("t", [(-1, (None,)), (1, (1,))])
    run.epoch()
    assert run.rows("v") == run.rows("d") == [(1,)]
    run.finish()


CONSTANTS = {
    "one": "SELECT g, sum(DISTINCT 1) AS s, count(DISTINCT 1) AS c, count(*) AS n FROM t GROUP BY g",
    "whole": "SELECT sum(DISTINCT 2) AS s, count(DISTINCT 'x') AS c, avg(DISTINCT 3) AS a FROM t",
    "absent": "SELECT g, sum(DISTINCT CAST(NULL AS INT)) AS s, count(DISTINCT NULL) AS c FROM t GROUP BY g",
    "beside": "SELECT g, count(DISTINCT 1, h) AS c, sum(1) AS s, sum(DISTINCT 1) AS d FROM t GROUP BY g",
    "kept": "SELECT g FROM t GROUP BY g HAVING sum(DISTINCT 1) = count(h)",
    "filtered": "SELECT g, sum(DISTINCT 1) FILTER (WHERE h > 'b') AS s FROM t GROUP BY g",
    "of_below": "SELECT count(DISTINCT x) AS c, sum(DISTINCT x) AS s FROM (SELECT 1 AS x, g FROM t)",
    "known": "SELECT g, count(DISTINCT h) AS c, sum(DISTINCT g) AS s FROM t WHERE h = 'b' GROUP BY g",
    "recomputed": "SELECT g, stddev(DISTINCT 1) AS s, sort_array(collect_list(DISTINCT 1)) AS l"
    " FROM t GROUP BY g",
    "other_arguments": "SELECT g, percentile(DISTINCT 4, 0.5) AS p FROM t GROUP BY g",
    "listed": "SELECT g, listagg(DISTINCT h, ',') WITHIN GROUP (ORDER BY h) AS l FROM t GROUP BY g",
    "scalar": "SELECT h FROM o WHERE a > (SELECT sum(DISTINCT 1) FROM t WHERE t.h = o.h)",
}


SHORT_CONSTANTS = "whole absent beside kept filtered recomputed other_arguments scalar"


@pytest.mark.long
def test_a_constant_is_one_value(oracle):
    run = oracle(rows_per_change=20)
    run.table("t", "g INT, h STRING")
    run.table("o", "a INT, h STRING", key="a")
    for name, query in some(CONSTANTS, SHORT_CONSTANTS).items():
        run.view(name, query)
    history = History(run, 11, domain=4)
    history.epochs(["t", "o"], (20, 60, 2))
    run.truncate("t")
    run.epoch()
    assert run.rows("whole") == [(None, 0, None)]
    history.epochs(["t"], (3,))
    run.finish()
