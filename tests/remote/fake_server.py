"""A server that answers from a script: each connection is handed to the next of some functions."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

CATALOG = {"epoch": 7, "pending": 0, "relations": [], "functions": []}


@dataclass
class Asked:
    """A request as it came over the socket."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Exchange:
    """One request, and the means to answer it, or not."""

    asked: Asked
    sock: socket.socket

    def answer(
        self, value: Any, status: int = 200, kind: str = "application/json", **headers: str
    ) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {text}" for name, text in headers.items()]
        self.sock.sendall("\r\n".join([*lines, "", ""]).encode() + body)

    def error(self, status: int, code: str, primary: str, **headers: str) -> None:
        error = {"code": code, "primary": primary, "detail": None, "hint": None, "span": None}
        self.answer({"error": error}, status, **headers)

    def begin_events(self) -> None:
        self.sock.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )

    def event(self, kind: str, value: Any) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        event = b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"
        self.sock.sendall(f"{len(event):x}\r\n".encode() + event + b"\r\n")

    def end_events(self) -> None:
        self.sock.sendall(b"0\r\n\r\n")

    def done(self, message: str = "done") -> None:
        """Answer with a statement's result that has no rows."""
        self.begin_events()
        self.event(
            "result",
            {"kind": "done", "message": message, "epoch": 7, "token": "7", "freshness": None},
        )
        self.end_events()

    def drop(self) -> None:
        self.sock.shutdown(socket.SHUT_RDWR)


@dataclass
class FakeServer:
    """Answers the catalog and sessions by itself, and other requests by ``play``, in order."""

    play: list[Callable[[Exchange], None]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    catalog: Callable[[Exchange], None] = lambda exchange: exchange.answer(CATALOG)
    sessions: int = 0
    tls: ssl.SSLContext | None = None
    _socket: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def url(self) -> str:
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://127.0.0.1:{self._socket.getsockname()[1]}"

    def of(self, method: str, path: str) -> list[Asked]:
        return [
            each for each in self.asked if (each.method, each.path.split("?")[0]) == (method, path)
        ]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            if self.tls is not None:
                sock = self.tls.wrap_socket(sock, server_side=True)
            reader = sock.makefile("rb")
            while line := reader.readline().split():
                headers = {}
                while header := reader.readline().strip():
                    name, _, value = header.decode().partition(": ")
                    headers[name.lower()] = value
                body = reader.read(int(headers.get("content-length", 0)))
                asked = Asked(line[0].decode(), line[1].decode(), headers, body)
                self.asked.append(asked)
                self._answer(Exchange(asked, sock))
        except (OSError, ValueError):  # the client has left, or does not speak HTTP
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _answer(self, exchange: Exchange) -> None:
        match exchange.asked.method, exchange.asked.path:
            case "GET", "/v1/catalog":
                self.catalog(exchange)
            case "POST", "/v1/sessions":
                self.sessions += 1
                exchange.answer({"session": f"s{self.sessions}"}, 201)
            case "DELETE", _:
                exchange.answer({"closed": True})
            case _:
                self.play.pop(0)(exchange)
