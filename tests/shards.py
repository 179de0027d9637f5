"""Shards: the long proofs in pieces of at most a quarter of an hour each.

``pytest --shard 3/12`` runs the third of twelve pieces of all collected tests. A piece is a range in
the order of collection, so neighbours that share a fixture stay together, and ``python
tests/shards.py 12`` can say which files lie in which piece. Pieces take equal time by
``seconds.json``: the mean seconds of a test by function, for those that take a second or more.
``pytest --record-seconds`` writes what a run took into that file.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SECONDS = Path(__file__).with_name("seconds.json")

QUICK, LONG = 0.05, 20.0
"""Seconds of tests that the file does not list, without and with the mark of long ones."""

WORKERS = 2
"""Processes that run a shard side by side: `make suites` has ``-n 2``."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several pieces, counted from 1."""

    number: int
    pieces: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``3/12``; a usage error of pytest for anything else."""
        number, _, pieces = text.partition("/")
        if number.isdecimal() and pieces.isdecimal() and 1 <= int(number) <= int(pieces):
            return cls(int(number), int(pieces))
        raise pytest.UsageError(f"not a shard: {text!r}; write for example 3/12")


def function_of(nodeid: str) -> str:
    """Return a test's id without its parameters."""
    return nodeid.partition("[")[0]


def pieces_of(seconds: Sequence[float], pieces: int) -> list[int]:
    """Return the piece of each test, from 1: the one that the middle of its time falls into."""
    ends = list(accumulate(seconds))
    return [
        1 + int(pieces * (end - own / 2) / ends[-1]) for own, end in zip(seconds, ends, strict=True)
    ]


def estimated(item: pytest.Item, seconds: Mapping[str, float]) -> float:
    """Return how long a test takes: the mean of its function, if that is recorded."""
    guess = LONG if item.get_closest_marker("long") else QUICK
    return seconds.get(function_of(item.nodeid), guess)


def recorded() -> dict[str, float]:
    """Return the mean seconds of a test by function."""
    return json.loads(SECONDS.read_text("utf-8")) if SECONDS.exists() else {}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("shards")
    group.addoption("--shard", type=Shard.parse, help="run one piece of all tests, such as 3/12")
    group.addoption(
        "--record-seconds", action="store_true", help=f"write what tests took into {SECONDS.name}"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    shard: Shard | None = config.getoption("shard")
    if shard is None or not items:
        return
    seconds = recorded()
    pieces = pieces_of([estimated(item, seconds) for item in items], shard.pieces)
    placed = list(zip(items, pieces, strict=True))
    config.hook.pytest_deselected(items=[item for item, piece in placed if piece != shard.number])
    items[:] = [item for item, piece in placed if piece == shard.number]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Record what the tests of this run took, where that is asked for."""
    if not terminalreporter.config.getoption("record_seconds"):
        return
    took: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                took[report.nodeid] += report.duration
    by_function: defaultdict[str, list[float]] = defaultdict(list)
    for nodeid, seconds in took.items():
        by_function[function_of(nodeid)].append(seconds)
    means = {name: sum(each) / len(each) for name, each in by_function.items()}
    known = recorded() | {name: round(mean, 1) for name, mean in means.items()}
    kept = {name: mean for name, mean in sorted(known.items()) if mean >= 1}
    SECONDS.write_text(json.dumps(kept, indent=0) + "\n", "utf-8")


class _Collected:
    """A plugin that remembers which tests pytest would run, and how long they take."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.seconds: list[float] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        known = recorded()
        self.files = [item.nodeid.partition("::")[0] for item in session.items]
        self.seconds = [estimated(item, known) for item in session.items]


def listing(files: Sequence[str], seconds: Sequence[float], pieces: int) -> list[str]:
    """Return a line for each shard: its estimated minutes, and its first and last file."""
    shards: defaultdict[int, list[int]] = defaultdict(list)
    for place, piece in enumerate(pieces_of(seconds, pieces)):
        shards[piece].append(place)
    lines = []
    for piece, places in sorted(shards.items()):
        minutes = sum(seconds[place] for place in places) / WORKERS / 60
        between = f"{files[places[0]]} to {files[places[-1]]}"
        lines.append(f"{piece}/{pieces}  {minutes:4.1f} min  {between}")
    return lines


def main() -> int:
    """Print which files lie in which shard."""
    collected = _Collected()
    options = ["--collect-only", "-m", "long or not long"]
    output = StringIO()
    with redirect_stdout(output):
        status = pytest.main(options, plugins=[collected])
    if status == pytest.ExitCode.OK:
        print("\n".join(listing(collected.files, collected.seconds, int(sys.argv[1]))))
    else:
        print(output.getvalue())
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
