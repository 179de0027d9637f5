"""Declares DynamoDB: a sink into tables."""

from __future__ import annotations

from typing import Final

from headrace.io.connectors.dynamodb import access, sink
from headrace.io.connectors.systems import ConnectionKind, SinkConnector, System

SYSTEM: Final = System(
    sink=SinkConnector(
        "dynamodb",
        sink.Options,
        open=sink.opened,
        check=sink.check,
        target=("table",),
        joins=lambda _options: True,
    ),
    connection=ConnectionKind("dynamodb", access.Access, access.check),
)
