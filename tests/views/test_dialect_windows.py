"""Time windows of four dialects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from histories import History
from length import choose, some

pytestmark = pytest.mark.spark

WINDOWS = {
    "tumble": """SELECT TUMBLE_START(ts, INTERVAL '10' MINUTE) AS b, TUMBLE_END(ts, INTERVAL '10' MINUTE) AS e,
        TUMBLE_ROWTIME(ts, INTERVAL '600' SECOND) AS r, area, count(*) AS n FROM s
        GROUP BY TUMBLE(ts, INTERVAL '10' MINUTE), area""",
    "tumble_having": """SELECT TUMBLE_START(tn, INTERVAL '20 minutes') AS b, sum(x) AS t FROM s
        GROUP BY TUMBLE(tn, INTERVAL '20' MINUTE) HAVING TUMBLE_END(tn, INTERVAL '20' MINUTE) IS NOT NULL AND count(*) > 1""",
    "hop": """SELECT HOP_START(ts, INTERVAL '5' MINUTE, INTERVAL '15' MINUTE) AS b, count(*) AS n FROM s
        GROUP BY HOP(ts, INTERVAL '5' MINUTE, INTERVAL '15' MINUTE)""",
    "typographic": """SELECT area, count(*) AS n FROM s
        GROUP BY HOP(ts, INTERVAL \u20181\u2019 MINUTE, INTERVAL \u20185\u2019 MINUTE), area""",
    "session": """SELECT area, SESSION_START(ts, INTERVAL '7' MINUTE) AS b, SESSION_END(ts, INTERVAL '7' MINUTE) AS e,
        count(*) AS n FROM s GROUP BY area, SESSION(ts, INTERVAL '7' MINUTE)""",
    "cumulate": """SELECT CUMULATE_START(ts, INTERVAL '15' MINUTE, INTERVAL '1' HOUR) AS b,
        CUMULATE_END(ts, INTERVAL '15' MINUTE, INTERVAL '1' HOUR) AS e, area, count(*) AS n, sum(x) AS t
        FROM s WHERE x > 1 GROUP BY CUMULATE(ts, INTERVAL '15' MINUTE, INTERVAL '1' HOUR), area""",
    "cumulate_rows": """SELECT CUMULATE_END(ts, INTERVAL '15' MINUTE, INTERVAL '1' HOUR) AS e,
        count(DISTINCT *) AS d, array_sort(collect_list(struct(* EXCEPT (ts, s.tn)))) AS l
        FROM s WHERE x > 1 GROUP BY CUMULATE(ts, INTERVAL '15' MINUTE, INTERVAL '1' HOUR), area""",
    "table_tumble": """SELECT window_start, window_end, window_time, count(*) AS n
        FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' MINUTES))
        GROUP BY window_start, window_end, window_time""",
    "table_offset": """SELECT window_start AS b, x FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '7' MINUTE))""",
    "table_hop": """SELECT * FROM TABLE(HOP(DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), SLIDE => INTERVAL '5' MINUTE,
        SIZE => INTERVAL '10' MINUTE)) AS h WHERE h.m > 1""",
    "table_cumulate": """SELECT window_start, window_end, sum(m) AS m
        FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '20' MINUTES, INTERVAL '1' HOUR))
        GROUP BY window_start, window_end""",
    "table_session": """SELECT area, x, window_start, window_end
        FROM TABLE(SESSION(TABLE s PARTITION BY area, DESCRIPTOR(ts), INTERVAL '7' MINUTES))""",
    "table_session_whole": """SELECT DISTINCT window_start, window_end, window_time
        FROM TABLE(SESSION(TABLE t, DESCRIPTOR(ts), INTERVAL '7' MINUTES))""",
    "materialize": """SELECT window_start, count(*) AS n FROM TUMBLE(s, ts, INTERVAL '10 minutes') GROUP BY window_start""",
    "of_subquery": """SELECT window_end AS e, max(y) AS y FROM HOP((SELECT ts, x * 2 AS y FROM s WHERE x > 2), ts,
        INTERVAL '30' MINUTE, INTERVAL '1' HOUR) GROUP BY window_end""",
    "both_sides": """SELECT l.window_start AS b, l.x, r.m
        FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' HOUR)) l
        JOIN TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR)) r ON l.window_start = r.window_start""",
}


def plain():
    """The same in plain Spark, by other means where there are some."""
    last = "- INTERVAL '0.001' SECOND"
    cumulated = """SELECT hop.start AS s, hop.end AS b, whole.start AS w, whole.end AS e, {0} FROM
        (SELECT window(ts, '1 hour', '{1}') AS hop, * FROM
        (SELECT window(ts, '1 hour') AS whole, * FROM {2})) WHERE hop.end <= whole.end"""
    by_quarter = cumulated.format("ts, tn, area, x", "15 minutes", "s WHERE x > 1")
    by_third = cumulated.format("m", "20 minutes", "t")
    sessions = """SELECT {0}session_window.start AS b, session_window.end AS e FROM {1}
        GROUP BY {0}session_window(ts, '7 minutes')"""
    return {
        "tumble": f"""SELECT window.start AS b, window.end AS e, window.end {last} AS r, area, count(*) AS n
            FROM s GROUP BY window(ts, '10 minutes'), area""",
        "tumble_having": """SELECT window.start AS b, sum(x) AS t FROM s GROUP BY window(tn, '20 minutes')
            HAVING count(*) > 1""",
        "hop": """SELECT window.start AS b, count(*) AS n FROM s GROUP BY window(ts, '15 minutes', '5 minutes')""",
        "typographic": """SELECT area, count(*) AS n FROM s GROUP BY window(ts, '5 minutes', '1 minute'), area""",
        "session": """SELECT area, session_window.start AS b, session_window.end AS e, count(*) AS n FROM s
            GROUP BY area, session_window(ts, '7 minutes')""",
        "cumulate": f"SELECT w AS b, b AS e, area, count(*) AS n, sum(x) AS t FROM ({by_quarter}) GROUP BY ALL",
        "cumulate_rows": f"""SELECT b AS e, count(DISTINCT ts, tn, area, x) AS d,
            array_sort(collect_list(struct(area, x))) AS l FROM ({by_quarter}) GROUP BY b, w, area""",
        "table_tumble": f"""SELECT window.start AS window_start, window.end AS window_end,
            window.end {last} AS window_time, count(*) AS n FROM s GROUP BY window(ts, '10 minutes')""",
        "table_offset": """SELECT window(ts, '1 hour', '1 hour', '7 minutes').start AS b, x FROM s""",
        "table_hop": f"""SELECT id, ts, m, w.start AS window_start, w.end AS window_end, w.end {last} AS window_time
            FROM (SELECT *, window(ts, '10 minutes', '5 minutes') AS w FROM t WHERE m > 1)""",
        "table_cumulate": f"SELECT w AS window_start, b AS window_end, sum(m) AS m FROM ({by_third}) GROUP BY ALL",
        "table_session": f"""SELECT s.area, s.x, w.b AS window_start, w.e AS window_end
            FROM s JOIN ({sessions.format("area, ", "s")}) w ON s.area <=> w.area AND s.ts >= w.b AND s.ts < w.e""",
        "table_session_whole": f"""SELECT b AS window_start, e AS window_end, e {last} AS window_time
            FROM ({sessions.format("", "t")})""",
        "materialize": """SELECT window.start AS window_start, count(*) AS n FROM s GROUP BY window(ts, '10 minutes')""",
        "of_subquery": """SELECT window.end AS e, max(x * 2) AS y FROM s WHERE x > 2
            GROUP BY window(ts, '1 hour', '30 minutes')""",
        "both_sides": """SELECT date_trunc('HOUR', s.ts) AS b, s.x, t.m FROM s
            JOIN t ON date_trunc('HOUR', s.ts) = date_trunc('HOUR', t.ts)""",
    }


PARTS = choose(2, 5)
CHOSEN = some(
    WINDOWS,
    "tumble tumble_having hop session cumulate_rows table_offset table_hop table_cumulate table_session"
    " of_subquery both_sides",
)


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_windows_of_other_dialects(oracle, part):
    run = oracle(rows_per_change=200)
    run.stream("s", "ts TIMESTAMP, tn TIMESTAMP_NTZ, area STRING, x INT")
    run.table("t", "id INT, ts TIMESTAMP, m DECIMAL(10,2)", key="id")
    expected = plain()
    for name, query in list(CHOSEN.items())[part::PARTS]:
        run.view(name, query, expected=expected[name])
    history = History(run, part, domain=12)
    history.epochs(["s", "t"], (1, 40, 10))
    run.update("t", {"ts": "ts + INTERVAL '10' MINUTE"}, "id % 2 = 0")
    run.truncate("t")
    run.epoch()
    run.finish()


@pytest.mark.long
def test_cumulating_windows_are_exact_at_their_bounds(oracle):
    run = oracle(rows_per_change=50)
    run.stream("s", "ts TIMESTAMP_NTZ")
    run.view(
        "v",
        """SELECT CUMULATE_START(ts, INTERVAL '15' MINUTE, INTERVAL '1' HOUR) AS b,
            CUMULATE_END(ts, INTERVAL '15' MINUTE, INTERVAL '1' HOUR) AS e, count(*) AS n
            FROM s GROUP BY CUMULATE(ts, INTERVAL '15' MINUTE, INTERVAL '1' HOUR)""",
        expected="""SELECT b, e, count(*) AS n FROM s JOIN (SELECT date_trunc('HOUR', ts) AS h, ts AS t,
            explode(array(15, 30, 45, 60)) AS m FROM s) x ON x.t = s.ts
            CROSS JOIN LATERAL (SELECT CAST(x.h AS TIMESTAMP_NTZ) AS b, CAST(timestampadd(MINUTE, m, x.h) AS TIMESTAMP_NTZ) AS e)
            WHERE s.ts < e GROUP BY b, e""",
    )
    hour = datetime(2024, 1, 1, 10)  # noqa: DTZ001 - without a zone, as the column
    edge = timedelta(microseconds=1)
    quarter = timedelta(minutes=15)
    run.insert("s", [(hour,), (hour + quarter - edge,)])
    run.epoch()
    assert run.rows("v") == [(hour, hour + quarter * i, 2) for i in (1, 2, 3, 4)]
    run.insert("s", [(hour + quarter,), (hour - edge,), (None,)])
    run.epoch()
    before = hour - timedelta(hours=1)
    assert sorted(run.rows("v")) == [
        (before, hour, 1),
        (hour, hour + quarter, 2),
        *((hour, hour + quarter * i, 3) for i in (2, 3, 4)),
    ]
    run.insert("s", [(hour.replace(1969, 12, 31, 23, 46),)])
    run.epoch()
    assert min(run.rows("v")) == (hour.replace(1969, 12, 31, 23), hour.replace(1970, hour=0), 1)
    run.finish()


@pytest.mark.long
def test_rows_exactly_a_gap_apart_are_one_session(oracle):
    run = oracle(rows_per_change=50)
    run.stream("s", "ts TIMESTAMP")
    run.view(
        "v",
        """SELECT SESSION_START(ts, INTERVAL '5' MINUTE) AS b, SESSION_END(ts, INTERVAL '5' MINUTE) AS e,
            count(*) AS n FROM s GROUP BY SESSION(ts, INTERVAL '5' MINUTE)""",
        expected="""SELECT session_window.start AS b, session_window.end AS e, count(*) AS n FROM s
            GROUP BY session_window(ts, '5 minutes')""",
    )
    run.view(
        "w",
        """SELECT DISTINCT window_start AS b, window_end AS e
            FROM TABLE(SESSION(TABLE s, DESCRIPTOR(ts), INTERVAL '5' MINUTE))""",
        expected="""SELECT session_window.start AS b, session_window.end AS e FROM s
            GROUP BY session_window(ts, '5 minutes')""",
    )
    at = datetime(2024, 1, 1, 10, tzinfo=UTC)
    gap, edge = timedelta(minutes=5), timedelta(microseconds=1)
    run.insert("s", [(at,), (at + gap,), (at + gap * 3,), (None,)])
    run.epoch()
    assert [n for *_, n in run.rows("v")] == [2, 1]
    run.insert("s", [(at + gap * 2 - edge,)])
    run.epoch()
    assert [n for *_, n in run.rows("v")] == [3, 1]
    run.insert("s", [(at + gap * 2,)])
    run.epoch()
    assert [n for *_, n in run.rows("v")] == [5]
    assert len(run.rows("w")) == 1
    run.finish()
