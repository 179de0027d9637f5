"""Fills that take over state of other views in place of reading all of their inputs."""

from __future__ import annotations

import pytest

from histories import History
from length import choose, some

pytestmark = pytest.mark.spark

PAIRS = {
    "groups": (
        "SELECT g, sum(z) AS z, count(*) AS n FROM s GROUP BY g",
        (
            "SELECT g, n, z + 1 AS z FROM (SELECT g, sum(z) AS z, count(*) AS n FROM s GROUP BY g)"
            " WHERE n > 3"
        ),
    ),
    "parts": (
        (
            "SELECT g, min(x) AS lo, max(x) AS hi, count(DISTINCT h) AS d, sum(DISTINCT x) AS e"
            " FROM t GROUP BY g"
        ),
        (
            "SELECT g, -min(x) AS lo, max(x) AS hi, 1 / count(DISTINCT h) AS d, sum(DISTINCT x) AS e"
            " FROM t GROUP BY g HAVING count(DISTINCT h) > 1"
        ),
    ),
    "grows": (
        "SELECT g, min(z) AS lo, max(z) AS hi, sum(m) AS m FROM s GROUP BY g",
        "SELECT g, min(z) + 1 AS lo, max(z) AS hi, sum(m) AS m FROM s GROUP BY g",
    ),
    "total": (
        "SELECT count(*) AS n, min(x) AS x, sum(m) AS m FROM t",
        "SELECT count(*) AS n, min(x) AS x, sum(m) AS m FROM t HAVING count(*) > 0",
    ),
    "joined": (
        "SELECT t.h, sum(s.z) AS z FROM s JOIN t ON s.g = t.g GROUP BY t.h",
        "SELECT t.h, sum(s.z) * 2 AS z FROM s JOIN t ON s.g = t.g GROUP BY t.h",
    ),
    "sides": (
        "SELECT s.z, t.h FROM s JOIN t ON s.g = t.g WHERE s.z > 2",
        "SELECT t.h, max(s.z) AS z FROM s JOIN t ON s.g = t.g WHERE s.z > 2 GROUP BY t.h",
    ),
    "outer_": (
        "SELECT t.h, count(s.z) AS z FROM t LEFT JOIN s ON s.g = t.g AND s.z > t.x GROUP BY t.h",
        "SELECT t.h, 1 + count(s.z) AS z FROM t LEFT JOIN s ON s.g = t.g AND s.z > t.x GROUP BY t.h",
    ),
    "starts": (
        (
            "SELECT g, z FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY z, m) AS r FROM s)"
            " WHERE r <= 2"
        ),
        (
            "SELECT g, sum(z) AS z FROM"
            " (SELECT *, row_number() OVER (PARTITION BY g ORDER BY z, m) AS r FROM s)"
            " WHERE r <= 2 GROUP BY g"
        ),
    ),
    "windows": (
        "SELECT g, z, sum(z) OVER (PARTITION BY g ORDER BY z) AS a FROM s",
        (
            "SELECT g, max(a) AS a FROM (SELECT g, sum(z) OVER (PARTITION BY g ORDER BY z) AS a FROM s)"
            " GROUP BY g"
        ),
    ),
    "nested": (
        "SELECT n, count(*) AS c FROM (SELECT g, count(*) AS n FROM s GROUP BY g) GROUP BY n",
        (
            "SELECT a.n, a.c, b.n AS m FROM"
            " (SELECT n, count(*) AS c FROM (SELECT g, count(*) AS n FROM s GROUP BY g) GROUP BY n) a"
            " JOIN (SELECT h, count(*) AS n FROM t GROUP BY h) b ON a.n = b.h"
        ),
    ),
    "compared": (
        "SELECT avg(z) AS z FROM s",
        "SELECT g, z FROM s WHERE z > (SELECT avg(z) FROM s)",
    ),
}
"""By name: the query of a view, and another one that takes over some of its state."""


def taken_over(run) -> int:
    """Return how many rows of state the last epoch's fill has taken over."""
    (record,) = run.db.parts.ledger.epochs.newest(1)
    return record.counters.get("taken_over", 0)


@pytest.mark.parametrize(
    ("fill_rows", "small_rows"),
    [
        (25, 20_000),
        pytest.param(25, 0, marks=pytest.mark.long),
        *(pytest.param(1_000_000, s, marks=pytest.mark.long) for s in (20_000, 0)),
    ],
)
def test_views_filled_from_state_of_others_equal_batch(oracle, fill_rows, small_rows):
    run = oracle(fill_rows=fill_rows, small_rows=small_rows, reuse_rows=1, rows_per_change=9000)
    run.table("t", "g INT, h INT, x INT, m DECIMAL(8,2)")
    run.stream("s", "g INT, z INT, m DECIMAL(9,3)")
    history = History(run, 31, domain=5)
    history.write(["s", "t"], 1200)
    pairs = some(PAIRS, "groups parts joined starts compared")
    for name, (query, _) in pairs.items():
        run.view(name, query)
    history.write(["s", "t"], 30)
    for name, (_, query) in pairs.items():
        run.view(f"{name}2", query)
        assert taken_over(run) > 0, name
        history.write(["s", "t"], choose(5, 10))
    history.epochs(["s", "t"], choose((20,), (1, 40)))
    run.finish()
