"""DISTINCT and UNION: present rows once, served as aggregates without functions."""

from __future__ import annotations

import pytest

from histories import History

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
del VIEWS["united_types"]  # a row without FROM is refused; see the refusals


def test_present_rows_once(oracle):
    run = oracle(rows_per_change=20)
    run.table("t", "g INT, h STRING, f DOUBLE, st STRUCT<a: INT, b: ARRAY<STRING>>")
    run.table("o", "a INT, b STRING", key="a")
    for name, query in VIEWS.items():
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
