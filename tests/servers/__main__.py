"""``make services``: start the servers that connectors are tried with, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from servers import cassandra, dynamodb, seaweed
from servers.kafka import kafka
from servers.machine import Unavailable
from servers.postgres import postgres
from servers.redis import redis_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    Service = Callable[[], AbstractContextManager[str]]


@contextmanager
def _kafka(place: Path, port: int) -> Iterator[str]:
    with kafka(place / "kafka", port) as broker:
        yield f"""Kafka is at {broker.address}. For example, in headrace sql:
  CREATE CONNECTION k TO KAFKA (BROKER '{broker.address}');
  CREATE STREAM s (v INT) WITH (connection = k, topic = 's', partitions = 1);"""


@contextmanager
def _postgres(place: Path, port: int) -> Iterator[str]:
    with postgres(place / "postgres", port) as server:
        yield f"""PostgreSQL is at 127.0.0.1:{server.port}, user postgres, no password:
  CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', PORT {server.port}, DATABASE 'postgres',
    USER 'postgres');"""


@contextmanager
def _redis(place: Path, port: int) -> Iterator[str]:
    with redis_server(place / "redis", port) as server:
        yield f"""Redis is at 127.0.0.1:{server.port}, no password:
  CREATE CONNECTION r TO REDIS (HOST '127.0.0.1', PORT {server.port});"""


@contextmanager
def _cassandra(place: Path, port: int) -> Iterator[str]:
    with cassandra.cassandra(place / "cassandra", port) as node:
        yield (
            f"Cassandra is at 127.0.0.1:{node.port}, user {cassandra.USER}, password"
            f" {cassandra.PASSWORD}"
        )


@contextmanager
def _dynamodb(port: int) -> Iterator[str]:
    with dynamodb.dynamodb(port) as service:
        yield f"DynamoDB, by moto and in memory, is at {service.endpoint}, with any credentials"


@contextmanager
def _s3(place: Path, port: int) -> Iterator[str]:
    with seaweed.seaweed(place / "s3", port) as server:
        yield f"""S3 is at {server.endpoint}, with a bucket {seaweed.BUCKET}, and a catalogue of Iceberg at
{server.catalogue}, warehouse {seaweed.WAREHOUSE}; access key {seaweed.ACCESS_KEY}, secret key {seaweed.SECRET_KEY}"""


def start(services: Mapping[str, Service], running: ExitStack) -> int:
    """Start each server that can be had, and say how to use it; return how many there are."""
    started = 0
    for name, service in services.items():
        try:
            print(running.enter_context(service()), flush=True)
            started += 1
        except Unavailable as reason:
            print(f"{name} cannot be had here: {reason}", file=sys.stderr)
        except Exception as error:  # noqa: BLE001  (each fails in its own way; the others start)
            print(f"{name} could not be started: {error!r}", file=sys.stderr)
    return started


def main() -> int:
    """Start each server that can be had over a directory, and say how to use it."""
    options = argparse.ArgumentParser(prog="make services")
    options.add_argument("--directory", type=Path, default=Path("services"))
    options.add_argument("--port", type=int, default=9092, help="the port of Kafka")
    options.add_argument("--postgres-port", type=int, default=5432)
    options.add_argument("--redis-port", type=int, default=6379)
    options.add_argument("--cassandra-port", type=int, default=9042)
    options.add_argument("--dynamodb-port", type=int, default=8000)
    options.add_argument("--s3-port", type=int, default=8333)
    given = options.parse_args()
    place = given.directory.resolve()
    services: dict[str, Service] = {
        "Kafka": partial(_kafka, place, given.port),
        "PostgreSQL": partial(_postgres, place, given.postgres_port),
        "Redis": partial(_redis, place, given.redis_port),
        "Cassandra": partial(_cassandra, place, given.cassandra_port),
        "DynamoDB": partial(_dynamodb, given.dynamodb_port),
        "S3": partial(_s3, place, given.s3_port),
    }
    with ExitStack() as running:
        print("the first time, the jars of Kafka and Cassandra are fetched")
        if not start(services, running):
            return 1
        print("Ctrl-C stops them; their data stays.")
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    return 0


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    sys.exit(main())
