"""``kill -9`` of what feeds sinks, around each delivery and at random moments.

Tables and directories hold each change once, whenever it was killed; what is printed holds each
change at least once, and what comes twice comes under the same epoch.
"""

from __future__ import annotations

import csv
import json
import random
import re
import signal
import time
from collections import Counter
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from faults.killing import SECONDS_ALLOWED, start
from length import choose, thorough

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from servers.postgres import Postgres

FEEDER = Path(__file__).with_name("feeder.py")
STAGES = [
    ("sink", 2),
    ("sink written", 4),
    ("sink written", 11),
    ("sink", 9),
    ("sink", 5),
    ("sink written", 7),
]
RANDOM_KILLS = choose(1, 4)
BATCHES_PER_START = 3


def printed_changes(output: str) -> list[tuple[int, str, int, int]]:
    """What the sink that prints has said: epoch, operation, weight and id."""
    # Other threads print as well, and may begin a line first.
    changes = [json.loads(found) for found in re.findall(r'\{"epoch".*?\}\}', output)]
    return [(c["epoch"], c["op"], c["weight"], c["row"]["id"]) for c in changes]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_sinks_lose_nothing_and_only_print_twice(
    tmp_path: Path,
    spark: SparkSession,
    postgres_server: Postgres,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    postgres_server.create("killed")
    monkeypatch.setenv("FEEDER_TARGETS", json.dumps({"postgres": [postgres_server.port, "killed"]}))
    data, moments = tmp_path / "data", random.Random(5)
    died, printed, batches = 0, [], 0
    stages = STAGES[: choose(2, len(STAGES))]
    for i, (stage, nth) in enumerate(stages):
        batches += BATCHES_PER_START
        feeder = start(
            FEEDER, data, batches, stage, str(nth), spark=spark if i or not thorough() else None
        )
        output, _ = feeder.communicate(timeout=SECONDS_ALLOWED)
        assert feeder.returncode in (0, -signal.SIGKILL), output[-3000:]
        died += feeder.returncode == -signal.SIGKILL
        printed += printed_changes(output)
    assert died >= len(stages) - 1, "the faults were hardly ever reached"
    for _ in range(RANDOM_KILLS):
        batches += BATCHES_PER_START
        feeder = start(FEEDER, data, batches, spark=spark)
        assert feeder.stdout is not None
        lines = iter(feeder.stdout.readline, "")
        before = [*takewhile(lambda line: line != "ready\n", lines)]  # sinks go on at once
        time.sleep(moments.uniform(0.0, 2.0))
        feeder.send_signal(signal.SIGKILL)
        output, _ = feeder.communicate()
        printed += printed_changes("".join(before) + output)
    feeder = start(FEEDER, data, batches, spark=None if thorough() else spark)
    output, _ = feeder.communicate(timeout=SECONDS_ALLOWED)
    assert feeder.returncode == 0, output[-3000:]
    printed += printed_changes(output)
    held = json.loads(output.split("done ")[-1].split("\n")[0])

    assert added_up(json_changes(data / "sinks" / "totals")) == sorted(map(tuple, held["totals"]))
    assert added_up(csv_changes(data / "sinks" / "large")) == sorted(map(tuple, held["large"]))
    with postgres_server.connect("killed") as session:
        rows = session.execute("SELECT account, n, total FROM totals ORDER BY 1").fetchall()
        assert rows == sorted(map(tuple, held["totals"]))
        changes = session.execute(
            "SELECT account, n, total, headrace_weight, headrace_epoch FROM changes"
        ).fetchall()
    assert len(changes) == len(set(changes)), "a change is there twice"
    in_order = sorted(changes, key=lambda change: (change[4], change[3]))
    assert added_up([(change[:3], change[3]) for change in in_order]) == rows
    assert not list((data / "sinks").rglob("*.draft")), "half a file is left"
    # At least once: all are there, and what is there twice is the same change of the same epoch.
    assert sorted([id_] for _, _, _, id_ in set(printed)) == held["seen"]


def json_changes(directory: Path) -> list[tuple[tuple[int, ...], int]]:
    changes = [
        json.loads(line)
        for path in sorted(directory.glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    return [(tuple(map(int, c["row"].values())), c["weight"]) for c in changes]


def csv_changes(directory: Path) -> list[tuple[tuple[int, ...], int]]:
    changes = []
    for path in sorted(directory.glob("*.csv")):
        with path.open(newline="") as file:
            changes += list(csv.DictReader(file))
    return [((int(change["amount"]),), int(change["__weight"])) for change in changes]


def added_up(changes: list[tuple[tuple[int, ...], int]]) -> list[tuple[int, ...]]:
    """Return the rows that changes add up to; after each of them, none is there less than never."""
    total: Counter[tuple[int, ...]] = Counter()
    for row, weight in changes:
        total[row] += weight
        assert total[row] >= 0, (row, "was taken back before it came")
    return sorted(total.elements())
