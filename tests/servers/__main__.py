"""``make services``: start the servers that connectors are tried with, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from servers.kafka import Unavailable, kafka
from servers.postgres import postgres


def main() -> int:
    """Start a Kafka broker and a PostgreSQL server over a directory, and say how to use them."""
    options = argparse.ArgumentParser(prog="make services")
    options.add_argument("--directory", type=Path, default=Path("services"))
    options.add_argument("--port", type=int, default=9092, help="the port of Kafka")
    options.add_argument("--postgres-port", type=int, default=5432)
    given = options.parse_args()
    place = given.directory.resolve()
    with ExitStack() as running:
        started = 0
        print("starting Kafka; the first time, its jars are fetched")
        try:
            broker = running.enter_context(kafka(place / "kafka", given.port))
            print(f"Kafka is at {broker.address}. For example, in headrace sql:")
            print(f"  CREATE CONNECTION k TO KAFKA (BROKER '{broker.address}');")
            print("  CREATE STREAM s (v INT) WITH (connection = k, topic = 's', partitions = 1);")
            started += 1
        except Unavailable as reason:
            print(f"Kafka cannot be had here: {reason}", file=sys.stderr)
        try:
            server = running.enter_context(postgres(place / "postgres", given.postgres_port))
            print(f"PostgreSQL is at 127.0.0.1:{server.port}, user postgres, no password:")
            print(
                f"  CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', PORT {server.port},"
                " DATABASE 'postgres', USER 'postgres');"
            )
            started += 1
        except Unavailable as reason:
            print(f"PostgreSQL cannot be had here: {reason}", file=sys.stderr)
        if not started:
            return 1
        print("Ctrl-C stops them; their data stays.")
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    return 0


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    sys.exit(main())
