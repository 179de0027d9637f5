"""Reader processes: lookups from the state that they hold; all else is passed on unchanged."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import headrace
from headrace.interfaces.server.proxy import LocalServer, Proxy
from headrace.planning.sql import Role
from served import Client, Events, Served, served
from sessions import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from headrace.interfaces.server.readers import Readers

PASSED_ON: list[str] = []
"""The operations that the process of epochs was asked for."""
SLOW = "SELECT sum(slowly(id)) AS s FROM t"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("readers") / "db"
    with headrace.connect(directory, spark=spark, partitions=PARTITIONS) as database:
        database.sql(
            "CREATE TABLE t (id INT PRIMARY KEY, name STRING);"
            "INSERT INTO t VALUES (1, 'ann'), (2, NULL), (3, 'bob');"
            "CREATE STREAM s (x INT, pad STRING);"
            "CREATE MATERIALIZED VIEW counted AS SELECT x, count(*) AS n FROM s GROUP BY x"
        )
        with served(database, readers=1) as running:
            tallies = running.server.service.metrics.tallies
            count = tallies.observe

            def observe(operation: str, outcome: str, seconds: float) -> None:
                PASSED_ON.append(operation)
                count(operation, outcome, seconds)

            tallies.observe = observe
            yield running


@pytest.fixture
def client(shared: Served) -> Client:
    return shared.client


@pytest.fixture
def readers(shared: Served) -> Readers:
    found = shared.server._readers
    assert found is not None
    return found


def eventually(true: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_row_by_key_is_answered_by_the_reader(shared: Served, client: Client):
    before = len(PASSED_ON)
    found = client.get("/v1/views/t", key=3, select="name")
    assert found.json["rows"] == [["bob"]]
    assert found.json["epoch"] == shared.database.last_epoch()
    assert found.headers["headrace-pending"] == "0"
    assert client.get("/v1/views/t", key=9).json["rows"] == []
    assert len(PASSED_ON) == before


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"where": "id>=2"}, 200),
        ({"key": 1, "max_staleness": 5}, 200),
        ({"key": 1, "nonsense": 1}, 400),
        ({"key": 1, "select": "nme"}, 400),
        ({"key": "x"}, 400),
        ({"key": 1, "min_epoch": "one"}, 400),
    ],
)
def test_what_needs_more_or_is_wrong_is_passed_on(
    client: Client, query: dict[str, object], status: int
):
    before = len(PASSED_ON)
    assert client.get("/v1/views/t", **query).status == status
    assert PASSED_ON[before:] == ["read_view"]


def test_another_host_is_refused_by_the_reader(client: Client):
    before = len(PASSED_ON)
    found = client.ask("GET", "/v1/views/t", headers={"Host": "evil.example"}, key=1)
    assert found.status == 403
    assert len(PASSED_ON) == before


def test_a_write_is_seen_by_its_token(client: Client):
    for number in range(5):
        token = client.sql(f"UPDATE t SET name = 'n{number}' WHERE id = 1").json["token"]
        found = client.get("/v1/views/t", key=1, min_epoch=token)
        assert found.json["rows"] == [[1, f"n{number}"]]
        again = client.get("/v1/views/t", key=1)
        assert again.json["rows"] == [[1, f"n{number}"]], "what was shown is shown again"


def test_a_request_that_is_refused_before_it_was_read_has_its_answer(client: Client):
    body = b"x" * (8 << 20)
    for _ in range(5):
        found = client.ask("POST", "/v1/sql", body, {"Content-Type": "text/plain"})
        assert found.status == 415


def raw(client: Client, header: bytes) -> bytes:
    """The first line of the answer to a request with one more header."""
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
        connection.sendall(
            b"GET /v1/catalog HTTP/1.1\r\nHost: localhost:%d\r\nConnection: close\r\n%b\r\n\r\n"
            % (client.port, header)
        )
        return connection.makefile("rb").readline()


@pytest.mark.parametrize("header", [b"X-Foo: x ", b"X-Foo: \tx\t ", b"X-Foo: ", b"X-Foo:"])
def test_a_value_with_space_around_it_is_passed_on(client: Client, header: bytes):
    assert b" 200 " in raw(client, header)


def test_a_scheme_without_a_token_is_answered(client: Client):
    assert b" 401 " in raw(client, b"Authorization: Bearer ")


def test_a_request_that_cannot_be_passed_on_is_refused_at_once(readers: Readers):
    scope = {
        "type": "http",
        "method": "GET",
        "raw_path": b"/v1/catalog",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"x-foo", b"x\x00y")],
    }
    sent = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def ask() -> None:
        proxy = Proxy(LocalServer(readers.socket), lambda _: None)
        await asyncio.wait_for(proxy(scope, asyncio.Event().wait, send), 10)

    asyncio.run(ask())
    assert sent[0]["status"] == 400
    assert json.loads(sent[1]["body"])["error"]["code"] == "invalid"


def test_a_body_without_a_length_is_passed_on(client: Client):
    connection = client.connected()
    lines = (json.dumps({"x": n % 7, "pad": "y" * 1000}).encode() + b"\n" for n in range(2000))
    headers = {"Content-Type": "application/x-ndjson"}
    connection.request("POST", "/v1/streams/s?wait=readable", lines, headers, encode_chunked=True)
    written = json.loads(connection.getresponse().read())
    assert written["rows"] == 2000
    connection.close()
    found = client.get("/v1/views/counted", key=3, min_epoch=written["token"])
    assert found.json["rows"] == [[3, 286]]
    arrow = client.sql("SELECT pad FROM s", accept="application/x-ndjson")
    assert arrow.body.count(b"\n") == 2000
    assert arrow.headers["transfer-encoding"] == "chunked"


def test_events_are_passed_on_as_they_come(client: Client):
    with Events(client, view="t") as events:
        each = iter(events)
        assert next(each).kind == "snapshot"
        client.sql("INSERT INTO t VALUES (4, 'new')")
        change = next(event for event in each if event.kind == "changes")
        assert change.data["changes"][0]["row"] == {"id": 4, "name": "new"}


def test_sockets_are_those_of_the_events(client: Client):
    url = f"ws://127.0.0.1:{client.port}/v1/subscribe?view="
    with connect(url + "t", open_timeout=60) as socket:
        assert json.loads(socket.recv(timeout=60))["event"] == "snapshot"
        client.sql("INSERT INTO t VALUES (5, 'five')")
        while (found := json.loads(socket.recv(timeout=60)))["event"] == "progress":
            pass
        assert found["data"]["changes"][0]["row"] == {"id": 5, "name": "five"}
    with pytest.raises(InvalidStatus) as refused, connect(url + "none", open_timeout=60):
        pass
    assert refused.value.response.status_code == 404
    assert json.loads(refused.value.response.body)["error"]["code"] == "invalid"


def test_a_statement_ends_when_its_client_leaves(shared: Served, client: Client):
    shared.database.register("slowly", _slowly, returns="BIGINT", deterministic=True)
    running = shared.server.service.runner
    connection = client.connected()
    body = json.dumps({"sql": SLOW})
    connection.request("POST", "/v1/sql", body, {"Content-Type": "application/json"})
    eventually(lambda: running.running == 1)
    connection.close()
    eventually(lambda: running.running == 0)


def _slowly(value: int) -> int:
    time.sleep(100)
    return value


def test_what_a_reader_holds_is_kept(shared: Served, client: Client, readers: Readers):
    """A reader that does not take a newer state, since it is stopped, finds its runs afterwards."""
    child = readers._children[0]
    os.kill(child.pid, signal.SIGSTOP)
    try:
        for number in range(12):
            shared.database.sql(f"UPDATE t SET name = 'kept{number}' WHERE id = 2")
            shared.database.flush()
        shared.database.compact()
    finally:
        os.kill(child.pid, signal.SIGCONT)
    assert client.get("/v1/views/t", key=3).json["rows"] == [[3, "bob"]]
    eventually(lambda: client.get("/v1/views/t", key=2).json["rows"] == [[2, "kept11"]])


@pytest.mark.long
def test_metrics_are_those_of_all_processes(client: Client):
    def counted() -> float:
        text = client.get("/metrics").body.decode()
        name = 'headrace_requests_total{operation="read_view",outcome="ok"}'
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(name))

    eventually(lambda: client.get("/metrics").status == 200)
    client.get("/v1/views/t", key=1)
    time.sleep(1.5)
    before = counted()
    for _ in range(5):
        client.get("/v1/views/t", key=1)
    eventually(lambda: counted() == before + 5)
    assert b"headrace_readers 1.0" in client.get("/metrics").body


def test_a_reader_knows_the_access_tokens_and_their_roles(shared: Served, client: Client):
    access = shared.database.parts.access
    made = [access.create(name) for name in ("may", "may_not")]
    access.grant("may", Role.READER, "default")
    try:
        may, may_not = (
            Client(client.port, {"Authorization": f"Bearer {secret}"}) for _, secret in made
        )
        eventually(lambda: _read(may) == (200, "by the reader"))
        assert _read(may_not) == (403, "passed on")
        assert _read(client) == (401, "passed on")
        access.revoke("may", Role.READER, "default")
        eventually(lambda: _read(may) == (403, "passed on"))
    finally:
        for token, _ in made:
            access.drop(token.name)
    eventually(lambda: client.get("/v1/views/t", key=3).status == 200)


def _read(client: Client) -> tuple[int, str]:
    before = len(PASSED_ON)
    status = client.get("/v1/views/t", key=3).status
    return status, "by the reader" if len(PASSED_ON) == before else "passed on"


def test_a_reader_that_is_killed_is_replaced(
    client: Client, readers: Readers, caplog: pytest.LogCaptureFixture
):
    connection = client.connected()
    connection.connect()
    connection.request("GET", "/v1/views/t?key=3")
    assert connection.getresponse().read()
    lost, killed = readers.lost, readers._children[0].pid
    os.kill(killed, signal.SIGKILL)
    with pytest.raises((ConnectionError, http.client.HTTPException)):  # noqa: PT012
        connection.request("GET", "/v1/views/t?key=3")
        connection.getresponse()
    connection.close()
    assert client.get("/v1/views/t", key=3).json["rows"] == [[3, "bob"]]
    eventually(lambda: (readers.lost, readers.count) == (lost + 1, 1))
    assert readers._children[0].pid != killed
    assert "a reader process ended by signal 9" in caplog.messages
