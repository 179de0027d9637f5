"""Declares Cassandra: a sink into tables."""

from __future__ import annotations

from typing import Final

from headrace.connectors.cassandra import access, sink
from headrace.connectors.datasets import of_cassandra
from headrace.connectors.systems import ConnectionKind, SinkConnector, System

SYSTEM: Final = System(
    sink=SinkConnector(
        "cassandra",
        sink.Options,
        open=sink.opened,
        check=sink.check,
        target=("keyspace", "table"),
        joins=lambda _options: True,
        dataset=lambda options, _root: of_cassandra(options),
    ),
    connection=ConnectionKind("cassandra", access.Access, access.check),
)
