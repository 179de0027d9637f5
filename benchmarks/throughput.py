"""Events per second, from a file of JSON lines to a view that can be read.

The clock starts with the first COPY and stops when a flush says that all is readable. Decoding
and epochs overlap, as they do in use. The first run finds everything cold; later runs, on streams
and a view made anew, find the JVM and the workers ever warmer: the second half of them counts.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import headrace
from benchmarks.answers import answers
from benchmarks.counters import epochs_after, last_epoch, summary
from benchmarks.memory import Sampler
from benchmarks.nexmark import Dataset, dataset

if TYPE_CHECKING:
    from pathlib import Path

STREAMS = """
CREATE STREAM bids (auction BIGINT, bidder BIGINT, price BIGINT, dateTime TIMESTAMP);
CREATE STREAM auctions (id BIGINT, seller BIGINT, category BIGINT, initialBid BIGINT)
"""


@dataclass(frozen=True, slots=True)
class Workload:
    """A view, the files that it takes, and the totals by which its answer is checked."""

    name: str
    query: str
    files: tuple[str, ...]
    totals: str

    def rows(self, data: Dataset) -> int:
        return sum(data.rows(name) for name in self.files)


WORKLOADS = (
    Workload(
        "aggregate",
        "SELECT auction, count(*) AS n, sum(price) AS total, avg(price) AS average"
        " FROM bids GROUP BY auction",
        ("bids",),
        "SELECT count(*), sum(n), sum(total) FROM answer",
    ),
    Workload(
        "join",
        "SELECT b.auction, b.bidder, b.price, a.seller, a.category"
        " FROM bids b JOIN auctions a ON b.auction = a.id",
        ("auctions", "bids"),
        "SELECT count(*), sum(price), sum(seller) FROM answer",
    ),
)


def measure(
    directory: Path, events: int, runs: int, partitions: int, name: str, *, lean: bool = False
) -> dict[str, Any]:
    """Return the figures of one workload over the first ``events`` events.

    Raises:
        AssertionError: the answer is not the right one.
    """
    workload = next(w for w in WORKLOADS if w.name == name)
    data = dataset(directory, events, lean=lean)
    right = getattr(answers(data), name)
    rows = workload.rows(data)
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="database-") as folder,
        Sampler() as used,
    ):
        begun = time.perf_counter()
        with headrace.connect(folder, partitions=partitions, continuous=True) as db:
            start_up = time.perf_counter() - begun
            done = [_run(db, workload, data, right, used) for _ in range(runs)]
    warm = sorted(run["seconds"] for run in done[len(done) // 2 :])
    middle = warm[len(warm) // 2]
    return {
        "workload": f"{name}, lean" if lean else name,
        "megabytes": round(sum(data.bytes(name) for name in workload.files) / 1e6),
        "rows": rows,
        "start_up_seconds": round(start_up, 3),
        "cold_seconds": done[0]["seconds"],
        "warm_seconds": middle,
        "warm_rows_per_second": round(rows / middle),
        "rows_per_second_with_start_up": round(rows / (start_up + done[0]["seconds"])),
        "runs": done,
        "memory": used.to_json(),
    }


def _run(
    db: Any, workload: Workload, data: Dataset, right: tuple[int, ...], used: Sampler
) -> dict[str, Any]:
    db.sql(STREAMS)
    db.sql(f"CREATE MATERIALIZED VIEW answer AS {workload.query}")
    before, processor = last_epoch(db), used.processor_seconds()
    begun = time.perf_counter()
    for name in workload.files:
        db.sql(f"COPY {name} FROM '{getattr(data, name)}'")
    copied = time.perf_counter()
    db.flush()
    ended = time.perf_counter()
    worked = used.processor_seconds()
    found = db.sql(workload.totals).fetchall()[0]
    if found != right:
        raise AssertionError(f"{workload.name}: the answer is {found}, not {right}")
    counters = summary(epochs_after(db, before))
    db.sql("DROP MATERIALIZED VIEW answer; DROP STREAM bids; DROP STREAM auctions")
    return {
        "seconds": round(ended - begun, 3),
        "copy_seconds": round(copied - begun, 3),
        "flush_seconds": round(ended - copied, 3),
        "processor_seconds": {part: round(worked[part] - processor[part], 2) for part in worked},
        "counters": counters,
    }
