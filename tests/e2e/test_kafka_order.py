"""Events that a topic repeats and shuffles count once, in the order of their own time.

The broker is restarted in the middle, and partitions are added.
"""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

import headrace

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from servers.kafka import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

EVENTS = 200_000
USERS = 50


def sent(chance: random.Random) -> list[dict[str, int]]:
    """Return the events in the order in which they are sent: a tenth of them twice, shuffled."""
    events = [
        {
            "id": number,
            "user_id": chance.randrange(USERS),
            "v": chance.randrange(100),
            "at": number * 10,
        }
        for number in range(EVENTS)
    ]
    events += chance.sample(events, EVENTS // 10)
    chance.shuffle(events)
    return events


def test_repeated_and_shuffled_events_give_the_answer_of_events_in_order(
    broker: Kafka, tmp_path: Path, spark: SparkSession
) -> None:
    topic = broker.create(f"shuffled-{uuid4().hex[:8]}", 3)
    events = sent(random.Random(7))
    # By the wrong column: the events of a user are in all partitions.
    messages = [
        {"value": json.dumps(event).encode(), "partition": event["v"] % 3} for event in events
    ]
    with headrace.connect(tmp_path / "d", spark=spark, partitions=2) as db:
        db.sql(
            f"""CREATE STREAM events (id BIGINT, user_id INT, v INT, at BIGINT)
            WITH (kafka_topic = '{topic}', value_format = 'json', brokers = '{broker.address}',
                  timestamp = 'at')
            DEDUPLICATE ON (id) WITHIN INTERVAL '1' DAY"""
        )
        db.sql(
            "CREATE TABLE totals AS SELECT user_id, COUNT(*) AS n, SUM(v) AS v,"
            " LATEST_BY_EVENT_TIME(v) AS last FROM events GROUP BY user_id"
        )
        db.sql(
            "CREATE TABLE windows AS SELECT WINDOWSTART AS b, COUNT(*) AS n FROM events"
            " WINDOW TUMBLING (SIZE 20 SECONDS) GROUP BY id - id"
        )
        half = len(messages) // 2
        broker.produce(topic, messages[:half])
        broker.stop()
        broker.start()
        broker.widen(topic, 4)
        broker.produce(topic, messages[half:])
        relation = db.parts.reader.catalog.resolve("events")
        until = time.monotonic() + 300
        while db.parts.ledger.head.log_end(relation.id) < EVENTS:
            assert time.monotonic() < until
            time.sleep(0.05)
        db.flush()
        once = {event["id"]: event for event in events}
        expected: dict[int, tuple[int, int, int]] = {}
        windows: dict[int, int] = {}
        for number in range(EVENTS):
            event = once[number]
            n, v, _ = expected.get(event["user_id"], (0, 0, 0))
            expected[event["user_id"]] = n + 1, v + event["v"], event["v"]
            window = event["at"] // 20_000 * 20_000
            windows[window] = windows.get(window, 0) + 1
        found = {
            u: tuple(rest)
            for u, *rest in db.sql("SELECT user_id, n, v, last FROM totals").fetchall()
        }
        assert found == expected
        assert dict(db.sql("SELECT b, n FROM windows").fetchall()) == windows
        assert db.parts.ledger.rejects.left_out(relation.id) == {"duplicate": EVENTS // 10}
        assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}
