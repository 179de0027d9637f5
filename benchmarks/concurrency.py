"""Many clients at once: writers beside epochs, readers beside writers, a fill beside epochs.

Every client is a thread with a session of its own. Beside them stand the same threads in one
session, whose statements run one after another.
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
from benchmarks.counters import epochs_after, last_epoch, percentiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CLIENTS = 16
_FEED_ROWS = 200
_LOAD_ROWS = 500_000


def measure(
    directory: Path, seconds: float, keys: int, rows: int, partitions: int
) -> dict[str, Any]:
    """Return the rates and latencies of each part. ``rows`` are those of the fill."""
    return {
        "writers": _writers(directory, seconds, partitions),
        "readers": _readers(directory, seconds, keys, partitions),
        "fill": _fill(directory, rows, partitions),
    }


def _writers(directory: Path, seconds: float, partitions: int) -> list[dict[str, Any]]:
    """Insert single rows while a view is maintained."""
    with _database(directory, partitions) as db:
        db.sql("CREATE STREAM s (k BIGINT, x BIGINT)")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n, sum(x) FROM s GROUP BY k")

        def insert(session: Any, rng: np.random.Generator) -> None:
            session.insert("s", [(int(rng.integers(1000)), 1)])

        _clients(db, insert, 2 * seconds, own=True, clients=CLIENTS)  # the first epochs are slow
        found = []
        for name, own, clients in (
            ("one writer", True, 1),
            ("one session", False, CLIENTS),
            ("a session each", True, CLIENTS),
        ):
            before = last_epoch(db)
            times = _clients(db, insert, seconds, own=own, clients=clients)
            epochs = epochs_after(db, before)
            found.append({"clients": name, **_rate(times, seconds), "epochs": len(epochs)})
        db.flush()
        return found


def _readers(directory: Path, seconds: float, keys: int, partitions: int) -> dict[str, Any]:
    """Read a view by key while 10,000 events a second arrive; then each kind of lookup, alone."""
    with _database(directory, partitions) as db:
        db.sql("CREATE STREAM s (k BIGINT, x BIGINT)")
        db.sql(
            "CREATE MATERIALIZED VIEW v AS SELECT k % 1000 AS a, k, count(*) AS n, sum(x) AS total"
            " FROM s GROUP BY k % 1000, k"
        )
        for start in range(0, keys, _LOAD_ROWS):
            part = np.arange(start, min(keys, start + _LOAD_ROWS))
            db.insert("s", pa.table({"k": part, "x": part}))
            db.flush()
        db.compact()

        def read(session: Any, rng: np.random.Generator) -> None:
            k = int(rng.integers(keys))
            found = session.sql(f"SELECT * FROM v WHERE a = {k % 1000} AND k = {k}")
            if len(found) != 1:
                raise AssertionError(f"{len(found)} rows of key {k}")

        results: dict[str, Any] = {"clients": []}
        with _feed(db, keys):
            _clients(db, read, seconds, own=True, clients=CLIENTS)
            for name, own, clients, pace in (
                ("one reader", True, 1, 0.0),
                ("one session", False, CLIENTS, 0.0),
                ("a session each", True, CLIENTS, 0.0),
                ("a session each, 100 reads/s", True, CLIENTS, 0.01),
            ):
                before = last_epoch(db)
                times = _clients(db, read, seconds, own=own, clients=clients, pace=pace)
                epochs = epochs_after(db, before)
                results["clients"].append(
                    {
                        "clients": name,
                        **_rate(times, seconds),
                        "epochs": len(epochs),
                        "changes_per_second": sum(e["changes"] for e in epochs) / seconds,
                    }
                )
        db.flush()
        results["lookups"] = [_lookup(db, query) for query in LOOKUPS]
        return results


LOOKUPS = (
    "SELECT * FROM v WHERE a = 7 AND k = 1007",
    "SELECT k, n * 2 AS twice FROM v WHERE a = 7 AND k = 1007",
    "SELECT * FROM v WHERE a = 7 AND k = 1007 AND n > 0",
    "SELECT * FROM v WHERE a = 7 AND k IN (7, 1007, 2007)",
    "SELECT * FROM v WHERE a = 7",
    "SELECT * FROM v WHERE n > 1000000",
)


def _lookup(db: Any, query: str) -> dict[str, Any]:
    """Return how long a query takes on an idle database; the first runs are not counted."""
    times = []
    for _ in range(25):
        begun = time.perf_counter()
        rows = len(db.sql(query))
        times.append(time.perf_counter() - begun)
    return {"query": query, "rows": rows, **percentiles(times[5:])}


def _fill(directory: Path, rows: int, partitions: int) -> dict[str, Any]:
    """Create a view over many rows while another view is maintained."""
    with _database(directory, partitions) as db:
        db.sql("CREATE STREAM big (k BIGINT, x BIGINT)")
        db.sql("CREATE STREAM s (k BIGINT, x BIGINT)")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n, sum(x) FROM s GROUP BY k")
        for start in range(0, rows, _LOAD_ROWS):
            part = np.arange(start, min(rows, start + _LOAD_ROWS))
            db.insert("big", pa.table({"k": part % 100_000, "x": part}))
        create = "CREATE MATERIALIZED VIEW w AS SELECT k, count(*) AS n, sum(x) FROM big GROUP BY k"
        with db.session() as feeding, db.session() as filling, _feed(db, 1000, rows=20):
            time.sleep(15)
            before = last_epoch(db)
            time.sleep(10)
            quiet = epochs_after(db, before)
            before, begun = last_epoch(db), time.perf_counter()
            filling.sql(create)
            seconds = time.perf_counter() - begun
            during = [e for e in epochs_after(db, before) if e["seconds"]]  # not the fill
            del feeding
        quiet_ms = percentiles([e["seconds"] for e in quiet])["p50_ms"]
        during_ms = percentiles([e["seconds"] for e in during])["p50_ms"] if during else None
        return {
            "rows": rows,
            "seconds": seconds,
            "epochs": len(during),
            "quiet_p50_ms": quiet_ms,
            "during_p50_ms": during_ms,
        }


# -- pieces ------------------------------------------------------------------------------------


@contextmanager
def _database(directory: Path, partitions: int) -> Iterator[Any]:
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="database-") as folder,
        headrace.connect(folder, partitions=partitions, continuous=True) as db,
    ):
        yield db


def _clients(
    db: Any,
    work: Callable[[Any, np.random.Generator], None],
    seconds: float,
    *,
    own: bool,
    clients: int,
    pace: float = 0.0,
) -> list[float]:
    """Run threads that repeat some work; return the seconds that each repetition took.

    With a ``pace``, a thread begins each that many seconds after the one before, and one that is
    late counts from when it was due.
    """
    found: list[list[float]] = [[] for _ in range(clients)]
    failures: list[BaseException] = []
    until = time.perf_counter() + seconds

    def run(number: int) -> None:
        session, rng = db.session() if own else db, np.random.default_rng(number)
        try:
            due = time.perf_counter() + pace * number / clients
            while (begun := time.perf_counter()) < until:
                if pace:
                    time.sleep(max(0.0, due - begun))
                    begun, due = due, due + pace
                work(session, rng)
                found[number].append(time.perf_counter() - begun)
        except BaseException as error:  # noqa: BLE001 - it is raised below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [each for times in found for each in times]


@contextmanager
def _feed(db: Any, keys: int, *, rows: int = _FEED_ROWS) -> Iterator[None]:
    """Insert ``rows`` rows every 20 ms meanwhile: 10,000 a second by default."""
    ended, rng = threading.Event(), np.random.default_rng(0)

    def feed() -> None:
        session, due = db.session(), time.perf_counter()
        while not ended.is_set():
            due += 0.02
            given = {"k": rng.integers(0, keys, rows), "x": np.ones(rows, np.int64)}
            session.insert("s", pa.table(given))
            ended.wait(max(0.0, due - time.perf_counter()))

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _rate(times: list[float], seconds: float) -> dict[str, Any]:
    return {"per_second": round(len(times) / seconds), **percentiles(times)}
