"""Orders from Kafka, totals by user, and how they change: `make example-kafka`.

Starts a broker for itself. Orders are produced while the view is followed; one of them is no order,
and becomes a reject.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

from confluent_kafka import Producer
from following import Followed, run

from servers.kafka import kafka

STATEMENTS = Path(__file__).with_name("statements.sql")
USERS = ("ann", "bob", "eve")
ORDERS = 300


def orders(example: Followed) -> None:
    """Produce orders, and follow the view."""
    print("starting Kafka; the first time, its jars are fetched")
    brokers = example.open.enter_context(kafka(example.folder / "kafka")).address
    example.db.sql(STATEMENTS.read_text(encoding="utf-8").format(brokers=brokers))
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 5})
    rng = random.Random(7)
    for number in range(ORDERS):
        order = {"order_id": number, "amount": f"{rng.randint(1, 9999) / 100:.2f}"}
        producer.produce("orders", json.dumps(order).encode(), key=rng.choice(USERS))
        producer.poll(0)
        time.sleep(example.seconds / ORDERS)
        example.show("SELECT * FROM spent ORDER BY user")
    producer.produce("orders", b"this is no order", key="eve")
    producer.flush()
    example.wait("SELECT count(*) FROM orders", ORDERS)
    example.wait("SELECT count(*) FROM information_schema.rejects", 1)
    example.show("SELECT * FROM spent ORDER BY user", at_once=True)


if __name__ == "__main__":
    sys.exit(run("kafka", orders))
