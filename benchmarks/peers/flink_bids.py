"""Both queries in Flink SQL, as a streaming job in one process. Runs in Flink's environment.

Streaming mode, so every change of a group goes to the sink; the sink is ``blackhole``. Everything
is as it ships, mini-batching off, save the parallelism and, for RocksDB, its share of memory.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

SOURCES = """
CREATE TABLE bids (
  auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP_LTZ(3)
) WITH (
  'connector' = 'filesystem', 'path' = '{bids}', 'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);
CREATE TABLE auctions (
  id BIGINT, seller BIGINT, category BIGINT, `initialBid` BIGINT
) WITH ('connector' = 'filesystem', 'path' = '{auctions}', 'format' = 'json');
CREATE TABLE aggregate_sink (
  auction BIGINT, n BIGINT, total BIGINT, average DOUBLE
) WITH ('connector' = 'blackhole');
CREATE TABLE join_sink (
  auction BIGINT, bidder BIGINT, price BIGINT, seller BIGINT, category BIGINT
) WITH ('connector' = 'blackhole')
"""
QUERIES = {
    # An AVG of BIGINT is a BIGINT in Flink.
    "aggregate": """
        SELECT auction, COUNT(*) AS n, SUM(price) AS total, AVG(CAST(price AS DOUBLE)) AS average
        FROM bids GROUP BY auction""",
    "join": """
        SELECT b.auction, b.bidder, b.price, a.seller, a.category
        FROM bids AS b JOIN auctions AS a ON b.auction = a.id""",
}
ANSWERS = {
    "aggregate": "SELECT COUNT(*), SUM(n), SUM(total) FROM ({query})",
    "join": "SELECT COUNT(*), SUM(price), SUM(seller) FROM ({query})",
}
SETTINGS = {
    "heap": {"state.backend.type": "hashmap"},
    "rocksdb": {"state.backend.type": "rocksdb", "taskmanager.memory.managed.size": "1g"},
}


def main() -> None:
    begun = time.perf_counter()
    options = _options()
    # Importing Flink is a part of starting it.
    from pyflink.table import EnvironmentSettings, TableEnvironment  # noqa: PLC0415

    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = environment.get_config()
    settings.set("parallelism.default", str(options.threads))
    for key, value in SETTINGS[options.backend].items():
        settings.set(key, value)
    for statement in SOURCES.format(bids=options.bids, auctions=options.auctions).split(";"):
        environment.execute_sql(statement)
    start_up = time.perf_counter() - begun
    query = QUERIES[options.query]
    runs = []
    for _ in range(0 if options.answer else options.runs):
        begun = time.perf_counter()
        environment.execute_sql(f"INSERT INTO {options.query}_sink {query}").wait()
        runs.append(round(time.perf_counter() - begun, 3))
    found: dict[str, Any] = {"start_up_seconds": round(start_up, 3), "run_seconds": runs}
    if options.answer:
        found["answer"] = _answer(environment, ANSWERS[options.query].format(query=query))
    print(json.dumps(found), flush=True)


def _answer(environment: Any, query: str) -> list[int]:
    """Return the last row that a query over the whole answer comes to; mini-batches make it few."""
    settings = environment.get_config()
    settings.set("table.exec.mini-batch.enabled", "true")
    settings.set("table.exec.mini-batch.allow-latency", "5 s")
    settings.set("table.exec.mini-batch.size", "1000000")
    last: list[int] = []
    with environment.execute_sql(query).collect() as rows:
        for row in rows:
            last = [int(value) for value in row]
    return last


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("query", choices=QUERIES)
    parser.add_argument("bids", type=Path)
    parser.add_argument("auctions", type=Path)
    parser.add_argument("rows", type=int, help="not needed here")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--backend", choices=SETTINGS, default="heap")
    parser.add_argument(
        "--answer", action="store_true", help="time nothing: work out totals of the answer"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
