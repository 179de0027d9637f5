"""What each type becomes in each system is documented as the connectors have it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.io.connectors.cassandra import access as cassandra
from headrace.io.connectors.dynamodb import access as dynamodb
from headrace.io.connectors.kafka import sink as kafka_sink
from headrace.io.connectors.lake import delta as delta_sink
from headrace.io.connectors.lake import iceberg as iceberg_sink
from headrace.io.connectors.lake import warehouse as warehouse_sink
from headrace.io.connectors.postgres import target as postgres
from headrace.io.connectors.redis import access as redis

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE = Path(__file__).parents[2] / "docs/sinks.md"
SYSTEMS = {
    "Cassandra": cassandra.MAPPING,
    "Delta": delta_sink.MAPPING,
    "DynamoDB": dynamodb.MAPPING,
    "Iceberg": iceberg_sink.MAPPING,
    "Kafka": kafka_sink.MAPPING,
    "PostgreSQL": postgres.MAPPING,
    "Redis": redis.MAPPING,
    "Warehouses": warehouse_sink.MAPPING,
}


@pytest.mark.parametrize(("system", "mapping"), list(SYSTEMS.items()))
def test_the_types_of_a_system_are_documented(system: str, mapping: Mapping[str, str]) -> None:
    rows = [f"| {ours} | {theirs} |" for ours, theirs in mapping.items()]
    table = "\n".join([f"| type | in {system} |", "|---|---|", *rows])
    section = PAGE.read_text().partition(f"## {system}\n")[2].partition("\n## ")[0]
    assert table in section, f"put this into {PAGE}:\n{table}"
