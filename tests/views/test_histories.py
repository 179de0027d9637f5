"""Random histories of a whole warehouse: 1, 10 and 1,000 changes, everything deleted, again."""

from __future__ import annotations

import pytest

from histories import History

pytestmark = pytest.mark.spark


@pytest.mark.long
@pytest.mark.parametrize("seed", [21])
def test_a_random_life(oracle, seed):
    run = oracle(rows_per_change=300)
    run.table("customers", "id INT, region STRING, tier TINYINT", key="id")
    run.table("orders", "id INT, customer INT, product INT, m DECIMAL(12,2), day DATE", key="id")
    run.table("returns", "product INT, n SMALLINT")
    run.stream("visits", "customer INT, at TIMESTAMP, score DOUBLE")
    run.view(
        "facts",
        """SELECT o.id, c.region, c.tier, o.product, o.m FROM orders o
        JOIN customers c ON o.customer = c.id""",
    )
    run.view(
        "revenue",
        "SELECT region, sum(m) AS m, count(*) AS n, avg(m) AS a FROM facts GROUP BY region",
    )
    run.view("regions", "SELECT DISTINCT region FROM customers")
    run.view(
        "returned", "SELECT product, sum(n) AS n FROM returns GROUP BY product HAVING sum(n) > 0"
    )
    run.view(
        "net", """SELECT f.id, f.m, r.n FROM facts f JOIN returned r ON f.product = r.product"""
    )
    run.view(
        "hours", "SELECT window.start AS b, count(*) AS n FROM visits GROUP BY window(at, '1 hour')"
    )
    run.view(
        "visitors", "SELECT c.region, v.score FROM visits v JOIN customers c ON v.customer = c.id"
    )
    run.view("totals", "SELECT count(*) AS n, sum(m) AS m FROM net")
    History(run, seed, domain=300).life(["customers", "orders", "returns", "visits"])
    run.finish()
