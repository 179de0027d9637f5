"""Fifty views that are refreshed hourly on one table, beside one of them.

Each view groups the table by another number of groups. Changes arrive in statements of some
thousands; then all views are refreshed. With one view and with fifty, the same.
"""

from __future__ import annotations

import tempfile
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import headrace
from benchmarks.counters import last_epoch
from benchmarks.memory import Sampler

if TYPE_CHECKING:
    from pathlib import Path

VIEWS = 50
MOST_ROWS = 200_000
_STATEMENTS = 10
_ROUNDS = 3
NAMES = ("refreshed", "changes", "rows_scanned", "jobs", "bytes_written")


def measure(directory: Path, rows: int, views: int, partitions: int) -> dict[str, Any]:
    """Refresh some views over ``rows`` changes, several times; return what the last one took."""
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="database-") as folder,
        Sampler() as used,
        headrace.connect(folder, partitions=partitions, continuous=False) as db,
    ):
        db.sql("CREATE TABLE t (k BIGINT, v BIGINT, PRIMARY KEY (k))")
        for number in range(views):
            db.sql(
                f"CREATE MATERIALIZED VIEW v{number} WITH (refresh = 'every 1 hour') AS"
                f" SELECT k % {100 + number} AS g, count(*) AS n, sum(v) AS s FROM t GROUP BY 1"
            )
        for turn in range(_ROUNDS):
            for part in range(_STATEMENTS):
                db.insert("t", _changes(rows // _STATEMENTS, turn * _STATEMENTS + part))
                db.flush()
            before, begun = last_epoch(db), time.perf_counter()
            db.sql("REFRESH ALL")
            seconds = time.perf_counter() - begun
        made = [e for e in db.parts.ledger.epochs.newest() if e.epoch > before]
        verdicts = {verdict for *_, verdict in db.sql("VERIFY v0").fetchall()}
        if verdicts != {"equal to batch"}:
            raise ValueError(f"a view differs: {verdicts}")
    counters = {name: sum(e.counters.get(name, 0) for e in made) for name in NAMES}
    return {
        "views": views,
        "rows": rows,
        "seconds": round(seconds, 2),
        "counters": counters,
        "memory": used.to_json(),
    }


def _changes(rows: int, part: int) -> pa.Table:
    keys = [part * rows + number for number in range(rows)]
    return pa.table({"k": keys, "v": [key % 1000 for key in keys]})
