"""Sinks: rows per second into each target, and how long a change of one row takes to be there.

The servers are those of the tests, on this machine, so they share its cores.
"""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headrace
from benchmarks.counters import percentiles
from servers.cassandra import cassandra
from servers.kafka import kafka
from servers.machine import Unavailable
from servers.postgres import postgres
from servers.redis import redis_server

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_ROWS = 200_000
_CHANGED = 10
"""One of how many rows is changed in one epoch."""
_SINGLE = 20
"""How many changes of one row are timed."""
_LONGEST_SECONDS = 300.0
_VIEW = "SELECT id % {rows} AS id, max(name) AS name, sum(amount) AS amount FROM t GROUP BY 1"


def measure(directory: Path, rows: int, partitions: int) -> list[dict[str, Any]]:
    """Return for each target: rows per second at first and of changes, and milliseconds of one.

    Raises:
        AssertionError: a sink did not deliver everything in time.
    """
    found = []
    with ExitStack() as open_:
        folder = Path(open_.enter_context(tempfile.TemporaryDirectory(dir=directory)))
        db = open_.enter_context(
            headrace.connect(folder / "db", partitions=partitions, continuous=True)
        )
        lines = "".join(f"{n},name {n},{n % 1000}.25\n" for n in range(rows))
        (folder / "rows.csv").write_text(f"id,name,amount\n{lines}", encoding="utf-8")
        db.sql("CREATE TABLE t (id INT, name STRING, amount DECIMAL(12,2), PRIMARY KEY (id))")
        db.sql(f"COPY t FROM '{folder / 'rows.csv'}'")
        db.sql(f"CREATE MATERIALIZED VIEW v AS {_VIEW.format(rows=rows)}")
        for name, begin in TARGETS.items():
            with ExitStack() as own:
                try:
                    options = begin(db, own, folder / "".join(filter(str.isalnum, name)))
                except Unavailable as reason:
                    found.append({"target": name, "missing": str(reason)})
                    continue
                found.append({"target": name, **_run(db, options, rows)})
    return found


def _run(db: Any, options: str, rows: int) -> dict[str, Any]:
    begun = time.perf_counter()
    db.sql(f"CREATE SINK s FROM v WITH ({options})")
    (delivery,) = db.parts.deliveries.by_sink.values()
    _delivered(delivery, delivery.record.begins)
    first = time.perf_counter() - begun
    changed = rows // _CHANGED
    begun = time.perf_counter()
    db.sql(f"UPDATE t SET amount = amount + 1 WHERE id < {changed}")
    _delivered(delivery, db.flush())
    again = time.perf_counter() - begun
    single = []
    for n in range(_SINGLE):
        db.sql(f"INSERT INTO t VALUES ({n}, 'name', 1.5)")
        epoch = db.sql("SELECT 1 FROM v LIMIT 1").epoch
        committed = db.parts.ledger.epochs.committed_at(epoch)
        _delivered(delivery, epoch)
        single.append(max(0.0, time.time() - committed))
    db.sql("DROP SINK s")
    return {
        "rows": rows,
        "rows_per_second": round(rows / first),
        "changes_per_second": round(2 * changed / again),
        **percentiles(single),
    }


def _delivered(delivery: Any, epoch: int) -> None:
    until = time.monotonic() + _LONGEST_SECONDS
    while delivery.at is None or delivery.at < epoch:
        if time.monotonic() > until:
            raise AssertionError(f"a sink has not delivered epoch {epoch}: {delivery.error}")
        time.sleep(0.001)


def _postgres(mode: str) -> Callable[[Any, ExitStack, Path], str]:
    def begin(_db: Any, own: ExitStack, folder: Path) -> str:
        place = Path(own.enter_context(tempfile.TemporaryDirectory())) / folder.name
        server = own.enter_context(postgres(place))
        return (
            f"connector = 'postgres', host = '127.0.0.1', port = {server.port}, user = 'postgres',"
            f" database = 'postgres', table = 'v', create_table = true, mode = '{mode}'"
        )

    return begin


def _redis(_db: Any, own: ExitStack, folder: Path) -> str:
    server = own.enter_context(redis_server(folder))
    return f"connector = 'redis', host = '127.0.0.1', port = {server.port}, pattern = 'v:{{id}}'"


def _cassandra(db: Any, own: ExitStack, folder: Path) -> str:
    server = own.enter_context(cassandra(folder))
    server.query(
        "CREATE KEYSPACE v WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    password = folder / "password"
    password.write_text("cassandra", encoding="utf-8")
    db.sql(f"CREATE OR REPLACE SECRET cassandra FROM FILE '{password}'")
    return (
        f"connector = 'cassandra', hosts = '127.0.0.1', port = {server.port}, keyspace = 'v',"
        " table = 'v', create_table = true, datacenter = 'datacenter1', user = 'cassandra',"
        " password = SECRET cassandra"
    )


def _kafka(_db: Any, own: ExitStack, folder: Path) -> str:
    broker = own.enter_context(kafka(folder))
    return f"connector = 'kafka', brokers = '{broker.address}', topic = 'v', partitions = 4"


class _Taking(BaseHTTPRequestHandler):
    """Takes what is sent."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def _webhook(_db: Any, own: ExitStack, _folder: Path) -> str:
    server = own.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), _Taking))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    own.callback(server.shutdown)
    return f"connector = 'webhook', url = 'http://127.0.0.1:{server.server_port}/'"


TARGETS: dict[str, Callable[[Any, ExitStack, Path], str]] = {
    "nothing": lambda _db, _own, _folder: "connector = 'blackhole'",
    "JSON files": lambda _db, _own, _folder: "connector = 'file', path = 'v'",
    "Parquet files": lambda _db, _own, _folder: (
        "connector = 'file', path = 'p', format = 'parquet'"
    ),
    "Delta, rows": lambda _db, _own, _folder: "connector = 'delta', path = 'd'",
    "Delta, changes": lambda _db, _own, _folder: "connector = 'delta', path = 'e', mode = 'append'",
    "Iceberg, rows": lambda _db, _own, _folder: "connector = 'iceberg', path = 'i', table = 'b.v'",
    "PostgreSQL, rows": _postgres("upsert"),
    "PostgreSQL, changes": _postgres("append"),
    "Redis, hashes": _redis,
    "Cassandra": _cassandra,
    "Kafka, upserts": _kafka,
    "webhook": _webhook,
}
"""The targets: each starts a server, and returns the options of a sink."""
