"""Whether memory, files and latency stay flat while small changes keep coming.

A table and a stream change all the time, at a steady rate, below views of each kind; readers look
up keys meanwhile. Every few seconds a line says how much memory each part uses, how many files
there are, and how long epochs, and the wait from an insert to a reader that sees it, took since
the line before. At the end every view is verified, and the last third is compared with the middle
one: a ratio above 1 means growth.

    python -m benchmarks.soak --minutes 10
    python -m benchmarks.soak --minutes 60 --views 30 --rows 20 --pause 0.1
"""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa

import headrace
from benchmarks.memory import Sampler, anonymous

_KEYS, _GROUPS = 20_000, 200
_FOLDERS = ("runs", "log")
_MANY = 50
"""The least rows of a table whose growth is shown."""
_VIEWS = {
    "by_group": """SELECT g, count(*) AS n, sum(x) AS s, max(x) AS most
      FROM t WHERE x >= {i} GROUP BY g""",
    "small": "SELECT k, x FROM t WHERE x < 100 + {i}",
    "pairs": """SELECT e.at, e.k, t.g, t.x FROM events AS e JOIN t ON e.k = t.k
      WHERE e.v > 900 + {i}""",
    "kinds": "SELECT DISTINCT g, v % (10 + {i}) AS kind FROM events",
    "top": """SELECT g, k, x FROM (
        SELECT *, row_number() OVER (PARTITION BY g ORDER BY x DESC, k) AS nth FROM t
      ) WHERE nth <= 3 + {i}""",
    "minutes": """SELECT window.start AS minute, g, count(*) AS n
      FROM events GROUP BY window(at, '{i} minutes 1 minute'), g""",
    "recent": "SELECT k, v FROM events WHERE at > now() - INTERVAL {i} MINUTES 20 SECONDS",
    "without": """SELECT k FROM t
      WHERE NOT EXISTS (SELECT 1 FROM kinds{name} AS c WHERE c.g = t.g)""",
    "groups": "SELECT n, count(*) AS groups FROM by_group{name} GROUP BY n",
}
"""Their queries; each further set of them has other constants, ``i``, and names that end in it."""


def _queries(views: int) -> dict[str, str]:
    """Return the queries of so many views, by name."""
    found = {}
    for i in range(-(-views // len(_VIEWS))):
        name = f"_{i}" if i else ""
        found |= {f"{each}{name}": query.format(i=i, name=name) for each, query in _VIEWS.items()}
    return dict(islice(found.items(), views))


@dataclass(slots=True)
class Moment:
    """What was measured since the moment before."""

    seconds: float
    memory: dict[str, float]
    files: dict[str, int]
    disk: dict[str, float]
    """Megabytes."""
    rows: dict[str, int]
    """Of the ledger, by table."""
    epochs: int
    epoch_ms: float
    fresh: dict[str, float]
    """From an INSERT to a reader that sees it."""
    deleted: dict[str, float]
    """From a DELETE, which first finds its rows, to a reader that sees it."""
    read: dict[str, float]

    def line(self) -> str:
        """Return it as a line of text."""
        memory = " ".join(f"{part} {self.memory[part]:.0f}" for part in self.memory)
        files = " ".join(f"{name} {count}" for name, count in self.files.items())
        disk = " ".join(f"{name} {size:.1f}" for name, size in self.disk.items())
        return (
            f"{self.seconds:6.0f} s | MB: {memory} | files: {files} | MB on disk:"
            f" {disk} | rows of ledger {sum(self.rows.values())} |"
            f" epochs {self.epochs}, {self.epoch_ms:.1f} ms |"
            f" fresh p50 {self.fresh['p50_ms']:.0f} p99 {self.fresh['p99_ms']:.0f} ms |"
            f" deleted p50 {self.deleted['p50_ms']:.0f} p99 {self.deleted['p99_ms']:.0f} ms |"
            f" read p50 {self.read['p50_ms']:.2f} p99 {self.read['p99_ms']:.2f} ms"
        )


@dataclass(slots=True)
class Soak:
    """Writes, reads and measures until told to end; each client has a session of its own."""

    db: Any
    directory: Path
    rows: int
    pause: float
    ended: threading.Event = field(default_factory=threading.Event)
    fresh: list[float] = field(default_factory=list)
    deleted: list[float] = field(default_factory=list)
    read: list[float] = field(default_factory=list)
    failed: list[BaseException] = field(default_factory=list)

    def write(self) -> None:
        """Insert, update and delete at a steady rate; time how long until each is readable."""
        rng, client = np.random.default_rng(1), self.db.session()
        number = 0
        while not self.ended.wait(self.pause):
            number += 1
            keys = rng.choice(_KEYS, self.rows, replace=False)
            groups = pa.array(rng.integers(0, _GROUPS, self.rows), pa.int32())
            values = rng.integers(0, 1000, self.rows)
            begun, took = time.perf_counter(), self.fresh
            seen = "SELECT n FROM by_group WHERE g = 1"
            if number % 5 == 0:
                took, low = self.deleted, int(rng.integers(0, _KEYS))
                client.sql(f"DELETE FROM t WHERE k BETWEEN {low} AND {low + 20}")
            elif number % 2:
                client.insert("t", pa.table({"k": keys, "g": groups, "x": values}))
            else:
                now = pa.array([int(time.time() * 1e6)] * self.rows, pa.timestamp("us", "UTC"))
                client.insert("events", pa.table({"at": now, "k": keys, "g": groups, "v": values}))
                seen = "SELECT g FROM kinds WHERE g = 1 AND kind = 1"
            client.sql(seen).fetchall()
            took.append(time.perf_counter() - begun)

    def look_up(self) -> None:
        """Look up keys of what is published."""
        rng, client = np.random.default_rng(2), self.db.session()
        while not self.ended.wait(0.005):
            group = int(rng.integers(0, _GROUPS))
            begun = time.perf_counter()
            client.sql(f"SELECT n, s FROM by_group WHERE g = {group}").fetchall()
            self.read.append(time.perf_counter() - begun)

    def kept(self, work: Any) -> None:
        """Run one of these; an error ends the soak."""
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is raised at the end
            self.failed.append(error)
            self.ended.set()

    def moment(self, seconds: float, used: Sampler, since: int) -> tuple[Moment, int]:
        """Return what was measured since an epoch, and the last epoch."""
        fresh, self.fresh = self.fresh, []
        deleted, self.deleted = self.deleted, []
        read, self.read = self.read, []
        epochs = [e for e in self.db.parts.ledger.epochs.newest(2_000) if e.epoch > since]
        took = [e.counters["seconds"] for e in epochs if "seconds" in e.counters]
        files = {name: sum(1 for _ in (self.directory / name).iterdir()) for name in _FOLDERS}
        files["open"] = len(list(Path("/proc/self/fd").iterdir()))
        memory = {part: size / 1e6 for part, size in used.resident().items()}
        memory["own"] = anonymous() / 1e6
        memory["arrow"] = pa.total_allocated_bytes() / 1e6
        return (
            Moment(
                seconds,
                memory,
                files,
                _disk(self.directory),
                _ledger(self.directory),
                len(epochs),
                1e3 * statistics.median(took) if took else 0.0,
                _spread(fresh),
                _spread(deleted),
                _spread(read),
            ),
            max((e.epoch for e in epochs), default=since),
        )


def _disk(directory: Path) -> dict[str, float]:
    """Return the megabytes of each part of a database's directory."""
    sizes: dict[str, int] = dict.fromkeys((*_FOLDERS, "ledger", "wal"), 0)
    for name in _FOLDERS:
        for path in (directory / name).iterdir():
            with suppress(FileNotFoundError):
                sizes[name] += path.stat().st_size
    sizes["ledger"] = (directory / "ledger.db").stat().st_size
    sizes["wal"] = (directory / "ledger.db-wal").stat().st_size
    return {name: size / 1e6 for name, size in sizes.items()}


def _ledger(directory: Path) -> dict[str, int]:
    """Return how many rows each table of a database's ledger has."""
    with closing(sqlite3.connect(f"file:{directory}/ledger.db?mode=ro", uri=True)) as ledger:
        tables = ledger.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            table: ledger.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
            for (table,) in tables
        }


def _spread(seconds: list[float]) -> dict[str, float]:
    median, high = np.percentile(seconds, (50, 99)) if seconds else (0.0, 0.0)
    return {"p50_ms": 1e3 * float(median), "p99_ms": 1e3 * float(high)}


def growth(moments: list[Moment]) -> dict[str, float]:
    """Return how the last third compares with the middle one, by figure."""
    third = len(moments) // 3
    middle, last = moments[third : 2 * third], moments[2 * third :]

    def ratio(of: Any) -> float:
        before = statistics.mean(map(of, middle))
        return statistics.mean(map(of, last)) / before if before else 1.0

    found = {f"memory {part}": ratio(lambda m, p=part: m.memory[p]) for part in moments[0].memory}
    found |= {f"files {name}": ratio(lambda m, n=name: m.files[n]) for name in moments[0].files}
    found |= {f"MB of {name}": ratio(lambda m, n=name: m.disk[n]) for name in moments[0].disk}
    found |= {
        f"rows of {table} in the ledger": ratio(lambda m, t=table: m.rows.get(t, 0))
        for table, rows in moments[-1].rows.items()
        if rows >= _MANY
    }
    found["epoch"] = ratio(lambda m: m.epoch_ms)
    found["fresh p50"] = ratio(lambda m: m.fresh["p50_ms"])
    found["read p99"] = ratio(lambda m: m.read["p99_ms"])
    return found


@click.command()
@click.option("--minutes", default=10.0, show_default=True, help="How long changes keep coming.")
@click.option("--rows", default=100, show_default=True, help="Rows per insert.")
@click.option("--pause", default=0.05, show_default=True, help="Seconds between inserts.")
@click.option("--views", default=len(_VIEWS), show_default=True, help="How many views there are.")
@click.option("--every", default=15.0, show_default=True, help="Seconds between two lines.")
def main(minutes: float, rows: int, pause: float, views: int, every: float) -> None:
    """Run the soak; exit with 1 if a view is wrong."""
    with (
        tempfile.TemporaryDirectory(prefix="headrace-soak-") as folder,
        headrace.connect(folder, continuous=True) as db,
        Sampler() as used,
    ):
        db.sql("CREATE TABLE t (k BIGINT, g INT, x BIGINT, PRIMARY KEY (k))")
        db.sql(
            "CREATE STREAM events (at TIMESTAMP, k BIGINT, g INT, v BIGINT,"
            " WATERMARK FOR at AS at - INTERVAL 5 SECONDS) WITH (retention = '2 minutes')"
        )
        for name, query in _queries(views).items():
            db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        soak = Soak(db, Path(folder), rows, pause)
        threads = [
            threading.Thread(target=soak.kept, args=(work,), daemon=True)
            for work in (soak.write, soak.look_up)
        ]
        for thread in threads:
            thread.start()
        begun, moments, last = time.perf_counter(), list[Moment](), 0
        while not soak.ended.wait(every) and time.perf_counter() - begun < 60 * minutes:
            moment, last = soak.moment(time.perf_counter() - begun, used, last)
            moments.append(moment)
            click.echo(moment.line())
        soak.ended.set()
        for thread in threads:
            thread.join()
        if soak.failed:
            raise soak.failed[0]
        for name, ratio in growth(moments).items() if len(moments) > 2 else ():
            click.echo(f"last third to middle third, {name}: {ratio:.2f}")
        wrong = [row for row in db.sql("VERIFY").fetchall() if row[2]]
        click.echo(f"verified: {wrong or 'all views equal their queries'}")
        if wrong:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
