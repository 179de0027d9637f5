"""``kill -9`` of a running loader, at every stage of an epoch and at random moments.

Each start finds what the last one left, checks every view against Spark batch before it goes on,
and sends all batches again, each of which takes effect once.
"""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from faults.killing import SECONDS_ALLOWED, start
from length import choose, thorough

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOADER = Path(__file__).with_name("loader.py")
BATCHES_PER_START = 3
ROWS = 40
HANDFUL = [("before commit", 3), ("stepped", 1), ("after commit", 9)]
STAGES = [
    ("before commit", 3),
    ("step", 2),
    ("stepped", 1),
    ("commit", 2),
    ("fill", 1),
    ("before commit", 8),
    ("after commit", 9),
    ("publish", 2),
    ("stepped", 3),
    ("commit", 1),
]
RANDOM_KILLS = choose(1, 12)
OWN = 6
"""Every so many starts, a loader has a Spark of its own, which ends with it."""


def finish(directory: Path, batches: int, spark: SparkSession) -> list[int]:
    """Let a loader run to its end; return the totals that it found."""
    loader = start(LOADER, directory, batches, spark=None if thorough() else spark)
    printed, _ = loader.communicate(timeout=SECONDS_ALLOWED)
    assert loader.returncode == 0, printed[-3000:]
    return list(json.loads(printed.strip().split("\n")[-1]))


def expected(batches: int) -> list[int]:
    rows = batches * ROWS
    return [rows, rows, sum(range(rows)), rows, batches]


@pytest.mark.timeout(1800)
@pytest.mark.long
def test_a_loader_killed_at_every_stage_loses_and_doubles_nothing(
    tmp_path: Path, spark: SparkSession
) -> None:
    data = tmp_path / "data"
    died, stages = 0, choose(HANDFUL, STAGES)
    for i, (stage, nth) in enumerate(stages):
        batches, shared = (i + 1) * BATCHES_PER_START, spark if i % OWN or not thorough() else None
        loader = start(LOADER, data, batches, stage, str(nth), spark=shared)
        printed, _ = loader.communicate(timeout=SECONDS_ALLOWED)
        assert loader.returncode in (0, -signal.SIGKILL), printed[-3000:]
        died += loader.returncode == -signal.SIGKILL
    assert died >= len(stages) - 2, "the faults were hardly ever reached"
    batches = (len(stages) + 1) * BATCHES_PER_START
    assert finish(data, batches, spark) == expected(batches)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_loader_killed_at_random_moments_loses_and_doubles_nothing(
    tmp_path: Path, spark: SparkSession
) -> None:
    data, moments = tmp_path / "data", random.Random(20130101)
    for i in range(RANDOM_KILLS):
        shared = spark if i % OWN else None
        loader = start(LOADER, data, (i + 1) * BATCHES_PER_START, spark=shared)
        assert loader.stdout is not None
        line = loader.stdout.readline()
        assert line.strip() == "ready", line + loader.stdout.read()
        time.sleep(moments.uniform(0.0, 2.0 if shared else 6.0))
        loader.send_signal(signal.SIGKILL)
        loader.wait()
        loader.stdout.close()
    batches = (RANDOM_KILLS + 1) * BATCHES_PER_START
    assert finish(data, batches, spark) == expected(batches)
