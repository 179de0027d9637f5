"""A Kafka topic as a source, against a real broker: order, offsets, bad messages, failures."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.feeds import Feed, FeedState, Ingest
from headrace.io.connectors import Given
from headrace.io.connectors.kafka.options import Bounded, KafkaStartup, Options
from headrace.io.connectors.kafka.source import KafkaSource, MessageColumns
from headrace.io.connectors.options import read_options
from headrace.io.formats.captured import CapturedMessages
from headrace.io.formats.debezium import Debezium
from headrace.io.formats.debezium_values import Encoding
from headrace.io.formats.messages import JsonMessages
from headrace.io.formats.upserts import Appended
from headrace.types import Column, Offset, Schema
from servers.kafka import kafka
from servers.machine import free_port

pytestmark = pytest.mark.timeout(120)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.execution.runtime.ports import Part
    from servers.kafka import Kafka

VALUE = Schema((Column("id", t.LongType()), Column("text", t.StringType())))
META = (("part", "partition"), ("at", "timestamp"), ("k", "key"), ("place", "offset"))
ALL = Schema(
    (
        *VALUE.columns,
        Column("part", t.IntegerType()),
        Column("at", t.TimestampType()),
        Column("k", t.StringType()),
        Column("place", t.LongType()),
    )
)


def message(number: int, **more: Any) -> dict[str, Any]:
    return {"value": json.dumps({"id": number, "text": f"t{number}"}).encode(), **more}


@pytest.fixture
def topic(broker: Kafka) -> str:
    return broker.create(f"t{uuid4().hex}", 3)


@pytest.fixture
def source(broker: Kafka, topic: str) -> Callable[..., KafkaSource]:
    def make(**options: Any) -> KafkaSource:
        given = Options(**{"brokers": broker.address, "topic": topic, **options})
        return KafkaSource(
            given,
            MessageColumns(ALL, VALUE, META),
            Appended(JsonMessages(VALUE)),
            lambda name: name,
        )

    return make


def read(
    source: KafkaSource, messages: int, position: Mapping[str, Any] | None = None
) -> list[Part]:
    """Return the parts of a source until it has yielded as many rows and rejects, then close it."""
    found: list[Part] = []
    for part in source.parts(position):
        if part.rows.num_rows or part.rejects:
            found.append(part)
        if sum(p.rows.num_rows + len(p.rejects) for p in found) >= messages:
            source.close()
    return found


def ids(parts: list[Part]) -> Counter[int]:
    return Counter(value for part in parts for value in part.rows["id"].to_pylist())


def test_every_message_is_read_once_in_the_order_of_its_partition(broker, topic, source) -> None:
    broker.produce(topic, (message(i, key=f"k{i % 7}") for i in range(5000)))
    parts = read(source(), 5000)
    assert ids(parts) == Counter(range(5000))
    by_partition: dict[int, list[tuple[int, int]]] = {}
    for part in parts:
        for row in part.rows.to_pylist():
            by_partition.setdefault(row["part"], []).append((row["place"], row["id"]))
            assert row["k"] == f"k{row['id'] % 7}"
    for rows in by_partition.values():
        assert rows == sorted(rows)
        assert [place for place, _ in rows] == list(range(len(rows)))
    last = parts[-1]
    ends = {f"{topic}/{n}": len(by_partition.get(n, ())) for n in range(3)}
    assert {key: end for key, end in last.position.items() if key != "topics"} == ends
    assert list(last.position["topics"]) == [topic]
    assert last.done == last.total == 5000


def test_a_source_continues_at_any_position(broker, topic, source) -> None:
    broker.produce(topic, (message(i) for i in range(300)))
    begun = source()
    first = next(part for part in begun.parts(None) if part.rows.num_rows)
    broker.produce(topic, (message(i) for i in range(300, 400)))
    rest = read(source(), 400 - first.rows.num_rows, first.position)
    assert ids([first, *rest]) == Counter(range(400))


def test_messages_that_do_not_fit_are_rejects_at_their_offset(broker, topic, source) -> None:
    bad = [b"nonsense", b"[1]", b"", b'{"id": "x"}', b"\xff{}", None]
    messages = [message(1, partition=1), *({"value": value, "partition": 1} for value in bad)]
    messages.append({"value": b'{"id": 2,\n "text":\n "two"}', "partition": 1, "key": None})
    broker.produce(topic, messages)
    parts = read(source(), len(messages))
    assert ids(parts) == Counter([1, 2])
    rejects = [reject for part in parts for reject in part.rejects]
    assert sorted(reject.line for reject in rejects) == [1, 2, 3, 4, 5, 6]
    assert {reject.file for reject in rejects} == {f"{topic}/1"}
    reasons = {reject.line: (reject.column, reject.reason) for reject in rejects}
    assert reasons[3] == (None, "an empty value")
    assert reasons[4][0] == "id"
    assert reasons[6] == (None, "a message without a value")


def test_a_key_that_is_not_text_is_a_reject_of_a_text_column(broker, topic, source) -> None:
    keys = [b"k", b"\xff", None, b""]
    broker.produce(topic, (message(n, key=key, partition=0) for n, key in enumerate(keys)))
    parts = read(source(), 4)
    assert [row["k"] for part in parts for row in part.rows.to_pylist()] == ["k", None, ""]
    (reject,) = [reject for part in parts for reject in part.rejects]
    assert (reject.file, reject.line, reject.column) == (f"{topic}/0", 1, "k")
    assert reject.reason == "not UTF-8"
    binary = Schema((*VALUE.columns, Column("k", t.BinaryType())))
    as_bytes = KafkaSource(
        Options(brokers=broker.address, topic=topic),
        MessageColumns(binary, VALUE, (("k", "key"),)),
        Appended(JsonMessages(VALUE)),
        str,
    )
    as_bytes.check()
    assert [row["k"] for part in read(as_bytes, 4) for row in part.rows.to_pylist()] == keys


def test_the_time_of_a_message_is_a_column(broker, topic, source) -> None:
    broker.produce(topic, [message(1, timestamp=1_700_000_000_123, partition=0)])
    (part,) = read(source(), 1)
    at = part.rows["at"].to_pylist()[0]
    assert at == datetime.fromtimestamp(1_700_000_000, UTC).replace(microsecond=123_000)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"startup": KafkaStartup.EARLIEST}, [0, 1, 2, 3]),
        ({"startup": KafkaStartup.LATEST}, [3]),
        ({"startup": KafkaStartup.TIMESTAMP, "startup_timestamp": 2000}, [1, 2, 3]),
        ({"startup": KafkaStartup.OFFSETS, "startup_offsets": "partition:0,offset:2"}, [2, 3]),
    ],
)
def test_a_source_begins_where_its_options_say(broker, topic, source, options, wanted) -> None:
    broker.produce(topic, (message(i, partition=0, timestamp=1000 + 1000 * i) for i in range(3)))
    begun = source(**options)
    found: list[Part] = []
    for part in begun.parts(None):
        if not found:
            broker.produce(topic, [message(3, partition=0, timestamp=9000)])
        found.append(part)
        if 3 in ids(found):
            begun.close()
    assert sorted(ids(found)) == wanted


def test_a_source_begins_where_its_group_has_read_to(broker, topic, source) -> None:
    from confluent_kafka import Consumer, TopicPartition

    broker.produce(topic, (message(n, partition=n % 2) for n in range(10)))
    group = f"g{uuid4().hex}"
    client = Consumer({"bootstrap.servers": broker.address, "group.id": group})
    client.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    client.close()
    found = read(source(startup=KafkaStartup.GROUP, group=group), 7)
    assert ids(found) == Counter([6, 8, 1, 3, 5, 7, 9])


@pytest.mark.long
def test_topics_are_found_by_a_pattern(broker, source, monkeypatch) -> None:
    monkeypatch.setattr("headrace.io.connectors.kafka.source._DISCOVER_SECONDS", 0.2)
    prefix = f"p{uuid4().hex}"
    for name in ("-a", "-b", "x"):
        broker.create(f"{prefix}{name}")
        broker.produce(f"{prefix}{name}", [message(ord(name[-1]))])
    begun = source(topic=None, pattern=f"{prefix}-.*", startup=KafkaStartup.EARLIEST)
    begun.check()
    found: list[Part] = []
    created = False
    for part in begun.parts(None):
        found.append(part)
        if ids(found) == Counter([97, 98]) and not created:
            created = True
            broker.create(f"{prefix}-c")
            broker.produce(f"{prefix}-c", [message(99)])
        if 99 in ids(found):
            begun.close()
    assert ids(found) == Counter([97, 98, 99])
    with pytest.raises(HeadraceError, match="no topic matches") as caught:
        source(topic=None, pattern="nothing-of-it").check()
    assert caught.value.code is Code.INVALID


def committed(broker: Kafka, topic: str, numbers: range, *, abort: bool = False) -> None:
    """Write messages to partition 0 in one transaction, and wait until its end is visible."""
    from confluent_kafka import Consumer, TopicPartition

    producer = broker.producer(**{"transactional.id": uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    for n in numbers:
        producer.produce(topic, partition=0, timestamp=1000 + 1000 * n, **message(n))
    (producer.abort_transaction if abort else producer.commit_transaction)(30)
    ends = [
        Consumer({"bootstrap.servers": broker.address, "group.id": "g", "isolation.level": level})
        for level in ("read_committed", "read_uncommitted")
    ]
    place = TopicPartition(topic, 0)
    until(lambda: len({each.get_watermark_offsets(place, timeout=10)[1] for each in ends}) == 1)
    for each in ends:
        each.close()


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"bounded": Bounded.LATEST}, [0, 1, 2, 3]),
        pytest.param(
            {"bounded": Bounded.TIMESTAMP, "bounded_timestamp": 3000},
            [0, 1],
            marks=pytest.mark.long,
        ),
        ({"bounded": Bounded.OFFSETS, "bounded_offsets": "partition:0,offset:3"}, [0, 1, 2]),
        pytest.param(
            {"bounded": Bounded.OFFSETS, "bounded_offsets": "partition:1,offset:0"},
            [],
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_bounded_source_ends_at_its_bound(broker, topic, source, options, wanted) -> None:
    committed(broker, topic, range(4))
    committed(broker, topic, range(4, 6), abort=True)
    found: list[Part] = []
    for part in source(**options).parts(None):
        if not found:
            broker.produce(topic, [message(9, partition=0), message(9, partition=2)])
        found.append(part)
    assert sorted(ids(found)) == wanted
    assert found[-1].done == found[-1].total
    assert list(source(**options).parts(found[-1].position)) == []


def test_a_bounded_source_that_was_interrupted_keeps_its_bound(broker, topic, source) -> None:
    broker.produce(topic, (message(n, partition=0) for n in range(3)))
    begun = source(bounded=Bounded.LATEST)
    first = next(iter(begun.parts(None)))
    broker.produce(topic, (message(n, partition=0) for n in range(3, 6)))
    rest = list(source(bounded=Bounded.LATEST).parts(first.position))
    assert ids([first, *rest]) == Counter(range(3))


def test_marks_of_transactions_are_no_messages_to_come(broker, topic, source) -> None:
    committed(broker, topic, range(2))
    begun = source()
    for part in begun.parts(None):
        if part.position[f"{topic}/0"] == 3:
            assert part.done == part.total
            begun.close()


def test_aborted_and_open_transactions_are_not_read(broker, topic, source) -> None:
    producer = broker.producer(**{"transactional.id": topic})
    producer.init_transactions(30)
    for number, ends in enumerate((producer.commit_transaction, producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, partition=0, **message(number))
        ends(30)
    producer.begin_transaction()
    producer.produce(topic, partition=0, **message(2))
    producer.flush(30)
    begun = source()
    found: list[Part] = []
    for part in begun.parts(None):
        found.append(part)
        if 0 in ids(found) and not part.rows.num_rows:
            break
    assert ids(found) == Counter([0])
    producer.commit_transaction(30)
    again = read(source(), 1, found[-1].position)
    assert ids(again) == Counter([2])


def test_partitions_that_are_added_are_read_from_their_beginning(
    broker, topic, source, monkeypatch
) -> None:
    monkeypatch.setattr("headrace.io.connectors.kafka.source._DISCOVER_SECONDS", 0.2)
    broker.produce(topic, [message(1, partition=0)])
    begun, found = source(startup=KafkaStartup.EARLIEST), []
    for part in begun.parts(None):
        if part.rows.num_rows and not ids(found):
            broker.widen(topic, 5)
            broker.produce(
                topic, [message(2, partition=4)], **{"topic.metadata.refresh.interval.ms": 100}
            )
        found.append(part)
        if 2 in ids(found):
            begun.close()
    assert ids(found) == Counter([1, 2])
    assert found[-1].position[f"{topic}/4"] == 1


def test_a_transaction_of_a_source_is_in_one_part(broker, topic, monkeypatch) -> None:
    monkeypatch.setattr("headrace.io.connectors.kafka.arrivals._QUIET_SECONDS", 60)

    def event(number: int, transaction: int) -> dict[str, Any]:
        of = {"id": f"{transaction}:1", "total_order": number, "data_collection_order": number}
        value = {"op": "c", "after": {"id": number}, "transaction": of}
        return {"value": json.dumps(value).encode(), "partition": 0}

    captured = CapturedMessages(VALUE, ("id",), Debezium(VALUE.columns, ("id",), Encoding()))
    given = Options(brokers=broker.address, topic=topic)
    broker.produce(topic, [event(1, 1), event(2, 2)])
    begun, found = KafkaSource(given, MessageColumns(VALUE, VALUE), captured, str), []
    for part in begun.parts(None):
        if part.rows.num_rows:
            found.append(part)
        if len(found) == 1 and part is found[0]:
            broker.produce(topic, [event(3, 2)])
            broker.produce(topic, [event(4, 3)])
        if len(found) == 2:
            begun.close()
    assert [part.rows["id"].to_pylist() for part in found] == [[1], [2, 3]]
    assert [part.position[f"{topic}/0"] for part in found] == [1, 3]


def test_a_topic_that_was_created_again_is_a_conflict(broker, topic, source) -> None:
    broker.produce(topic, [message(n, partition=0) for n in range(5)])
    (*_, last) = read(source(), 5)
    broker.delete(topic)
    broker.create(topic, 3)
    broker.produce(topic, [message(n, partition=0) for n in range(20)])
    with pytest.raises(HeadraceError, match="was deleted and created again") as caught:
        next(iter(source().parts(last.position)))
    assert caught.value.code is Code.CONFLICT


def test_messages_that_are_gone_are_a_conflict(broker, topic, source) -> None:
    broker.produce(topic, [message(1, partition=0)])
    position = {f"{topic}/{n}": 100 for n in range(3)}
    with pytest.raises(HeadraceError, match="has lost messages") as caught:
        for _ in source().parts(position):
            pass
    assert caught.value.code is Code.CONFLICT


def test_what_is_not_there_is_unavailable(source) -> None:
    with pytest.raises(HeadraceError, match='topic "none" cannot be read') as caught:
        next(iter(source(topic="none").parts(None)))
    assert caught.value.code is Code.UNAVAILABLE
    assert caught.value.hint == "Create the topic, or correct its name."


def test_brokers_that_are_not_there_are_noticed_soon(source) -> None:
    begun = time.monotonic()
    with pytest.raises(HeadraceError, match="cannot be read") as caught:
        next(iter(source(brokers=f"127.0.0.1:{free_port()}").parts(None)))
    assert time.monotonic() - begun < 4
    assert caught.value.code is Code.UNAVAILABLE
    assert (caught.value.hint or "").startswith("Start the brokers")


def test_a_topic_that_cannot_be_created_says_why(source) -> None:
    with pytest.raises(HeadraceError, match="cannot be created") as caught:
        source(topic=f"t{uuid4().hex}", partitions=1, replicas=9).check()
    assert caught.value.code is Code.INVALID
    assert "as many replicas as there are brokers" in (caught.value.hint or "")


@pytest.mark.long
def test_a_feed_goes_on_when_the_broker_is_back(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("headrace.execution.runtime.feeds._RETRY_SECONDS", 0.1)
    landed: list[Any] = []

    def append(rows: Any, **_: Any) -> Offset:
        landed.extend(rows["id"].to_pylist())
        return Offset(len(landed))

    with kafka(tmp_path) as own:
        topic = own.create("t", 1)
        given = Options(brokers=own.address, topic=topic)

        def opened() -> KafkaSource:
            return KafkaSource(
                given, MessageColumns(VALUE, VALUE), Appended(JsonMessages(VALUE)), str
            )

        feed = Feed(Ingest(append, "kafka"), opened)
        feed.start("test")
        own.produce(topic, [message(1)])
        until(lambda: landed == [1])
        own.stop()
        stopped = time.monotonic()
        until(lambda: feed.state is FeedState.RETRYING)
        assert time.monotonic() - stopped < 3
        assert feed.error is not None
        assert feed.error.code is Code.UNAVAILABLE
        own.start()
        own.produce(topic, [message(2)])
        until(lambda: landed == [1, 2] and feed.state is FeedState.RUNNING)
        assert feed.error is None
        feed.close()


def until(met: Callable[[], bool]) -> None:
    """Wait until a condition is met."""
    ends = time.monotonic() + 90
    while not met():
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_a_source_that_is_closed_on_another_thread_ends(source) -> None:
    begun, ended = source(), threading.Event()

    def run() -> None:
        for _ in begun.parts(None):
            pass
        ended.set()

    thread = threading.Thread(target=run)
    thread.start()
    begun.close()
    assert ended.wait(30)
    thread.join()


def options_of(**given: str) -> Options:
    pairs = [Given(key.replace("_", "."), value) for key, value in given.items()]
    return read_options(Options, [Given("topic", "a;b"), *pairs], "a kafka source")


def test_options_are_read_and_unknown_ones_refused() -> None:
    options = options_of(brokers="b:1")
    assert (options.topics, options.isolation) == (("a", "b"), "read_committed")
    assert options.client(lambda _: "") == {"bootstrap.servers": "b:1"}
    with pytest.raises(HeadraceError, match="does not exist") as caught:
        options_of(properties_bootstrap_server="b:1")
    assert "properties.bootstrap.servers" in (caught.value.hint or "")
    with pytest.raises(HeadraceError, match="is not the offset of a partition"):
        read_options(
            Options,
            [
                Given("brokers", "b:1"),
                Given("topic", "t"),
                Given("scan.startup.specific-offsets", "0:5"),
            ],
            "a kafka source",
        )
    for given in (
        {"scan_startup_mode": "timestamp"},
        {"scan_startup_timestamp-millis": "5"},
        {"scan_startup_mode": "specific-offsets"},
    ):
        with pytest.raises(HeadraceError, match=r'option "scan\.startup\.mode"'):
            options_of(brokers="b:1", **given)
    for given in (
        {"scan_bounded_mode": "timestamp"},
        {"scan_bounded_specific-offsets": "partition:0,offset:1"},
    ):
        with pytest.raises(HeadraceError, match=r'option "scan\.bounded\.mode"'):
            options_of(brokers="b:1", **given)
    with pytest.raises(HeadraceError, match=r'needs option "properties\.group\.id"'):
        options_of(brokers="b:1", scan_startup_mode="group-offsets")
    with pytest.raises(HeadraceError, match="are given together"):
        options_of(brokers="b:1", **{"topic-pattern": "a.*"})
    with pytest.raises(HeadraceError, match="is not a regular expression"):
        options_of(brokers="b:1", **{"topic-pattern": "a("})
    for count in ("0", "-1", "x"):
        with pytest.raises(HeadraceError, match="is not a number of partitions or replicas"):
            options_of(brokers="b:1", partitions=count)
    with pytest.raises(HeadraceError, match="is a secret"):
        options_of(brokers="b:1", properties_sasl_password="hunter2")  # noqa: S106
