"""Comparisons with the changing value of a subquery: only rows between the values are read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headrace.errors import Code, HeadraceError
from histories import History
from length import choose, some

pytestmark = pytest.mark.spark

VIEWS = {
    "above_average": "SELECT id, x FROM t WHERE x > (SELECT avg(x) FROM t)",
    "mirrored": "SELECT id FROM t WHERE (SELECT min(x) + 3 FROM t) >= x",
    "greatest": "SELECT id, x FROM t WHERE x = (SELECT max(x) FROM t)",
    "least_text": "SELECT id, s FROM t WHERE (SELECT min(s) FROM t) = s",
    "texts": "SELECT id, s FROM t WHERE s < (SELECT max(s) FROM o)",
    "decimals": "SELECT id, d FROM t WHERE d >= (SELECT avg(d) FROM t)",
    "floats": "SELECT id, f FROM t WHERE f > (SELECT min(f) FROM t)",
    "nan_equal": "SELECT id FROM t WHERE f = (SELECT max(f) FROM t)",
    "times": "SELECT id, ts FROM t WHERE ts <= (SELECT max(at) FROM o)",
    "days": "SELECT id FROM t WHERE day > (SELECT max(CAST(at AS DATE)) FROM o)",
    "share": """SELECT g, sum(x) AS s FROM t GROUP BY g
        HAVING sum(x) > (SELECT 0.1 * sum(x) FROM t)""",
    "of_two": "SELECT id FROM t WHERE x > (SELECT min(v) FROM o) + (SELECT count(*) FROM o) - 5",
    "between": "SELECT id FROM t WHERE x BETWEEN (SELECT min(v) FROM o) AND (SELECT max(v) FROM o) - 2",
    "with_rest": "SELECT id FROM t WHERE x < (SELECT max(v) FROM o) AND g > 3 AND s IS NOT NULL",
    "either": "SELECT id FROM t WHERE x < (SELECT max(v) FROM o) OR g > 3",
    "selected_too": "SELECT id, (SELECT max(v) FROM o) AS m FROM t WHERE x < (SELECT max(v) FROM o)",
    "first_one": "SELECT id FROM t WHERE x > (SELECT v FROM o ORDER BY v DESC NULLS LAST, s LIMIT 1)",
    "first_offset": "SELECT id FROM t WHERE x = (SELECT v FROM o ORDER BY v, s LIMIT 1 OFFSET 2)",
    "of_expression": "SELECT id FROM t WHERE x * 2 + g > (SELECT sum(v) FROM o)",
    "joined": """SELECT t.id, o.v FROM t JOIN o ON t.g = o.v
        WHERE t.x + o.v > (SELECT avg(v) FROM o)""",
    "joined_on": """SELECT t.id, o.v FROM t LEFT JOIN o
        ON t.g = o.v AND t.x + o.v > (SELECT avg(v) FROM o) + (SELECT min(x) FROM t)""",
    "joined_right": "SELECT t.id, o.v FROM t RIGHT JOIN o ON t.g = o.v AND t.x > (SELECT avg(v) FROM o)",
    "joined_full": """SELECT t.id, o.v FROM t FULL JOIN o
        ON t.g = o.v AND t.x + o.v <> (SELECT v FROM o ORDER BY v, s LIMIT 1)""",
    "semi_on": """SELECT id FROM t WHERE EXISTS
        (SELECT 1 FROM o WHERE o.v = t.g AND o.v + t.x > (SELECT avg(v) FROM o))""",
    "anti_on": """SELECT id FROM t WHERE NOT EXISTS
        (SELECT 1 FROM o WHERE o.v = t.g AND o.v + t.x > (SELECT avg(v) FROM o))""",
    "of_nested": "SELECT id FROM t WHERE x > (SELECT avg(v) FROM o WHERE v > (SELECT avg(v) FROM o))",
    "counted": "SELECT count(*) AS n, sum(x) AS s FROM t WHERE x >= (SELECT avg(x) FROM t)",
    "of_structs": "SELECT id, named_struct('a', x, 'f', f) AS r FROM t WHERE x > (SELECT avg(v) FROM o)",
}


PARTS = choose(1, 2)
CHOSEN = some(
    VIEWS,
    "above_average nan_equal days share of_two joined_full anti_on",
)


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_rows_move_where_the_value_and_the_rows_change(oracle, part):
    run = oracle(rows_per_change=4000)
    run.table(
        "t",
        "id INT, g INT, x INT, s STRING, d DECIMAL(30,4), f DOUBLE, ts TIMESTAMP, day DATE",
        "id",
    )
    run.table("o", "v INT, s STRING, at TIMESTAMP")
    chosen = list(CHOSEN)[part::PARTS]
    for name in chosen:
        run.view(name, VIEWS[name])
    History(run, 31 + part, domain=25).life(["t", "o"], most=80)
    run.finish()


@pytest.mark.long
def test_a_value_that_may_fail_is_computed_after_what_guards_it(oracle):
    run = oracle(rows_per_change=200)
    run.table("t", "id INT, x INT", key="id")
    run.table("o", "v INT")
    run.view("halved", "SELECT id FROM t WHERE x > (SELECT max(v) FROM o) / 2")
    run.view(
        "guarded",
        """SELECT id FROM t
        WHERE (SELECT count(*) FROM o) > 0 AND x > 10 / (SELECT count(*) FROM o)""",
    )
    run.view("of_no_row", "SELECT id FROM t WHERE x > 10 / (SELECT count(*) FROM o)")
    run.insert("o", [(3,), (8,)])
    run.epoch()
    run.insert("t", [(1, 4), (2, 5), (3, 6)])
    run.epoch()
    assert run.rows("of_no_row") == [(3,)]
    run.insert("o", [(9,)])
    run.epoch()
    run.finish()


def test_the_key_of_a_join_has_no_subquery(oracle):
    """Where Spark broadcasts a side, it fails over such a key."""
    run = oracle()
    run.table("t", "id INT, g INT, x INT", key="id")
    run.table("o", "v INT")
    for kind in ("LEFT", "INNER"):
        with pytest.raises(HeadraceError, match="a subquery in an expression") as caught:
            run.db.sql(
                f"CREATE MATERIALIZED VIEW v AS SELECT t.id FROM t {kind} JOIN o"
                " ON t.g = o.v + (SELECT min(x) FROM t) AND t.x > (SELECT max(v) FROM o)"
            )
        assert caught.value.code is Code.UNSUPPORTED


@pytest.mark.long
def test_a_view_over_such_a_view_and_its_base_in_one_epoch(oracle):
    run = oracle(rows_per_change=400)
    run.table("t", "id INT, g INT, x INT", key="id")
    run.view("high", "SELECT id, g, x FROM t WHERE x > (SELECT avg(x) FROM t)")
    run.view("best", "SELECT id FROM high WHERE x = (SELECT max(x) FROM high)")
    run.view("groups", "SELECT h.g, count(*) AS n FROM high h JOIN t ON h.g = t.g GROUP BY h.g")
    run.view(
        "twice",
        """WITH m AS (SELECT g, max(x) AS x FROM t GROUP BY g)
        SELECT g FROM m WHERE x > (SELECT avg(x) FROM m)""",
    )
    History(run, 5, domain=20).life(["t"], most=60)
    run.finish()


@pytest.mark.long
def test_rows_of_a_recursion_are_compared_with_a_value(oracle):
    run = oracle(rows_per_change=4000)
    run.table("t", "id INT, x INT", key="id")
    run.table("edges", "a INT, b INT, w INT")
    run.view(
        "reached",
        """WITH RECURSIVE r (id, n) MAX RECURSION LEVEL 4 AS (
            SELECT id, 0 FROM t WHERE x > (SELECT avg(x) FROM t)
            UNION ALL SELECT b, n + 1 FROM r JOIN edges ON r.id = edges.a
            WHERE n < 2 AND edges.w + r.id < (SELECT max(x) FROM t))
        SELECT id, n FROM r""",
    )
    History(run, 3, domain=15).epochs(["t", "edges"], (1, 10, 25, 10, 1))
    run.finish()


@pytest.mark.long
def test_a_value_that_moves_a_little_reads_few_rows(oracle):
    run = oracle(rows_per_change=200)
    run.table("t", "id INT, x INT", key="id")
    run.table("line", "only INT, at INT", key="only")
    run.insert("t", [(i, i) for i in range(10_000)])
    run.insert("line", [(1, 9_000)])
    run.view("above", "SELECT id FROM t WHERE x > (SELECT max(at) FROM line)")
    run.view("exact", "SELECT id FROM t WHERE x = (SELECT max(at) FROM line)")
    run.epoch()
    run.update("line", {"at": "9003"})
    run.epoch()
    counters = run.db.parts.ledger.epochs.newest(1)[0].counters
    assert counters["rows_read"] <= 60
    run.insert("t", [(10_001, 3)])
    run.epoch()
    counters = run.db.parts.ledger.epochs.newest(1)[0].counters
    assert counters["rows_read"] <= 10
    assert counters["rows_out"] <= 5
    run.finish()


@pytest.mark.long
def test_an_interval_before_the_last_time_reads_the_rows_that_it_passes(oracle):
    run = oracle(rows_per_change=200)
    run.table("t", "id INT, ts TIMESTAMP", key="id")
    start = datetime(2024, 1, 1, tzinfo=UTC)
    run.insert("t", [(i, start + timedelta(minutes=i)) for i in range(3_000)])
    query = "SELECT id FROM t WHERE ts > (SELECT max(ts) FROM t) - INTERVAL '1' DAY"
    run.view("recent", query)
    run.epoch()
    run.insert("t", [(3_000, start + timedelta(minutes=3_002))])
    run.epoch()
    counters = run.db.parts.ledger.epochs.newest(1)[0].counters
    assert counters["rows_read"] <= 60
    assert counters["rows_out"] <= 20
    run.finish()


@pytest.mark.long
def test_restarted_views_go_on_from_the_value_that_was(oracle):
    run = oracle(rows_per_change=200)
    run.table("t", "id INT, x INT", key="id")
    run.insert("t", [(i, i) for i in range(20)])
    run.view("above", "SELECT id FROM t WHERE x > (SELECT avg(x) FROM t)")
    run.epoch()
    run.reopen()
    run.insert("t", [(20, 100)])
    run.epoch()
    run.delete("t", "x < 10")
    run.epoch()
    run.finish()


def test_explain_says_what_a_value_that_moves_costs(oracle):
    run = oracle()
    run.table("t", "id INT, x INT", key="id")
    said = run.db.sql(
        "EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT id FROM t WHERE x > (SELECT avg(x) FROM t)"
    ).fetchall()
    text = "\n".join(line for (line,) in said)
    assert "Compared" in text
    assert "the rows between the old and the new value" in text
    assert "No part is recomputed" in text
