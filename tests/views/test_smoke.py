from __future__ import annotations

from decimal import Decimal

import pytest

pytestmark = pytest.mark.spark


def test_it_runs(oracle):
    run = oracle()
    run.table("t", "k INT, v INT", key="k")
    run.stream("s", "k INT, x DECIMAL(10,2)")
    run.view("g", "SELECT v, count(*) AS n FROM t GROUP BY v")
    run.view("j", "SELECT t.k, t.v, s.x FROM t JOIN s ON t.k = s.k")
    run.view("a", "SELECT v, sum(x) AS x, avg(x) AS m FROM j GROUP BY v")
    run.insert("t", [(1, 10), (2, 10)])
    run.insert("s", [(1, Decimal("1.50")), (1, None), (3, Decimal("2"))])
    assert run.epoch() == 1
    run.update("t", {"v": "v + 1"}, "k = 1")
    run.insert("t", [(3, 11)])
    run.epoch()
    run.delete("t", "k = 1")
    run.finish()
