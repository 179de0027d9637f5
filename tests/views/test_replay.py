"""Slices of views of every kind, taken out of all arrangements, are what they were once replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.execution.engine.narrow import nodes
from length import some
from replaying import emptied, replay, require_as_before, stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness import Oracle

VIEWS = {
    "sums": ("SELECT k, count(*) AS n, sum(x) AS x FROM s GROUP BY k", "k = 1"),
    "extrema": (
        "SELECT k, min(x) AS low, count(DISTINCT x) AS n FROM t GROUP BY k",
        "k IN (1, 3)",
    ),
    "joined": (
        "SELECT s.k, g.name, count(*) AS n FROM s JOIN g ON s.k = g.k GROUP BY s.k, g.name",
        "name = 'b'",
    ),
    "outer_joined": ("SELECT t.id, t.k, g.name FROM t LEFT JOIN g ON t.k = g.k", "k = 2"),
    "by_condition": (
        "SELECT t.id, t.k, s.x FROM t LEFT JOIN s ON t.k = s.k AND s.x > t.x",
        "k < 3",
    ),
    "by_condition_of_both": (
        "SELECT s.x AS sx, t.id FROM s FULL JOIN t ON s.x > t.x",
        "id = 2",
    ),
    "by_condition_of_the_other": (
        "SELECT t.id, s.x AS sx FROM t LEFT JOIN s ON t.k = s.k AND s.x > t.x",
        "sx = 3",
    ),
    "semi": ("SELECT id, k FROM t WHERE k IN (SELECT k FROM s WHERE x > 2)", "k = 1"),
    "anti": ("SELECT id, k FROM t WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.k = t.k)", "id > 2"),
    "both_sides": ("SELECT t.k AS tk, g.k AS gk, id FROM t FULL JOIN g ON t.k = g.k", "tk = 1"),
    "first": (
        (
            "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY x, id) AS r FROM t)"
            " WHERE r <= 2"
        ),
        "k = 1",
    ),
    "windows": ("SELECT id, k, sum(x) OVER (PARTITION BY k) AS total FROM t", "k = 1"),
    "lists": ("SELECT k, sort_array(collect_list(x)) AS xs FROM t GROUP BY k", "k = 1"),
    "hops": (
        (
            "SELECT window.start AS w, k, count(*) AS n FROM s"
            " GROUP BY window(at, '2 hours', '1 hour'), k"
        ),
        "w >= TIMESTAMP '2026-01-01 01:00:00'",
    ),
    "days": (
        "SELECT date_trunc('hour', at) AS h, sum(x) AS x FROM s GROUP BY date_trunc('hour', at)",
        "h = TIMESTAMP '2026-01-01 01:00:00'",
    ),
    "unions": (
        "SELECT k, x FROM s UNION ALL SELECT k, -x FROM t UNION ALL SELECT k, 0 FROM g",
        "k = 1 AND x < 0",
    ),
    "divided": ("SELECT id, 12 / x AS y FROM t WHERE x <> 0", "y > 3"),
    "nested": (
        "SELECT n, count(*) AS ks FROM (SELECT k, count(*) AS n FROM s GROUP BY k) GROUP BY n",
        "n = 2",
    ),
    "selves": (
        (
            "SELECT a.k, a.n, b.n AS m FROM (SELECT k, count(*) AS n FROM s GROUP BY k) a"
            " JOIN (SELECT k, count(*) AS n FROM s GROUP BY k) b ON a.n = b.n AND a.k <> b.k"
        ),
        "k = 1",
    ),
    "totals": ("SELECT count(*) AS n, sum(x) AS x FROM t", "n > 0"),
    "exploded": ("SELECT id, k, e FROM t LATERAL VIEW explode(array(x, x + 1)) AS e", "k = 2"),
    "rolled_up": ("SELECT k, id, sum(x) AS x FROM t GROUP BY ROLLUP (k, id)", "k = 1"),
    "compared": ("SELECT id, k FROM t WHERE x > (SELECT avg(x) FROM s)", "k = 1"),
    "reached": (
        (
            "WITH RECURSIVE r AS (SELECT k, 0 AS d FROM g UNION ALL"
            " SELECT r.k + 1, d + 1 FROM r JOIN t ON r.k = t.k WHERE d < 2) SELECT k, d FROM r"
        ),
        "k = 2",
    ),
}


@pytest.fixture
def run(oracle: Callable[..., Oracle]) -> Oracle:
    run = oracle(rows_per_change=64)
    run.stream("s", "k INT, x BIGINT, at TIMESTAMP")
    run.table("t", "id INT, k INT, x BIGINT", key="id")
    run.table("g", "k INT, name STRING", key="k")
    return run


def _write(run: Oracle, n: int) -> None:
    hours = [f"2026-01-01 0{i % 3}:30:00" for i in range(6)]
    rows = [(1 + (i + n) % 4, i - 1, at) for i, at in enumerate(hours)]
    run.insert("s", [(k, x, _time(at)) for k, x, at in rows])
    run.insert("t", [(i + n, 1 + i % 4, (7 * i + n) % 5) for i in range(6)])
    run.insert("g", [(k, "ab"[k % 2]) for k in range(1 + n % 2, 4)])


def _time(text: str) -> object:
    from datetime import datetime

    return datetime.fromisoformat(text)


def _queries() -> dict[str, tuple[str, str]]:
    return some(VIEWS, "outer_joined")


@pytest.mark.spark
@pytest.mark.parametrize(
    "width", ["in this process", pytest.param("as jobs", marks=pytest.mark.long)]
)
def test_a_slice_of_any_view_is_made_again(
    run: Oracle, width: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if width == "as jobs":
        monkeypatch.setattr(nodes, "MOST_ROWS", 0)
    _write(run, 0)
    run.epoch()
    for name, (query, _) in _queries().items():
        run.view(name, query)
    run.epoch()
    _write(run, 3)
    run.delete("g", "k = 2")
    run.epoch()
    for name, (_, where) in _queries().items():
        before = stored(run.db, name)
        assert emptied(run.db, name, where), (name, "the slice is empty")
        done = replay(run.db, name, where)
        assert done.changed or done.state, name
        require_as_before(before, stored(run.db, name))
    _write(run, 1)
    run.epoch()
    run.verify(*_queries())
