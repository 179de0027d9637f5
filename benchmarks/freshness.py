"""How long after an insert a reader sees it: small epochs on an idle database.

A sample is one insert and the reads by key that follow until one of them shows it. Rows of an
insert go to different groups of a view that holds a thousand of them; the last one is read.
"""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import headrace
from benchmarks.counters import epochs_after, last_epoch, percentiles, summary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GROUPS = 1_000
SIZES = (1, 100, 1_000)
_WARM_SAMPLES = 150
_PAUSE_SECONDS = 0.02
_WIDE_ROWS = 400_000
"""How many rows a statement has that makes a step wide."""
_WARM_SECONDS = 5.0
"""How long such statements arrive before anything is measured beside them."""


def measure(directory: Path, samples: int, partitions: int) -> dict[str, Any]:
    """Return percentiles for each size of insert."""
    rng = np.random.default_rng(1)
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="database-") as folder,
        headrace.connect(folder, partitions=partitions, continuous=True) as db,
    ):
        db.sql("CREATE STREAM readings (sensor BIGINT, value BIGINT)")
        db.sql(
            "CREATE MATERIALIZED VIEW totals AS"
            " SELECT sensor, count(*) AS n, sum(value) AS total FROM readings GROUP BY sensor"
        )
        counts = np.ones(GROUPS, np.int64)
        db.insert("readings", pa.table({"sensor": np.arange(GROUPS), "value": counts}))
        db.flush()
        for _ in range(_WARM_SAMPLES):
            _sample(db, rng, 100, counts)
        sizes = [_of_size(db, rng, rows, samples, counts) for rows in SIZES]
        return {"sizes": sizes, "beside": _beside_wide_steps(db, rng, samples, counts)}


def _beside_wide_steps(
    db: headrace.Database, rng: np.random.Generator, samples: int, counts: np.ndarray
) -> list[dict[str, Any]]:
    """Return percentiles of inserts of one row, alone and while steps of other views are wide.

    At last a view reads both streams: then all views wait for such steps, as those of a database
    did before connected sets were stepped by themselves.
    """
    db.sql("CREATE STREAM events (k BIGINT)")
    db.sql("CREATE MATERIALIZED VIEW many AS SELECT k, count(*) AS n FROM events GROUP BY k")
    found = [_beside("alone", db, rng, samples, counts)]
    with _loading(db):
        found.append(_beside("beside wide steps of another set", db, rng, samples, counts))
    db.sql(
        "CREATE MATERIALIZED VIEW both AS SELECT count(*) AS n FROM"
        " (SELECT k FROM events UNION ALL SELECT sensor FROM readings)"
    )
    with _loading(db):
        found.append(_beside("in one set with them", db, rng, samples, counts))
    return found


def _beside(
    name: str, db: headrace.Database, rng: np.random.Generator, samples: int, counts: np.ndarray
) -> dict[str, Any]:
    before = last_epoch(db)
    taken = percentiles([sum(_sample(db, rng, 1, counts)) for _ in range(samples)])
    epochs = epochs_after(db, before)
    wide = sum(str(epoch["width"]).startswith("wide") for epoch in epochs)
    return {"views": name, **taken, "wide_of_last_epochs": f"{wide} of {len(epochs)}"}


@contextmanager
def _loading(db: headrace.Database) -> Iterator[None]:
    """Have statements of many rows arrive during a block, so that a wide step always runs."""
    ended = threading.Event()
    rows = pa.table({"k": np.arange(_WIDE_ROWS) % GROUPS})

    def load() -> None:
        with db.session() as session:
            while not ended.is_set():
                session.insert("events", rows)
                session.sql("SELECT n FROM many WHERE k = 1").fetchall()

    loading = threading.Thread(target=load)
    loading.start()
    time.sleep(_WARM_SECONDS)
    try:
        yield
    finally:
        ended.set()
        loading.join()


def _of_size(
    db: Any, rng: np.random.Generator, rows: int, samples: int, counts: np.ndarray
) -> dict[str, Any]:
    before = last_epoch(db)
    found = [_sample(db, rng, rows, counts) for _ in range(samples)]
    return {
        "rows": rows,
        **percentiles([sum(sample) for sample in found]),
        "insert_p50_ms": percentiles([inserted for inserted, _ in found])["p50_ms"],
        "read_p50_ms": percentiles([read for _, read in found])["p50_ms"],
        "epoch_p50_ms": percentiles([e["seconds"] for e in epochs_after(db, before)])["p50_ms"],
        "counters": summary(epochs_after(db, before)),
    }


def _sample(
    db: Any, rng: np.random.Generator, rows: int, counts: np.ndarray
) -> tuple[float, float]:
    """Return the seconds that the insert took, and those until it was read."""
    sensors = rng.permutation(GROUPS)[:rows]
    values = [
        {"sensor": int(sensor), "value": int(value)}
        for sensor, value in zip(sensors, rng.integers(0, 1000, rows), strict=True)
    ]
    counts[sensors] += 1
    last = int(sensors[-1])
    time.sleep(_PAUSE_SECONDS)
    begun = time.perf_counter()
    db.insert("readings", values)
    inserted = time.perf_counter()
    query = f"SELECT n FROM totals WHERE sensor = {last}"
    while db.sql(query).fetchall() != [(int(counts[last]),)]:
        pass
    return inserted - begun, time.perf_counter() - inserted
