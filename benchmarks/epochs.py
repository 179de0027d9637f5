"""Small epochs in this process (narrow) beside the same epochs as Spark jobs, in turns.

Each scenario runs in a process of its own, in one database whose width is switched from turn to
turn, so that the speed of the machine cancels out. Epochs are made by the thread that reads: a
sample is the time from the first insert until the view can be read. ``VERIFY`` compares views with
Spark batch at the end of each scenario: a fast wrong answer fails.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import headrace
from benchmarks.counters import percentiles
from benchmarks.epoch_costs import Profile, counted, files_in
from benchmarks.memory import Sampler

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator, Sequence

COUNTERS = ("jobs", "operators", "rows_in", "rows_out", "rows_read", "bytes_written")
NARROW, JOB = "narrow", "job"
_SMALL_ROWS = {NARROW: 100_000, JOB: 0}
_BLOCK = 3
"""How many samples of one width are taken in a row."""
_EQUAL = "equal to batch"
KEYS = 100
GROWN = (10, 100)
"""The numbers of views of databases that are opened again."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured. ``turns`` are blocks of samples of each width."""

    turns: int = 4
    warm: int = 12
    views: tuple[int, ...] = (1, 10, 50)
    streams: int = 200
    wide_streams: int = 20
    """Streams with changes where each is a job."""
    layer: int = 20
    unreached: int = 200
    loaded: int = 20_000
    """Rows before the first sample."""


FULL = Size()
QUICK = Size(2, 4, (1, 10), 20, 5, 5, 50, 5_000)


@dataclass(slots=True)
class Samples:
    """Samples of one kind of epoch at one width."""

    seconds: list[float] = field(default_factory=list)
    processor: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)

    def add(self, counters: dict[str, float]) -> None:
        """Add the counters of a sample."""
        for name, count in counters.items():
            self.counters[name] = self.counters.get(name, 0) + count

    def summary(self) -> dict[str, Any]:
        """Return the percentiles, and processor milliseconds and counters per sample."""
        number = len(self.seconds)
        processor = {part: seconds / number * 1000 for part, seconds in self.processor.items()}
        return {
            **percentiles(self.seconds),
            "processor_ms": {part: round(value, 1) for part, value in processor.items()},
            "processor_all_ms": round(sum(processor.values()), 1),
            **{name: round(count / number, 1) for name, count in self.counters.items()},
        }


@dataclass(slots=True)
class Bench:
    """A database whose epochs are measured."""

    db: Any
    used: Sampler
    counts: Counter[str]

    def compared(
        self, act: Callable[[], None], size: Size, widths: Sequence[str] = (NARROW, JOB)
    ) -> dict[str, dict[str, Any]]:
        """Return the samples of an act at each width, taken in turns.

        The act makes one epoch.
        """
        found = {width: Samples() for width in widths}
        for turn in range(size.turns + 1):
            for width, samples in found.items():
                self.width(width)
                if turn:
                    self.block(act, samples)
                else:
                    for _ in range(size.warm if width == NARROW else max(2, size.warm // 4)):
                        act()
        self.width(NARROW)
        return {width: samples.summary() for width, samples in found.items()}

    def block(self, act: Callable[[], None], samples: Samples) -> None:
        """Take some samples of an act that makes one epoch."""
        before = self.used.processor_seconds()
        for _ in range(_BLOCK):
            files = files_in(self.db.directory)
            self.counts.clear()
            last = self.db.parts.ledger.head.epoch
            begun = time.perf_counter()
            act()
            samples.seconds.append(time.perf_counter() - begun)
            made = [e for e in self.db.parts.ledger.epochs.newest(16) if e.epoch > last]
            counters: dict[str, float] = dict.fromkeys(COUNTERS, 0)
            for each in made:
                for name in COUNTERS:
                    counters[name] += each.counters.get(name, 0)
            new = len(files_in(self.db.directory) - files)
            samples.add({**counters, "epochs": len(made), "files": new})
            samples.add({name: self.counts[name] for name in ("crossings", "py4j", "syncs")})
        for part, seconds in self.used.processor_seconds().items():
            own = seconds - before[part]
            samples.processor[part] = samples.processor.get(part, 0.0) + own

    def width(self, width: str) -> None:
        """Have the next epochs be narrow, or jobs."""
        loop, small_rows = self.db.parts.loop, _SMALL_ROWS[width]
        loop.settings = replace(loop.settings, small_rows=small_rows)
        loop.widths.small_rows = small_rows

    def profile(self, act: Callable[[], None], samples: int) -> list[dict[str, Any]]:
        """Return where the time of a narrow epoch goes."""
        self.width(NARROW)
        profile = Profile()
        with profile.measured():
            for _ in range(samples):
                act()
        return profile.table(samples)

    def verify(self, *views: str) -> None:
        """Compare views with their queries in Spark batch; all of them if none is named."""
        for text in [f"VERIFY {view}" for view in views] or ["VERIFY"]:
            verdicts = {verdict for *_, verdict in self.db.sql(text).fetchall()}
            if verdicts != {_EQUAL}:
                raise ValueError(f"a view differs: {verdicts}")


@contextmanager
def opened(folder: Path, partitions: int = 1) -> Iterator[Bench]:
    """Open a database in which only the calling thread makes epochs."""
    with (
        headrace.connect(folder, partitions=partitions, continuous=False, reconcile_budget=0) as db,
        counted() as counts,
    ):
        yield Bench(db, Sampler(), counts)


@contextmanager
def _fresh(directory: Path) -> Iterator[Bench]:
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="database-") as folder,
        opened(Path(folder)) as bench,
    ):
        yield bench


def ratio(
    work: str,
    of: dict[str, Any],
    to: dict[str, Any],
    than: str = "as jobs",
    aim: float | None = None,
) -> dict[str, Any]:
    """Return a row of the results: the samples of some work, and those that it is compared to."""
    return {"work": work, "than": than, "aim": aim, "of": of, "to": to}


# -- the scenarios -------------------------------------------------------------------------


def views(directory: Path, size: Size) -> dict[str, Any]:
    """One row and 1,000 rows through some views of one stream, of which a fifth join a table."""
    random, found, profiles, made = np.random.default_rng(1), [], {}, 0
    alone: dict[int, dict[str, Any]] = {}
    aims = {1: (0.25, None), 10: (0.2, 2), 50: (0.125, 6)}
    with _fresh(directory) as bench:
        db = bench.db
        db.sql("CREATE STREAM events (id BIGINT, k INT, v INT, name STRING)")
        db.sql("CREATE TABLE items (k INT PRIMARY KEY, label STRING, price INT)")
        labels = pa.array([f"label {k % 7}" for k in range(KEYS)])
        keys = pa.array(range(KEYS), pa.int32())
        db.insert("items", pa.table({"k": keys, "label": labels, "price": keys}))
        db.insert("events", _events(random, size.loaded))
        for number in size.views:
            for view in range(made, number):
                db.sql(f"CREATE MATERIALIZED VIEW v{view} AS {mixed(view)}")
            made = number
            to_jobs, to_one = aims[number]
            for rows in (1, 1_000):

                def act(rows: int = rows) -> None:
                    db.insert("events", _events(random, rows))
                    db.sql("SELECT n FROM v0 WHERE g = 7").fetchall()

                taken = bench.compared(act, size)
                narrow, work = (
                    taken[NARROW],
                    f"{_some(rows, 'row')} through {_some(number, 'view')}",
                )
                found.append(ratio(work, narrow, taken[JOB], aim=to_jobs))
                profiles[work] = bench.profile(act, size.turns * _BLOCK)
                if rows in alone:
                    found.append(ratio(work, narrow, alone[rows], "through 1 view", to_one))
                alone.setdefault(rows, narrow)
        bench.verify()
    return {"ratios": found, "profiles": profiles}


def _some(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def mixed(number: int) -> str:
    """Return the query of a view: five kinds in turn, no two alike."""
    some = 50 + number
    match number % 5:
        case 0:
            return f"SELECT k % {some} AS g, count(*) AS n, sum(v) AS s FROM events GROUP BY 1"
        case 1:
            return (
                f"SELECT id, upper(name) AS n, v * {number} AS w FROM events WHERE v % {some} < 9"
            )
        case 2:
            return (
                f"SELECT e.id, e.v + {number} AS v, i.label FROM events e JOIN items i ON e.k = i.k"
                f" WHERE i.price > {number}"
            )
        case 3:
            return f"SELECT DISTINCT k % {some} AS a, v % {3 + number} AS b FROM events"
        case _:
            return (
                "SELECT k, id, v FROM (SELECT k, id, v, row_number() OVER"
                " (PARTITION BY k ORDER BY v DESC, id) AS r FROM events"
                f" WHERE v % {some} <> 0) WHERE r <= 3"
            )


def _events(random: np.random.Generator, rows: int) -> pa.Table:
    return pa.table(
        {
            "id": random.integers(0, 1 << 60, rows),
            "k": random.integers(0, KEYS, rows, np.int32),
            "v": random.integers(0, 1_000, rows, np.int32),
            "name": pa.array([f"name {number}" for number in random.integers(0, 50, rows)]),
        }
    )


def chain(directory: Path, size: Size) -> dict[str, Any]:
    """One row through a chain of views, each of the one before, beside one view of its own."""
    length = 10
    with _fresh(directory) as bench:
        db = bench.db
        db.sql("CREATE STREAM s (k INT, v INT); CREATE STREAM alone (k INT, v INT)")
        of_one = "SELECT k % 97 AS k, sum(v) AS v FROM {} GROUP BY 1"
        db.sql(f"CREATE MATERIALIZED VIEW one AS {of_one.format('alone')}")
        below = "s"
        for number in range(length):
            query = of_one.format(below)
            if number % 2:
                query = f"SELECT k, v + 1 AS v FROM {below} WHERE k <> {number}"
            db.sql(f"CREATE MATERIALIZED VIEW c{number} AS {query}")
            below = f"c{number}"
        values = iter(range(1 << 30))

        def through(stream: str, view: str) -> Callable[[], None]:
            def act() -> None:
                value = next(values)
                db.insert(stream, [{"k": value % 50 + 20, "v": value}])
                db.sql(f"SELECT k, v FROM {view} WHERE k = 30").fetchall()

            return act

        taken = bench.compared(through("s", below), size)
        one = bench.compared(through("alone", "one"), size)
        profile = bench.profile(through("s", below), size.turns * _BLOCK)
        bench.verify()
    work = f"1 row through a chain of {length} views"
    return {
        "ratios": [
            ratio(work, taken[NARROW], taken[JOB]),
            ratio(work, taken[NARROW], one[NARROW], "through 1 view", 1.5),
        ],
        "profiles": {work: profile},
    }


def layers(directory: Path, size: Size) -> dict[str, Any]:
    """A row into each of twenty tables, below three layers of twenty views."""
    number = size.layer
    with _fresh(directory) as bench:
        db = bench.db
        for i in range(number):
            db.sql(f"CREATE TABLE t{i} (k INT PRIMARY KEY, v INT)")
        for i in range(number):
            filtered = f"SELECT k, v * 2 AS v FROM t{i} WHERE v % 10 <> 9"
            db.sql(f"CREATE MATERIALIZED VIEW a{i} AS {filtered}")
            summed = f"SELECT k % 10 AS k, sum(v) AS v FROM a{i} GROUP BY 1"
            db.sql(f"CREATE MATERIALIZED VIEW b{i} AS {summed}")
        for i in range(number):
            other = (i + 1) % number
            db.sql(
                f"CREATE MATERIALIZED VIEW c{i} AS SELECT l.k, l.v + r.v AS v FROM b{i} l"
                f" JOIN b{other} r ON l.k = r.k"
            )
        values = iter(range(1 << 30))

        def act() -> None:
            value = next(values)
            for i in range(number):
                db.insert(f"t{i}", [{"k": value * 7 + i, "v": value % 1000}])
            db.flush()

        taken = bench.compared(act, size)
        profile = bench.profile(act, size.turns * _BLOCK)
        bench.verify("c0", f"c{number - 1}", "b1", "a2")
    work = f"a row into each of {number} tables below three layers of {number} views"
    return {
        "ratios": [ratio(work, taken[NARROW], taken[JOB], aim=0.09)],
        "profiles": {work: profile},
    }


def streams(directory: Path, size: Size) -> dict[str, Any]:
    """A row into each of many streams with a view each; as jobs only some of them."""
    with _fresh(directory) as bench:
        db = bench.db
        for i in range(size.streams):
            db.sql(f"CREATE STREAM s{i} (k INT, v INT)")
            query = f"SELECT k, count(*) AS n, sum(v) AS v FROM s{i} GROUP BY k"
            db.sql(f"CREATE MATERIALIZED VIEW v{i} AS {query}")
        values = iter(range(1 << 30))

        def into(number: int) -> Callable[[], None]:
            def act() -> None:
                value = next(values)
                for i in range(number):
                    db.insert(f"s{i}", [{"k": value % 20, "v": value}])
                db.flush()

            return act

        few = replace(size, turns=2, warm=4)
        some = bench.compared(into(size.wide_streams), few)
        every = bench.compared(into(size.streams), few, (NARROW,))
        profile = bench.profile(into(size.streams), _BLOCK)
        bench.verify(*(f"v{i}" for i in range(0, size.streams, max(1, size.streams // 8))))
    work, among = "a row into each of {} streams with a view each", f" (of {size.streams})"
    some_work, every_work = work.format(size.wide_streams) + among, work.format(size.streams)
    return {
        "ratios": [
            ratio(some_work, some[NARROW], some[JOB]),
            ratio(every_work, every[NARROW], some[NARROW], f"into {size.wide_streams}"),
        ],
        "profiles": {every_work: profile},
    }


def grow(folder: Path, size: Size) -> dict[str, Any]:
    """Make a database with more and more views; keep a copy with each of some numbers of them.

    One view reads the stream ``s``, all others ``t``. Copies are named by the number of views.
    """
    own, seconds = folder / "growing", {}
    own.mkdir()
    made = 0
    for number in sorted({1, *GROWN, size.unreached}):
        with opened(own) as bench:
            db = bench.db
            if not made:
                db.sql("CREATE STREAM s (k INT, v INT); CREATE STREAM t (k INT, v INT)")
                db.insert("s", [{"k": k, "v": k} for k in range(20)])
                db.insert("t", [{"k": k, "v": k} for k in range(20)])
            begun = time.perf_counter()
            for i in range(made, number):
                query = f"SELECT k, count(*) AS n, sum(v) + {i} AS v FROM {'t' if i else 's'}"
                db.sql(f"CREATE MATERIALIZED VIEW v{i} AS {query} GROUP BY k")
            db.flush()
            seconds[number] = round((time.perf_counter() - begun) / (number - made), 3)
            for source in ("s", "t"):  # a database that is opened again has made epochs
                db.insert(source, [{"k": 3, "v": 3}])
            db.flush()
        made = number
        shutil.copytree(own, folder / str(number))
    return {"create_s": seconds}


def unreached(folder: Path, size: Size) -> dict[str, Any]:
    """A row through one view, beside the same in a database with many other views."""
    values = iter(range(1 << 30))
    with opened(folder / "1") as one, opened(folder / str(size.unreached)) as many:

        def into(db: Any) -> Callable[[], None]:
            def act() -> None:
                value = next(values)
                db.insert("s", [{"k": value % 20, "v": value}])
                db.sql("SELECT n FROM v0 WHERE k = 7").fetchall()

            return act

        alone, beside = Samples(), Samples()
        for turn in range(2 * size.turns + 1):
            for bench, samples in ((one, alone), (many, beside)):
                for _ in range(size.warm if not turn else 0):
                    into(bench.db)()
                if turn:
                    bench.block(into(bench.db), samples)
        profile = many.profile(into(many.db), size.turns * _BLOCK)
        for bench in (one, many):
            bench.verify("v0")
    work = f"1 row through a view beside {size.unreached - 1:,} others that it cannot reach"
    return {
        "ratios": [ratio(work, beside.summary(), alone.summary(), "without them")],
        "profiles": {work: profile},
    }


def start_alone(_folder: Path) -> dict[str, Any]:
    """Start Spark without a database; return the seconds."""
    from headrace.execution.engine.jobs.session import start_spark  # noqa: PLC0415 (timed by itself)
    from headrace.interfaces.settings import Settings  # noqa: PLC0415

    settings = Settings.of({"partitions": 1}).spark
    begun = time.perf_counter()
    spark = start_spark(settings)
    seconds = time.perf_counter() - begun
    spark.stop()
    return {"views": 0, "connected_s": seconds, "read_s": seconds, "epoch_s": seconds}


def reopen(folder: Path) -> dict[str, Any]:
    """Open a database in a fresh process; return seconds to its first answers."""
    begun = time.perf_counter()
    with opened(folder) as bench:
        connected = time.perf_counter() - begun
        bench.db.sql("SELECT n FROM v0 WHERE k = 7").fetchall()
        read = time.perf_counter() - begun
        bench.db.insert("s", [{"k": 7, "v": 1}])
        bench.db.insert("t", [{"k": 7, "v": 1}])
        bench.db.sql("SELECT n FROM v1 WHERE k = 7").fetchall()
        epoch = time.perf_counter() - begun
        bench.verify("v1")
    return {
        "views": int(folder.name),
        "connected_s": connected,
        "read_s": read,
        "epoch_s": epoch,
    }


def measure(
    apart: Callable[..., Any], directory: Path, size: Size, shown: Callable[[str, Any], None]
) -> dict[str, Any]:
    """Run each scenario in a process of its own by ``apart``; show each when it is done."""
    from benchmarks import medallion  # noqa: PLC0415 (it needs this module)

    found: dict[str, Any] = {}

    def done(name: str, result: Any, begun: float) -> None:
        found[name] = {"taken_s": round(time.perf_counter() - begun), **result}
        shown(name, found[name])

    for scenario in (views, chain, layers, streams, medallion.measure):
        begun = time.perf_counter()
        name = "medallion" if scenario is medallion.measure else scenario.__name__
        done(name, apart(scenario, directory, size), begun)
    with tempfile.TemporaryDirectory(dir=directory, prefix="grown-") as name:
        folder = Path(name)
        begun = time.perf_counter()
        created = apart(grow, folder, size)
        done("unreached", {**created, **apart(unreached, folder, size)}, begun)
        begun = time.perf_counter()
        opens = [apart(start_alone, folder)]
        opens += [apart(reopen, folder / str(number)) for number in GROWN]
        done("reopen", {"opens": opens}, begun)
    return found
