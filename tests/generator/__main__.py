"""Plays random queries for as long as it is told to: ``make random-queries PAIRS=10000 SEED=1``."""

from __future__ import annotations

import argparse
import itertools
import sys
import time

from generator.execution import Player
from generator.search import VIEWS, Search
from generator.shrinking import SECONDS
from sessions import short_session

_MANY = 500


def main() -> int:
    """Run, print the table, and return 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="generator", description=__doc__)
    parser.add_argument("--pairs", type=int, default=1000, help="views to try, each with a history")
    parser.add_argument("--seed", type=int, default=1, help="the first seed, one per case")
    parser.add_argument("--views", type=int, default=VIEWS, help="views per case")
    parser.add_argument("--shrink", type=float, default=SECONDS, help="seconds per failure")
    given = parser.parse_args()
    begin = time.monotonic()
    spark = short_session(hours=given.pairs >= _MANY)

    def report(text: str) -> None:
        done = search.coverage.views
        rate = done / max(1, time.monotonic() - begin) * 60
        print(f"{done:>7,} of {given.pairs:,}, {rate:,.0f} a minute | {text}", flush=True)

    search = Search(Player(spark), report, given.shrink)
    try:
        search.run(itertools.count(given.seed), given.pairs, given.views)
    except KeyboardInterrupt:
        report("stopped")
    print(search.coverage.table())
    for sort, count in search.failures.most_common():
        print(f"{count:>6}  {sort}")
    spark.stop()
    return 1 if search.failed else 0


if __name__ == "__main__":
    sys.exit(main())
