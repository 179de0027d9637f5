"""A database on a cluster of Spark, with files in an object store and a ledger in PostgreSQL.

Large fills and wide epochs are run by no worker (threads of the driver), by one and by two, each
with a core and a directory of its own. The store counts the requests and bytes of all processes.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import headrace
from benchmarks import prices
from beyond import beyond
from headrace.interfaces.settings import backup_place

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from beyond import Beyond

WORKERS = (0, 1, 2)
FILLED, EPOCH, COMMIT = 500_000, 100_000, 10
"""The rows of the fill, of a wide epoch and of a narrow one."""
_PARTITIONS = 2
_GROUPS, _NAMES = 50_000, 1_000
_EPOCHS, _COMMITS = 4, 20
_QUERIES = {
    "sums": "SELECT k, count(*) AS n, sum(v) AS total, max(v) AS most FROM events GROUP BY k",
    "named": "SELECT e.id, e.v, t.name FROM events e JOIN names t ON e.t = t.t WHERE e.v % 4 = 0",
    "totals": "SELECT t.name, count(*) AS n, sum(e.v) AS total"
    " FROM events e JOIN names t ON e.t = t.t GROUP BY t.name",
}


class _Rows:
    def __init__(self) -> None:
        self._random, self._next = np.random.default_rng(1), 0

    def table(self, count: int) -> pa.Table:
        """Return the next rows of the stream."""
        first, self._next = self._next, self._next + count
        draw = self._random.integers
        return pa.table(
            {
                "id": np.arange(first, self._next),
                "k": draw(0, _GROUPS, count, np.int32),
                "t": draw(0, _NAMES, count, np.int32),
                "v": draw(0, 1_000_000, count),
            }
        )


def measure(directory: Path, workers: int) -> dict[str, Any]:
    """Return seconds, rows, requests and bytes of each stage with a number of workers.

    Raises:
        ValueError: a view differs from Spark batch.
    """
    with tempfile.TemporaryDirectory(dir=directory, prefix="database-") as name:
        (Path(name) / "db").mkdir()
        with beyond(Path(name), workers) as there:
            return _measured(Path(name) / "db", there, workers)


def _measured(directory: Path, there: Beyond, workers: int) -> dict[str, Any]:
    rows, chosen = _Rows(), there.settings() | {"small_rows": EPOCH // 10}
    master = {"master": there.spark.url} if workers else {}
    with headrace.connect(
        directory, partitions=_PARTITIONS, continuous=False, reconcile_budget=0, **master, **chosen
    ) as db:
        db.sql("CREATE STREAM events (id BIGINT, k INT, t INT, v BIGINT)")
        db.sql("CREATE TABLE names (t INT PRIMARY KEY, name STRING)")
        named = {"t": np.arange(_NAMES, dtype=np.int32), "name": [f"n{i}" for i in range(_NAMES)]}
        db.insert("names", pa.table(named))
        db.insert("events", rows.table(FILLED))
        db.flush()

        def fill() -> None:
            for view, query in _QUERIES.items():
                db.sql(f"CREATE MATERIALIZED VIEW {view} AS {query}")

        def empty() -> None:
            for view in _QUERIES:
                db.sql(f"DROP MATERIALIZED VIEW {view}")

        def commit(count: int) -> Callable[[], None]:
            def make() -> None:
                db.insert("events", rows.table(count))
                db.flush()

            return make

        fill()
        empty()
        stages = [_stage(there, f"fill of {len(_QUERIES)} views", fill, 1, FILLED)]
        for each, count, times in (
            ("wide epoch", EPOCH, _EPOCHS),
            ("narrow epoch", COMMIT, _COMMITS),
        ):
            commit(count)()
            stages.append(_stage(there, each, commit(count), times, count))
        widths = [row["width"] for row in db.sql("SHOW EPOCHS").to_arrow().to_pylist()]
        if "wide" in widths[:_COMMITS] or "narrow" in widths[_COMMITS + 1 : _COMMITS + 1 + _EPOCHS]:
            raise ValueError(f"epochs of another width were measured: {widths}")
        verdicts = {verdict for *_, verdict in db.sql("VERIFY").fetchall()}
        if verdicts != {"equal to batch"}:
            raise ValueError(f"a view differs: {verdicts}")
    stored = sum(size for _, size in backup_place(chosen["store"]).names())
    return {"workers": workers, "stages": stages, "stored_bytes": stored}


def _stage(
    there: Beyond, name: str, act: Callable[[], None], times: int, rows: int
) -> dict[str, Any]:
    """Return what an act takes, which handles so many rows: the middle of some times."""
    before, taken = there.store.requests(), []
    for _ in range(times):
        begun = time.perf_counter()
        act()
        taken.append(time.perf_counter() - begun)
    sent = there.store.requests() - before
    middle = sorted(taken)[times // 2]
    return {
        "stage": name,
        "rows": rows,
        "times": times,
        "seconds": round(middle, 3),
        "rows_per_second": round(rows / middle),
        **{kind: round(sent[kind] / times, 2) for kind in ("PUT", "GET", "LIST", "DELETE")},
        "bytes_put": sent["put"] // times,
        "bytes_got": sent["got"] // times,
        "usd": _usd(sent) / times,
    }


def _usd(sent: Counter[str]) -> float:
    """Return what requests cost."""
    return (sent["PUT"] + sent["LIST"]) * prices.PUT + sent["GET"] * prices.GET
