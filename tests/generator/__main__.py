"""Plays random queries for as long as it is told to: ``make random-queries PAIRS=10000 SEED=1``."""

from __future__ import annotations

import argparse
import sys

from generator.parts import played
from generator.search import VIEWS
from generator.shrinking import SECONDS


def main() -> int:
    """Run, print the table, and return 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="generator", description=__doc__)
    parser.add_argument("--pairs", type=int, default=1000, help="views to try, each with a history")
    parser.add_argument("--seed", type=int, default=1, help="the first seed, one per case")
    parser.add_argument("--views", type=int, default=VIEWS, help="views per case")
    parser.add_argument("--shrink", type=float, default=SECONDS, help="seconds per failure")
    parser.add_argument(
        "--processes", type=int, default=1, help="divide the pairs among so many, of 3 GiB each"
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="fill each view once more before the last epoch, from state of the first",
    )
    given = parser.parse_args()
    result = played(
        given.processes, given.pairs, given.seed, given.views, given.shrink, again=given.again
    )
    print(result.coverage.table())
    for sort, count in result.failures.most_common():
        print(f"{count:>6}  {sort}")
    return 1 if result.failures else 0


if __name__ == "__main__":
    sys.exit(main())
