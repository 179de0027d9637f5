"""Slices of a view that are replayed, beside a rebuild of all of it.

The view has a balance per merchant, over events that are in the log by their time, each of any
merchant, and a table of merchants. So a slice by merchant is everywhere in the log, and one by time
at its end.
"""

from __future__ import annotations

import tempfile
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import headrace
from benchmarks.memory import Sampler

if TYPE_CHECKING:
    from pathlib import Path

MOST_ROWS = 1_000_000
MERCHANTS = 10_000
_STATEMENT_ROWS = 50_000
_START = 1_767_225_600_000_000
"""The first event's time, in microseconds: the first of January 2026."""
_VIEWS = """
CREATE TABLE merchants (id INT PRIMARY KEY, segment STRING);
CREATE STREAM events (merchant INT, amount DECIMAL(12,2), note STRING, at TIMESTAMP,
  WATERMARK FOR at AS at - INTERVAL '1' HOUR);
CREATE MATERIALIZED VIEW balances AS
  SELECT e.merchant, m.segment, sum(e.amount) AS balance, count(*) AS events, max(e.at) AS newest
  FROM events e JOIN merchants m ON e.merchant = m.id GROUP BY e.merchant, m.segment;
CREATE MATERIALIZED VIEW hours AS
  SELECT window.start AS hour, sum(amount) AS amount FROM events GROUP BY window(at, '1 hour');
"""


def measure(directory: Path, rows: int, partitions: int) -> list[dict[str, Any]]:
    """Replay slices of views over ``rows`` events; return what each read, and how long it took."""
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="database-") as folder,
        Sampler() as used,
        headrace.connect(folder, partitions=partitions, continuous=False) as db,
    ):
        db.sql(_VIEWS)
        ids = np.arange(MERCHANTS, dtype=np.int32)
        segments = pa.array([f"segment {number % 7}" for number in ids])
        db.insert("merchants", pa.table({"id": ids, "segment": segments}))
        for first in range(0, rows, _STATEMENT_ROWS):
            db.insert("events", _events(first, min(_STATEMENT_ROWS, rows - first)))
        db.flush()
        some = ", ".join(str(number) for number in range(0, MERCHANTS, 100))
        slices = {
            "1% of the merchants": f"balances WHERE merchant IN ({some})",
            "one merchant": "balances WHERE merchant = 17",
            "a sample of 1%": "balances WHERE pmod(xxhash64(merchant), 100) = 17",
            "the last 1% of the time": f"hours SINCE {_timestamp(rows)}",
            "all": "balances",
        }
        found = [_replayed(db, used, name, text) for name, text in slices.items()]
        verdicts = {verdict for *_, verdict in db.sql("VERIFY").fetchall()}
        if verdicts != {"equal to batch"}:
            raise ValueError(f"a view differs: {verdicts}")
    return found


def _replayed(db: headrace.Database, used: Sampler, name: str, text: str) -> dict[str, Any]:
    db.sql(f"REPLAY VIEW {text}")  # the first run of a plan compiles it
    worked, begun = sum(used.processor_seconds().values()), time.perf_counter()
    done = db.sql(f"REPLAY VIEW {text}")
    seconds = time.perf_counter() - begun
    return {
        "slice": name,
        "seconds": round(seconds, 3),
        "processor": round(sum(used.processor_seconds().values()) - worked, 3),
        "done": str(done.message).partition("; ")[2],
    }


def _timestamp(rows: int) -> str:
    at = np.datetime64(_START + rows * 990_000, "us")
    return f"TIMESTAMP '{str(at).replace('T', ' ')}'"


def _events(first: int, rows: int) -> pa.Table:
    random = np.random.default_rng(first)
    at = pa.array(_START + np.arange(first, first + rows) * 1_000_000, pa.int64())
    cents = pa.array(random.integers(1, 100_000, rows)).cast(pa.decimal128(19, 0))
    return pa.table(
        {
            "merchant": random.integers(0, MERCHANTS, rows, np.int32),
            "amount": cents.cast(pa.decimal128(12, 2)),
            "note": pa.repeat("x" * 40, rows),
            "at": at.cast(pa.timestamp("us", tz="UTC")),
        }
    )
