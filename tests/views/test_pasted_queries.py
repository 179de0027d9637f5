"""Queries of users of other systems, as pasted, with their stated results."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

pytestmark = pytest.mark.spark

AT = datetime(2024, 1, 1, 10, tzinfo=UTC)
READINGS = [
    ("sensor-1", "wheel", 45), ("sensor-2", "motor", 41), ("sensor-1", "wheel", 92), ("sensor-2", "engine", 13),
    ("sensor-2", "engine", 90), ("sensor-4", "motor", 95), ("sensor-3", "engine", 67), ("sensor-3", "wheel", 52),
    ("sensor-4", "engine", 55), ("sensor-3", "engine", 37),
]  # fmt: skip

TRENDING = """SELECT country, title_id, COUNT(*) AS views FROM viewing_events
    GROUP BY HOP(event_time, INTERVAL \u20181\u2019 MINUTE, INTERVAL \u20185\u2019 MINUTE), country, title_id"""
SPEND = """SELECT user_id, COUNT(*) AS order_count, SUM(amount) AS total_spend FROM orders
    WHERE status = 'completed' GROUP BY user_id"""
CART = """SELECT customer, item, SUM(CASE WHEN op = 'add' THEN qty ELSE -qty END) AS quantity
    FROM shopping_cart_events GROUP BY customer, item
    HAVING SUM(CASE WHEN op = 'add' THEN qty ELSE -qty END) > 0"""
TOP_TEN = """SELECT window_start, title_id, views FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY views DESC, title_id) AS place FROM (
        SELECT window_start, title_id, COUNT(*) AS views
        FROM TABLE(HOP(TABLE viewing_events, DESCRIPTOR(event_time), INTERVAL '1' MINUTES, INTERVAL '5' MINUTES))
        GROUP BY window_start, title_id)) WHERE place <= 10"""


def test_completed_orders_change_a_users_spend_step_by_step(oracle):
    run = oracle()
    run.stream("orders", "user_id STRING, amount DECIMAL(10,2), status STRING")
    run.view("spend", SPEND)
    seen = []
    follower = run.db.subscribe("spend")
    follower.poll()
    for amount, status in (("99.99", "completed"), ("5.00", "open"), ("149.99", "completed")):
        run.insert("orders", [("u-001", Decimal(amount), status)])
        run.epoch()
        seen += [
            (c.operation, c.row["order_count"], c.row["total_spend"]) for c in follower.poll() or ()
        ]
    assert seen == [
        ("+I", 1, Decimal("99.99")),
        ("-U", 1, Decimal("99.99")),
        ("+U", 2, Decimal("249.98")),
    ]


@pytest.mark.long
def test_views_of_a_title_fall_and_go_with_its_events(oracle):
    run = oracle(rows_per_change=80)
    run.table(
        "viewing_events", "id INT, country STRING, title_id INT, event_time TIMESTAMP", key="id"
    )
    run.view(
        "trending",
        TRENDING,
        expected="""SELECT country, title_id, count(*) AS views FROM viewing_events
            GROUP BY window(event_time, '5 minutes', '1 minute'), country, title_id""",
    )
    run.view(
        "top_ten",
        TOP_TEN,
        expected="""SELECT window_start, title_id, views FROM (SELECT window.start AS window_start, title_id, count(*) AS views
            FROM viewing_events GROUP BY window(event_time, '5 minutes', '1 minute'), title_id)
            QUALIFY row_number() OVER (PARTITION BY window_start ORDER BY views DESC, title_id) <= 10""",
    )
    events = [(i, "NO", i % 3, AT + timedelta(seconds=20 * i)) for i in range(12)]
    run.insert("viewing_events", events)
    run.epoch()
    before = run.rows("trending")
    run.delete("viewing_events", "title_id = 2 AND id > 5")
    run.epoch()
    assert max(n for _, title, n in before if title == 2) == 4
    assert max(n for _, title, n in run.rows("trending") if title == 2) == 2
    run.delete("viewing_events", "title_id = 2")
    run.epoch()
    assert {title for _, title, _ in run.rows("trending")} == {0, 1}
    run.finish()


@pytest.mark.long
def test_averages_of_readings_and_what_came_last(oracle):
    run = oracle()
    run.stream("readings", "sensor STRING, area STRING, reading INT")
    run.view("by_sensor", "SELECT sensor, AVG(reading) AS avg FROM readings GROUP BY sensor")
    run.view("by_area", "SELECT area, AVG(reading) AS avg FROM readings GROUP BY area")
    run.view(
        "last",
        "SELECT sensor, LATEST_BY_OFFSET(reading) AS r FROM readings GROUP BY sensor",
        expected="""SELECT * FROM VALUES ('sensor-1', 92), ('sensor-2', 90), ('sensor-3', 37), ('sensor-4', 55)
            AS v(sensor, r) WHERE (SELECT count(*) FROM readings) = 10""",
    )
    run.insert("readings", READINGS)
    run.epoch()
    assert run.rows("by_sensor") == [
        ("sensor-1", 68.5),
        ("sensor-2", 48.0),
        ("sensor-3", 52.0),
        ("sensor-4", 75.0),
    ]
    assert run.rows("by_area") == [("engine", 52.4), ("motor", 68.0), ("wheel", 63.0)]
    run.finish()


@pytest.mark.long
def test_a_cart_forgets_what_was_taken_out(oracle):
    run = oracle()
    run.stream("shopping_cart_events", "customer STRING, item STRING, qty INT, op STRING")
    run.view("cart_contents", CART)
    for qty, op, rows in (
        (2, "add", [("c", "pen", 2)]),
        (2, "remove", []),
        (1, "add", [("c", "pen", 1)]),
    ):
        run.insert("shopping_cart_events", [("c", "pen", qty, op)])
        run.epoch()
        assert run.rows("cart_contents") == rows
    run.finish()
