"""``EMIT FINAL``: windows appear once the event time of their source has passed their end."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bags import Model
from headrace.errors import Code, HeadraceError
from histories import History
from length import some

pytestmark = pytest.mark.spark

COLUMNS = "area STRING, x INT, ts TIMESTAMP"
HOUR = "INTERVAL '1' HOUR"
FINAL = {
    "ksql": """SELECT area, COUNT(*) AS n, WINDOWEND AS e FROM s
        WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 10 MINUTES) GROUP BY area EMIT FINAL""",
    "ksql_hops": """SELECT area, SUM(x) AS t FROM s y WINDOW HOPPING (SIZE 40 MINUTES, ADVANCE BY 20 MINUTES)
        WHERE y.x > -1 GROUP BY area HAVING COUNT(*) > 1 OR area = 'a' EMIT FINAL""",
    "ksql_session": "SELECT area, COUNT(*) AS n FROM s WINDOW SESSION (20 MINUTES) GROUP BY area EMIT FINAL",
    "grouped": f"""SELECT TUMBLE_END(ts, {HOUR}) AS e, COUNT(*) AS n FROM s
        GROUP BY TUMBLE(ts, {HOUR}) EMIT FINAL""",
    "cumulated": f"""SELECT CUMULATE_END(ts, {HOUR}, INTERVAL '3' HOUR) AS e, SUM(x) AS t FROM s
        GROUP BY CUMULATE(ts, {HOUR}, INTERVAL '3' HOUR) EMIT FINAL""",
    "of_table": f"""SELECT window_start, window_end, MAX(x) AS m
        FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), {HOUR})) GROUP BY window_start, window_end EMIT FINAL""",
    "sparks": "SELECT window, area, COUNT(*) AS n FROM s GROUP BY window(ts, '1 hour'), area EMIT ON WINDOW CLOSE",
    "of_subquery": """SELECT window.end AS e, SUM(y) AS t FROM (SELECT ts, x + 1 AS y FROM s WHERE x > 2) q
        GROUP BY window(ts, '1 hour') EMIT FINAL""",
    "of_changing": "SELECT window.end AS e, COUNT(*) AS n FROM t GROUP BY window(ts, '1 hour') EMIT FINAL",
}


def closed(select: str, source: str, end: str = "window.end", held: str = "0 MINUTES") -> str:
    """Return a query of windows that keeps those which the source has passed."""
    having = f"HAVING {end} + INTERVAL {held} <= (SELECT max(ts) FROM {source})"
    return f"{select} {having}"


def expected() -> dict[str, str]:
    hour = "window(ts, '1 hour')"
    cumulated = """SELECT hop.end AS e, x FROM (SELECT window(ts, '3 hours', '1 hour') AS hop, * FROM
        (SELECT window(ts, '3 hours') AS whole, * FROM s)) WHERE hop.end <= whole.end"""
    return {
        "ksql": closed(
            f"SELECT area, count(*) AS n, unix_millis(window.end) AS e FROM s GROUP BY area, {hour}",
            "s",
            held="10 MINUTES",
        ),
        "ksql_hops": """SELECT area, t FROM (SELECT area, sum(x) AS t, count(*) AS n, window(ts, '40 minutes', '20 minutes') AS w
            FROM s WHERE x > -1 GROUP BY area, w) WHERE (n > 1 OR area = 'a')
            AND w.end + INTERVAL 15 SECONDS <= (SELECT max(ts) FROM s)""",
        "ksql_session": closed(
            "SELECT area, count(*) AS n FROM s GROUP BY area, session_window(ts, '20 minutes')",
            "s",
            # Spark applies a condition on the bare end to each row's own window, before it merges.
            "IF(count(*) > 0, session_window.end, NULL)",
            "15 SECONDS",
        ),
        "grouped": closed(
            f"SELECT window.end AS e, count(*) AS n FROM s GROUP BY {hour}", "s", held="15 SECONDS"
        ),
        "cumulated": f"""SELECT e, sum(x) AS t FROM ({cumulated}) GROUP BY e
            HAVING e + INTERVAL 15 SECONDS <= (SELECT max(ts) FROM s)""",
        "of_table": closed(
            f"SELECT window.start AS window_start, window.end AS window_end, max(x) AS m FROM s GROUP BY {hour}",
            "s",
            held="15 SECONDS",
        ),
        "sparks": closed(
            f"SELECT window, area, count(*) AS n FROM s GROUP BY {hour}, area",
            "s",
            held="15 SECONDS",
        ),
        "of_subquery": closed(
            f"SELECT window.end AS e, sum(x + 1) AS t FROM s WHERE x > 2 GROUP BY {hour}",
            "s WHERE x > 2",
        ),
        "of_changing": closed(f"SELECT window.end AS e, count(*) AS n FROM t GROUP BY {hour}", "t"),
    }


@pytest.mark.long
def test_windows_come_when_the_source_passes_their_end_and_late_rows_correct_them(oracle):
    run = oracle(rows_per_change=4000)
    run.db.sql(f"CREATE STREAM s ({COLUMNS}, WATERMARK FOR ts AS ts - INTERVAL '15' SECOND)")
    run.models["s"] = Model.of("s", COLUMNS, deletes=False)
    run.table("t", COLUMNS)
    plain = expected()
    chosen = some(FINAL, "ksql_hops ksql_session cumulated of_changing")
    for name, query in chosen.items():
        run.view(name, query, expected=plain[name])
    History(run, 11, domain=8).life(["s", "t"], most=70, whole=True)
    assert [name for name in chosen if not run.rows(name)] == []
    run.finish()


@pytest.mark.long
def test_what_is_kept_until_a_window_ends_are_groups_not_rows(oracle):
    run = oracle(rows_per_change=400)
    run.stream("s", COLUMNS)
    rows = [("a", i, f"2024-01-01 10:{i % 60:02}:00") for i in range(500)]
    run.insert("s", [(area, x, _at(ts)) for area, x, ts in rows])
    run.view(
        "v",
        "SELECT area, COUNT(*) AS n FROM s GROUP BY area, TUMBLE(ts, INTERVAL '1' HOUR) EMIT FINAL",
        expected=closed(
            "SELECT area, count(*) AS n FROM s GROUP BY area, window(ts, '1 hour')", "s"
        ),
    )
    assert run.rows("v") == []
    said = "\n".join(line for (line,) in run.db.sql("EXPLAIN VIEW v").fetchall())
    compared = next(line for line in said.split("\n") if "compared" in line and ".rows" in line)
    assert ", 1 rows" in compared
    run.insert("s", [("b", 1, _at("2024-01-01 11:00:00"))])
    run.epoch()
    assert run.rows("v") == [("a", 500)]
    run.insert("s", [("a", 1, _at("2024-01-01 10:59:59"))])
    run.epoch()
    assert run.rows("v") == [("a", 501)]
    run.finish()


def test_a_session_is_final_once_its_end_is_passed_not_the_ends_of_its_first_rows(oracle):
    run = oracle(rows_per_change=400)
    run.db.sql(f"CREATE STREAM s ({COLUMNS}, WATERMARK FOR ts AS ts)")
    run.models["s"] = Model.of("s", COLUMNS, deletes=False)
    times = ("10:00", "10:10", "10:20", "10:35")
    run.insert("s", [("b", 1, _at(f"2024-01-01 {time}:00")) for time in times[:3]])
    run.view(
        "v",
        "SELECT area, COUNT(*) AS n FROM s WINDOW SESSION (20 MINUTES) GROUP BY area EMIT FINAL",
        expected=closed(
            "SELECT area, count(*) AS n FROM s GROUP BY area, session_window(ts, '20 minutes')",
            "s",
            "IF(count(*) > 0, session_window.end, NULL)",
        ),
    )
    run.insert("s", [("c", 1, _at(f"2024-01-01 {times[3]}:00"))])
    run.epoch()
    assert run.rows("v") == []
    run.insert("s", [("c", 1, _at("2024-01-01 10:40:00"))])
    run.epoch()
    assert run.rows("v") == [("b", 3)]
    run.finish()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT area, COUNT(*) AS n FROM s GROUP BY area", "without windows"),
        ("SELECT area FROM s", "without windows"),
        (
            "SELECT window_start FROM TUMBLE(s, ts, INTERVAL '1 hour') GROUP BY window_start",
            "needs the end",
        ),
        (
            "SELECT COUNT(*) AS n FROM s JOIN t ON s.x = t.x GROUP BY window(s.ts, '1 hour')",
            "over several",
        ),
        (
            """SELECT COUNT(*) AS n FROM s GROUP BY window(ts, '1 hour')
            UNION ALL SELECT COUNT(*) FROM s GROUP BY window(ts, '1 day')""",
            "after a set operation",
        ),
        (
            "SELECT COUNT(*) AS n FROM s GROUP BY window(ts, '1 hour'), ROLLUP(area)",
            "with ROLLUP",
        ),
    ],
)
def test_what_has_no_end_is_never_final(oracle, query, message):
    run = oracle()
    run.stream("s", COLUMNS)
    run.table("t", COLUMNS)
    with pytest.raises(HeadraceError, match=message) as caught:
        run.db.sql(f"CREATE MATERIALIZED VIEW v AS {query} EMIT FINAL")
    assert caught.value.code is Code.UNSUPPORTED
    assert caught.value.span.source == "EMIT FINAL"


@pytest.mark.long
def test_a_query_that_is_read_once_has_the_windows_that_have_ended(oracle):
    run = oracle()
    run.stream("s", COLUMNS)
    run.insert("s", [("a", 1, _at("2024-01-01 10:30:00")), ("a", 2, _at("2024-01-01 11:30:00"))])
    run.view("v", "SELECT area, x, ts FROM s")
    found = run.db.sql(
        "SELECT n FROM (SELECT window.end AS e, COUNT(*) AS n FROM v GROUP BY window(ts, '1 hour') EMIT FINAL)"
    )
    assert found.fetchall() == [(1,)]


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
