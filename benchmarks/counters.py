"""What epochs did, by their own account: the counters of ``SHOW EPOCHS``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.lifecycle.states.system_relations import COUNTERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace import Database

_LEAST = 3
NAMES = (*COUNTERS, "fallbacks")


def epochs_after(db: Database, epoch: int) -> list[dict[str, Any]]:
    """Return the epochs after one that read changes, oldest first; the last hundred at most."""
    rows = db.sql("SHOW EPOCHS").to_arrow().to_pylist()
    return [row for row in reversed(rows) if row["epoch"] > epoch and row["changes"]]


def last_epoch(db: Database) -> int:
    """Return the last committed epoch."""
    return int(db.sql("SHOW EPOCHS").epoch)


def summary(epochs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return totals of the counters, and what they come to per epoch and per change."""
    totals = {name: sum(int(row[name] or 0) for row in epochs) for name in NAMES}
    changes, count = max(1, totals["changes"]), max(1, len(epochs))
    return {
        "epochs": len(epochs),
        **totals,
        "rows_read_per_change": round(totals["rows_read"] / changes, 3),
        "bytes_written_per_epoch": totals["bytes_written"] // count,
        "jobs_per_epoch": round(totals["jobs"] / count, 3),
        "seconds": round(sum(float(row["seconds"] or 0) for row in epochs), 3),
    }


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return the middle, the tail and the ends of samples, in milliseconds."""
    if len(seconds) < _LEAST:
        raise ValueError(f"{len(seconds)} samples are too few")
    found = np.asarray(seconds) * 1000
    return {
        "samples": len(found),
        "p50_ms": round(float(np.percentile(found, 50)), 2),
        "p99_ms": round(float(np.percentile(found, 99)), 2),
        "least_ms": round(float(found.min()), 2),
        "most_ms": round(float(found.max()), 2),
    }
