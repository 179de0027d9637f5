"""The five refresh strategies: what triggers each, what it invalidates, and what it says of itself."""

from __future__ import annotations

import json

import pytest

import headrace
from headrace.execution.runtime.connected import machine_clock

DAILY = "SELECT day, sum(amount) AS total FROM orders GROUP BY day"
ORDERS = "CREATE TABLE orders (id INT, day STRING, amount INT, PRIMARY KEY (id))"


def rows(db, query):
    return sorted(db.sql(query).fetchall())


def freshness(db, view="daily"):
    found = db.sql("SHOW FRESHNESS").to_arrow().to_pylist()
    return next(each for each in found if each["view"] == view)


def verified(db):
    assert {verdict for *_, verdict in db.sql("VERIFY").fetchall()} == {"equal to batch"}


def test_continuous_every_event_is_shown_at_once(db):
    db.sql(ORDERS)
    db.sql(f"CREATE MATERIALIZED VIEW daily AS {DAILY}")
    for amount in (1, 2, 3):
        db.sql(f"INSERT INTO orders VALUES (1, 'mon', {amount})")
        found = db.sql("SELECT * FROM daily")
        assert found.fetchall() == [("mon", amount)]
        assert (found.freshness.pending, found.freshness.frontier) == (0, None)
    about = freshness(db)
    assert (about["state"], about["refresh"]) == ("running", "continuous")
    assert (about["changes_behind"], about["seconds_behind"], about["next_refresh"]) == (0, 0, None)
    verified(db)


@pytest.mark.long
def test_micro_batch_a_partition_is_rewritten_and_shown_after_the_interval(tmp_path, spark):
    passed = [0]
    with headrace.connect(
        tmp_path / "db",
        spark=spark,
        continuous=False,
        partitions=2,
        clock=lambda: machine_clock() + passed[0],
    ) as db:
        db.sql(ORDERS)
        db.sql("INSERT INTO orders VALUES (1, 'mon', 1), (2, 'mon', 2), (3, 'tue', 3)")
        db.sql(f"CREATE MATERIALIZED VIEW daily WITH (refresh = 'every 10 minutes') AS {DAILY}")
        db.sql("DELETE FROM orders WHERE day = 'mon'")
        db.sql("INSERT INTO orders VALUES (4, 'mon', 40); FLUSH")
        assert rows(db, "SELECT * FROM daily") == [("mon", 3), ("tue", 3)]
        refreshes, about = db.parts.pump.refreshes, freshness(db)
        assert (about["state"], about["refresh"]) == ("lagging", "every 10 minutes")
        assert about["changes_behind"] == 3
        wait = refreshes.seconds_until_due()
        assert 0 < wait <= 600
        assert refreshes.run_due() is None
        passed[0] += 600_000_000
        assert refreshes.run_due() == db.last_epoch()
        assert rows(db, "SELECT * FROM daily") == [("mon", 40), ("tue", 3)]
        assert freshness(db)["changes_behind"] == 0
        verified(db)


@pytest.mark.long
def test_bulk_replay_a_table_is_overwritten_by_files_and_refreshed_by_hand(db, tmp_path):
    db.sql(ORDERS)
    db.sql("INSERT INTO orders VALUES (1, 'mon', 1), (2, 'tue', 2)")
    db.sql(f"CREATE MATERIALIZED VIEW daily WITH (refresh = 'manual') AS {DAILY}")
    db.sql(
        "CREATE MATERIALIZED VIEW most WITH (refresh = 'manual') AS SELECT max(total) FROM daily"
    )
    file = tmp_path / "orders.csv"
    file.write_text("id,day,amount\n" + "".join(f"{n},wed,{n}\n" for n in range(100)))
    db.sql(f"TRUNCATE orders; COPY orders FROM '{file}'; FLUSH")
    assert rows(db, "SELECT * FROM daily") == [("mon", 1), ("tue", 2)]
    assert freshness(db)["changes_behind"] == 102
    before = db.last_epoch()
    db.sql("REFRESH daily, most")
    assert rows(db, "SELECT * FROM daily") == [("wed", 4950)]
    assert rows(db, "SELECT * FROM most") == [(4950,)]
    assert rows(db, f"SELECT * FROM daily AS OF EPOCH {before}") == [("mon", 1), ("tue", 2)]
    about = freshness(db)
    assert (about["refresh"], about["changes_behind"], about["next_refresh"]) == ("manual", 0, None)
    verified(db)


@pytest.mark.long
def test_write_through_a_write_returns_when_it_can_be_read(db):
    db.sql(ORDERS)
    db.sql(f"CREATE MATERIALIZED VIEW daily WITH (refresh = 'on write') AS {DAILY}")
    other = db.session()
    for amount in (1, 2):
        db.sql(f"INSERT INTO orders VALUES ({amount}, 'mon', {amount})")
        about = freshness(db)
        assert (about["changes_behind"], about["seconds_behind"]) == (0, 0)
        with other.at_most_behind(0):  # waits for nothing
            shown = other.sql("SELECT total FROM daily").fetchall()
        assert shown == [(sum(range(1, amount + 1)),)]
    assert freshness(db)["refresh"] == "on write"
    verified(db)


@pytest.mark.long
def test_captured_changes_are_shown_by_event(db, tmp_path):
    db.sql(f"{ORDERS} WITH (format = 'debezium-json')")
    db.sql(f"CREATE MATERIALIZED VIEW daily AS {DAILY}")

    def capture(number, *events):
        file = tmp_path / f"{number}.json"
        file.write_text("\n".join(map(json.dumps, events)))
        db.sql(f"COPY orders FROM '{file}' WITH (format = json)")

    def order(id_, day, amount):
        return {"id": id_, "day": day, "amount": amount}

    capture(1, {"op": "c", "after": order(1, "mon", 5)}, {"op": "c", "after": order(2, "mon", 7)})
    assert rows(db, "SELECT * FROM daily") == [("mon", 12)]
    moved = {"op": "u", "before": order(2, "mon", 7), "after": order(2, "tue", 8)}
    capture(2, moved, {"op": "d", "before": order(1, "mon", 5), "after": None})
    assert rows(db, "SELECT * FROM daily") == [("tue", 8)]
    about = freshness(db)
    assert (about["changes_behind"], about["seconds_behind"]) == (0, 0)
    assert about["inputs"] == "orders 4 of 4"
    verified(db)
