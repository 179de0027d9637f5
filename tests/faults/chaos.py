"""A database beyond one machine whose parts are killed at random while clients write.

``python -m faults.chaos --kills 50`` (from ``tests``; or ``make chaos``) runs two servers, of which
one is the standby of the other, each with a query process, over a ledger in PostgreSQL and files in
SeaweedFS; with ``--cluster``, on a standalone cluster of Spark whose workers share no directory
with the servers. Clients send rows until each is acknowledged, to the server that a balancer
chooses, which asks each for ``/readyz``. Logs are merged all the while. In the end, and every ten
kills, each view equals its query, every acknowledged row is there, and no row is there twice.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa

from killed_server import GONE, Killed
from served import Answer, Client
from servers.machine import free_port
from servers.postgres import Postgres, postgres
from servers.seaweed import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, Seaweed, seaweed
from servers.spark_cluster import SparkCluster, spark_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 240.0
"""Seconds within which the database serves again, on a machine that does much else."""
MOST_QUERY_SECONDS = 30.0
"""How long a query may take on a server that says that it answers queries."""
KEYS = 20
SERVER = """
import runpy
from headrace.execution.runtime import pump
pump.TAIL_SEGMENTS = 8
runpy.run_module("headrace", run_name="__main__")
"""
"""A server that merges few landings, so that it often does."""
DEFINITIONS = (
    "CREATE STREAM events (id INT, k INT, v INT) DEDUPLICATE ON (id)",
    "CREATE TABLE names (k INT PRIMARY KEY, name STRING, n INT)",
    "CREATE MATERIALIZED VIEW sums AS SELECT k, count(*) AS n, sum(v) AS v FROM events GROUP BY k",
    """CREATE MATERIALIZED VIEW named AS SELECT t.name, count(*) AS n, max(e.v) AS v
    FROM events e JOIN names t ON e.k = t.k GROUP BY t.name""",
    """CREATE MATERIALIZED VIEW last AS SELECT * FROM (SELECT k, id, v, row_number() OVER
    (PARTITION BY k ORDER BY v DESC, id) AS r FROM events) WHERE r <= 3""",
)


@dataclass
class Balancer:
    """Asks each server every half second what it serves, as a load balancer does."""

    ports: list[int]
    ready: list[frozenset[str]] = field(default_factory=lambda: [frozenset(), frozenset()])
    polls: int = 0
    out: int = 0
    """How many times no server was ready."""
    refused: int = 0
    """How many requests a ready server has refused as unavailable."""
    _stopped: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Ask while a block runs."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(0.5):
            self.ready = [self._asked(port) for port in self.ports]
            self.polls += 1
            self.out += not any(self.ready)

    def _asked(self, port: int) -> frozenset[str]:
        try:
            answer = Client(port, seconds=5).get("/readyz")
            return frozenset(answer.json["serves"] if answer.status == 200 else ())
        except (*GONE, OSError):
            return frozenset()

    def order(self) -> list[int]:
        """Return the servers, those that are ready first."""
        return sorted(range(len(self.ports)), key=lambda each: not self.ready[each])


class ChaosError(AssertionError):
    """The database did not serve again, or rows are wrong."""


@dataclass
class World:
    """The servers of a database, and what each kind of kill does."""

    draw: random.Random
    postgres: Postgres
    ledger: str
    store: Seaweed
    servers: list[Killed]
    balancer: Balancer
    cluster: SparkCluster | None = None
    active: int = 0
    merged: set[str] = field(default_factory=set)
    """The files of merged segments that were there after a kill."""
    starting: threading.Lock = field(default_factory=threading.Lock)

    def sql(self, statement: str, accept: str | None = None) -> Answer:
        """Run a statement at whichever server serves, until it succeeds; return the answer."""
        until, last = time.monotonic() + PATIENCE, {0: "no answer", 1: "no answer"}
        while time.monotonic() < until:
            for server in self.balancer.order():
                self._begin_again(server)
                was_ready = "writes" in self.balancer.ready[server]
                try:
                    answer = Client(self.servers[server].port, seconds=PATIENCE).sql(
                        statement, accept=accept
                    )
                except (*GONE, OSError) as error:
                    last[server] = repr(error)
                    continue
                if answer.status == 200:
                    self.active = server
                    return answer
                last[server] = f"{answer.status} {answer.body[:300]!r}"
                self.balancer.refused += was_ready and answer.status == 503
                if answer.status not in {408, 409, 499, 503}:  # 499: a server that ends cancels it
                    raise ChaosError(f"{statement[:80]}: {last[server]}")
            time.sleep(0.1)
        raise ChaosError(f"{statement[:80]}: {last}")

    def _begin_again(self, server: int) -> None:
        """Start a server that has ended by itself, as its supervisor would."""
        with self.starting:
            process = self.servers[server].process
            if process is not None and process.poll() is not None:
                self.servers[server].begin("--standby")

    def look_for_merges(self) -> str:
        """Note the merged segments of all logs; return how many there were."""
        with self.postgres.connect(self.ledger) as session:
            found = session.execute("SELECT file, rows, footer FROM segments").fetchall()
        self.merged.update(file for file, _, footer in found if footer)
        changes = f"{sum(rows for _, rows, _ in found):,} changes are in {len(found)} segments"
        return f"{changes}; {len(self.merged)} merged ones were seen"

    def kill_driver(self) -> None:
        """Kill the server that serves; it comes back as the standby."""
        with self.starting:
            self.servers[self.active].kill()
            self.servers[self.active].begin("--standby")
            self.active = 1 - self.active

    def kill_standby(self) -> None:
        """Kill the server that waits."""
        with self.starting:
            self.servers[1 - self.active].kill()
            self.servers[1 - self.active].begin("--standby")

    def kill_jvm(self) -> None:
        """Kill the JVM of the server that serves, which starts again, or ends."""
        self.servers[self.active].kill_jvm()

    def kill_ledger(self) -> None:
        """Kill PostgreSQL; it is away for up to three seconds."""
        self.postgres.kill()
        time.sleep(self.draw.uniform(0, 3))
        self.postgres.start()

    def kill_store(self) -> None:
        """Kill the object store; it is away for up to three seconds."""
        self.store.stop(crash=True)
        time.sleep(self.draw.uniform(0, 3))
        self.store.start()

    def kill_executor(self) -> None:
        """Kill an executor; its worker starts another."""
        assert self.cluster is not None
        found = self.cluster.executors()
        if found:
            os.kill(self.draw.choice(found), signal.SIGKILL)

    def kill_worker(self) -> None:
        """Kill a worker of Spark with its executors, and start another one."""
        assert self.cluster is not None
        self.cluster.kill_worker()
        self.cluster.worker()

    def kill_master(self) -> None:
        """Kill the master of Spark; it is away for up to three seconds."""
        assert self.cluster is not None
        self.cluster.kill_master()
        time.sleep(self.draw.uniform(0, 3))
        self.cluster.start()

    @property
    def kills(self) -> list[Callable[[], None]]:
        """All kinds."""
        found = [self.kill_driver, self.kill_standby, self.kill_jvm]
        found += [self.kill_ledger, self.kill_store]
        if self.cluster is not None:
            found += [self.kill_executor, self.kill_worker, self.kill_master]
        return found


@dataclass
class Load:
    """Clients that write until they are told to stop: what they sent, and what was acknowledged."""

    world: World
    sent: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)
    names: dict[int, int] = field(default_factory=dict)
    """The last acknowledged value by key of the table, which one client writes."""
    error: BaseException | None = None
    stopped: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write while a block runs."""
        clients = [threading.Thread(target=self._guarded, args=(each,)) for each in (0, 1)]
        for each in clients:
            each.start()
        try:
            yield
        finally:
            self.stopped.set()
            for each in clients:
                each.join()

    def _guarded(self, client: int) -> None:
        try:
            self._write(client)
        except BaseException as error:  # noqa: BLE001 - it is raised by who waits
            self.error = error

    def _write(self, client: int) -> None:
        draw = random.Random(client)
        number = 0
        while not self.stopped.is_set():
            number += 1
            first = client * 10**8 + number * 1000
            ids = range(first, first + draw.choice([1, 5, 200]))
            self.sent.update(ids)
            rows = ", ".join(f"({i}, {i % KEYS}, {draw.randrange(1000)})" for i in ids)
            self.world.sql(f"INSERT INTO events VALUES {rows}")
            self.acknowledged.update(ids)
            if client == 0:
                key = draw.randrange(KEYS)
                self.world.sql(f"INSERT INTO names VALUES ({key}, 'name {number % 7}', {number})")
                self.names[key] = number
            time.sleep(0.05)


def verify(world: World, load: Load) -> str:
    """Compare what is there with what was sent, and each view with its query.

    Raises:
        ChaosError: if something is wrong.
    """
    acknowledged = set(load.acknowledged)
    answer = world.sql("SELECT id FROM events", "application/vnd.apache.arrow.stream")
    rows = pa.ipc.open_stream(answer.body).read_all()["id"].to_pylist()
    present = set(rows)
    if len(rows) != len(present):
        raise ChaosError(f"{len(rows) - len(present)} rows are there twice")
    if lost := acknowledged - present:
        raise ChaosError(f"{len(lost)} acknowledged rows are lost, such as {min(lost)}")
    if strange := present - load.sent:
        raise ChaosError(f"{len(strange)} rows were never sent, such as {min(strange)}")
    if load.stopped.is_set():
        found = dict(world.sql("SELECT k, n FROM names").json["rows"])
        if found != load.names:
            raise ChaosError(f"a table has {found}, and {load.names} was acknowledged")
    verdicts = {row[0]: row[-1] for row in world.sql("VERIFY").json["rows"]}
    if set(verdicts.values()) != {"equal to batch"}:
        raise ChaosError(f"views differ: {verdicts}")
    return f"{len(present):,} rows, {len(verdicts)} views equal to batch"


def run(kills: int, seed: int, *, cluster: bool, report: Callable[[str], None] = print) -> None:
    """Run a database, kill its parts, and verify.

    Raises:
        ChaosError: if something is wrong.
    """
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory(prefix="chaos-")))
        world = _world(stack, place, random.Random(seed), cluster=cluster)
        stack.push(partial(_show_logs, world))
        for statement in DEFINITIONS:
            world.sql(statement)
        world.servers[1].begin("--standby")
        load = Load(world)
        waits: dict[str, list[float]] = {}
        with load.running():
            for number in range(1, kills + 1):
                time.sleep(world.draw.uniform(0, 4))
                kill = world.draw.choice(world.kills)
                name = kill.__name__.removeprefix("kill_")
                kill()
                began = time.monotonic()
                count = len(load.acknowledged)
                while len(load.acknowledged) == count and load.error is None:
                    time.sleep(0.05)
                    if time.monotonic() - began > PATIENCE:
                        raise ChaosError(f"nothing was acknowledged after the loss of: {name}")
                world.sql("SELECT n FROM sums WHERE k = 3")
                waits.setdefault(name, []).append(time.monotonic() - began)
                if load.error is not None:
                    raise load.error
                queried = _until_queried(world, began)
                world.look_for_merges()
                report(
                    f"{number:3} {name:9} {waits[name][-1]:6.1f} s until written and read,"
                    f" {queried:6.1f} s until queried"
                )
                if number % 10 == 0:
                    report(f"    {verify(world, load)}")
        if load.error is not None:
            raise load.error
        report(f"    {verify(world, load)}")
        report(f"    {world.look_for_merges()}")
        if not world.merged:
            raise ChaosError("no log was merged")
        asked = world.balancer
        report(
            f"    no server was ready in {asked.out} of {asked.polls} looks;"
            f" {asked.refused} requests were refused by one that was"
        )
        for name, seconds in sorted(waits.items()):
            middle = sorted(seconds)[len(seconds) // 2]
            report(
                f"{name:9} {len(seconds):3} times, {middle:5.1f} s, at most {max(seconds):5.1f} s"
            )


def _until_queried(world: World, began: float) -> float:
    """Return the seconds until a ready server says that it answers queries, and does.

    Raises:
        ChaosError: if that takes too long, or a server that said so did not answer.
    """
    while True:
        ready = [i for i, each in enumerate(world.balancer.ready) if "queries" in each]
        for server in ready:
            asked = time.monotonic()
            try:
                answer = Client(world.servers[server].port, seconds=60).sql("SELECT 1 AS one")
            except (*GONE, OSError):
                continue
            if answer.status == 200:
                if time.monotonic() - asked > MOST_QUERY_SECONDS:
                    raise ChaosError(f"a ready server took {time.monotonic() - asked:.0f} s")
                return time.monotonic() - began
        if time.monotonic() - began > PATIENCE:
            raise ChaosError(f"no query was answered: {world.balancer.ready}")
        time.sleep(0.1)


def _world(stack: ExitStack, place: Path, draw: random.Random, *, cluster: bool) -> World:
    place_of_ledger = Path(stack.enter_context(TemporaryDirectory())) / "pg"
    server = stack.enter_context(postgres(place_of_ledger))
    ledger = server.create("ledger")
    store = stack.enter_context(seaweed(place / "store"))
    url = f"s3://{BUCKET}/db?endpoint={store.endpoint}&region={REGION}"
    given = {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "HEADRACE_LEDGER": f"postgresql://postgres@127.0.0.1:{server.port}/{ledger}",
        "HEADRACE_PARTITIONS": "2",
    }
    spark = None
    if cluster:
        (place / "cluster").mkdir()
        spark = stack.enter_context(spark_cluster(place / "cluster"))
        for _ in range(2):
            spark.worker()
        given |= {"HEADRACE_MASTER": spark.url, "HEADRACE_SMALL_ROWS": "150"}  # of both widths
    servers = []
    for name in ("one", "two"):
        environment = {**given, "HEADRACE_CACHE": str(place / name)}
        errors = place / f"{name}.log"
        killed = Killed(url, environment, port=free_port(), errors=errors, query_processes=1)
        killed.program = ("-c", SERVER)
        servers.append(killed)
        stack.callback(_end, servers[-1])
    servers[0].begin("--standby")
    servers[0].wait()
    balancer = Balancer([each.port for each in servers])
    stack.enter_context(balancer.running())
    return World(draw, server, ledger, store, servers, balancer, spark)


def _show_logs(world: World, kind: type[BaseException] | None, *_: object) -> None:
    """Print the end of what each server has logged, if the run has failed."""
    if kind is None:
        return
    for server in world.servers:
        if server.errors is not None and server.errors.exists():
            lines = server.errors.read_text(errors="replace").splitlines()[-60:]
            print(f"--- {server.errors.name}", *lines, sep="\n", file=sys.stderr)


def _end(server: Killed) -> None:
    if server.process is not None:
        server.kill()


def main() -> int:
    """Run it by the command line's arguments; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--cluster", action="store_true", help="on a standalone cluster of Spark")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    try:
        run(given.kills, given.seed, cluster=given.cluster, report=_shown)
    except ChaosError as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    return 0


def _shown(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
