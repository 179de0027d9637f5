"""What a small steady stream costs: processor time of an event by where it goes, and the disk.

Events arrive one at a time at a steady rate; six views of the usual kinds maintain them, and a sink
writes one of them into a table. Processor time is that of each thread, by the kernel's count, so
what else runs on the machine hardly matters. Then the database rests, and what it takes while
nothing happens is measured, as are the bytes on disk for each byte of input.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import sqlalchemy as sa
from sqlalchemy import event

import headrace
from benchmarks.counters import percentiles
from benchmarks.epoch_costs import Profile
from benchmarks.memory import tree
from headrace.algebra.spine.pack import PackWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VIEWS = {
    "large": "SELECT id, driver, fare FROM rides WHERE fare > 40",
    "by_driver": "SELECT driver, count(*) AS n, sum(fare) AS fares FROM rides GROUP BY driver",
    "by_minute": """SELECT window.start AS minute, zone, count(*) AS n, sum(fare) AS fares
      FROM rides GROUP BY window(at, '1 minute'), zone""",
    "named": "SELECT r.id, r.fare, z.name FROM rides r JOIN zones z ON r.zone = z.zone",
    "top": """SELECT zone, id, fare FROM (
        SELECT *, row_number() OVER (PARTITION BY zone ORDER BY fare DESC, id) AS nth FROM rides
      ) WHERE nth <= 3""",
    "pairs": "SELECT DISTINCT driver, zone FROM rides",
}
_ZONES, _DRIVERS = 50, 500
_WARM_SECONDS = 3.0
_IDLE_SECONDS = 20.0
_PROFILED = 40
_EVENTS_OF_AN_EPOCH = 3
_EVENTS = 2
"""The events of a landing where only the disk is looked at."""
_RATE = 16.0
_START = datetime(2026, 1, 1, tzinfo=UTC)
_PLACES = {
    "headrace-epochs": "epochs",
    "headrace-compaction": "compaction",
    "sink": "sink",
}
"""By the beginning of a thread's name; see :func:`_place`."""
WATCHER = "watcher"
"""The place of the threads that send and measure."""
OF_JVM = {
    "C1 ": "JVM: compiler",
    "C2 ": "JVM: compiler",
    "G1": "JVM: collector",
    "GC": "JVM: collector",
    "VM": "JVM: its own",
    "Monitor": "JVM: its own",
}


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: events a second, for so many seconds, and how long it rests then."""

    rate: float
    seconds: float
    rest: float = 60.0


@dataclass(slots=True)
class Counts:
    """What the database does while it is watched."""

    counts: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Count SQL statements, syncs, and the bytes and rows of runs, by who writes them."""

        def connected(connection: Any, _record: object) -> None:
            if hasattr(connection, "set_trace_callback"):
                connection.set_trace_callback(self._stated)

        def ended(writer: PackWriter, *arguments: Any) -> Any:
            run = was(writer, *arguments)
            merged = threading.current_thread().name == "headrace-compaction"
            self.counts["runs merged" if merged else "runs"] += 1
            self.counts["bytes merged" if merged else "bytes of runs"] += run.bytes
            return run

        was = PackWriter._ended  # noqa: SLF001 (what is measured)
        with ExitStack() as stack:
            event.listen(sa.pool.Pool, "connect", connected)
            stack.callback(event.remove, sa.pool.Pool, "connect", connected)
            stack.enter_context(patch.object(PackWriter, "_ended", ended))
            for name in ("fsync", "fdatasync"):
                stack.enter_context(patch.object(os, name, self._counting(getattr(os, name))))
            yield

    def _stated(self, statement: str) -> None:
        self.counts["statements"] += 1
        if statement.startswith("COMMIT"):
            self.counts["transactions"] += 1

    def _counting(self, sync: Any) -> Any:
        def counting(file: Any) -> None:
            self.counts["syncs"] += 1
            sync(file)

        return counting


def processor_by_place() -> dict[str, float]:
    """Return the processor milliseconds of this process and its children so far, by place."""
    found: defaultdict[str, float] = defaultdict(float)
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    for process in tree(os.getpid()):
        own = process.id == os.getpid()
        for folder in Path(f"/proc/{process.id}/task").iterdir():
            try:
                nanoseconds = int((folder / "schedstat").read_text("ascii").split()[0])
                name = (folder / "comm").read_text("utf-8").strip()
            except OSError:  # it ended meanwhile
                continue
            name = names.get(int(folder.name), name) if own else name
            found[_place(name, process.command, own=own)] += nanoseconds / 1e6
    return dict(found)


def _place(name: str, command: str, *, own: bool) -> str:
    if own:
        return next(
            (_PLACES[each] for each in _PLACES if name.startswith(each)),
            WATCHER if name in {"MainThread", "feed"} else "other threads",
        )
    if command == "java":
        return next((OF_JVM[each] for each in OF_JVM if name.startswith(each)), "JVM: Spark")
    return "other processes"


def between(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Return the milliseconds of each place between two moments, most first."""
    used = {place: ms - before.get(place, 0.0) for place, ms in after.items() if place != WATCHER}
    return {p: ms for p, ms in sorted(used.items(), key=lambda item: -item[1]) if ms > 0}


def on_disk(directory: Path) -> dict[str, dict[str, int]]:
    """Return the files and their bytes in a data directory, by its parts."""
    found: dict[str, dict[str, int]] = {}
    for path in directory.rglob("*"):
        if path.is_file():
            part = path.relative_to(directory).parts[0]
            each = found.setdefault(part, {"files": 0, "bytes": 0})
            each["files"] += 1
            each["bytes"] += path.stat().st_size
    return found


@dataclass(slots=True)
class Stream:
    """Appends events one at a time, at a steady rate."""

    db: Any
    sent: int = 0
    bytes: int = 0
    """The bytes of the events as JSON, one on a line."""
    landing_ms: float = 0.0
    """The processor time of the thread that has sent them, which ends with the last one."""
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    def event(self, at: datetime | None = None) -> dict[str, Any]:
        """Return the next event, which happens now or at another time."""
        self.sent += 1
        row = {
            "id": self.sent,
            "driver": int(self.random.integers(_DRIVERS)),
            "zone": int(self.random.integers(_ZONES)),
            "fare": round(float(self.random.random()) * 50, 2),
            "note": f"note {self.random.integers(1000)}",
            "at": at or datetime.now(UTC),
        }
        self.bytes += len(json.dumps(row, default=str)) + 1
        return row

    def send(self, size: Size, seconds: float) -> list[float]:
        """Send events for some seconds; return for each how long until an epoch had read it."""
        ages: list[float] = []
        sender = threading.Thread(target=self._run, args=(size.rate, seconds), name="feed")
        reads = self.db.parts.reader
        rides = next(each for each in reads.catalog if each.name == "rides")
        waiting: list[tuple[int, float]] = []
        arrived = reads.ledger.head.log_end(rides.id)
        sender.start()
        while sender.is_alive():
            time.sleep(0.005)
            end, now = reads.ledger.head.log_end(rides.id), time.monotonic()
            waiting += [(at, now) for at in range(arrived + 1, end + 1)]
            arrived = end
            read = reads.published.positions.get(rides.id, 0)
            while waiting and waiting[0][0] <= read:
                ages.append(now - waiting.pop(0)[1])
        sender.join()
        return ages

    def _run(self, rate: float, seconds: float) -> None:
        session, begun = self.db.session(), time.monotonic()
        for number in range(1, int(rate * seconds) + 1):
            session.insert("rides", [self.event()])
            wait = begun + number / rate - time.monotonic()
            if wait > 0:
                time.sleep(wait)
        self.landing_ms = time.thread_time() * 1000


@contextmanager
def _opened(directory: Path, *, continuous: bool) -> Iterator[Any]:
    """Yield a database with the views and the sink."""
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="database-") as folder,
        headrace.connect(folder, partitions=1, continuous=continuous, reconcile_budget=0) as db,
    ):
        db.sql(
            "CREATE STREAM rides"
            " (id BIGINT, driver INT, zone INT, fare DOUBLE, note STRING, at TIMESTAMP)"
        )
        db.sql("CREATE TABLE zones (zone INT PRIMARY KEY, name STRING)")
        db.insert("zones", [{"zone": zone, "name": f"zone {zone}"} for zone in range(_ZONES)])
        for name, query in VIEWS.items():
            db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        db.sql("CREATE TABLE drivers (driver INT PRIMARY KEY, n BIGINT, fares DOUBLE)")
        db.sql("CREATE SINK totals FROM by_driver INTO drivers")
        yield db


def measure(directory: Path, size: Size) -> dict[str, Any]:
    """Return what the stream costs, what rest costs, and what is on disk."""
    counts = Counts()
    with counts.watched(), _opened(directory, continuous=True) as db:
        stream = Stream(db)
        stream.send(size, _WARM_SECONDS)
        counts.counts.clear()
        sent, epoch, before = stream.sent, db.parts.ledger.head.epoch, processor_by_place()
        ages = stream.send(size, size.seconds)
        db.flush()
        after, events = processor_by_place(), stream.sent - sent
        done = dict(counts.counts) | {"epochs": db.parts.ledger.head.epoch - epoch}
        made = on_disk(db.directory)
        time.sleep(max(0.0, size.rest - _IDLE_SECONDS))
        counts.counts.clear()
        before_idle = processor_by_place()
        time.sleep(_IDLE_SECONDS)
        idle = between(before_idle, processor_by_place())
        rested = on_disk(db.directory)
        live = [run for runs in db.parts.ledger.head.next_spines.values() for run in runs]
        verdicts = {verdict for *_, verdict in db.sql("VERIFY").fetchall()}
        if any(not verdict.startswith("equal to batch") for verdict in verdicts):
            raise ValueError(f"a view differs: {verdicts}")
    with _opened(directory, continuous=False) as db:
        places = _profiled(db)
    return {
        "rate": size.rate,
        "events": events,
        "per_event_ms": {
            "landing": stream.landing_ms / events,
            **_each(between(before, after), events),
        },
        "age": percentiles(ages),
        "counts": {name: count / events for name, count in done.items()},
        "idle_percent": _each(idle, _IDLE_SECONDS * 10),
        "idle_statements": counts.counts["statements"],
        "input_bytes": stream.bytes,
        "made": made,
        "rested": rested,
        "live": {"runs": len(live), "bytes": sum(run.file.bytes for run in live)},
        "places": places,
    }


def landed(directory: Path, landings: int) -> dict[str, Any]:
    """Return what is on disk after many small landings, at once and after a rest.

    They arrive as fast as they are taken; the events happen at a steady rate.
    """
    with _opened(directory, continuous=True) as db:
        stream, session, begun = Stream(db), db.session(), time.monotonic()
        for _ in range(landings):
            times = (_START + timedelta(seconds=(stream.sent + n) / _RATE) for n in range(_EVENTS))
            session.insert("rides", [stream.event(at) for at in times])
        taken = time.monotonic() - begun
        db.flush()
        made = on_disk(db.directory)
        time.sleep(Size(_RATE, 0.0).rest)
        head = db.parts.ledger.head
        live = [run for runs in head.next_spines.values() for run in runs]
        return {
            "landings": landings,
            "events": stream.sent,
            "landed_s": taken,
            "epochs": head.epoch,
            "input_bytes": stream.bytes,
            "made": made,
            "rested": on_disk(db.directory),
            "live": {"runs": len(live), "bytes": sum(run.file.bytes for run in live)},
        }


def _each(used: dict[str, float], number: float) -> dict[str, float]:
    return {place: ms / number for place, ms in used.items()}


def _profiled(db: Any) -> Sequence[dict[str, Any]]:
    """Return where the time of epochs of a few events goes, made by this thread."""
    stream, session, profile = Stream(db), db.session(), Profile()

    def epoch() -> None:
        for _ in range(_EVENTS_OF_AN_EPOCH):
            session.insert("rides", [stream.event()])
        db.flush()

    for _ in range(_PROFILED):
        epoch()
    with profile.measured():
        for _ in range(_PROFILED):
            epoch()
    return profile.table(_PROFILED)
