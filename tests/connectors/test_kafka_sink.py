"""Topics as sinks, against a real broker: what readers of committed messages see, however it ends."""

from __future__ import annotations

import dataclasses
import json
import time
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pytest

from asked import rows
from connectors.sink_histories import (
    KEY,
    SCHEMA,
    Histories,
    Killed,
    Row,
    begun,
    context,
    prove,
    row,
    table,
)
from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.deliveries import DeliverySettings
from headrace.io.connectors.kafka import transactions as kafka_transactions
from headrace.io.connectors.kafka.options import Options as SourceOptions
from headrace.io.connectors.kafka.sink import KafkaSink, check, opened
from headrace.io.connectors.kafka.sink_options import Envelope, Options, SinkKeyFormat, ValueFormat
from headrace.io.connectors.kafka.source import KafkaSource, MessageColumns
from headrace.io.connectors.kafka.transactions import Mark
from headrace.io.connectors.message_formats import change_decoder
from headrace.io.connectors.schema_registry import Registry
from headrace.io.formats.avro import AvroRecords
from headrace.io.formats.messages import JsonMessages
from headrace.planning.catalog import Declaration, Table
from headrace.types import Epoch, RelationId
from servers.kafka import free_port, kafka
from waiting import landed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from servers.kafka import Kafka

pytestmark = pytest.mark.timeout(120)

Message = tuple[bytes | None, bytes | None, dict[str, bytes]]


def committed(broker: Kafka, topic: str) -> list[Message]:
    """Return the committed messages of a topic: by partition, in their order."""
    from confluent_kafka import Consumer, TopicPartition

    client = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    numbers = list(client.list_topics(topic, timeout=10).topics[topic].partitions)
    client.assign([TopicPartition(topic, number, 0) for number in numbers])
    found: list[tuple[int, Message]] = []
    ended = 0
    while ended < len(numbers):
        message = client.poll(10)
        assert message is not None
        if message.error() is not None:
            ended += 1
            continue
        headers = dict(message.headers() or ())
        found.append((message.partition(), (message.key(), message.value(), headers)))
    client.close()
    return [message for _, message in sorted(found, key=lambda pair: pair[0])]


def history_row(values: dict[str, Any]) -> Row:
    """Return a row of a history from its JSON."""
    return (
        values["id"],
        values["name"],
        None if values["amount"] is None else Decimal(values["amount"]),
        datetime.fromisoformat(values["at"]).astimezone(UTC),
        values["ok"],
    )


def by_last(broker: Kafka, topic: str) -> Counter[Row]:
    """Return the rows of a topic of upserts: the last value of each key."""
    rows: dict[bytes, Row | None] = {}
    for key, value, _ in committed(broker, topic):
        assert key is not None
        rows[key] = None if value is None else history_row(json.loads(value))
    return Counter(each for each in rows.values() if each is not None)


def by_weight(broker: Kafka, topic: str) -> Counter[Row]:
    """Return the sum of a topic's changes: an effect that came twice would count twice."""
    total: Counter[Row] = Counter()
    for _, value, headers in committed(broker, topic):
        change = json.loads(value or b"")
        assert headers["headrace.epoch"] == str(change["epoch"]).encode()
        total[history_row(change["row"])] += change["weight"]
    return Counter({each: weight for each, weight in total.items() if weight})


@pytest.fixture
def sink(broker: Kafka, tmp_path: Path) -> Callable[..., tuple[str, Callable[[], KafkaSink]]]:
    """Make a topic; return its name, and what opens a writer of it."""

    def make(
        *, stops: bool = False, key: tuple[str, ...] = KEY, **options: Any
    ) -> tuple[str, Callable[[], KafkaSink]]:
        topic = f"sink-{uuid4().hex}"
        given = Options(brokers=broker.address, topic=topic, partitions=2, **options)
        of_sink = dataclasses.replace(
            context(tmp_path, stops=stops), key=key, identity=f"{uuid4().hex}/7"
        )
        check(given, of_sink)
        return topic, lambda: opened(given, of_sink)

    return make


def test_a_topic_has_each_change_once_however_often_the_process_ends(broker, sink) -> None:
    topic, writer = sink(envelope=Envelope.CHANGELOG)
    settings = DeliverySettings(part_rows=6, joins=True)
    prove(writer, lambda: by_weight(broker, topic), epochs=6, kills=5, settings=settings)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_the_last_messages_of_keys_are_the_view(broker, sink, seed) -> None:
    topic, writer = sink()
    settings = DeliverySettings(part_rows=6, joins=bool(seed % 2))
    prove(writer, lambda: by_last(broker, topic), seed=seed, settings=settings)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_a_topic_has_the_view_though_the_broker_is_restarted(tmp_path, seed) -> None:
    with kafka(tmp_path / "kafka") as broker:
        options = Options(
            brokers=broker.address, topic="t", partitions=2, envelope=Envelope.CHANGELOG
        )

        def killed(number: int) -> None:
            if number % 5 == seed % 5:
                broker.stop()
                broker.start()

        check(options, context(tmp_path))
        prove(
            lambda: opened(options, context(tmp_path)),
            lambda: by_weight(broker, "t"),
            seed=seed,
            settings=DeliverySettings(part_rows=6, joins=bool(seed % 2)),
            killed=killed,
        )


@pytest.mark.long
@pytest.mark.parametrize("frozen", [False, True])
def test_brokers_that_go_within_a_transaction_are_not_waited_for(
    tmp_path, monkeypatch, *, frozen
) -> None:
    monkeypatch.setattr(kafka_transactions, "_LONGEST_SECONDS", 3.0)
    first, second = ((n, "a", None, datetime(2026, 1, 1, tzinfo=UTC), True) for n in (1, 2))
    with kafka(tmp_path / "kafka") as broker:
        options = Options(brokers=broker.address, topic="t", partitions=1)
        check(options, context(tmp_path))
        writer = opened(options, context(tmp_path))
        writer.write(Epoch(1), [table([(first, 1)])])

        def going() -> Iterator[pa.Table]:
            if frozen:
                broker.freeze()
            else:
                broker.stop(crash=True)
            yield table([(second, 1)])

        with pytest.raises(HeadraceError, match="cannot be written") as caught:
            writer.write(Epoch(2), going())
        assert caught.value.code is Code.UNAVAILABLE
        with pytest.raises(HeadraceError, match="cannot be written") as caught:
            writer.durable()
        assert caught.value.code is Code.UNAVAILABLE
        if frozen:
            broker.thaw()
        else:
            broker.start()
        assert writer.durable() == 1
        writer.write(Epoch(2), [table([(second, 1)])])
        assert by_last(broker, "t") == Counter([first, second])
        writer.close()


@pytest.mark.long
def test_a_later_producer_ends_the_transaction_of_an_earlier_one(broker, sink) -> None:
    topic, writer = sink()
    (first, second) = (writer(), writer())
    new = (1, "a", None, datetime(2026, 1, 1, tzinfo=UTC), True)
    assert first.durable() is None
    assert first.write(Epoch(3), [table([(new, 1)])]) == []

    def overtaken():
        yield table([((2, *new[1:]), 1)])
        assert second.durable() == 3
        assert second.write(Epoch(4), [table([((3, *new[1:]), 1)])]) == []

    with pytest.raises(HeadraceError, match="cannot be written") as caught:
        first.write(Epoch(4), overtaken())
    assert caught.value.code is Code.UNAVAILABLE
    ids = [json.loads(value or b"")["id"] for _, value, _ in committed(broker, topic)]
    assert sorted(ids) == [1, 3]
    with pytest.raises(
        HeadraceError, match="epoch 4 was committed, although its commit seemed to fail"
    ):
        first.write(Epoch(5), [table([((2, *new[1:]), 1)])])
    assert first.durable() == 4
    first.close()
    second.close()


@pytest.mark.long
def test_a_message_that_is_too_large_is_refused_and_noted_with_its_epoch(broker, sink) -> None:
    topic, writer = sink(settings=(("topic.max.message.bytes", "4000"),))
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [((number, "x" * size, None, at, None), 1) for number, size in enumerate([10, 5000, 10])]
    (refused,) = writer().write(Epoch(1), [table(rows)])
    assert json.loads(refused.row)["row"]["id"] == 1
    assert "too large for the topic, whose max.message.bytes is 4000" in refused.why
    again = writer()
    assert again.durable() == 1  # as after a crash before the ledger had the refused row
    (noted,) = again.last_refused()
    assert (noted.row[:20], noted.why) == (refused.row[:20], refused.why)
    assert {row[0] for row in by_last(broker, topic)} == {0, 2}

    topic, writer = sink(stops=True, settings=(("topic.max.message.bytes", "4000"),))
    stopping = writer()
    assert len(stopping.write(Epoch(1), [table(rows)])) == 1
    assert committed(broker, topic) == []
    assert stopping.durable() is None


@pytest.mark.long
@pytest.mark.parametrize(
    ("envelope", "read_by"),
    [
        (
            Envelope.DEBEZIUM,
            {"format": "debezium-json", "debezium.decimal-handling-mode": "string"},
        ),
        (Envelope.UPSERT, {"connector": "upsert-kafka", "format": "json", "key.format": "json"}),
    ],
)
def test_our_own_source_reads_what_is_written(broker, sink, envelope, read_by) -> None:
    topic, writer = sink(envelope=envelope)
    random_, histories = Random(1), Histories()
    histories.change({number: row(random_, number) for number in range(20)})
    delivery = begun(histories).delivery(writer(), DeliverySettings(part_rows=8))
    for _ in range(10):
        changed = random_.sample(range(30), 8)
        histories.change({n: random_.choice([None, row(random_, n)]) for n in changed})
        delivery.advance()
    declared = Declaration(options=tuple(read_by.items()))
    relation = Table(RelationId(1), "t", SCHEMA, KEY, declaration=declared)
    decoder = change_decoder(relation, SCHEMA, JsonMessages)
    options = SourceOptions(brokers=broker.address, topic=topic)
    source = KafkaSource(options, MessageColumns(SCHEMA, SCHEMA, ()), decoder, str)
    rows: dict[int, Row] = {}
    for part in source.parts(None):
        assert not part.rejects
        for change in part.rows.to_pylist():
            if change.pop(WEIGHT) > 0:
                rows[change["id"]] = tuple(change.values())
            else:
                rows.pop(change["id"], None)
        if part.done == part.total:
            source.close()
    assert Counter(rows.values()) == histories.at(histories.last)


def test_avro_is_written_by_the_schema_that_is_registered(broker, sink, registry) -> None:
    topic, writer = sink(format=ValueFormat.AVRO, key_format=SinkKeyFormat.AVRO, registry=registry)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [(1, "ß", Decimal("-1.50"), at, True), (2, None, None, at, None)]
    writer().write(Epoch(1), [table([(each, 1) for each in rows])])
    found = Registry(registry).latest(f"{topic}-value")
    assert found is not None
    values = [value for _, value, _ in committed(broker, topic) if value is not None]
    decoded = AvroRecords(found.text, SCHEMA).decode(values, 5)
    assert not decoded.rejects
    assert {tuple(each.values()) for each in decoded.rows.to_pylist()} == set(rows)
    of_key = Registry(registry).latest(f"{topic}-key")
    assert of_key is not None
    assert json.loads(of_key.text)["fields"][0]["name"] == "id"


def test_an_epoch_without_changes_is_recorded(broker, sink) -> None:
    topic, writer = sink()
    assert list(writer().write(Epoch(4), [])) == []
    assert writer().durable() == 4
    assert committed(broker, topic) == []


@pytest.mark.long
def test_a_reset_empties_the_topic(broker, sink) -> None:
    topic, writer = sink()
    new = (1, "a", None, datetime(2026, 1, 1, tzinfo=UTC), True)
    used = writer()
    used.write(Epoch(2), [table([(new, 1)])])
    used.clear()
    assert used.durable() is None
    assert committed(broker, topic) == []
    used.write(Epoch(9), [table([(new, 1)])])
    assert by_last(broker, topic) == Counter([new])


def test_what_cannot_be_written_is_refused_when_the_sink_is_made(broker, sink, tmp_path) -> None:
    with pytest.raises(HeadraceError, match="needs rows with a unique key"):
        sink(key=(), envelope=Envelope.UPSERT)
    with pytest.raises(HeadraceError, match="is one column, not id, name"):
        sink(key=("id", "name"), key_format=SinkKeyFormat.STRING)
    with pytest.raises(HeadraceError, match="need a schema registry"):
        Options(brokers="b", topic="t", format=ValueFormat.AVRO)
    missing = Options(brokers=broker.address, topic=f"no-{uuid4().hex}")
    tries = dataclasses.replace(context(tmp_path), tries=True)
    check(dataclasses.replace(missing, partitions=1), tries)  # which would create it
    with pytest.raises(HeadraceError, match="cannot be written"):
        check(missing, tries)
    with pytest.raises(HeadraceError, match="cannot be written") as caught:
        check(missing, context(tmp_path))
    assert caught.value.hint == (
        "Create the topic, or correct its name."
        " CREATE SINK creates it if its options give the number of partitions."
    )
    away = Options(brokers=f"127.0.0.1:{free_port()}", topic="t")
    with pytest.raises(HeadraceError, match="cannot be written") as caught:
        opened(away, context(tmp_path)).durable()
    assert caught.value.code is Code.UNAVAILABLE


def test_a_topic_is_of_one_sink_and_a_sink_is_not_moved_from_it(broker, sink, tmp_path) -> None:
    topic, writer = sink()
    new = (1, "a", None, datetime(2026, 1, 1, tzinfo=UTC), True)
    options = Options(brokers=broker.address, topic=topic, envelope=Envelope.CHANGELOG)
    other = dataclasses.replace(context(tmp_path), identity=f"{uuid4().hex}/8")
    early = opened(options, other)  # created before the first sink has written
    used = writer()
    used.write(Epoch(4), [table([(new, 1)])])
    for refused in (lambda: check(options, other), early.durable):
        with pytest.raises(HeadraceError, match="belongs to another sink") as caught:
            refused()
        assert caught.value.code is Code.CONFLICT
        assert "consumer group headrace-sink-" in (caught.value.hint or "")
    mine = dataclasses.replace(other, identity=used.transactions.group.partition("sink-")[2])
    for moved, fits in ((4, True), (5, False)):  # 5: a copy of the topic that lags behind
        there = dataclasses.replace(mine, exists=True, moved=Epoch(moved))
        if fits:
            check(options, there)
            continue
        with pytest.raises(HeadraceError, match="does not contain what this sink has written"):
            check(options, there)
    used.close()


def test_rows_without_a_key_are_changes_with_weights(broker, sink) -> None:
    topic, writer = sink(key=())
    at = datetime(2026, 1, 1, tzinfo=UTC)
    new = (1, "a", None, at, True)
    changes = pa.concat_tables([table([(new, 3)]), table([((2, *new[1:]), -1)])])
    writer().write(Epoch(1), [changes])
    messages = committed(broker, topic)
    assert all(key is None for key, _, _ in messages)
    found = [json.loads(value or b"") for _, value, _ in messages]
    assert sorted((each["op"], each["weight"]) for each in found) == [("+I", 3), ("-D", -1)]


@pytest.mark.long
@pytest.mark.spark
def test_a_table_over_the_topic_of_a_view_is_the_view(db, broker) -> None:
    topic = f"sink-{uuid4().hex}"
    db.sql("CREATE TABLE orders (id INT, buyer STRING, amount DECIMAL(8,2), PRIMARY KEY (id))")
    db.sql("INSERT INTO orders VALUES (1, 'ann', 10.00), (2, 'bob', 20.00), (3, 'ann', 5.50)")
    db.sql(
        "CREATE MATERIALIZED VIEW spent AS SELECT buyer, sum(amount) AS s FROM orders GROUP BY buyer"
    )
    db.sql(f"CREATE CONNECTION k TO KAFKA (BROKER '{broker.address}')")
    made = db.sql(
        f"CREATE SINK out FROM spent INTO CONNECTION k (TOPIC '{topic}', PARTITIONS 1)"
        " WITH (envelope = 'debezium')"
    )
    assert "exactly once: one transaction per epoch" in made.message
    db.sql("DELETE FROM orders WHERE id = 2; INSERT INTO orders VALUES (4, 'cid', 1.25)")
    db.flush()
    db.sql(
        "CREATE TABLE copy (buyer STRING, s DECIMAL(18,2), PRIMARY KEY (buyer)) WITH (connector ="
        f" 'kafka', brokers = '{broker.address}', topic = '{topic}', format = 'debezium-json',"
        " 'debezium.decimal-handling-mode' = 'string')"
    )
    landed(db, "copy", 4)
    found = rows(db, "SELECT * FROM copy ORDER BY buyer")
    assert found == [("ann", Decimal("15.50")), ("cid", Decimal("1.25"))]
    assert found == rows(db, "SELECT * FROM spent ORDER BY buyer")


def forget(broker: Kafka, group: str) -> None:
    """Have the broker forget a group, as it does when nothing has happened in it for days."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.delete_consumer_groups([group])[group].result(30)
    assert not is_remembered(broker, group)


def is_remembered(broker: Kafka, group: str) -> bool:
    """Whether the broker has an offset of a group."""
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.address})
    asked = ConsumerGroupTopicPartitions(group)
    (answer,) = admin.list_consumer_group_offsets([asked]).values()
    return any(place.offset >= 0 for place in answer.result(30).topic_partitions)


def history(*ids: int) -> Histories:
    """Return a history of one epoch for each id, which inserts its row."""
    random, made = Random(1), Histories()
    for id_ in ids:
        made.change({id_: row(random, id_)})
    return made


@pytest.mark.long
def test_an_epoch_that_the_broker_has_forgotten_is_known_from_the_messages(broker, sink) -> None:
    topic, writer = sink(envelope=Envelope.CHANGELOG)
    first = writer()
    assert first.durable() is None
    made = history(*range(5))
    for epoch in range(1, 6):
        assert not first.write(Epoch(epoch), made.delta(Epoch(epoch - 1), Epoch(epoch), 10))
    first.transactions.begin()
    first.transactions.send(Epoch(6), first._encoder.messages(Epoch(6), table([])))  # type: ignore[union-attr]
    first.close()
    before = committed(broker, topic)
    assert {headers["headrace.epoch"] for *_, headers in before} == {b"1", b"2", b"3", b"4", b"5"}
    group = first.transactions.group
    forget(broker, group)
    again = writer()
    assert again.durable() == Epoch(5)
    assert is_remembered(broker, group), "what was found is recorded again"
    assert again.last_refused() == []
    again.close()
    assert committed(broker, topic) == before
    made.change({0: None})
    forget(broker, group)
    last = writer()
    assert last.durable() == Epoch(5)
    assert not last.write(Epoch(6), made.delta(Epoch(5), Epoch(6), 10))
    last.close()
    assert by_weight(broker, topic) == made.at(made.last)


@pytest.mark.long
def test_messages_of_aborted_epochs_and_of_others_say_nothing(broker, sink) -> None:
    topic, writer = sink(envelope=Envelope.CHANGELOG)
    of_others = {"headrace.epoch": b"99", "headrace.sink": b"another/7"}
    broker.produce(topic, [{"value": b"x", "headers": of_others}])
    broker.produce(topic, [{"value": b"x", "headers": {"headrace.epoch": b"99"}}, {"value": b"y"}])
    first = writer()
    assert first.durable() is None
    made = history(1, 2)
    assert not first.write(Epoch(1), made.delta(Epoch(0), Epoch(1), 10))

    def ends() -> Any:
        yield from made.delta(Epoch(1), Epoch(2), 10)
        first.transactions._producer.flush(10)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        first.write(Epoch(2), ends())
    broker.produce(topic, [{"value": b"z", "headers": of_others}])
    first.close()
    forget(broker, first.transactions.group)
    again = writer()
    assert again.durable() == Epoch(1)
    again.close()


@pytest.mark.long
def test_a_killed_sink_that_was_forgotten_writes_no_epoch_again(broker, sink) -> None:
    topic, writer = sink(envelope=Envelope.CHANGELOG)
    random, first = Random(4), writer()
    made = history(*range(20))
    outlived = begun(made)

    def killed(stage: str) -> None:
        if stage == "sink written":
            raise Killed

    outlived.delivery(first, DeliverySettings()).advance()
    made.change({id_: row(random, id_) for id_ in range(30)})
    outlived.fault = killed
    with pytest.raises(Killed):
        outlived.delivery(first, DeliverySettings()).advance()
    first.close()
    outlived.fault = lambda _stage: None
    forget(broker, first.transactions.group)
    assert outlived.record.delivered != made.last
    again = writer()
    outlived.delivery(again, DeliverySettings()).advance()
    assert outlived.record.delivered == made.last
    assert by_weight(broker, topic) == made.at(made.last)
    again.close()


@pytest.mark.long
def test_a_record_is_renewed_by_the_producer_that_is_not_replaced(broker, sink) -> None:
    topic, writer = sink(envelope=Envelope.CHANGELOG)
    first, made = writer(), history(1)
    assert first.durable() is None
    assert not first.write(Epoch(1), made.delta(Epoch(0), Epoch(1), 10))
    before = committed(broker, topic)
    group = first.transactions.group
    forget(broker, group)
    first.idle()
    assert not is_remembered(broker, group), "it is not due yet"
    first.transactions.renew(Mark(Epoch(1)))
    assert is_remembered(broker, group)
    assert not first.transactions.is_due
    second = writer()
    assert second.durable() == Epoch(1)
    with pytest.raises(HeadraceError) as refused:
        first.transactions.renew(Mark(Epoch(0)))
    assert refused.value.code is Code.UNAVAILABLE
    assert second.durable() == Epoch(1)
    assert committed(broker, topic) == before
    first.close()
    second.close()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_sink_that_is_idle_is_not_forgotten(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(kafka_transactions, "_RENEWAL_SECONDS", 1.0)
    retention = "offsets.retention.minutes=1\noffsets.retention.check.interval.ms=500\n"
    with kafka(tmp_path / "kafka", settings=retention) as own:
        given = Options(brokers=own.address, topic="t", partitions=1, envelope=Envelope.CHANGELOG)
        sinks = []
        for identity in ("idle/1", "closed/2"):
            of_sink = dataclasses.replace(context(tmp_path), identity=identity)
            options = dataclasses.replace(given, topic=identity.replace("/", "-"))
            check(options, of_sink)
            sinks.append(opened(options, of_sink))
        made = history(1)
        for each in sinks:
            assert each.durable() is None
            assert not each.write(Epoch(1), made.delta(Epoch(0), Epoch(1), 10))
        idle, closed = sinks
        closed.close()
        until = time.monotonic() + 200
        while is_remembered(own, closed.transactions.group):
            assert time.monotonic() < until, "the broker forgets nothing"
            idle.idle()
            time.sleep(0.5)
        assert is_remembered(own, idle.transactions.group)
        assert closed.durable() == Epoch(1), "the messages still say so"
        assert is_remembered(own, closed.transactions.group)
        for each in sinks:
            each.close()
