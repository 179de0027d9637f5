"""Corrections of one event among many, until the views over the stream can be read.

Four views read the stream: an aggregate by key, a windowed aggregate whose maximum keeps less while
no event has changed, a join with a table, and a filter. The events arrived either one by one, or
many at once. A correction finds its event by a key, by a time, or by its offset. Beside the seconds
are what it read of the log in this process, and the Spark jobs that it ran.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import headrace
from headrace.storage.log import segments

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.storage.log.segments import LogBlock

ONE_BY_ONE = 21_000
MOST_ROWS = 1_000_000
AT_ONCE = 50_000
USERS = 1_000
_START = 1_767_225_600_000_000
"""The first event's time, in microseconds: the first of January 2026."""
_VIEWS = """
CREATE TABLE users (id INT PRIMARY KEY, segment STRING);
CREATE STREAM events (id BIGINT, user INT, amount DECIMAL(12,2), at TIMESTAMP,
  WATERMARK FOR at AS at - INTERVAL '1' HOUR);
CREATE MATERIALIZED VIEW by_user AS
  SELECT user, sum(amount) AS amount, count(*) AS events FROM events GROUP BY user;
CREATE MATERIALIZED VIEW by_hour AS
  SELECT window.start AS hour, sum(amount) AS amount, max(amount) AS most
  FROM events GROUP BY window(at, '1 hour');
CREATE MATERIALIZED VIEW by_segment AS
  SELECT u.segment, sum(e.amount) AS amount FROM events e JOIN users u ON e.user = u.id
  GROUP BY u.segment;
CREATE MATERIALIZED VIEW large AS SELECT id, amount FROM events WHERE amount > 990;
"""
_READ = ("by_user", "by_hour", "by_segment", "large")


@dataclass
class _Opened:
    """What was read of the log in this process: distinct segments, and the rows of their blocks."""

    segments: int = 0
    rows: int = 0


@contextmanager
def _counted() -> Iterator[_Opened]:
    """Count what is opened of logs in a block."""
    found, files, blocks = _Opened(), set[tuple[str, int]](), segments._blocks  # noqa: SLF001

    def counting(directory: Path, segment: Any, first: Any, end: Any) -> Iterator[LogBlock]:
        files.add((segment.file.name, segment.file.position))
        found.segments = len(files)
        for block in blocks(directory, segment, first, end):
            found.rows += block.rows
            yield block

    segments._blocks = counting  # noqa: SLF001
    try:
        yield found
    finally:
        segments._blocks = blocks  # noqa: SLF001


def measure(directory: Path, rows: int, at_once: int, partitions: int) -> list[dict[str, Any]]:
    """Correct single events among ``rows``, of which ``at_once`` arrived together each time."""
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="database-") as folder,
        headrace.connect(folder, partitions=partitions, continuous=False) as db,
    ):
        db.sql(_VIEWS)
        ids = np.arange(USERS, dtype=np.int32)
        groups = pa.array([f"segment {number % 7}" for number in ids])
        db.insert("users", pa.table({"id": ids, "segment": groups}))
        for first in range(0, rows, at_once):
            db.insert("events", _events(first, min(at_once, rows - first)))
        db.flush()
        middle = rows // 2
        at = np.datetime64(_START + middle * 1_000_000, "us")
        conditions = {
            "the first, by id": f"id = {middle}",
            "by id": f"id = {middle + 1}",
            "by time and user": f"at BETWEEN TIMESTAMP '{at}' AND TIMESTAMP '{at + 500_000}'"
            f" AND user = {middle * 7 % USERS}",
            "by offset": f"ROWOFFSET = {middle + 3}",
            "by an expression": f"id * 2 = {2 * middle + 8}",
        }
        found = [
            {"rows": rows, "at_once": at_once, **_corrected(db, name, where)}
            for name, where in conditions.items()
        ]
        verdicts = {verdict for *_, verdict in db.sql("VERIFY").fetchall()}
        if verdicts != {"equal to batch"}:
            raise ValueError(f"a view differs: {verdicts}")
    return found


def _corrected(db: headrace.Database, name: str, where: str) -> dict[str, Any]:
    before, begun = _jobs(db), time.perf_counter()
    with _counted() as opened:
        done = db.sql(f"CORRECT STREAM events REPLACE SET amount = amount + 1 WHERE {where}")
        if done.message != "1 event replaced":
            raise ValueError(f"{where}: {done.message}")
        for view in _READ:
            db.sql(f"SELECT * FROM {view} LIMIT 1").fetchall()
    return {
        "correction": name,
        "seconds": round(time.perf_counter() - begun, 3),
        "segments": opened.segments,
        "rows_read": opened.rows,
        "jobs": _jobs(db) - before,
    }


def _jobs(db: headrace.Database) -> int:
    """Return the number of jobs that Spark has run."""
    context = db.parts.engine.spark.sparkContext
    return int(context._jsc.sc().statusStore().jobsList(None).size())  # noqa: SLF001


def _events(first: int, rows: int) -> pa.Table:
    number = np.arange(first, first + rows)
    cents = pa.array(number * 7_919 % 100_000).cast(pa.decimal128(19, 0))
    return pa.table(
        {
            "id": number,
            "user": (number * 7 % USERS).astype(np.int32),
            "amount": cents.cast(pa.decimal128(12, 2)),
            "at": pa.array(_START + number * 1_000_000).cast(pa.timestamp("us", tz="UTC")),
        }
    )
