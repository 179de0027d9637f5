"""What an epoch of a thousand changes costs by how much state there is.

The state is an aggregate with as many groups as asked for; changes fall on groups spread evenly.
Cost should follow the change: the time should hardly grow from ten thousand groups to ten million.
"""

from __future__ import annotations

import tempfile
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import headrace
from benchmarks.counters import epochs_after, last_epoch, percentiles, summary
from benchmarks.memory import Sampler

if TYPE_CHECKING:
    from pathlib import Path

GROUPS = (10_000, 1_000_000, 10_000_000)
CHANGES = 1_000
_LOAD_ROWS = 1_000_000
_WARM_EPOCHS = 60


def measure(directory: Path, groups: int, epochs: int, partitions: int) -> dict[str, Any]:
    """Return the figures for one size of state."""
    rng = np.random.default_rng(2)
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="database-") as folder,
        Sampler() as used,
        headrace.connect(folder, partitions=partitions, continuous=True) as db,
    ):
        db.sql("CREATE STREAM payments (account BIGINT, amount BIGINT)")
        db.sql(
            "CREATE MATERIALIZED VIEW balances AS"
            " SELECT account, count(*) AS n, sum(amount) AS total FROM payments GROUP BY account"
        )
        begun = time.perf_counter()
        for first in range(0, groups, _LOAD_ROWS):
            accounts = first + rng.permutation(min(_LOAD_ROWS, groups - first))
            db.insert("payments", _payments(rng, accounts))
        db.flush()
        db.compact()
        loaded = time.perf_counter() - begun
        for _ in range(_WARM_EPOCHS):
            _epoch(db, rng, groups)
        before = last_epoch(db)
        walls = [_epoch(db, rng, groups) for _ in range(epochs)]
        made = epochs_after(db, before)
        found = db.sql("SELECT count(*), sum(n) FROM balances").fetchall()[0]
    right = (groups, groups + CHANGES * (_WARM_EPOCHS + epochs))
    if found != right:
        raise AssertionError(f"the state is {found}, not {right}")
    return {
        "groups": groups,
        "load_seconds": round(loaded, 1),
        "wall": percentiles(walls),
        "epoch": percentiles([row["seconds"] for row in made]),
        "counters": summary(made),
        "memory": used.to_json(),
    }


def _epoch(db: Any, rng: np.random.Generator, groups: int) -> float:
    """Return the seconds from a write to the commit of its epoch."""
    payments = _payments(rng, rng.integers(0, groups, CHANGES))
    begun = time.perf_counter()
    db.insert("payments", payments)
    db.flush()
    return time.perf_counter() - begun


def _payments(rng: np.random.Generator, accounts: np.ndarray) -> pa.Table:
    return pa.table({"account": accounts, "amount": rng.integers(0, 10_000, len(accounts))})
