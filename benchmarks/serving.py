"""Views read over HTTP by other processes, alone and while a writer has epochs made."""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import headrace
from benchmarks.counters import epochs_after, last_epoch
from benchmarks.http_load import Load, run
from headrace.interfaces.server.address import ListenAddress
from headrace.interfaces.server.listener import HttpServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
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


@dataclass(frozen=True, slots=True)
class _Serving:
    """The view of a database, served at a port with some reader processes."""

    db: Any
    port: int
    readers: int
    seconds: float
    keys: int

    def lookups(self) -> Iterator[dict[str, Any]]:
        """Yield the rates and latencies of lookups by key."""
        for clients in CLIENTS:
            before = last_epoch(self.db)
            found = run(Load(self.port, (_KEY,), clients, self.seconds, self.keys))
            epochs = len(epochs_after(self.db, before))
            yield {"readers": self.readers, **found, "epochs": epochs}

    def scans(self) -> Iterator[dict[str, Any]]:
        """Yield the latencies of scans."""
        for path in SCANS:
            found = run(Load(self.port, (path,), 1, self.seconds / 2, self.keys))
            yield {"readers": self.readers, "path": path, **found}


def measure(
    directory: Path, seconds: float, keys: int, partitions: int, readers: Sequence[int]
) -> dict[str, Any]:
    """Return the rates and latencies of lookups by key, and of scans, of ``keys`` rows.

    Once for each number of reader processes.
    """
    lookups: list[dict[str, Any]] = []
    scans: list[dict[str, Any]] = []
    with _filled(directory, keys, partitions) as db:
        for count in readers:
            address = ListenAddress.of("127.0.0.1:0")
            with HttpServer(db, address, address.bound(), readers=count) as server:
                served = _Serving(db, server.address.port, count, seconds, keys)
                for _ in range(2):  # processes check the files that they read first
                    run(Load(served.port, (_KEY,), CLIENTS[-1], 1.0, keys))
                for beside in (nullcontext, lambda: _feed(db, keys)):
                    fed = beside is not nullcontext
                    with beside():
                        if fed:
                            time.sleep(5)  # the first epochs are slow
                        lookups += served.lookups()
                        scans += [{**each, "fed": fed} for each in served.scans()]
    return {"keys": keys, "lookups": lookups, "scans": scans}


@contextmanager
def _filled(directory: Path, keys: int, partitions: int) -> Iterator[Any]:
    """Yield a database with a view of ``keys`` rows."""
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="database-") as folder,
        headrace.connect(folder, partitions=partitions) as db,
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
        yield db


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
