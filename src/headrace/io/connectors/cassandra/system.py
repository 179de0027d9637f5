"""Declares Cassandra: a sink into tables."""

from __future__ import annotations

from typing import Final

from headrace.io.connectors.cassandra import access, sink
from headrace.io.connectors.systems import ConnectionKind, SinkConnector, System, of_cassandra

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
