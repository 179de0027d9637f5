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

import pytest

from faults.killing import SECONDS_ALLOWED, start

LOADER = Path(__file__).with_name("loader.py")
BATCHES_PER_START = 3
ROWS = 40
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
RANDOM_KILLS = 12


def finish(directory: Path, batches: int) -> list[int]:
    """Let a loader run to its end; return the totals that it found."""
    loader = start(LOADER, directory, batches)
    printed, _ = loader.communicate(timeout=SECONDS_ALLOWED)
    assert loader.returncode == 0, printed[-3000:]
    return list(json.loads(printed.strip().split("\n")[-1]))


def expected(batches: int) -> list[int]:
    rows = batches * ROWS
    return [rows, rows, sum(range(rows)), rows, batches]


@pytest.mark.timeout(1800)
def test_a_loader_killed_at_every_stage_loses_and_doubles_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    died = 0
    for i, (stage, nth) in enumerate(STAGES):
        loader = start(LOADER, data, (i + 1) * BATCHES_PER_START, stage, str(nth))
        printed, _ = loader.communicate(timeout=SECONDS_ALLOWED)
        assert loader.returncode in (0, -signal.SIGKILL), printed[-3000:]
        died += loader.returncode == -signal.SIGKILL
    assert died >= len(STAGES) - 2, "the faults were hardly ever reached"
    batches = (len(STAGES) + 1) * BATCHES_PER_START
    assert finish(data, batches) == expected(batches)


@pytest.mark.timeout(1800)
def test_a_loader_killed_at_random_moments_loses_and_doubles_nothing(tmp_path: Path) -> None:
    data, moments = tmp_path / "data", random.Random(20130101)
    for i in range(RANDOM_KILLS):
        loader = start(LOADER, data, (i + 1) * BATCHES_PER_START)
        assert loader.stdout is not None
        line = loader.stdout.readline()
        assert line.strip() == "ready", line + loader.stdout.read()
        time.sleep(moments.uniform(0.0, 6.0))
        loader.send_signal(signal.SIGKILL)
        loader.wait()
        loader.stdout.close()
    batches = (RANDOM_KILLS + 1) * BATCHES_PER_START
    assert finish(data, batches) == expected(batches)
