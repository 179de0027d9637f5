"""Reads of a stream that landed an event at a time, beside the same reads as jobs of Spark."""

from __future__ import annotations

import tempfile
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

import headrace
from headrace.storage.ledger import AppendRecord, SegmentFile
from headrace.storage.log import SEGMENTS_READ

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUERIES: Final = {
    "LIMIT 5": "SELECT * FROM pings LIMIT 5",
    "LIMIT 5 of a kind": "SELECT * FROM pings WHERE kind = 'k3' LIMIT 5",
    "count(*)": "SELECT count(*) FROM pings",
    "an hour": (
        "SELECT count(*), max(n) FROM pings WHERE at >= TIMESTAMP'{0}' AND at < TIMESTAMP'{1}'"
    ),
    "by kind": "SELECT kind, count(*) FROM pings GROUP BY kind",
}
MOST_IN_JOBS: Final = 100_000
"""The most landings over which a job of Spark is run beside each read."""
_RUNS: Final = 3
_AT_ONCE: Final = 2_000
_TENTHS: Final = 10
_KINDS: Final = 10
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)


def measure(directory: Path, landings: int) -> dict[str, Any]:
    """Return, of each query, milliseconds of each way, segments and bytes opened.

    They are asked as the events have landed, with a job of Spark beside each, and once these are
    merged.
    """
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="database-") as folder,
        headrace.connect(folder, partitions=2, continuous=False) as db,
    ):
        db.sql("CREATE STREAM pings (n BIGINT NOT NULL, kind STRING, at TIMESTAMP)")
        started = time.perf_counter()
        rates = _land(db, landings)
        middle = _START + timedelta(seconds=landings // 2)
        low, high = (f"{t:%F %T}" for t in (middle, middle + timedelta(hours=1)))
        landed = time.perf_counter() - started
        texts = {name: text.format(low, high) for name, text in QUERIES.items()}
        as_jobs = landings <= MOST_IN_JOBS
        found = [{"query": n, **_read(db, text, as_job=as_jobs)} for n, text in texts.items()]
        started = time.perf_counter()
        merged = db.parts.pump.compaction.merge_logs()
        return {
            "landings": landings,
            "landed_s": landed,
            "rates": rates,
            "queries": found,
            "replaced": merged,
            "merged_s": time.perf_counter() - started,
            "after": [{"query": n, **_read(db, text)} for n, text in texts.items()],
        }


def _land(db: headrace.Database, landings: int) -> list[float]:
    """Append so many landings of one event: what INSERT does, with many of them in one sync.

    Return the landings per second of each tenth of them.
    """
    parts = db.parts
    (stream,) = (each for each in parts.reader.catalog if each.name == "pings")
    appender, schema = parts.log.appender, stream.schema.stored
    rates, tenth = list[float](), -(-landings // _TENTHS)
    for start in range(0, landings, tenth):
        started, end = time.perf_counter(), min(start + tenth, landings)
        for first in range(start, end, _AT_ONCE):
            tables = [
                pa.table([[n], [f"k{n % _KINDS}"], [_START + timedelta(seconds=n)]], schema=schema)
                for n in range(first, min(first + _AT_ONCE, end))
            ]
            written = [w for w in appender.segments.write(tables) if isinstance(w, SegmentFile)]
            parts.ledger.log.append_all([AppendRecord(stream.id, file) for file in written])
        rates.append((end - start) / (time.perf_counter() - started))
    return rates


def _read(db: headrace.Database, text: str, *, as_job: bool = False) -> dict[str, Any]:
    """Read a query in the way that it is read, and perhaps as a job of Spark."""
    before = replace(SEGMENTS_READ)
    found, cold = _timed(lambda: db.sql(text).to_arrow())
    opened = {name: n - getattr(before, name) for name, n in asdict(SEGMENTS_READ).items()}
    warm = min(_timed(lambda: db.sql(text).to_arrow())[1] for _ in range(_RUNS))
    job = None
    if as_job:
        same, job = _timed(lambda: _by_spark(db, text))
        if same.num_rows != found.num_rows:
            message = f"{text}: {found.num_rows} rows, and {same.num_rows} as a job"
            raise ValueError(message)
    return {"cold_ms": cold, "warm_ms": warm, "job_ms": job, **opened}


def _by_spark(db: headrace.Database, text: str) -> pa.Table:
    parts = db.parts
    state = parts.reader.published
    (stream,) = (each for each in parts.reader.catalog if each.name == "pings")
    with parts.engine.planning:
        prepared = parts.queries.prepared(text)
    shares = parts.reader.shares([stream.id], state)
    return parts.queries.rows(prepared.optimised, shares)


def _timed(call: Callable[[], pa.Table]) -> tuple[pa.Table, float]:
    started = time.perf_counter()
    found = call()
    return found, 1000 * (time.perf_counter() - started)
