"""Epochs of both widths over the same state: what one has stored, the other finds and changes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headrace.execution.engine.narrow import nodes
from histories import History
from length import choose, some

pytestmark = pytest.mark.spark

TYPES = {
    "a": "BOOLEAN",
    "b": "TINYINT",
    "c": "SMALLINT",
    "d": "INT",
    "e": "BIGINT",
    "f": "FLOAT",
    "h": "DOUBLE",
    "i": "DECIMAL(9,3)",
    "j": "DECIMAL(30,10)",
    "l": "STRING",
    "m": "BINARY",
    "n": "DATE",
    "o": "TIMESTAMP",
    "p": "TIMESTAMP_NTZ",
    "q": "ARRAY<INT>",
    "r": "STRUCT<x: INT, y: STRING>",
}
"""A column of each type that rows are hashed by."""

VIEWS = {
    "by_each": "SELECT a, b, c, d, n, count(*) AS k, sum(e) AS s FROM t GROUP BY a, b, c, d, n",
    "by_reals": "SELECT f, h, i, count(*) AS k, max(l) AS most FROM t GROUP BY f, h, i",
    "by_texts": "SELECT l, m, o, p, j, count(*) AS k FROM t GROUP BY l, m, o, p, j",
    "by_nested": "SELECT q, r, count(*) AS k, min(o) AS o FROM t GROUP BY q, r",
    "everything": "SELECT DISTINCT b, e, h, j, l, o, q, r FROM t",
    "pairs": "SELECT t.id, u.v, t.l FROM t JOIN u ON t.l = u.l AND t.d % 5 = u.g",
    "either": "SELECT t.id, u.v FROM t FULL JOIN u ON t.j = u.j",
    "matched": "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.l = t.l)",
    "first": """SELECT id, d, e FROM (
        SELECT *, row_number() OVER (PARTITION BY d % 4 ORDER BY e, id) AS nth FROM t
      ) WHERE nth <= 3""",
    "ranked": "SELECT id, sum(b) OVER (PARTITION BY a, b ORDER BY id) AS s FROM t",
    "collected": "SELECT a, sort_array(collect_set(c)) AS c FROM t GROUP BY a",
    "placed": """SELECT a, median(d) AS d, percentile(h, array(0.2, 0.9)) AS h, percentile(i, 0.5) AS i,
        percentile(e, 0.4) AS e, percentile_disc(0.1) WITHIN GROUP (ORDER BY f DESC) AS f FROM t GROUP BY a""",
    "above": "SELECT k, count(*) AS n FROM by_each GROUP BY k",
    "edges": "SELECT DISTINCT g, v FROM u WHERE g < v AND v BETWEEN 0 AND 9",
    "closed": """WITH RECURSIVE r (x, y) AS (
        SELECT g, v FROM edges UNION ALL SELECT r.x, e.v FROM r JOIN edges AS e ON r.y = e.g
      ) SELECT x, y, count(*) AS paths FROM r GROUP BY x, y""",
}
_SOME = "placed by_each by_reals by_nested pairs either first"
_MOST = 12
"""Epochs of more changes are wide."""


@pytest.mark.long
def test_narrow_and_wide_epochs_follow_each_other_on_the_same_rows(oracle):
    run = oracle(rows_per_change=400, small_rows=_MOST)
    columns = ", ".join(f"{name} {type_}" for name, type_ in TYPES.items())
    run.table("t", f"id INT, {columns}", key="id")
    run.table("u", "g INT, v INT, l STRING, j DECIMAL(30,10)")
    for name, query in some(VIEWS, _SOME).items():
        run.view(name, query)
    history, found = History(run, 61, domain=6), []
    for size in choose((9, 30, 8), (5, 30, 8, 3, 60, 12, 1, 20, 10, 4, 90, 7)):
        history.write(["t", "u"], size)
        run.epoch()
        found.append(run.db.parts.ledger.epochs.newest(1)[0].counters["width"])
    assert set(found) == {"narrow", "wide: many changes"}
    run.truncate("t")
    run.epoch()
    run.finish()


@pytest.mark.long
def test_a_narrow_epoch_whose_changes_fan_out_goes_on_as_jobs(oracle, monkeypatch):
    run = oracle(rows_per_change=4000)
    run.table("t", "id INT, g INT", key="id")
    run.view("pairs", "SELECT a.id, b.id AS other FROM t AS a JOIN t AS b ON a.g = b.g")
    run.view("counted", "SELECT id, count(*) AS n FROM pairs GROUP BY id")
    monkeypatch.setattr("headrace.execution.engine.engine.MOST_FLOWING", 200)
    assert nodes.MOST_FLOWING > 200
    widths = []
    for rows in ([(i, 1) for i in range(9)], [(i, 1) for i in range(9, 30)], [(99, 2)]):
        run.insert("t", rows)
        run.epoch()
        widths.append(run.db.parts.ledger.epochs.newest(1)[0].counters["width"])
    assert widths == ["narrow", "wide: changes fan out", "narrow"]
    run.finish()


def test_a_zero_that_came_with_its_sign_goes_at_any_width(oracle):
    run = oracle(small_rows=3)
    run.table("t", "id INT, g INT, h DOUBLE, f FLOAT, at TIMESTAMP", key="id")
    run.view("middle", "SELECT g, median(h) AS m, min(h) AS l FROM t GROUP BY g")
    run.view("least", "SELECT g, min(h) AS l FROM t GROUP BY g")
    run.view("most", "SELECT g, max(f) AS m FROM t GROUP BY g")
    run.view("within", "SELECT min(named_struct('h', h)) AS l, max(array(f)) AS m FROM t")
    run.view("visits", "SELECT max(h) AS m FROM t GROUP BY g, session_window(at, '1 hour')")
    run.view("sounds", "SELECT id, soundex(string(h)) AS s FROM t")  # Spark runs the steps
    day = datetime(2024, 1, 1, tzinfo=UTC)
    for ids in (range(1, 2), range(2, 9)):
        run.insert("t", [(i, 1, -0.0, -0.0, day) for i in ids])
        run.epoch()
    for some_ in ("id < 7", "id > 6"):
        run.delete("t", some_)
        run.epoch()
    for ids in (range(3), range(3, 6)):
        run.insert("t", [(i, 1, -0.0, -0.0, day) for i in ids])
        run.epoch()
    assert str(run.rows("least") + run.rows("most")) == "[(1, -0.0), (1, -0.0)]"
    run.delete("t", "id < 5")
    run.epoch()
    widths = [each.counters["width"] for each in run.db.parts.ledger.epochs.newest(7)]
    wide, few = "wide: many changes", "narrow"
    assert widths == [wide, few, few, few, wide, wide, few]
    run.finish()
