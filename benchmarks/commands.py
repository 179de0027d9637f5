"""Commands that run once, cold: what each costs in processor seconds, with all that it starts.

Each plain query is also written with a subquery, which Spark has to plan: that is what every query
other than one by key cost before plain queries were planned without it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import headrace

if TYPE_CHECKING:
    from pathlib import Path

_ROWS: Final = 10_000
_RUNS: Final = 3
_SUBREAPER: Final = 36
"""The option of ``prctl`` by which this process inherits what its children leave."""
_DEFINITIONS: Final = """
CREATE TABLE orders (id BIGINT PRIMARY KEY, kind STRING, price INT);
CREATE MATERIALIZED VIEW large AS SELECT id, kind, price FROM orders WHERE price > 10;
CREATE MATERIALIZED VIEW kinds AS
  SELECT kind, count(*) AS n, sum(price) AS total FROM orders GROUP BY kind;
"""
_INSERT: Final = f"""INSERT INTO orders
  SELECT id, 'k' || (id % 7), CAST(id % 50 AS INT) FROM range({_ROWS})"""
_QUERIES: Final = {
    "groups": "SELECT kind, count(*) FROM {} GROUP BY kind",
    "some keys": "SELECT * FROM {} WHERE id IN (11, 12, 13)",
    "first rows": "SELECT * FROM {} ORDER BY price DESC LIMIT 5",
}


def measure(folder: Path) -> list[dict[str, Any]]:
    """Return the least cost of each command of some runs."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    place, definitions = folder / "commands", folder / "commands.sql"
    definitions.write_text(_DEFINITIONS, encoding="utf-8")
    if not place.exists():
        _cost(_command(place, "sql", "-f", str(definitions), "-c", _INSERT, "-c", "FLUSH"), 0)
    found = []
    for name, query in _QUERIES.items():
        plain = _least(place, "sql", "-c", query.format("large"))
        by_spark = _least(place, "sql", "-c", query.format("(SELECT * FROM large)"), runs=1)
        found.append({"command": name, **plain, "by_spark_s": by_spark["processor_s"]})
    others = {
        "one key": ("sql", "-c", "SELECT * FROM large WHERE id = 11"),
        "SHOW VIEWS": ("sql", "-c", "SHOW VIEWS"),
        "DESCRIBE": ("sql", "-c", "DESCRIBE kinds"),
        "doctor": ("doctor",),
        "plan, no change": ("plan", str(definitions)),
    }
    found += [{"command": name, **_least(place, *words)} for name, words in others.items()]
    with headrace.connect(place, warm=False):
        in_use = _least(place, "sql", "-c", "SHOW VIEWS", code=1)
    found.append({"command": "open elsewhere", **in_use})
    return found


def _least(place: Path, *words: str, runs: int = _RUNS, code: int = 0) -> dict[str, Any]:
    """Return the least processor time and time of a command; its exit code must be that given."""
    costs = [_cost(_command(place, *words), code) for _ in range(runs)]
    return {
        "processor_s": min(cost for cost, _ in costs),
        "taken_s": min(taken for _, taken in costs),
    }


def _command(place: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "headrace", "--data", str(place), *words]


def _cost(command: list[str], code: int) -> tuple[float, float]:
    before, began = _spent(), time.monotonic()
    done = subprocess.run(command, capture_output=True, check=False)
    taken = time.monotonic() - began
    if done.returncode != code:
        raise RuntimeError(done.stderr.decode())
    with suppress(ChildProcessError):
        while True:  # a JVM that outlives the command
            os.wait()
    return _spent() - before, taken


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
