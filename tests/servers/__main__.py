"""``make services``: start the servers that connectors are tried with, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from servers.kafka import Unavailable, kafka


def main() -> int:
    """Start a Kafka broker over a directory, and say how to use it."""
    options = argparse.ArgumentParser(prog="make services")
    options.add_argument("--directory", type=Path, default=Path("services"))
    options.add_argument("--port", type=int, default=9092)
    given = options.parse_args()
    print("starting Kafka; the first time, its jars are fetched")
    try:
        with kafka(given.directory.resolve() / "kafka", given.port) as broker:
            print(f"Kafka is at {broker.address}. For example, in headrace sql:")
            print(
                "  CREATE STREAM s (v INT) WITH (connector = 'kafka', topic = 's', partitions = 1,"
                f" brokers = '{broker.address}');"
            )
            print("Ctrl-C stops it; its data stays.")
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
    except Unavailable as reason:
        print(f"Kafka cannot be had here: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    sys.exit(main())
