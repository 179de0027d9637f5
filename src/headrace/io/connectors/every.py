"""All external systems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.io.connectors import plain, s3, webhook
from headrace.io.connectors.cassandra import system as cassandra
from headrace.io.connectors.datagen import system as datagen
from headrace.io.connectors.dynamodb import system as dynamodb
from headrace.io.connectors.files import system as files
from headrace.io.connectors.kafka import system as kafka
from headrace.io.connectors.kinesis import system as kinesis
from headrace.io.connectors.lake import system as lake
from headrace.io.connectors.postgres import system as postgres
from headrace.io.connectors.redis import system as redis

if TYPE_CHECKING:
    from headrace.io.connectors.systems import System


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
