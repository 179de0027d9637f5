"""Windows of event time, tumbling and hopping, with rows that are late or have no time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from histories import History
from length import some

pytestmark = pytest.mark.spark

VIEWS = {
    "tumbling": """SELECT window.start AS b, window.end AS e, area, count(*) AS n, sum(x) AS s
        FROM s GROUP BY window(ts, '10 minutes'), area""",
    "tumbling_whole": "SELECT window AS w, count(*) AS n FROM s GROUP BY window(ts, '1 hour')",
    "hopping": """SELECT window.end AS e, count(*) AS n, avg(x) AS a FROM s
        GROUP BY window(ts, '15 minutes', '5 minutes')""",
    "hopping_having": """SELECT area, window.start AS b, count(*) AS n FROM s
        GROUP BY area, window(ts, '30 minutes', '10 minutes') HAVING count(*) > 2""",
    "shifted": "SELECT window.start AS b, count(*) AS n FROM s GROUP BY window(ts, '1 hour', '1 hour', '7 minutes')",
    "wall_time": "SELECT window.start AS b, count(x) AS n FROM s GROUP BY window(tn, '20 minutes')",
    "ungrouped": "SELECT window(ts, '20 minutes') AS w, area FROM s",
    "ungrouped_hopping": "SELECT window(ts, '20 minutes', '10 minutes') AS w, x FROM s WHERE x > 3",
    "of_table": "SELECT window.start AS b, sum(m) AS m FROM t GROUP BY window(ts, '10 minutes')",
    "aliased": """SELECT w.start AS b, area, n FROM (SELECT window AS w, area, count(*) AS n FROM s
        GROUP BY window(ts, '10 minutes'), area) WHERE n > 1""",
    "joined": """SELECT x.b, x.n, y.m FROM tumbling x JOIN of_table y ON x.b = y.b""",
}


def test_windows(oracle):
    run = oracle(rows_per_change=50)
    run.stream("s", "ts TIMESTAMP, tn TIMESTAMP_NTZ, area STRING, x INT")
    run.table("t", "id INT, ts TIMESTAMP, m DECIMAL(10,2)", key="id")
    for name, query in some(VIEWS, "tumbling hopping of_table").items():
        run.view(name, query)
    history = History(run, 7, domain=12)
    history.epochs(["s", "t"], (1, 80, 10))
    run.update("t", {"ts": "ts + INTERVAL '10' MINUTE"}, "id % 2 = 0")
    run.truncate("t")
    run.epoch()
    assert run.rows("of_table") == []
    run.finish()


def test_late_rows_and_rows_without_a_time(oracle):
    run = oracle()
    run.stream("s", "ts TIMESTAMP, x INT")
    run.view("v", "SELECT window.start AS b, count(*) AS n FROM s GROUP BY window(ts, '1 hour')")
    at = [datetime(2024, 1, 1, hour, 59, 59, 999999, tzinfo=UTC) for hour in range(3)]
    run.insert("s", [(at[2], 1), (None, 2)])
    run.epoch()
    run.insert("s", [(at[0], 3), (at[2], 4)])
    run.epoch()
    assert [n for _, n in run.rows("v")] == [1, 2]
    run.insert("s", [(None, 5)])
    run.epoch()
    run.insert("s", [(datetime(1969, 12, 31, 23, 30, tzinfo=UTC), 6)])
    run.epoch()
    assert run.rows("v")[0] == (datetime(1969, 12, 31, 23, tzinfo=UTC), 1)
    run.finish()
