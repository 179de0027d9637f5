"""Events over WebSocket: a path whose ``GET`` answers with events sends them as messages.

The same endpoint handles the handshake as a GET request and may refuse it before the socket opens.
A message is JSON: ``{"event": ..., "id": ..., "data": ...}``. Messages of clients are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request

from headrace.server.streamed import EVENTS
from headrace.serving.values import json_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, MutableMapping

    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

_GOING_AWAY: Final = 1001
"""The close code after the last event."""


@dataclass(frozen=True, slots=True)
class Socket:
    """Serves an endpoint that answers with events over WebSocket."""

    endpoint: Callable[[Request], Awaitable[Response]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a handshake, and send messages until either side closes."""
        await receive()  # the handshake itself
        response = await self.endpoint(Request(as_request(scope), reading(receive)))
        if not response.headers.get("content-type", "").startswith(EVENTS):
            await response(scope, receive, send)
            return
        await response(as_request(scope), reading(receive), SocketMessages(send))


def as_request(scope: Scope) -> dict[str, Any]:
    """Return the GET request of a handshake. Its events are JSON, whatever it accepts."""
    headers = [(name, value) for name, value in scope["headers"] if name.lower() != b"accept"]
    return {**scope, "type": "http", "method": "GET", "headers": headers}


def reading(receive: Receive) -> Receive:
    """Return a ``receive`` that reports the socket's closing as a request's disconnect."""

    async def read() -> MutableMapping[str, Any]:
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return {"type": "http.disconnect"}

    return read


@dataclass(slots=True)
class SocketMessages:
    """Sends the events of an answer as messages."""

    send: Send

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        """Send a part of the answer, which has complete events."""
        if message["type"] == "http.response.start":
            await self.send({"type": "websocket.accept"})
            return
        for text in messages(message["body"]):
            await self.send({"type": "websocket.send", "text": text})
        if not message.get("more_body", False):
            await self.send({"type": "websocket.close", "code": _GOING_AWAY})


def messages(events: bytes) -> Iterator[str]:
    """Yield a message for each complete server-sent event; its data are JSON already."""
    for block in events.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line)
        if fields:
            id_ = json_text(fields.get("id"))
            yield f'{{"event":{json_text(fields["event"])},"id":{id_},"data":{fields["data"]}}}'
