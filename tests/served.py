"""A served database, and a client that knows nothing of Headrace: plain HTTP."""

from __future__ import annotations

import http.client
import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlencode

from headrace.interfaces.server.address import ListenAddress
from headrace.interfaces.server.listener import HttpServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import headrace
    from headrace.interfaces.processes.queries import QuerySettings
    from headrace.interfaces.server.limits import Limits


@dataclass
class Answer:
    """An answer whose body has been read."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.json["error"]


@dataclass
class Client:
    port: int
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 60
    """How long an answer is waited for."""

    def connected(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.seconds)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        reads: bool = True,
        **query: Any,
    ) -> Answer:
        """Ask, and read the answer; without ``reads``, only that of an error."""
        connection = self.connected()
        try:
            where = quote(path) + (f"?{urlencode(query, doseq=True)}" if query else "")
            connection.request(method, where, body, {**self.headers, **(headers or {})})
            found = connection.getresponse()
            names = {name.lower(): value for name, value in found.getheaders()}
            body = found.read() if reads or found.status >= 400 else b""
            return Answer(found.status, names, body)
        finally:
            connection.close()

    def connected_to(self, path: str) -> Iterator[bytes]:
        """Yield the lines of an answer that does not end."""
        connection = self.connected()
        try:
            connection.request("GET", path, headers=self.headers)
            yield from connection.getresponse()
        finally:
            connection.close()

    def having(self, secret: str) -> Client:
        """Return this client with an access token."""
        return Client(self.port, {**self.headers, "Authorization": f"Bearer {secret}"})

    def get(self, path: str, **query: Any) -> Answer:
        return self.ask("GET", path, **query)

    def post(self, path: str, value: Any, accept: str | None = None) -> Answer:
        headers = {"Content-Type": "application/json"}
        if accept is not None:
            headers["Accept"] = accept
        return self.ask("POST", path, json.dumps(value), headers)

    def sql(
        self, sql: str, parameters: Any = None, accept: str | None = None, **more: Any
    ) -> Answer:
        asked = {"sql": sql, **more}
        if parameters is not None:
            asked["parameters"] = parameters
        return self.post("/v1/sql", asked, accept)

    def rows(self, sql: str, parameters: Any = None, **more: Any) -> Sequence[Sequence[Any]]:
        found = self.sql(sql, parameters, **more)
        assert found.status == 200, found.body
        return sorted(found.json["rows"], key=repr)


@dataclass
class Served:
    database: headrace.Database
    server: HttpServer

    @property
    def client(self) -> Client:
        return Client(self.server.address.port)


@contextmanager
def served(
    database: headrace.Database,
    limits: Limits | None = None,
    roots: Sequence[Path] = (),
    queries: QuerySettings | None = None,
    **more: Any,
) -> Iterator[Served]:
    """Serve a database on a free port."""
    address = ListenAddress.of("127.0.0.1:0")
    with HttpServer(database, address, address.bound(), limits, roots, queries, **more) as server:
        yield Served(database, server)


@dataclass
class Event:
    kind: str
    id: str | None
    data: Any


class Events:
    """Server-sent events as they arrive, each within a minute."""

    def __init__(self, client: Client, last: str | None = None, **query: Any) -> None:
        self._connection = client.connected()
        headers = {**client.headers, **({} if last is None else {"Last-Event-ID": last})}
        self._connection.request("GET", f"/v1/subscribe?{urlencode(query)}", headers=headers)
        self.answer = self._connection.getresponse()

    def __iter__(self) -> Iterator[Event]:
        fields: dict[str, str] = {}
        for raw in self.answer:
            line = raw.decode().rstrip("\n")
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif fields:
                yield Event(fields["event"], fields.get("id"), json.loads(fields["data"]))
                fields = {}

    def close(self) -> None:
        self.answer.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class Replica:
    """The rows of a view as a subscriber knows them: what was incomplete counts for nothing."""

    rows: Counter[str] = field(default_factory=Counter)
    token: str | None = None
    epoch: int = 0
    _parts: list[Any] = field(default_factory=list)

    def take(self, event: Event) -> bool:
        """Apply an event; return whether all of its epoch is known now."""
        data = event.data
        if event.kind == "progress":
            assert data["epoch"] >= self.epoch
        else:
            assert event.kind in ("snapshot", "changes"), event
            if data["part"] == 0:
                self._parts = []
            assert data["part"] == len(self._parts)
            self._parts.append(data)
            if not data["last"]:
                assert event.id is None
                return False
            if event.kind == "snapshot":
                self.rows = Counter()
            else:
                assert data["epoch"] > self.epoch
            for part in self._parts:
                self._apply(part)
            self._parts = []
        self.epoch, self.token = data["epoch"], event.id
        assert self.token == data["token"]
        return True

    def _apply(self, part: Any) -> None:
        for row in part.get("rows", ()):
            self.rows[json.dumps(row, sort_keys=True)] += 1
        for change in part.get("changes", ()):
            row = json.dumps(change["row"], sort_keys=True)
            self.rows[row] += change["weight"]
            assert self.rows[row] >= 0 or change["weight"] < 0
        self.rows = +self.rows if all(n >= 0 for n in self.rows.values()) else self.rows
