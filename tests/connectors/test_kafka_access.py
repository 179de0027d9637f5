"""Access to Kafka: passwords by PLAIN and SCRAM, and certificates, against a real broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as t

from connectors.sink_histories import context
from headrace.errors import Code, HeadraceError
from headrace.io.connectors.kafka import sink as kafka_sink
from headrace.io.connectors.kafka.options import Options
from headrace.io.connectors.kafka.sink_options import Options as SinkOptions
from headrace.io.connectors.kafka.source import KafkaSource, MessageColumns
from headrace.io.connectors.options import SecretName
from headrace.io.formats.messages import JsonMessages
from headrace.io.formats.upserts import Appended
from headrace.types import Column, Schema
from servers.certificates import authority
from servers.kafka import Guard, kafka
from servers.machine import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from servers.kafka import Kafka

pytestmark = [pytest.mark.timeout(120), pytest.mark.long]

VALUE = Schema((Column("id", t.LongType()),))
PASSWORD = "right-one"  # noqa: S105 (of a broker that lives as long as the test)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("guarded")


@pytest.fixture(scope="module")
def authority_file(directory: Path) -> Path:
    return authority(directory, "ours")[0]


@pytest.fixture(scope="module")
def guarded(directory: Path, authority_file: Path) -> Iterator[Kafka]:
    pytest.importorskip("confluent_kafka")
    guard = Guard("ann", PASSWORD, authority_file.with_name("ours-server.pem"))
    try:
        with kafka(directory / "kafka", guard=guard) as running:
            running.create("t")
            running.produce("t", [{"value": b'{"id": 7}'}])
            yield running
    except Unavailable as reason:
        pytest.skip(f"no Kafka: {reason}")


def source(**options: Any) -> KafkaSource:
    given = Options(topic="t", **options)
    secret = {"right": PASSWORD, "wrong": "hunter2"}.__getitem__
    return KafkaSource(given, MessageColumns(VALUE, VALUE), Appended(JsonMessages(VALUE)), secret)


def first(opened: KafkaSource) -> list[Any]:
    """Return the first rows of a source."""
    for part in opened.parts(None):
        if part.rows.num_rows:
            opened.close()
            return list(part.rows["id"].to_pylist())
    raise AssertionError


def by_password(guarded: Kafka, mechanism: str, secret: str) -> KafkaSource:
    return source(
        brokers=guarded.guarded("SASL_PLAINTEXT"),
        protocol="SASL_PLAINTEXT",
        mechanism=mechanism,
        username="ann",
        password=secret,
    )


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_the_right_password_is_let_in_and_a_wrong_one_stops_the_source(guarded, mechanism) -> None:
    assert first(by_password(guarded, mechanism, "right")) == [7]
    begun = time.monotonic()
    with pytest.raises(HeadraceError, match='topic "t" cannot be read') as caught:
        first(by_password(guarded, mechanism, "wrong"))
    assert time.monotonic() - begun < 5
    assert caught.value.code is Code.INVALID
    assert "properties.sasl.username" in (caught.value.hint or "")
    assert "uthentication" in (caught.value.detail or "")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("secret", ["right", "wrong"])
def test_a_sink_is_let_in_by_the_right_password_alone(guarded, tmp_path, secret) -> None:
    given = SinkOptions(
        brokers=guarded.guarded("SASL_PLAINTEXT"),
        protocol="SASL_PLAINTEXT",
        mechanism="PLAIN",
        username="ann",
        password=SecretName(secret),
        topic="t",
    )
    writer = kafka_sink.opened(given, context(tmp_path, {"right": PASSWORD, "wrong": "hunter2"}))
    if secret == "right":  # noqa: S105 - a name
        assert writer.durable() is None
        return
    begun = time.monotonic()
    with pytest.raises(HeadraceError, match='topic "t" cannot be written') as caught:
        writer.durable()
    assert time.monotonic() - begun < 5
    assert caught.value.code is Code.INVALID
    assert "properties.sasl.username" in (caught.value.hint or "")
    assert "hunter2" not in str(caught.value)


def test_a_broker_is_trusted_by_its_authority_alone(guarded, directory, authority_file) -> None:
    place = guarded.guarded("SSL")
    assert first(source(brokers=place, protocol="SSL", authority=str(authority_file))) == [7]
    (other, _) = authority(directory, "other")
    with pytest.raises(HeadraceError, match='topic "t" cannot be read') as caught:
        first(source(brokers=place, protocol="SSL", authority=str(other)))
    assert caught.value.code is Code.INVALID
    assert "properties.ssl.ca.location" in (caught.value.hint or "")


def test_a_protocol_that_the_broker_does_not_speak_is_unavailable(guarded) -> None:
    with pytest.raises(HeadraceError, match='topic "t" cannot be read') as caught:
        first(source(brokers=guarded.guarded("SSL")))
    assert caught.value.code is Code.UNAVAILABLE
    assert "properties.security.protocol" in (caught.value.hint or "")
