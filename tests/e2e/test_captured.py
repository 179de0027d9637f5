"""Tables kept by captured changes and by keyed messages, from a real broker."""

from __future__ import annotations

import json
import struct
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable

    import headrace


pytestmark = pytest.mark.timeout(400)


def read_to(db: headrace.Database, name: str, messages: int) -> None:
    """Wait until a table's source has read as many messages, whatever they led to."""
    relation = db.parts.reader.catalog.resolve(name)
    feed = db.parts.feeding.feeds.by_relation[relation.id]
    ends = time.monotonic() + 60
    while True:
        position = feed.ingest.position or {}
        if sum(at for place, at in position.items() if place != "topics") >= messages:
            return
        assert feed.error is None, feed.error
        assert time.monotonic() < ends
        time.sleep(0.02)


def rows(db: headrace.Database, text: str) -> list[tuple]:
    db.flush()
    return sorted(db.sql(text).fetchall(), key=str)


def message(value: Any, key: Any = None) -> dict[str, Any]:
    return {
        "value": None if value is None else json.dumps(value).encode(),
        "key": key if key is None or isinstance(key, bytes) else json.dumps(key).encode(),
    }


def envelope(op: str, before: Any, after: Any) -> dict[str, Any]:
    """Return the message of a change as Debezium's connector for PostgreSQL writes it."""
    row = [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "string", "optional": True, "field": "text"},
        {
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2"},
            "field": "price",
        },
        {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "field": "at"},
    ]
    images = [{"type": "struct", "fields": row, "field": name} for name in ("before", "after")]
    payload = {"before": before, "after": after, "op": op, "source": {"ts_ms": 1000}, "ts_ms": 1}
    key = {"id": (before or after or {}).get("id")}
    return message({"schema": {"type": "struct", "fields": images}, "payload": payload}, key)


LOST = "__debezium_unavailable_value"


@pytest.fixture
def create(opened, broker) -> Callable[[str, str, str], tuple[headrace.Database, str]]:
    """Create a table in the open database over a new topic; return both."""
    db, name = opened(), f"cdc-{uuid4().hex[:8]}"
    kafka = f"'properties.bootstrap.servers' = '{broker.address}', partitions = 1"

    def make(table: str, columns: str, options: str) -> tuple[headrace.Database, str]:
        topic = f"{name}-{table}"
        db.sql(f"CREATE TABLE {table} ({columns}) WITH ({options.format(topic=topic)}, {kafka})")
        return db, topic

    return make


DEBEZIUM = "connector = 'kafka', topic = '{topic}', format = 'debezium-json'"


@pytest.mark.long
def test_a_table_follows_what_debezium_captures(create, opened, broker) -> None:
    columns = (
        "id INT, text STRING, price DECIMAL(8,2), at TIMESTAMP, PRIMARY KEY (id), made TIMESTAMP"
        " METADATA FROM 'value.source.timestamp' VIRTUAL, place BIGINT METADATA FROM 'offset'"
    )
    db, debezium = create("debezium", columns, DEBEZIUM)
    db.sql("CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n, sum(price) AS p FROM debezium")

    first = {"id": 1, "text": "long", "price": "MDk=", "at": 1767225600123456}
    broker.produce(
        debezium,
        [
            envelope("r", None, first),
            envelope("c", None, {**first, "id": 2, "text": "second", "price": "AA=="}),
        ],
    )
    read_to(db, "debezium", 2)
    assert rows(db, "SELECT id, text, price, unix_micros(at) FROM debezium") == [
        (1, "long", Decimal("123.45"), 1767225600123456),
        (2, "second", Decimal("0.00"), 1767225600123456),
    ]
    broker.produce(
        debezium,
        [
            envelope("u", None, {**first, "text": LOST, "price": "/w=="}),
            envelope("u", {"id": 2, "text": None}, {**first, "id": 3, "text": LOST}),
            envelope("d", {"id": 1, "text": None, "price": None, "at": None}, None),
            message(None, {"id": 1}),
            message({"ts_ms": 5}),
            envelope("u", None, {**first, "id": 9, "text": LOST}),
        ],
    )
    read_to(db, "debezium", 8)
    assert rows(db, "SELECT id, text, price FROM debezium") == [(3, "second", Decimal("123.45"))]
    assert rows(db, "SELECT * FROM totals") == [(1, Decimal("123.45"))]
    ((_, place, offset, column, reason, raw, *_),) = rows(db, "SHOW REJECTS FOR debezium")
    assert (place, offset, column) == (f"{debezium}/0", 7, "text")
    assert reason == "the table has no earlier row to take the unchanged value from"
    assert LOST in raw
    broker.produce(debezium, [envelope("t", None, None), envelope("c", None, {**first, "id": 4})])
    read_to(db, "debezium", 10)
    found = rows(db, "SELECT id, text, unix_millis(made), place FROM debezium")
    assert found == [(4, "long", 1000, 9)]
    assert {verdict for *_, verdict in db.verify()} == {"equal to batch"}

    db.close()
    broker.produce(debezium, [envelope("u", None, {**first, "id": 4, "text": LOST, "at": 0})])
    again = opened()
    read_to(again, "debezium", 11)
    assert rows(again, "SELECT id, text, unix_micros(at) FROM debezium") == [(4, "long", 0)]


@pytest.mark.long
def test_a_captured_table_goes_on_with_other_columns(create, opened, broker) -> None:
    db, topic = create("c", "id INT PRIMARY KEY, text STRING, v INT", DEBEZIUM)
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT id, v FROM c")

    def captured(op: str, **row: Any) -> dict[str, Any]:
        return message({"op": op, "after": row}, {"id": row["id"]})

    broker.produce(topic, [captured("c", id=1, text="a", v=1), captured("c", id=2, text="b", v=2)])
    read_to(db, "c", 2)
    db.sql("ALTER TABLE c DROP COLUMN text")
    broker.produce(topic, [captured("u", id=1, text="x", v=10), captured("c", id=3, more="m", v=3)])
    read_to(db, "c", 4)
    assert rows(db, "SELECT * FROM c") == [(1, 10), (2, 2), (3, 3)]
    db.sql("ALTER TABLE c ADD COLUMN more STRING")
    broker.produce(topic, [captured("u", id=2, text="x", more="n", v=20)])
    read_to(db, "c", 5)
    assert rows(db, "SELECT * FROM c") == [(1, 10, None), (2, 20, "n"), (3, 3, None)]
    with pytest.raises(HeadraceError, match="its source knows no other name") as caught:
        db.sql("ALTER TABLE c RENAME COLUMN v TO w")
    assert caught.value.code is Code.CONFLICT
    assert rows(db, "SELECT * FROM m") == [(1, 10), (2, 20), (3, 3)]
    assert {verdict for *_, verdict in db.verify()} == {"equal to batch"}
    db.close()
    broker.produce(topic, [message({"op": "d", "before": {"id": 3}}, {"id": 3})])
    again = opened()
    read_to(again, "c", 6)
    assert rows(again, "SELECT * FROM c") == [(1, 10, None), (2, 20, "n")]


def test_a_table_without_a_key_takes_back_the_rows_before(create, broker) -> None:
    db, bag = create("bag", "v INT, op STRING", DEBEZIUM)
    inserted = [message({"op": "c", "after": {"v": v}}) for v in (1, 1, 2)]
    broker.produce(bag, inserted)
    read_to(db, "bag", 3)
    changed = [
        message({"op": "d", "before": {"v": 1}}),
        message({"op": "u", "before": {"v": 2}, "after": {"v": 3}}),
        message({"op": "u", "before": {"v": 7}, "after": {"v": 8}}),
    ]
    broker.produce(bag, changed)
    read_to(db, "bag", 6)
    assert rows(db, "SELECT v, op FROM bag") == [(1, "c"), (3, "u")]
    broker.produce(bag, [message({"op": "t"}), message({"op": "c", "after": {"v": 5}})])
    read_to(db, "bag", 8)
    assert rows(db, "SELECT v, op FROM bag") == [(5, "c")]
    assert [row[2:4] for row in rows(db, "SHOW REJECTS FOR bag")] == [(5, "before")]


@pytest.mark.long
def test_tables_follow_keyed_messages_and_changes_of_mysql(create, broker) -> None:
    db, upsert = create(
        "upserts",
        "id BIGINT, v STRING, twice AS length(v) * 2, PRIMARY KEY (id) NOT ENFORCED",
        "connector = 'upsert-kafka', topic = '{topic}', 'key.format' = 'json'",
    )
    row = "id INT PRIMARY KEY, v STRING"
    mysql = "connector = 'kafka', topic = '{topic}', format = "
    _, maxwell = create("maxwell", row, mysql + "'maxwell-json'")
    _, canal = create("canal", row, mysql + "'canal-json'")
    keyed = "kafka_topic = '{topic}', value_format = 'json'"
    _, ksql = create("ksql", "id BIGINT PRIMARY KEY, v VARCHAR", keyed)
    both = "kafka_topic = '{topic}', format = 'json'"
    _, in_json = create("in_json", "id BIGINT PRIMARY KEY, v VARCHAR", both)
    broker.produce(
        upsert,
        [
            message({"id": 1, "v": "a"}, {"id": 1}),
            message({"v": "bb"}, {"id": 2}),
            message({"id": 1, "v": "ccc"}, {"id": 1}),
            message(None, {"id": 2}),
        ],
    )
    eight = [struct.pack(">q", n) for n in (1, 2)]
    broker.produce(
        ksql,
        [message({"V": "x"}, eight[0]), message({"V": "y"}, eight[1]), message(None, eight[0])],
    )
    broker.produce(in_json, [message({"v": "x"}, 1), message({"v": "y"}, 2), message(None, 1)])
    broker.produce(
        maxwell,
        [
            message({"type": "insert", "data": {"id": 1, "v": "a"}}),
            message({"type": "update", "data": {"id": 2, "v": "a"}, "old": {"id": 1}}),
        ],
    )
    pair = [{"id": "1", "v": "a"}, {"id": "2", "v": "b"}]
    broker.produce(
        canal,
        [
            message({"type": "INSERT", "data": pair, "old": None}),
            message({"type": "DELETE", "data": pair[:1], "old": None}),
        ],
    )
    for table, messages in (
        ("upserts", 4),
        ("ksql", 3),
        ("in_json", 3),
        ("maxwell", 2),
        ("canal", 2),
    ):
        read_to(db, table, messages)
    assert rows(db, "SELECT * FROM upserts") == [(1, "ccc", 6)]
    assert rows(db, "SELECT * FROM ksql") == rows(db, "SELECT * FROM in_json") == [(2, "y")]
    assert rows(db, "SELECT * FROM maxwell") == [(2, "a")]
    assert rows(db, "SELECT * FROM canal") == [(2, "b")]


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ("id INT PRIMARY KEY", "connector = 'upsert-kafka'", "has no key.format"),
        ("id INT", "connector = 'upsert-kafka', 'key.format' = 'json'", "has no primary key"),
        ("id INT PRIMARY KEY", "'key.format' = 'avro'", "'avro' is not a value of option"),
        (
            "id INT, b INT, PRIMARY KEY (id)",
            "'key.format' = 'json', 'key.fields' = 'b'",
            "are not its primary key",
        ),
        ("id INT PRIMARY KEY", "'key.format' = 'json', 'key.fields-prefix' = 'k_'", "prefix"),
        (
            "id INT PRIMARY KEY",
            "format = 'debezium-json', 'debezium.decimal-handling-mode' = 'exact'",
            "'exact' is not a value of option",
        ),
        (
            "id INT PRIMARY KEY",
            "format = 'debezium-json', 'debezium-json.nope' = '1'",
            'option "debezium-json.nope"',
        ),
        (
            "id INT PRIMARY KEY",
            "format = 'canal-json', 'canal-json.table.include' = '('",
            "'\\(' is not a regular expression",
        ),
        (
            "id INT PRIMARY KEY, d STRING METADATA FROM 'value.database'",
            "format = 'debezium-json'",
            'have no metadata "value.database"',
        ),
        (
            "id INT PRIMARY KEY, d STRING METADATA FROM 'value.source.timestamp'",
            "format = 'debezium-json'",
            "cannot have the metadata",
        ),
        (
            "id INT PRIMARY KEY, d STRING METADATA FROM 'value.database'",
            "format = 'json'",
            "messages of format 'json' have no metadata",
        ),
        ("id INT, n AS id + 1", "format = 'debezium-json'", "by their values is not supported"),
    ],
)
def test_tables_that_cannot_be_kept_are_refused(db, columns, options, reason) -> None:
    kafka = "topic = 't', 'properties.bootstrap.servers' = '127.0.0.1:9'"
    named = "" if "connector" in options else "connector = 'kafka', "
    with pytest.raises(HeadraceError, match=reason) as caught:
        db.sql(f"CREATE TABLE t ({columns}) WITH ({named}{options}, {kafka})")
    assert caught.value.code in (Code.INVALID, Code.UNSUPPORTED)
    with pytest.raises(HeadraceError, match="cannot be of format 'debezium-json'"):
        db.sql(f"CREATE STREAM t (id INT) WITH (format = 'debezium-json', {named or ''}{kafka})")
