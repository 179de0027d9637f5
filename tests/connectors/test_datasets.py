"""The names of external datasets, by OpenLineage's conventions."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.io.connectors import sink_connector, source_connector
from headrace.io.connectors.postgres.access import Access
from headrace.io.connectors.postgres.tables import Reference
from headrace.io.connectors.systems import of_table

ROOT = Path("/data/sinks")


@pytest.mark.parametrize(
    ("connector", "options", "uri"),
    [
        (
            "kafka",
            {"topic": "orders", "properties.bootstrap.servers": "one:9093,two:9093"},
            "kafka://one:9093/orders",
        ),
        (
            "kafka",
            {"topic": "orders", "properties.bootstrap.servers": "PLAINTEXT://one"},
            "kafka://one:9092/orders",
        ),
        ("filesystem", {"path": "/incoming/orders"}, "file:/incoming/orders"),
        (
            "kinesis",
            {"stream": "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"},
            "kinesis://eu-west-1/orders",
        ),
    ],
)
def test_a_source_has_the_name_of_what_it_reads(connector, options, uri):
    found = source_connector(connector)
    assert found.dataset(found.restored([*options.items()]), ROOT).uri == uri


@pytest.mark.parametrize(
    ("connector", "options", "uri"),
    [
        ("file", {"path": "spent"}, "file:/data/sinks/spent"),
        ("file", {"path": "s3://bucket/spent/all"}, "s3://bucket/spent/all"),
        ("delta", {"path": "s3a://bucket/spent"}, "s3://bucket/spent"),
        (
            "kafka",
            {"topic": "t", "properties.bootstrap.servers": "[::1]:9092"},
            "kafka://[::1]:9092/t",
        ),
        (
            "postgres",
            {"host": "db", "database": "shop", "user": "u", "table": "spent"},
            "postgres://db:5432/shop.public.spent",
        ),
        (
            "cassandra",
            {"hosts": "one, two", "keyspace": "shop", "table": "spent"},
            "cassandra://one:9042/shop.spent",
        ),
    ],
)
def test_a_sink_has_the_name_of_what_it_writes(connector, options, uri):
    found = sink_connector(connector)
    assert found.dataset(found.restored([*options.items()]), ROOT).uri == uri


def test_systems_without_a_name_outside_have_none():
    kafka = source_connector("kafka")
    several = {"topic-pattern": "o.*", "properties.bootstrap.servers": "one"}
    assert kafka.dataset(kafka.restored([*several.items()]), ROOT) is None
    datagen = source_connector("datagen")
    assert datagen.dataset(datagen.restored([]), ROOT) is None


def test_a_captured_table_has_the_name_of_the_table_in_postgresql():
    access = Access(host="db", database="shop", user="u")
    found = of_table(access, Reference.of("sales.orders"))
    assert (found.namespace, found.name) == ("postgres://db:5432", "shop.sales.orders")
