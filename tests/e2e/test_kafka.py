"""Streams and tables whose rows come from Kafka, against a real broker."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from headrace.errors import Code, HeadraceError
from waiting import landed, until

if TYPE_CHECKING:
    from servers.kafka import Kafka

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def topic(broker: Kafka) -> str:
    return broker.create(f"orders-{uuid4().hex[:8]}", 3)


def order(number: int, user: str, amount: str, status: str = "completed") -> dict[str, Any]:
    value = {
        "order_id": f"o-{number}",
        "user_id": user,
        "amount": amount,
        "status": status,
        "order_time": "2024-01-01T00:00:00",
    }
    text = json.dumps(value).replace(f'"{amount}"', amount)
    return {"value": text.encode(), "key": user}


CREATE = """
CREATE TABLE orders ( order_id STRING, user_id STRING, amount DECIMAL(10,2), status STRING,
  order_time TIMESTAMP(3), WATERMARK FOR order_time AS order_time - INTERVAL '5' SECOND )
WITH ( 'connector' = 'kafka', 'topic' = '{topic}', 'format' = 'json',
  'properties.bootstrap.servers' = '{brokers}' )
"""
TOTALS = """
CREATE MATERIALIZED VIEW totals AS
SELECT user_id, COUNT(*) AS order_count, SUM(amount) AS total_spend
FROM orders WHERE status = 'completed' GROUP BY user_id
"""


def test_a_view_follows_a_topic(opened, broker, topic) -> None:
    db = opened()
    message = db.sql(CREATE.format(topic=topic, brokers=broker.address))
    assert str(message).endswith("whose rows come from kafka")
    db.sql(TOTALS)
    broker.produce(topic, [order(1, "u-001", "99.99"), order(2, "u-002", "5.00", "open")])
    broker.produce(topic, [order(3, "u-001", "149.99")])
    landed(db, "orders", 3)
    assert db.sql("SELECT * FROM totals").fetchall() == [("u-001", 2, Decimal("249.98"))]
    broker.produce(topic, [{"value": b"no order", "partition": 1}])
    until(lambda: len(db.sql("SHOW REJECTS FOR orders").fetchall()) == 1)
    (reject,) = db.sql("SHOW REJECTS FOR orders").fetchall()
    assert reject[1] == f"{topic}/1"
    with pytest.raises(HeadraceError, match="gets its rows from elsewhere"):
        db.sql("INSERT INTO orders (order_id) VALUES ('x')")
    (source,) = [row for row in db.sql("SHOW SOURCES").fetchall() if row[0] == "orders"]
    assert source[:8] == ("orders", "table", "", "running", "kafka", 0, 1, None)
    assert {verdict for *_, verdict in db.verify()} == {"equal to batch"}


@pytest.mark.long
def test_a_restart_continues_where_the_last_part_ended(opened, broker, topic) -> None:
    db = opened()
    db.sql(CREATE.format(topic=topic, brokers=broker.address))
    db.sql(TOTALS)
    broker.produce(topic, (order(i, f"u-{i % 3}", "1.00") for i in range(600)))
    landed(db, "orders", 1)
    db.close()
    broker.produce(topic, (order(i, f"u-{i % 3}", "1.00") for i in range(600, 900)))
    again = opened()
    landed(again, "orders", 900)
    found = sorted(again.sql("SELECT * FROM totals").fetchall())
    assert found == [(f"u-{i}", 300, Decimal("300.00")) for i in range(3)]
    orders = again.parts.reader.catalog.resolve("orders")
    assert again.parts.ledger.head.log_end(orders.id) == 900


def test_keys_and_metadata_are_columns(opened, broker) -> None:
    topic = f"readings-{uuid4().hex[:8]}"
    db = opened()
    db.sql(
        "CREATE STREAM readings ( sensor VARCHAR KEY, area VARCHAR, reading INT ) WITH ("
        f" kafka_topic = '{topic}', partitions = 2, value_format = 'json',"
        f" brokers = '{broker.address}')"
    )
    db.sql(
        "CREATE TABLE places (v INT, twice AS v * 2, part INT METADATA FROM 'partition',"
        " at TIMESTAMP METADATA FROM 'timestamp', o BIGINT METADATA FROM 'offset')"
        f" WITH (connector = 'kafka', topic = '{topic}-2', partitions = 1, format = 'json',"
        f" 'properties.bootstrap.servers' = '{broker.address}')"
    )
    value = b'{"area": "wheel", "reading": 45, "other": 1}'
    broker.produce(topic, [{"key": "sensor-1", "value": value}])
    places = [{"value": b'{"v": 3}', "timestamp": 5000}, {"value": b'{"v": 4}', "timestamp": 6000}]
    broker.produce(f"{topic}-2", places)
    landed(db, "readings", 1)
    landed(db, "places", 2)
    assert db.sql("SELECT * FROM readings").fetchall() == [("sensor-1", "wheel", 45)]
    found = db.sql("SELECT v, twice, part, unix_millis(at), o FROM places ORDER BY v").fetchall()
    assert found == [(3, 6, 0, 5000, 0), (4, 8, 0, 6000, 1)]


@pytest.mark.long
def test_a_message_for_which_a_computed_column_fails_is_a_reject(opened, broker, topic) -> None:
    db = opened()
    db.sql(
        "CREATE STREAM s (id INT, y AS CAST(10 DIV id AS INT), h MAP<STRING, STRING> METADATA FROM"
        " 'headers') WITH (connector = 'kafka',"
        f" topic = '{topic}', format = 'json', brokers = '{broker.address}')"
    )
    values = [{"value": b'{"id": %d}' % n, "partition": 1} for n in (1, 0, 2, 0, 5)]
    values[0]["headers"] = [("a", b"x"), ("b", None)]
    broker.produce(topic, values)
    landed(db, "s", 3)
    assert sorted(db.sql("SELECT id, y, h FROM s").fetchall()) == [
        (1, 10, [("a", "x"), ("b", None)]),
        (2, 5, []),
        (5, 2, []),
    ]
    rejects = db.sql("SHOW REJECTS FOR s").fetchall()
    assert sorted(row[1:3] for row in rejects) == [(f"{topic}/1", 1), (f"{topic}/1", 3)]


@pytest.mark.parametrize(
    ("column", "options", "reason"),
    [
        ("h INT METADATA FROM 'headers'", "", "cannot have the headers"),
        ("v INT", ", 'properties.isolation.level' = 'dirty'", "cannot be made"),
        ("v INT", ", 'scan.startup.mode' = 'timestamp'", "needs option"),
        (
            "v INT",
            (
                ", 'scan.startup.mode' = 'specific-offsets',"
                " 'scan.startup.specific-offsets' = 'partition:7,offset:1'"
            ),
            "partition 7 of topic",
        ),
    ],
)
def test_options_that_cannot_be_are_refused(opened, broker, topic, column, options, reason) -> None:
    db = opened()
    with pytest.raises(HeadraceError, match=reason) as caught:
        db.sql(
            f"CREATE STREAM s ({column}) WITH (connector = 'kafka', topic = '{topic}',"
            f" brokers = '{broker.address}'{options})"
        )
    assert caught.value.code is Code.INVALID


def test_a_topic_that_cannot_be_read_is_not_created(opened, broker) -> None:
    db = opened()
    with pytest.raises(HeadraceError, match='topic "absent" cannot be read') as caught:
        db.sql(CREATE.format(topic="absent", brokers=broker.address))
    assert caught.value.code is Code.UNAVAILABLE
    with pytest.raises(HeadraceError, match="does not exist") as unknown:
        db.sql(
            "CREATE STREAM s (v INT) WITH (connector = 'kafka', topic = 't',"
            f" brokers = '{broker.address}', 'properties.bootstrap.server' = 'x')"
        )
    assert unknown.value.hint == 'Did you mean "properties.bootstrap.servers"?'
    with pytest.raises(HeadraceError, match="format 'orc' cannot be read"):
        db.sql(
            "CREATE STREAM s (v INT) WITH (connector = 'kafka', topic = 't', format = 'orc',"
            f" brokers = '{broker.address}')"
        )
    assert db.relations() == []
    message = db.sql("CREATE STREAM s (v INT) WITH (connector = 'kafka', topic = 't')")
    assert "no broker is configured" in str(message)


def test_a_dropped_stream_is_read_no_more(opened, broker, topic) -> None:
    db = opened()
    db.sql(CREATE.format(topic=topic, brokers=broker.address))
    broker.produce(topic, [order(1, "a", "1.00")])
    landed(db, "orders", 1)
    (feed,) = db.parts.feeds.by_relation.values()
    db.sql("DROP TABLE orders")
    assert not feed._thread.is_alive()
    assert not db.parts.feeds.by_relation


def test_a_source_stops_at_what_does_not_fit_by_choice(broker, topic, opened) -> None:
    db = opened()
    db.sql(
        f"CREATE STREAM strict (id INT) ON ERROR STOP WITH (kafka_topic = '{topic}',"
        f" value_format = 'json', brokers = '{broker.address}')"
    )

    def state() -> tuple[str, str | None]:
        listed = db.sql("SHOW SOURCES").to_arrow().to_pylist()
        (row,) = (row for row in listed if row["name"] == "strict")
        return row["state"], row["error"]

    broker.produce(topic, [{"value": b'{"id": 1}', "partition": 0}])
    landed(db, "strict", 1)
    with pytest.raises(HeadraceError, match="has not stopped"):
        db.sql("RESUME SOURCE strict")
    bad = [b'{"id": 2}', b'{"id": "two"}', b'{"id": 3}']
    broker.produce(topic, [{"value": value, "partition": 0} for value in bad])
    until(lambda: state()[0] == "stopped")
    assert f"{topic}/0, 2: id:" in (state()[1] or "")
    assert db.sql("SHOW REJECTS FOR strict").fetchall() == []
    db.sql("RESUME SOURCE strict")
    until(lambda: state()[0] == "stopped")
    db.sql("RESUME SOURCE strict ON ERROR REJECT")
    landed(db, "strict", 3)
    assert sorted(db.sql("SELECT id FROM strict").fetchall()) == [(1,), (2,), (3,)]
    assert len(db.sql("SHOW REJECTS FOR strict")) == 1
    broker.produce(topic, [{"value": b"nonsense", "partition": 0}])
    until(lambda: state()[0] == "stopped")


def test_a_source_of_what_is_new_misses_nothing_after_its_creation(broker, topic, opened) -> None:
    db = opened()
    broker.produce(topic, [{"value": b'{"id": 1}', "partition": 0}])
    for number in range(3):
        db.sql(
            f"CREATE STREAM new{number} (id INT) WITH (kafka_topic = '{topic}', value_format = 'json',"
            f" brokers = '{broker.address}', 'scan.startup.mode' = 'latest-offset')"
        )
        broker.produce(topic, [{"value": b'{"id": 2}', "partition": number}])
        landed(db, f"new{number}", 1)
        assert db.sql(f"SELECT id FROM new{number}").fetchall()[0] == (2,)
