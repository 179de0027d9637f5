"""Views read over HTTP by other processes, alone and while a writer has epochs made."""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import headrace
from benchmarks.counters import epochs_after, last_epoch
from benchmarks.http_load import Load, run
from headrace.server.address import Address
from headrace.server.listener import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLIENTS = (1, 16)
_LOAD_ROWS = 500_000
_FEED_ROWS = 100
_FEED_SECONDS = 0.1
SCANS = (
    "/v1/views/v?where=a=7&where=n%3E1&limit=100",
    "/v1/views/v?order=-total&limit=10",
    "/v1/views/v?where=k={key}&select=k,n",
)
_KEY = "/v1/views/v?key={key}"


def measure(directory: Path, seconds: float, keys: int, partitions: int) -> dict[str, Any]:
    """Return the rates and latencies of lookups by key, and of scans, of ``keys`` rows."""
    with _served(directory, keys, partitions) as (db, port):
        run(Load(port, (_KEY,), 1, 1.0, keys))
        lookups: list[dict[str, Any]] = []
        scans: list[dict[str, Any]] = []
        for beside in (nullcontext, lambda: _feed(db, keys)):
            with beside():
                if beside is not nullcontext:
                    time.sleep(5)  # the first epochs are slow
                for clients in CLIENTS:
                    before = last_epoch(db)
                    found = run(Load(port, (_KEY,), clients, seconds, keys))
                    epochs = len(epochs_after(db, before))
                    lookups.append({**found, "epochs": epochs})
                for path in SCANS:
                    found = run(Load(port, (path,), 1, seconds / 2, keys))
                    scans.append({"path": path, **found, "fed": beside is not nullcontext})
        return {"keys": keys, "lookups": lookups, "scans": scans}


@contextmanager
def _served(directory: Path, keys: int, partitions: int) -> Iterator[tuple[Any, int]]:
    """Yield a database, and the port at which its view of ``keys`` rows is served."""
    address = Address.of("127.0.0.1:0")
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="database-") as folder,
        headrace.connect(folder, partitions=partitions) as db,
        Server(db, address, address.bound()) as server,
    ):
        db.sql("CREATE STREAM s (k BIGINT, x BIGINT)")
        db.sql(
            "CREATE MATERIALIZED VIEW v AS SELECT k, k % 1000 AS a, count(*) AS n, sum(x) AS total"
            " FROM s GROUP BY k"
        )
        for start in range(0, keys, _LOAD_ROWS):
            part = np.arange(start, min(keys, start + _LOAD_ROWS))
            db.insert("s", pa.table({"k": part, "x": part}))
            db.flush()
        db.compact()
        yield db, server.address.port


@contextmanager
def _feed(db: Any, keys: int) -> Iterator[None]:
    """Insert rows ten times a second meanwhile."""
    ended, rng = threading.Event(), np.random.default_rng(0)

    def feed() -> None:
        session = db.session()
        while not ended.wait(_FEED_SECONDS):
            given = {"k": rng.integers(0, keys, _FEED_ROWS), "x": np.ones(_FEED_ROWS, np.int64)}
            session.insert("s", pa.table(given))

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
