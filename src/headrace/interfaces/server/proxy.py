"""Forwards requests to the process that makes epochs: over a Unix socket, or to another machine.

Bodies of requests and answers are streamed. A request is dropped when its client disconnects.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

import h11

from headrace.errors import Code, HeadraceError
from headrace.interfaces.server.events import SocketMessages, as_request, reading
from headrace.interfaces.server.requests import EPOCH, failure
from headrace.interfaces.server.statements import EVENTS
from headrace.types import Epoch

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from starlette.types import Message, Receive, Scope, Send


_OF_CONNECTION: Final = frozenset(
    {b"connection", b"expect", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
"""Hop-by-hop headers, which are not forwarded."""
_ADDED: Final = frozenset({b"date", b"server"})
"""Headers of answers that this server adds itself."""
_READ_BYTES: Final = 1 << 16
_CONNECT_SECONDS: Final = 5.0


class Upstream(Protocol):
    """The server to which requests are forwarded."""

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection.

        Raises:
            OSError: if it does not accept one.
        """
        ...

    @property
    def replaced(self) -> Mapping[bytes, bytes]:
        """The values of headers that it is sent in place of a request's own, if it has them."""
        ...


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server at a Unix socket, which takes requests as they are."""

    socket: Path
    replaced: Mapping[bytes, bytes] = field(default_factory=dict)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection; see :class:`Upstream`."""
        return await asyncio.open_unix_connection(str(self.socket))


@dataclass(frozen=True, slots=True)
class RemoteServer:
    """A server at a URL, ``http://host:port`` or ``https://``, which ``tls`` checks.

    It knows itself by its own name, so that stands in the headers Host and Origin.
    """

    url: str
    tls: ssl.SSLContext | None = None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection; see :class:`Upstream`."""
        parts = urlsplit(self.url)
        port = parts.port or (80 if self.tls is None else 443)
        opening = asyncio.open_connection(parts.hostname, port, ssl=self.tls)
        return await asyncio.wait_for(opening, _CONNECT_SECONDS)

    @property
    def replaced(self) -> Mapping[bytes, bytes]:
        """Its own host and origin."""
        parts = urlsplit(self.url)
        origin = f"{parts.scheme}://{parts.netloc}"
        return {b"host": parts.netloc.encode(), b"origin": origin.encode()}


@dataclass(frozen=True, slots=True)
class Proxy:
    """Forwards requests to another server; ``report`` receives the epoch of each answer."""

    server: Upstream
    report: Callable[[Epoch], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request; answer with status 503 if the server does not accept connections."""
        try:
            reader, writer = await self.server.connect()
        except OSError:
            await failure(_unavailable(None))(scope, receive, send)
            return
        connection, sent = h11.Connection(h11.CLIENT), _Sent(send, self.report)
        replaced = self.server.replaced
        passing = asyncio.create_task(_pass_on(connection, scope, receive, writer, replaced))
        answering = asyncio.create_task(_answer(connection, reader, sent))
        try:
            await asyncio.wait({passing, answering}, return_when=asyncio.FIRST_COMPLETED)
            # A request that is refused before all of it was read has an answer, too.
            if not answering.done() and isinstance(passing.exception(), h11.LocalProtocolError):
                await passing
            if answering.done() or passing.exception() is not None:
                await answering
        except h11.LocalProtocolError as error:
            if sent.begun:
                raise
            wrong = HeadraceError(Code.INVALID, "the request is not valid HTTP", f"{error}.")
            await failure(wrong)(scope, receive, send)
        except (OSError, h11.RemoteProtocolError):
            if sent.begun:
                raise
            unknown = "The connection was lost; the request may have taken effect."
            await failure(_unavailable(unknown))(scope, receive, send)
        finally:
            writer.close()
            for task in (passing, answering):
                task.cancel()
            await asyncio.gather(passing, answering, return_exceptions=True)

    async def over_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a WebSocket handshake as a request for events."""
        await receive()  # the handshake itself
        await self(as_request(scope), reading(receive), _OverSocket(send))


@dataclass(slots=True)
class _OverSocket:
    """Sends an answer over WebSocket: events as messages; other answers deny the handshake."""

    send: Send
    messages: SocketMessages | None = None
    waiting: bytes = b""
    """An incomplete event."""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            of = dict(message["headers"]).get(b"content-type", b"").decode("latin-1")
            if of.startswith(EVENTS):
                self.messages = SocketMessages(self.send)
        if self.messages is None:
            await self.send({**message, "type": f"websocket.{message['type']}"})
        elif message["type"] == "http.response.start":
            await self.messages(message)
        else:
            whole, end, self.waiting = (self.waiting + message["body"]).rpartition(b"\n\n")
            await self.messages({**message, "body": whole + end})


@dataclass(slots=True)
class _Sent:
    """Sends parts of an answer, and knows whether any were sent."""

    send: Send
    report: Callable[[Epoch], None]
    begun: bool = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            epoch = dict(message["headers"]).get(EPOCH.lower().encode())
            if epoch is not None:
                self.report(Epoch(int(epoch)))
        self.begun = True
        await self.send(message)


def _unavailable(detail: str | None) -> HeadraceError:
    return HeadraceError(
        Code.UNAVAILABLE, "the server was not ready", detail, "Try again in a second."
    )


async def _pass_on(
    connection: h11.Connection,
    scope: Scope,
    receive: Receive,
    writer: asyncio.StreamWriter,
    replaced: Mapping[bytes, bytes],
) -> None:
    """Send a request and its body; return when its client has disconnected."""
    # Whitespace around a header's value is not part of it, and must not be sent.
    given = [(name.lower(), value.strip(b" \t")) for name, value in scope["headers"]]
    headers = [(n, replaced.get(n, value)) for n, value in given if n not in _OF_CONNECTION]
    if any(name == b"transfer-encoding" for name, _ in given):
        headers.append((b"transfer-encoding", b"chunked"))
    query = scope["query_string"]
    target = scope["raw_path"] + (b"?" + query if query else b"")
    method = scope["method"].encode("ascii")
    writer.write(connection.send(h11.Request(method=method, target=target, headers=headers)) or b"")
    while (message := await receive())["type"] == "http.request":
        body = message.get("body", b"")
        if body:
            writer.write(connection.send(h11.Data(data=body)) or b"")
        if not message.get("more_body", False):
            writer.write(connection.send(h11.EndOfMessage()) or b"")
        await writer.drain()


async def _answer(connection: h11.Connection, reader: asyncio.StreamReader, send: Send) -> None:
    """Send the parts of an answer as they arrive.

    Raises:
        ConnectionError, h11.RemoteProtocolError: the answer was incomplete.
    """
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Response):
            left_out = _OF_CONNECTION | _ADDED
            headers = [(name, value) for name, value in event.headers if name not in left_out]
            status = event.status_code
            await send({"type": "http.response.start", "status": status, "headers": headers})
        elif isinstance(event, h11.Data):
            body = bytes(event.data)
            await send({"type": "http.response.body", "body": body, "more_body": True})
        elif isinstance(event, h11.EndOfMessage):
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        elif not isinstance(event, h11.InformationalResponse):
            raise ConnectionError("the answer was incomplete")
