"""The demo, as somebody would run it whose output goes to a file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from length import choose

_DEMO = Path(__file__).parents[2] / "examples" / "flights" / "demo.py"
_VIEWS = (
    "delay_by_carrier",
    "flights_enriched",
    "delay_by_airline_and_maker",
    "departures",
    "slow_routes",
    "delay_by_weather",
)


@pytest.mark.spark
@pytest.mark.long
def test_the_demo_ends_by_saying_that_every_view_equals_batch(tmp_path: Path) -> None:
    data, rows = tmp_path / "data", choose(500, 3000)
    # As the other tests of a short run, without the compiler that pays only for longer ones.
    quick = choose({"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}, {})
    ran = subprocess.run(
        [sys.executable, _DEMO, "--rows", str(rows), "--seconds", "1", "--data", data],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | quick,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    verdicts = {line.split()[0]: line for line in ran.stdout.splitlines() if "differences" in line}
    assert tuple(verdicts) == _VIEWS
    assert all(line.endswith("0 differences   equal to batch") for line in verdicts.values())
    assert "all views equal batch" in ran.stdout
    assert f"{rows:,} of {rows:,} flights" in ran.stdout
    assert f"--data {data} sql" in ran.stdout
