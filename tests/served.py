"""A served database, and a client that knows nothing of Headrace: plain HTTP."""

from __future__ import annotations

import http.client
import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from headrace.server.address import Address
from headrace.server.listener import Server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import headrace
    from headrace.server.limits import Limits


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

    def connected(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        **query: Any,
    ) -> Answer:
        connection = self.connected()
        try:
            where = quote(path) + (f"?{urlencode(query, doseq=True)}" if query else "")
            connection.request(method, where, body, {**self.headers, **(headers or {})})
            found = connection.getresponse()
            names = {name.lower(): value for name, value in found.getheaders()}
            return Answer(found.status, names, found.read())
        finally:
            connection.close()

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
    server: Server

    @property
    def client(self) -> Client:
        return Client(self.server.address.port)


@contextmanager
def served(database: headrace.Database, limits: Limits | None = None) -> Iterator[Served]:
    """Serve a database on a free port."""
    address = Address.of("127.0.0.1:0")
    with Server(database, address, address.bound(), limits) as server:
        yield Served(database, server)
