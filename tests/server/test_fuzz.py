"""Requests made up from the description of the server: none breaks it, and none keeps it busy."""

from __future__ import annotations

import json
import random
import socket
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.interfaces.server.limits import Limits
from headrace.interfaces.server.listener import BoundedProtocol
from served import Client, Served, served
from sessions import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

WORDS = [
    "", " ", "t", "v", "s", "none", "T", "information_schema.tables", "`t`", "__log_1", "0", "-1",
    "1e400", "NaN", "9" * 40, "\x00", "%00", "../../etc/passwd", "é\u202e", "'; DROP TABLE t; --",
    "k=1", "k<='x'", "name is null", "k,name", "-k", "true", "7@1:3", "7~3", "x" * 5000, "{}", "[]",
]  # fmt: skip
STATEMENTS = [
    "SELECT * FROM t", "SELECT", "SELECT * FROM v WHERE k = ?", "INSERT INTO t VALUES (1, 'x')",
    "SHOW TABLES", "EXPLAIN v", "DESCRIBE EXTENDED t", "VERIFY v", "CREATE TABLE x (k INT)",
    "DROP TABLE IF EXISTS x", "SET consistency = 'latest'", "SELECT :a", "SELECT 1 / 0", "FLUSH",
    "CREATE TOKEN x", "GRANT OWNER ON DATABASE TO x", "(" * 500, "SELECT " + "-" * 3000 + "1",
]  # fmt: skip
MEDIA = ["application/json", "application/x-ndjson", "text/csv", "*/*", "text/event-stream", "x"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("fuzzed") / "db"
    limits = Limits(statement_seconds=5.0, longest_seconds=5.0, body_seconds=1.0)
    with (
        headrace.connect(directory, spark=spark, partitions=PARTITIONS) as database,
        served(database, limits) as server,
    ):
        database.sql(
            "CREATE TABLE t (k INT PRIMARY KEY, name STRING);"
            "CREATE MATERIALIZED VIEW v AS SELECT k, name FROM t;"
            "CREATE STREAM s (k INT)"
        )
        yield server


class Made:
    """Requests made up by a seed, from the description of a server."""

    def __init__(self, described: Any, seed: int) -> None:
        self.random = random.Random(seed)
        self.operations = [
            (method.upper(), path, operation)
            for path, methods in described["paths"].items()
            for method, operation in methods.items()
        ]

    def value(self, schema: Any, depth: int = 0) -> Any:
        """Return a value that fits a schema, or now and then one that does not."""
        kinds = schema.get("type", "string")
        kind = self.random.choice(kinds if isinstance(kinds, list) else [kinds])
        if self.random.random() < 0.1 or depth > 3:
            return self.random.choice([None, 1, -1.5, True, "x", [], {}, [[[]]], "\ud800"])
        match kind:
            case "integer" | "number":
                return self.random.choice([0, 1, -1, 10**12, 0.5, 1e308])
            case "array":
                return [self.random.choice(WORDS), self.random.randrange(9)]
            case "object":
                fields = schema.get("properties", {})
                return {
                    name: self.random.choice(STATEMENTS)
                    if name == "sql"
                    else self.value(each, depth + 1)
                    for name, each in fields.items()
                    if name == "sql" or self.random.random() < 0.5
                }
            case "boolean":
                return self.random.random() < 0.5
            case _:
                return self.random.choice(WORDS)

    def request(self, schemas: Any) -> dict[str, Any]:
        method, path, operation = self.random.choice(self.operations)
        query: dict[str, Any] = {}
        headers = {"Accept": self.random.choice(MEDIA)}
        for each in operation.get("parameters", []):
            value = self.random.choice([*WORDS, *STATEMENTS])
            if each["in"] == "path":
                path = path.replace("{" + each["name"] + "}", value or "x")
            elif self.random.random() < 0.4:
                if each["in"] == "query":
                    query[each["name"]] = value
                else:
                    headers[each["name"]] = value.encode("latin-1", "replace").decode("latin-1")
        headers = {name: "".join(c for c in v if c.isprintable()) for name, v in headers.items()}
        body = None
        if "requestBody" in operation:
            content = operation["requestBody"]["content"]
            headers["Content-Type"] = self.random.choice([*content, self.random.choice(MEDIA)])
            reference = next(iter(content.values()))["schema"].get("$ref", "")
            schema = schemas.get(reference.rpartition("/")[2], {"type": "object"})
            body = json.dumps(self.value(schema)).encode()
            if self.random.random() < 0.2:
                body = self.random.randbytes(self.random.randrange(200))
        return {"method": method, "path": path, "body": body, "headers": headers, **query}


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 150), pytest.param(2, 5000, marks=pytest.mark.long)]
)
def test_no_made_up_request_breaks_the_server(running: Served, seed: int, count: int):
    client = running.client
    described = client.get("/openapi.json").json
    made = Made(described, seed)
    found: Counter[int] = Counter()
    for number in range(count):
        asked = made.request(described["components"]["schemas"])
        answer = client.ask(**asked, reads=False)
        found[answer.status] += 1
        assert answer.status < 500 or answer.status == 503, (seed, number, asked, answer)
    assert found[200] > count / 20, found  # not all of it was turned away at the door
    assert client.get("/healthz").status == 200
    assert client.rows("SELECT 1 AS one") == [[1]]


def raw(client: Client, text: bytes, seconds: float = 30.0) -> tuple[socket.socket, bytes]:
    """Send bytes, and return the socket with what has come until the server closed it."""
    made = socket.create_connection(("127.0.0.1", client.port), timeout=seconds)
    found = b""
    try:
        made.sendall(text)
        while part := made.recv(1 << 16):
            found += part
    except ConnectionError:
        pass
    return made, found


def test_a_body_that_does_not_come_is_ended(running: Served):
    client = running.client
    head = f"POST /v1/sql HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nConnection: close\r\n"
    head += "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    made, found = raw(client, head.encode())
    made.close()
    assert b" 408 " in found.split(b"\r\n")[0]
    assert b"did not arrive" in found


def test_a_head_that_does_not_end_is_ended(running: Served, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(BoundedProtocol, "head_seconds", 0.3)
    for begun in (b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: "):
        made, found = raw(running.client, begun)
        made.close()
        assert found == b""


@pytest.mark.parametrize(
    "head", [b"X: " + b"x" * 100_000, b"".join(b"X%d: y\r\n" % i for i in range(20_000))]
)
def test_a_head_that_is_too_long_is_refused(running: Served, head: bytes):
    made, found = raw(running.client, b"GET /healthz HTTP/1.1\r\n" + head)
    made.close()
    assert found.startswith(b"HTTP/1.1 400") or found == b""  # reset while more was sent
    assert running.client.get("/healthz").status == 200


@pytest.mark.parametrize("header", ["X: ", "X: y\r\n"])
def test_a_head_of_more_than_64_kib_is_refused_however_it_arrives(running: Served, header: str):
    fixed = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{running.client.port}\r\n"
    for length, status in ((66_000, b"400"), (60_000, b"200")):
        times = 1 if header == "X: " else length // len(header)
        filled = header * times if times > 1 else header + "x" * length + "\r\n"
        text = f"{fixed}{filled}Connection: close\r\n\r\n"
        made, found = raw(running.client, text.encode())
        made.close()
        assert found.split(b" ", 2)[1] == status, (length, found[:200])


@pytest.mark.parametrize(("secret", "status"), [(None, b"413"), ("hrt_wrong", b"401")])
def test_an_endless_body_is_not_taken_after_the_answer(
    running: Served, secret: str | None, status: bytes
):
    client = running.client
    head = f"POST /v1/sql HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n"
    head += "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    head += f"Authorization: Bearer {secret}\r\n\r\n" if secret else "\r\n"
    chunk, sent = b"10000\r\n" + b" " * (1 << 16) + b"\r\n", 0
    with socket.create_connection(("127.0.0.1", client.port), timeout=30.0) as made:
        made.sendall(head.encode())
        with suppress(ConnectionError):
            while sent < 256 << 20:
                sent += made.send(chunk)
        assert sent < 64 << 20
        assert made.recv(100).split(b" ", 2)[1] == status


def test_a_connection_can_be_used_again_after_a_short_body_that_was_refused(running: Served):
    client = running.client
    head = "POST /v1/sql HTTP/1.1\r\nHost: other\r\nContent-Length: 100000\r\n\r\n"
    again = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", client.port), timeout=30.0) as made:
        made.sendall(head.encode())
        found = made.recv(1 << 16)
        assert found.startswith(b"HTTP/1.1 403")
        made.sendall(b"x" * 100_000 + again.encode())
        while part := made.recv(1 << 16):
            found += part
    assert found.endswith(b'{"status":"ok"}'), found


EXPENSIVE = [
    "SELECT count(*) AS n FROM " + ", ".join(f"range10 r{i}" for i in range(12)),
    "SELECT a0.k FROM t a0 " + " ".join(f"JOIN t a{i} ON a{i}.k = a0.k" for i in range(1, 120)),
    "SELECT " + "(" * 2000 + "1" + ")" * 2000,
    "SELECT " + " + ".join(["1"] * 3000) + " AS n",
    "SELECT regexp_like(repeat('a', 40000), '(a+)+$b') AS r",
    "SELECT repeat('x', 2000000000) AS r",
    "SELECT name RLIKE '" + "(a|" * 1000 + "b" + ")" * 1000 + "' AS r FROM t",
]


@pytest.mark.long
def test_an_expensive_statement_ends_and_frees_its_place(running: Served):
    client = running.client
    client.sql("CREATE TABLE range10 (i INT)")
    client.sql("INSERT INTO range10 VALUES " + ", ".join(f"({i})" for i in range(10)))
    for sql in EXPENSIVE:
        began = time.monotonic()
        answer = client.sql(sql, timeout=4)
        assert answer.status in (200, 400, 408, 422), (sql[:80], answer.body[:500])
        assert time.monotonic() - began < 60
    nested = b'{"sql": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    answer = client.ask("POST", "/v1/sql", nested, {"Content-Type": "application/json"})
    assert answer.status == 400
    until = time.monotonic() + 30
    while running.server.service.runner.running and time.monotonic() < until:
        time.sleep(0.1)
    assert running.server.service.runner.running == 0
    assert client.rows("SELECT 1 AS one") == [[1]]
