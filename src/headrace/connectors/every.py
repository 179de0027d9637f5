"""All external systems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.connectors import plain, s3, webhook
from headrace.connectors.cassandra import system as cassandra
from headrace.connectors.datagen import system as datagen
from headrace.connectors.dynamodb import system as dynamodb
from headrace.connectors.files import system as files
from headrace.connectors.kafka import system as kafka
from headrace.connectors.kinesis import system as kinesis
from headrace.connectors.lake import system as lake
from headrace.connectors.postgres import system as postgres
from headrace.connectors.redis import system as redis

if TYPE_CHECKING:
    from headrace.connectors.systems import System

SYSTEMS: Final[tuple[System, ...]] = (
    files.SYSTEM,
    kafka.SYSTEM,
    datagen.SYSTEM,
    postgres.SYSTEM,
    kinesis.SYSTEM,
    redis.SYSTEM,
    lake.DELTA,
    lake.ICEBERG,
    lake.WAREHOUSE,
    webhook.SYSTEM,
    cassandra.SYSTEM,
    dynamodb.SYSTEM,
    s3.SYSTEM,
    plain.PRINT,
    plain.BLACKHOLE,
)
