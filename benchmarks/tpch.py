"""TPC-H's 22 queries as views, each alone: commits of 1,000 changed rows beside Spark batch.

The texts, the tables and what is revised are those of the test suite, where every query is held to
its answer at every epoch. In one database, each view is created, kept through some commits in turns
with its query in Spark batch over Parquet files of the same tables, verified, and dropped. A commit
inserts orders with their lines, deletes as many, and revises rows of all large tables. Its time is
that from when its rows are durable until the view can be read; they are appended to one table after
the other before.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.counters import percentiles
from benchmarks.epochs import JOB, NARROW, Samples, opened
from headrace.execution.runtime.attempt import Widths
from headrace.lifecycle.states.system_relations import ACTIVITIES, COUNTERS, fan_out_words
from headrace.planning.catalyst.scala import collect_arrow
from suites.suite import Suite
from suites.tpch.evolution import TABLES, generated_tables, revisions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.epochs import Bench

TPCH = Suite("tpch")
CHANGED = 1_000
"""The changed rows of a commit."""
BATCH = "batch"
TABLES_ALONE = "tables"
"""The name of what a commit is without any view."""
_COMING = 10_000
"""The most orders that are not loaded, but inserted by commits."""
_SLICE = 1_000_000
"""The most rows that are loaded by one epoch."""
_PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class Turns:
    """How often a view is measured: ``warm`` commits first, then turns of a run of batch each."""

    warm: int = 4
    turns: int = 4
    narrow: int = 3
    """Commits in a turn that are narrow unless their rows fan out."""
    jobs: int = 1
    """Commits in a turn as Spark jobs."""


FULL = Turns()
QUICK = Turns(3, 3, 2, 0)


class Refreshes:
    """The tables at first, and commits: orders that come and go, and rows that are revised."""

    def __init__(self, tables: dict[str, pa.Table], seed: int = 1) -> None:
        self._tables = {name: rows.combine_chunks() for name, rows in tables.items()}
        self._random = Random(seed)
        self._revisions = revisions(self._random)
        keys = tables["orders"]["o_orderkey"].to_numpy()
        lines = tables["lineitem"]["l_orderkey"].to_numpy()
        self._first = np.searchsorted(lines, keys, "left")
        self._end = np.searchsorted(lines, keys, "right")
        shuffled = np.random.default_rng(seed).permutation(len(keys))
        coming = min(_COMING, len(keys) // 10)
        self._coming = deque(shuffled[:coming].tolist())
        self._live = deque(shuffled[coming:].tolist())

    def loaded(self) -> dict[str, pa.Table]:
        """Return the tables without the orders that are still to come."""
        live = np.sort(np.fromiter(self._live, np.int64))
        orders = self._tables["orders"].take(live)
        return {**self._tables, "orders": orders, "lineitem": self._lines(live)}

    def commit(self, rows: int) -> dict[str, pa.Table]:
        """Return so many changed rows by table, with weights: a third each of what is done."""
        weighted: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
        left = rows
        for queue, other, weight in (
            (self._live, self._coming, -1),
            (self._coming, self._live, 1),
        ):
            moved: list[int] = []
            lines = 0
            while len(moved) + lines < rows // 3:
                moved.append(queue.popleft())
                lines += int(self._end[moved[-1]] - self._first[moved[-1]])
            other.extend(moved)
            chosen = np.sort(np.array(moved))
            for name, changed in (
                ("orders", self._tables["orders"].take(chosen)),
                ("lineitem", self._lines(chosen)),
            ):
                weighted[name].append(_weighted(changed, weight))
                left -= changed.num_rows
        for name, changed in self._revised(left):
            weighted[name].append(_weighted(changed, 1))
        return {
            name: pa.concat_tables(parts).combine_chunks()
            for name, parts in weighted.items()
            if parts
        }

    def _revised(self, count: int) -> Iterator[tuple[str, pa.Table]]:
        kinds = Counter(self._random.choices(range(len(self._revisions)), k=count))
        for kind, number in sorted(kinds.items()):
            name, columns = self._revisions[kind]
            rows = self._tables[name].take(self._chosen(name, number))
            for column, revised in columns.items():
                place, values = rows.schema.get_field_index(column), rows[column].to_pylist()
                found = pa.array([revised(value) for value in values], rows[column].type)
                rows = rows.set_column(place, column, found)
            yield name, rows

    def _chosen(self, name: str, number: int) -> np.ndarray:
        """Return the positions of some rows that are there."""
        if name not in {"orders", "lineitem"}:
            return np.array(self._random.choices(range(self._tables[name].num_rows), k=number))
        live = len(self._live)
        orders = np.array([self._live[self._random.randrange(live)] for _ in range(number)])
        if name == "orders":
            return orders
        count = self._end[orders] - self._first[orders]
        return self._first[orders] + np.array([self._random.randrange(int(n)) for n in count])

    def _lines(self, orders: np.ndarray) -> pa.Table:
        """Return the lines of some orders, whose positions are sorted."""
        count = self._end[orders] - self._first[orders]
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        return self._tables["lineitem"].take(np.repeat(self._first[orders], count) + within)


def _weighted(rows: pa.Table, weight: int) -> pa.Table:
    return rows.append_column("__weight", pa.array(np.full(rows.num_rows, weight, np.int64)))


def measure(
    directory: Path,
    scale: float,
    names: tuple[str, ...],
    turns: Turns,
    shown: Callable[[dict[str, Any]], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Return the figures of each query named, or of all, and first those without any view.

    The tables are generated and loaded once for each scale, and kept in the directory.

    Raises:
        ValueError: a view differs from Spark batch.
    """
    kept = directory / f"tpch-{scale:g}"
    refreshes = Refreshes(generated_tables(kept / "generated", scale))
    if not (kept / "loaded").exists():
        _load(kept, refreshes.loaded())
    found = []
    with tempfile.TemporaryDirectory(dir=directory, prefix="database-") as name:
        folder = Path(name) / "copied"
        beside = shutil.ignore_patterns("lock")
        shutil.copytree(kept / "loaded", folder, ignore=beside, copy_function=_copied)
        with opened(folder, _PARTITIONS) as bench:
            batch = bench.db.parts.engine.spark.newSession()
            for table in TABLES:
                path = str(kept / f"{table}.parquet")
                batch.read.parquet(path).createOrReplaceTempView(table)
            for query in [TABLES_ALONE, *(each.lower() for each in names or TPCH.queries)]:
                found.append(_measured(bench, query, refreshes, batch, turns))
                shown(found[-1])
    return found


def _load(kept: Path, tables: dict[str, pa.Table]) -> None:
    """Make a database of the tables, and a Parquet file of each."""
    with opened(kept / "loading", _PARTITIONS) as bench:
        for relation in TPCH.relations:
            name, rows = relation.name, tables[relation.name]
            bench.db.sql(f"CREATE TABLE {name} ({relation.columns}, PRIMARY KEY ({relation.key}))")
            for at in range(0, rows.num_rows, _SLICE):
                bench.db.insert(name, rows.slice(at, _SLICE))
                bench.db.flush()
            pq.write_table(rows, kept / f"{name}.parquet")
    (kept / "loading").rename(kept / "loaded")


def _copied(source: str, target: str) -> None:
    """Copy a file of a database: all but those of the ledger never change."""
    if Path(source).name.startswith("ledger.db"):
        shutil.copy2(source, target)
    else:
        os.link(source, target)


def _measured(
    bench: Bench, name: str, refreshes: Refreshes, batch: Any, turns: Turns
) -> dict[str, Any]:
    """Create a view, measure its commits and its batch in turns, verify and drop it."""
    query, db, found = TPCH.queries.get(name), bench.db, dict[str, Any]()
    db.parts.loop.widths = Widths(db.parts.loop.settings.small_rows)
    if query is not None:
        begun = time.perf_counter()
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        db.flush()
        found["created_s"] = time.perf_counter() - begun
    appended: list[float] = []

    def commit() -> _Taken:
        changes = refreshes.commit(CHANGED)
        begun = time.perf_counter()
        for table, rows in changes.items():
            db.parts.log.append(db.parts.reader.catalog.resolve(table), rows)
        appended.append(time.perf_counter() - begun)
        return _taken(db.flush)

    def run_batch() -> _Taken:
        return _taken(lambda: collect_arrow(batch.sql(query)))

    ways = {
        BATCH: (run_batch, 0 if query is None else 1, 0 if query is None else 1),
        NARROW: (commit, turns.warm, turns.narrow),
        JOB: (commit, min(1, turns.jobs), turns.jobs),
    }
    samples = {way: Samples() for way in ways}
    records = []
    for turn in range(turns.turns + 1):
        for way, (act, warm, number) in ways.items():
            bench.width(JOB if way == JOB else NARROW)
            last = db.parts.ledger.head.epoch
            before = bench.used.processor_seconds()
            taken = [act() for _ in range(number if turn else warm)]
            if not turn:
                continue
            into = samples[way]
            into.seconds += [each.seconds for each in taken]
            # Making and appending the rows of commits takes time of the driver only.
            used = bench.used.processor_seconds()
            used["driver"] = before["driver"] + sum(each.processor for each in taken)
            for part, until in used.items():
                into.processor[part] = into.processor.get(part, 0.0) + until - before[part]
            if way == NARROW:
                records += [e for e in db.parts.ledger.epochs.newest(16) if e.epoch > last]
    bench.width(NARROW)
    found["fans_out"] = fan_out_words(records[-1].counters, db.parts.reader.catalog, lambda _: True)
    if query is not None:
        found["rows"] = db.sql(f"SELECT count(*) AS n FROM {name}").fetchall()[0][0]
        found["leaves"] = _leaves(bench, name)
        bench.verify(name)
        db.sql(f"DROP MATERIALIZED VIEW {name}")
    return {
        "query": name,
        **found,
        **{way: taken.summary() for way, taken in samples.items() if taken.seconds},
        "append_ms": percentiles(appended)["p50_ms"],
        "widths": dict(Counter(record.counters["width"] for record in records)),
        **_means(records),
    }


@dataclass(frozen=True, slots=True)
class _Taken:
    """What something took: seconds by the clock, and of this process's processor time."""

    seconds: float
    processor: float


def _taken(act: Callable[[], object]) -> _Taken:
    begun, processor = time.perf_counter(), time.process_time()
    act()
    return _Taken(time.perf_counter() - begun, time.process_time() - processor)


def _leaves(bench: Bench, view: str) -> list[str]:
    """Return what leaves this process in a narrow epoch of a view."""
    lines = (line for (line,) in bench.db.sql(f"EXPLAIN MAINTENANCE VIEW {view}").fetchall())
    found = (line.partition("in this process, with ")[2].strip() for line in lines)
    return sorted({words for words in found if words})


def _means(records: list[Any]) -> dict[str, float]:
    """Return the counters of an epoch on the average."""
    return {
        name: sum(record.counters.get(name, 0) for record in records) / len(records)
        for name in (*COUNTERS, *ACTIVITIES)
    }
