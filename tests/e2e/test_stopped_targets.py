"""The server of a sink stops for a minute while its view changes, and comes back.

It is killed, or frozen: then it neither answers nor refuses, and what was sent to it may still be
done. Meanwhile epochs and another sink go on, and ``SHOW SINKS`` says what is wrong. Afterwards the
target becomes the view again, each row by its changes in their order, without a statement.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

import pytest

import headrace
from asked import rows
from connectors.test_kafka_sink import committed
from headrace.errors import Code
from length import choose
from servers.cassandra import PASSWORD, USER
from servers.dynamodb import REGION, own_dynamodb
from servers.webhook import webhook
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headrace.errors import HeadraceError
    from headrace.interfaces.database import Database

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

OUTAGE_SECONDS = choose(15.0, 60.0)
DELAYED_SECONDS = 20.0
"""What an epoch, or the other sink, never takes while a server does not answer.

Clients wait that long for an answer, or longer: what waited for one of them would take more.
"""
CATCH_UP_SECONDS = 150.0
"""Attempts are at most a minute apart."""
ACCOUNTS = 7

Held = dict[int, tuple[int, int]]
"""The rows of the view by account: how many payments, and the number of the latest batch."""


@dataclass
class Target:
    """A server with what a sink writes there.

    ``options`` are the sink's; ``held`` reads the rows there. ``in_order`` checks what the target
    keeps of the order of changes, once all are there.
    """

    server: Any
    options: str
    held: Callable[[], Held]
    place: str
    stop: Callable[[], None]
    in_order: Callable[[], None] = lambda: None


def by_changes(changes: list[dict[str, Any]]) -> Held:
    """Return what changes add up to; they come by epochs, and none takes back what is not there."""
    found: dict[int, tuple[int, int]] = {}
    for change in changes:
        row = change["row"]
        account, value = row["account"], (row["n"], row["version"])
        if change["op"] in ("-U", "-D"):
            assert found.pop(account) == value, change
        else:
            assert account not in found, change
            found[account] = value
    return found


def require_ordered(changes: list[dict[str, Any]]) -> None:
    epochs = [change["epoch"] for change in changes]
    assert epochs == sorted(epochs)


@contextmanager
def to_redis(request: pytest.FixtureRequest) -> Iterator[Target]:
    server = request.getfixturevalue("redis")
    name = uuid4().hex[:8]

    def held() -> Held:
        client = server.client()
        items = [client.hgetall(key) for key in client.keys(f"{name}:*")]
        return {int(i["account"]): (int(i["n"]), int(i["version"])) for i in items if i}

    options = f"connector = 'redis', host = '127.0.0.1', port = {server.port}"
    place = f"127.0.0.1:{server.port}"
    yield Target(
        server,
        f"{options}, pattern = '{name}:{{account}}'",
        held,
        place,
        lambda: server.stop(crash=True),
    )


@contextmanager
def to_postgres(request: pytest.FixtureRequest) -> Iterator[Target]:
    server = request.getfixturevalue("postgres_server")
    database = server.create(f"stopped_{uuid4().hex[:8]}")

    def held() -> Held:
        with server.connect(database) as session:
            return {a: (n, v) for a, n, v in session.execute("SELECT account, n, version FROM o")}

    options = f"connector = 'postgres', host = '127.0.0.1', port = {server.port}"
    yield Target(
        server,
        f"{options}, user = 'postgres', database = '{database}', table = 'o', create_table = true",
        held,
        f"127.0.0.1:{server.port}",
        lambda: server.stop("immediate"),
    )


@contextmanager
def to_cassandra(request: pytest.FixtureRequest) -> Iterator[Target]:
    server = request.getfixturevalue("cassandra_node")
    name = f"t{uuid4().hex[:8]}"

    def held() -> Held:
        found = server.query(f"SELECT account, n, version FROM k.{name}")
        return {row[0]: (row[1], row[2]) for row in found}

    options = f"connector = 'cassandra', hosts = '127.0.0.1', port = {server.port}, user = '{USER}'"
    yield Target(
        server,
        f"{options}, password = SECRET of_cassandra, keyspace = 'k', table = '{name}',"
        " create_table = true",
        held,
        f"127.0.0.1:{server.port}",
        lambda: server.stop(crash=True),
    )


@contextmanager
def to_dynamodb(_request: pytest.FixtureRequest) -> Iterator[Target]:
    pytest.importorskip("moto")
    with own_dynamodb() as server:

        def held() -> Held:
            items = server.client.scan(TableName="o", ConsistentRead=True)["Items"]
            found = [{name: each.get("N") for name, each in item.items()} for item in items]
            return {
                int(item["account"]): (int(item["n"]), int(item["version"]))
                for item in found
                if "__deleted" not in item
            }

        options = f"connector = 'dynamodb', endpoint = '{server.endpoint}', region = '{REGION}'"
        yield Target(
            server,
            f"{options}, access_key = 'test', secret_key = SECRET of_dynamodb, table = 'o',"
            " create_table = true",
            held,
            server.endpoint,
            server.stop,
        )


@contextmanager
def to_kafka(request: pytest.FixtureRequest) -> Iterator[Target]:
    server = request.getfixturevalue("broker")
    topic = f"stopped-{uuid4().hex}"

    def changes() -> list[dict[str, Any]]:
        return [json.loads(value or b"") for _, value, _ in committed(server, topic)]

    options = f"connector = 'kafka', brokers = '{server.address}', topic = '{topic}'"
    yield Target(
        server,
        f"{options}, partitions = 1, envelope = 'changelog'",
        lambda: by_changes(changes()),
        topic,
        lambda: server.stop(crash=True),
        lambda: require_ordered(changes()),
    )


@contextmanager
def to_webhook(request: pytest.FixtureRequest) -> Iterator[Target]:
    with webhook(request.getfixturevalue("tmp_path") / "taken") as server:
        yield Target(
            server,
            f"connector = 'webhook', url = '{server.url}'",
            lambda: by_changes(server.changes()),
            server.url,
            server.stop,
            lambda: require_ordered(server.changes()),
        )


TARGETS = {
    "redis": to_redis,
    "postgres": to_postgres,
    "cassandra": to_cassandra,
    "dynamodb": to_dynamodb,
    "kafka": to_kafka,
    "webhook": to_webhook,
}


@dataclass
class Feed:
    """Changes the payments, and measures how long each batch takes to an epoch and another sink."""

    db: Database
    batches: int = 0
    taken: list[float] = field(default_factory=list)
    failed: BaseException | None = None
    _ends: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        if self.failed is not None:
            raise self.failed

    def _run(self) -> None:
        try:
            while not self._ends.wait(0.1):
                self.batches += 1
                began = time.monotonic()
                self._change(self.batches)
                # The session reads what it has written: an epoch has it.
                version = "SELECT max(version) FROM latest"
                assert rows(self.db, version) == [(self.batches,)]
                epoch = self.db.last_epoch()
                until(lambda at=epoch: (shown(self.db, "other")["epoch"] or 0) >= at)
                self.taken.append(time.monotonic() - began)
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.failed = error

    def _change(self, batch: int) -> None:
        if batch % 10 == 0:
            self.db.sql(f"DELETE FROM payments WHERE id % {ACCOUNTS} = {batch // 10 % ACCOUNTS}")
        ids = [batch, batch + 1, max(1, batch - 5)]
        self.db.insert("payments", [(id_, id_ % ACCOUNTS, batch) for id_ in ids])


def shown(db: Database, name: str) -> dict[str, Any]:
    """Return what SHOW SINKS has of a sink."""
    return next(row for row in db.sql("SHOW SINKS").to_arrow().to_pylist() if row["name"] == name)


def error_of(db: Database, name: str) -> HeadraceError | None:
    sink = db.parts.reader.catalog.resolve(name)
    return db.parts.deliveries.by_sink[sink.id].error


@pytest.mark.parametrize("frozen", [False, True], ids=["killed", "frozen"])
@pytest.mark.parametrize("name", TARGETS)
def test_a_target_whose_server_stops_is_the_view_again_when_it_is_back(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    *,
    frozen: bool,
) -> None:
    monkeypatch.setenv("HEADRACE_TEST_PASSWORD_OF_CASSANDRA", PASSWORD)
    monkeypatch.setenv("HEADRACE_TEST_KEY_OF_DYNAMODB", "test")
    with (
        TARGETS[name](request) as target,
        headrace.connect(tmp_path / "db", spark=spark, partitions=2, continuous=True) as db,
    ):
        db.sql(f"""
            CREATE SECRET of_cassandra FROM ENV 'HEADRACE_TEST_PASSWORD_OF_CASSANDRA';
            CREATE SECRET of_dynamodb FROM ENV 'HEADRACE_TEST_KEY_OF_DYNAMODB';
            CREATE TABLE payments (id BIGINT PRIMARY KEY, account BIGINT, version BIGINT);
            CREATE MATERIALIZED VIEW latest AS
              SELECT account, count(*) AS n, max(version) AS version FROM payments GROUP BY account;
            CREATE TABLE copied (account BIGINT PRIMARY KEY, n BIGINT, version BIGINT);
            CREATE SINK other INTO copied FROM latest;
            CREATE SINK out FROM latest WITH ({target.options})
        """)
        with Feed(db) as feed:
            until(lambda: feed.batches > 10 and len(target.held()) > 3)
            before, away = feed.batches, time.monotonic()
            (target.server.freeze if frozen else target.stop)()
            try:
                until(lambda: shown(db, "out")["state"] == "failing", 90)
                failing = time.monotonic() - away
                error, first = error_of(db, "out"), shown(db, "out")
                at_first = feed.batches
                until(lambda: feed.batches > at_first + 10)
                until(lambda: time.monotonic() - away > OUTAGE_SECONDS, 90)
                last, while_away = shown(db, "out"), feed.batches
            finally:
                (target.server.thaw if frozen else target.server.start)()
            require_said(error, target.place)
            assert last["error"].startswith("error[unavailable]")
            assert last["state"] == "failing"
            for column in ("epochs_behind", "rows_behind", "seconds_behind"):
                assert last[column] > first[column], column
            back = time.monotonic()
            seen: Held = {}
            while (shown(db, "out")["epoch"] or 0) < last["epoch"] + last["epochs_behind"]:
                looked_at(target, seen)
                assert time.monotonic() - back < CATCH_UP_SECONDS, error_of(db, "out")
                time.sleep(0.05)
            caught_up = time.monotonic() - back
        longest = max(feed.taken[before:while_away])
        print(
            f"{name}, {'frozen' if frozen else 'killed'}: failing after {failing:.1f} s,"
            f" {last['epochs_behind']} epochs behind after {last['seconds_behind']:.0f} s,"
            f" {while_away - before} batches meanwhile, the longest {longest:.2f} s (before"
            f" {max(feed.taken[:before]):.2f} s), caught up in {caught_up:.1f} s: {last['error']}"
        )
        assert longest < DELAYED_SECONDS
        until(lambda: shown(db, "out")["epochs_behind"] == 0, CATCH_UP_SECONDS)
        wanted = {account: (n, version) for account, n, version in rows(db, "SELECT * FROM latest")}
        assert looked_at(target, seen) == wanted
        target.in_order()
        db.flush()
        assert rows(db, "SELECT * FROM copied") == rows(db, "SELECT * FROM latest")
        assert shown(db, "out")["state"] == "running"
        assert shown(db, "out")["refused"] == 0


def require_said(error: HeadraceError | None, place: str) -> None:
    """Require an error that names the place, says what happened, and what is to be done."""
    assert error is not None
    assert error.code is Code.UNAVAILABLE
    assert place in str(error), str(error)
    assert error.detail
    assert error.hint


def looked_at(target: Target, latest: Held) -> Held:
    """Read a target that is catching up: no row is older than ``latest`` has seen it, which is kept.

    Returns the rows that are there.
    """
    found = target.held()
    for account, row in found.items():
        assert row[1] >= latest.get(account, row)[1], (account, row)
        latest[account] = row
    return found
