"""Plays histories of a simulated database: ``make simulate EXAMPLES=100000``."""

from __future__ import annotations

import argparse
import os
import sys

from simulation.running import KINDS, SEEDS, replay, run


def main() -> int:
    """Run, and return 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--examples", type=int, default=1000, help="how many seeds are played")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, help="play this history alone, and show its steps")
    parser.add_argument(
        "--list",
        choices=(*KINDS, SEEDS),
        help="play only this list, or only seeds; with --seed, one history of it",
    )
    given = parser.parse_args()
    if given.seed is not None:
        if os.environ.get("PYTHONHASHSEED") != "0":
            os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606
        return replay(given.list or SEEDS, given.seed)
    seeds = range(given.first, given.first + given.examples)
    if given.list in KINDS:
        return run(range(0), [given.list], given.processes)
    return run(seeds, () if given.list else KINDS, given.processes)


if __name__ == "__main__":
    sys.exit(main())
