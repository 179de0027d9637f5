"""Formats of messages other than JSON, from a real broker and a real schema registry to views."""

from __future__ import annotations

import io
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

AMOUNT = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
FIRST = [("id", "int"), ("user", "string")]
SECOND = [("user", "string"), ("amount", ["null", AMOUNT]), ("id", "long")]


@pytest.fixture
def topic(broker: Kafka) -> str:
    return broker.create(f"orders-{uuid4().hex[:8]}", 2)


def schema(fields: list[tuple[str, Any]]) -> str:
    named = [{"name": name, "type": type_} for name, type_ in fields]
    return json.dumps({"type": "record", "name": "order", "fields": named})


def registered(url: str, subject: str, text: str, kind: str = "AVRO") -> int:
    library = pytest.importorskip("confluent_kafka.schema_registry")
    client = library.SchemaRegistryClient({"url": url})
    client.set_compatibility(subject, "NONE")
    return int(client.register_schema(subject, library.Schema(text, kind)))


def avro(id_: int, text: str, value: dict[str, Any]) -> dict[str, Any]:
    import fastavro

    out = io.BytesIO(b"\0" + id_.to_bytes(4, "big"))
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(text)), value)
    return {"value": out.getvalue(), "key": value["user"]}


def test_a_view_follows_avro_messages_of_several_versions(db, broker, registry, topic) -> None:
    first = registered(registry, f"{topic}-value", schema(FIRST))
    db.sql(
        "CREATE STREAM orders (user STRING KEY, id BIGINT, amount DECIMAL(12,2)) WITH ("
        f" kafka_topic = '{topic}', value_format = 'avro', brokers = '{broker.address}',"
        f" 'schema.registry.url' = '{registry}')"
    )
    db.sql(
        "CREATE MATERIALIZED VIEW paid AS SELECT user, count(*) AS n, sum(amount) AS total FROM orders GROUP BY user"
    )
    broker.produce(topic, [avro(first, schema(FIRST), {"id": 1, "user": "ann"})])
    second = registered(registry, f"{topic}-value", schema(SECOND))
    assert second != first
    newer = [
        {"user": "ann", "amount": Decimal("12.50"), "id": 2},
        {"user": "bob", "amount": None, "id": 3},
        {"user": "ann", "amount": Decimal("-0.01"), "id": 4},
    ]
    broker.produce(topic, (avro(second, schema(SECOND), value) for value in newer))
    broker.produce(topic, [{"value": b"\0\0\0\xff\xffx", "partition": 1}])
    landed(db, "orders", 4)
    until(lambda: len(db.sql("SHOW REJECTS FOR orders").fetchall()) == 1)
    assert sorted(db.sql("SELECT * FROM paid").fetchall()) == [
        ("ann", 3, Decimal("12.49")),
        ("bob", 1, None),
    ]
    (reject,) = db.sql("SHOW REJECTS FOR orders").fetchall()
    assert reject[1] == f"{topic}/1"
    assert "the registry has no schema 65535" in reject


@pytest.mark.long
def test_csv_and_plain_avro_need_no_registry(db, broker, topic) -> None:
    other = broker.create(f"{topic}-csv")
    db.sql(
        "CREATE STREAM a (id INT, user STRING) WITH (connector = 'kafka', format = 'avro',"
        f" topic = '{topic}', brokers = '{broker.address}', 'avro.schema' = '{schema(FIRST)}')"
    )
    db.sql(
        "CREATE STREAM c (id INT, user STRING) WITH (value_format = 'delimited',"
        f" value_delimiter = 'TAB', kafka_topic = '{other}', brokers = '{broker.address}')"
    )
    broker.produce(
        topic, [{"value": avro(0, schema(FIRST), {"id": 7, "user": "zoe"})["value"][5:]}]
    )
    broker.produce(other, [{"value": b"8\ty,o"}])
    landed(db, "a", 1)
    landed(db, "c", 1)
    assert db.sql("SELECT * FROM a").fetchall() == [(7, "zoe")]
    assert db.sql("SELECT * FROM c").fetchall() == [(8, "y,o")]


def test_protobuf_messages_are_read_by_the_schema_of_their_registry(
    db, broker, registry, topic
) -> None:
    pytest.importorskip("grpc_tools")
    text = 'syntax = "proto3"; message M { int64 id = 1; repeated string tags = 2; }'
    id_ = registered(registry, f"{topic}-value", text, "PROTOBUF")
    db.sql(
        "CREATE STREAM p (id BIGINT, tags ARRAY<STRING>) WITH (value_format = 'protobuf',"
        f" kafka_topic = '{topic}', brokers = '{broker.address}',"
        f" 'schema.registry.url' = '{registry}')"
    )
    header = b"\0" + id_.to_bytes(4, "big") + b"\0"
    broker.produce(topic, [{"value": header + b"\x08\x07" + b"\x12\x01a" + b"\x12\x01b"}])
    landed(db, "p", 1)
    assert db.sql("SELECT * FROM p").fetchall() == [(7, ["a", "b"])]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("format = 'avro'", "need the schema that they were written by"),
        (
            "format = 'avro', 'avro.schema' = '{\"type\": \"int\"}'",
            "does not describe these messages",
        ),
        ("format = 'protobuf'", "need a schema registry"),
        ("format = 'csv', value_delimiter = 'no'", "is not one ASCII character"),
        ("format = 'avro', 'schema.registry.uri' = 'http://x'", "does not exist"),
    ],
)
def test_options_of_formats_that_cannot_be_are_refused(db, broker, topic, options, reason) -> None:
    with pytest.raises(HeadraceError, match=reason) as caught:
        db.sql(
            f"CREATE STREAM s (v INT) WITH (connector = 'kafka', topic = '{topic}',"
            f" brokers = '{broker.address}', {options})"
        )
    assert caught.value.code is Code.INVALID
    assert caught.value.hint
