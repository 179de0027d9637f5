"""Orders from Kafka, totals by user, and how they change: `make example-kafka`.

Starts a broker for itself, or uses the one at ``--brokers``. Orders are produced while the view is
followed; one of them is no order, and becomes a reject. At the end the view is compared with its
query run as plain Spark batch SQL.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

import headrace
from servers.kafka import Unavailable, kafka

if TYPE_CHECKING:
    from headrace import Database

STATEMENTS = Path(__file__).with_name("statements.sql")
USERS = ("ann", "bob", "eve")
_ORDERS = 300
_SHOWN_SECONDS = 1.0


def main() -> int:
    """Run the pipeline."""
    options = argparse.ArgumentParser(prog="make example-kafka")
    options.add_argument("--brokers", help="use these, and not one of our own")
    options.add_argument("--seconds", type=float, default=5.0)
    given = options.parse_args()
    with ExitStack() as open_:
        folder = Path(open_.enter_context(tempfile.TemporaryDirectory()))
        brokers = given.brokers
        if brokers is None:
            print("starting Kafka; the first time, its jars are fetched")
            try:
                brokers = open_.enter_context(kafka(folder / "kafka")).address
            except Unavailable as reason:
                print(f"Kafka cannot be had here: {reason}", file=sys.stderr)
                return 1
        db = open_.enter_context(headrace.connect(folder / "db", continuous=True))
        db.sql(STATEMENTS.read_text(encoding="utf-8").format(brokers=brokers))
        produced = _produce(db, brokers, given.seconds)
        _wait(db, produced)
        return _compare(db)


def _produce(db: Database, brokers: str, seconds: float) -> int:
    """Produce orders, and show the view while they arrive; return how many messages there are."""
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 5})
    rng, shown = random.Random(7), time.monotonic()
    for number in range(_ORDERS):
        user = rng.choice(USERS)
        order = {"order_id": number, "amount": f"{rng.randint(1, 9999) / 100:.2f}"}
        producer.produce("orders", json.dumps(order).encode(), key=user)
        producer.poll(0)
        time.sleep(seconds / _ORDERS)
        if time.monotonic() - shown > _SHOWN_SECONDS:
            _show(db)
            shown = time.monotonic()
    producer.produce("orders", b"this is no order", key="eve")
    producer.flush()
    return _ORDERS + 1


def _wait(db: Database, messages: int) -> None:
    """Wait until all messages are in the log, as rows or rejects."""
    while _count(db, "SELECT count(*) FROM orders") + len(_rejects(db)) < messages:
        time.sleep(0.05)


def _count(db: Database, query: str) -> int:
    return int(db.sql(query).fetchall()[0][0])


def _rejects(db: Database) -> list[Any]:
    return list(db.sql("SHOW REJECTS FOR orders").fetchall())


def _show(db: Database) -> None:
    rows = db.sql("SELECT * FROM spent ORDER BY user").fetchall()
    print("   ".join(f"{user}: {count} orders, {total}" for user, count, total in rows))


def _compare(db: Database) -> int:
    _show(db)
    for reject in _rejects(db):
        print(f"rejected: {reject}")
    verdicts = [row[-1] for row in db.verify()]
    print(f"the view is {verdicts[0]}")
    return 0 if set(verdicts) == {"equal to batch"} else 1


if __name__ == "__main__":
    sys.exit(main())
