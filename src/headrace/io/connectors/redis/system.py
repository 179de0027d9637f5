"""Declares Redis: a sink into hashes, strings of JSON and sorted sets."""

from __future__ import annotations

from typing import Final

from headrace.io.connectors.redis import access, sink
from headrace.io.connectors.systems import ConnectionKind, SinkConnector, System

SYSTEM: Final = System(
    sink=SinkConnector(
        "redis",
        sink.Options,
        open=sink.opened,
        check=sink.check,
        target=("pattern",),
        joins=lambda _options: True,
    ),
    connection=ConnectionKind("redis", access.Access, access.check),
)
