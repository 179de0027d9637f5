"""Server-sent events: snapshots, changes of whole epochs, and progress, each with its token.

The token of an event is its id, so a browser that reconnects resumes after it. A snapshot, and the
changes of an epoch, may be sent in several events, with ``"part"`` counting from 0; only the one
with ``"last": true`` has a token. Part 0 begins the epoch again if it was not complete.

Events over WebSocket: a path whose ``GET`` answers with events sends them as messages.

The same endpoint handles the handshake as a GET request and may refuse it before the socket opens.
A message is JSON: ``{"event": ..., "id": ..., "data": ...}``. Messages of clients are ignored.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request

from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.serving import with_operations
from headrace.execution.serving.values import json_rows, json_text, rows
from headrace.interfaces.server.requests import AnswerFormat, ipc, type_name
from headrace.interfaces.server.statements import EVENTS
from headrace.io.connectors.sinks import json_lines
from headrace.planning.catalog import key_of
from headrace.types import Epoch, RelationId

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping

    import pyarrow as pa
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from headrace.execution.serving import History
    from headrace.planning.catalog import Table, View


_TOGETHER: Final = 1000
"""The maximum number of rows in an event."""
_TOGETHER_IN_ARROW: Final = 10_000
_EPOCHS: Final = 16
"""The number of epochs that are read together."""
_TOKEN: Final = re.compile(r"(?P<epoch>\d{1,18})(~(?P<relation>\d{1,18})|@[\d:,]+)?")


@dataclass(frozen=True, slots=True)
class ChangelogPosition:
    """A position in a relation's changelog: after an epoch.

    Its text is ``7~3``, the epoch and the relation's id. Without the relation, as in the token of a
    read, it fits whichever relation is followed.
    """

    epoch: Epoch
    relation: RelationId | None = None

    @classmethod
    def of(cls, text: str) -> ChangelogPosition:
        """Parse a position, the token of a read, or the number of an epoch.

        Raises:
            HeadraceError: ``invalid`` for any other text.
        """
        found = _TOKEN.fullmatch(text)
        if found is None:
            raise HeadraceError(
                Code.INVALID,
                "this is not a token",
                hint="Give the id of an event, the token of a read, or the number of an epoch.",
            )
        relation = found["relation"]
        return cls(Epoch(int(found["epoch"])), None if relation is None else _relation(relation))

    def __str__(self) -> str:
        """Return the text that :meth:`of` reads."""
        return str(self.epoch) if self.relation is None else f"{self.epoch}~{self.relation}"


def _relation(text: str) -> RelationId:
    return RelationId(int(text))


@dataclass(frozen=True, slots=True)
class SentEvent:
    """An encoded event, its epoch, and whether it is the last event of that epoch."""

    epoch: Epoch
    data: bytes
    last: bool
    is_progress: bool = False


def beginning(
    history: History, place: ChangelogPosition | None, form: AnswerFormat
) -> bytes | None:
    """Return the first event, for Arrow only: the columns, and where changes begin.

    ``place`` is None if a snapshot follows. Returns None for JSON.
    """
    if form is not AnswerFormat.ARROW:
        return None
    token = "null" if place is None else json_text(str(place))
    columns = _arrow_text(history.layout.columns.empty_table())
    return f'event: columns\ndata: {{"token":{token},"arrow":"{columns}"}}\n\n'.encode()


def snapshot(
    relation: Table | View, history: History, epoch: Epoch, form: AnswerFormat = AnswerFormat.JSON
) -> Iterator[SentEvent]:
    """Yield the contents of a relation at an epoch."""
    schema, parts = history.layout.columns, history.at(epoch).parts()
    if form is AnswerFormat.ARROW:
        contents = _arrow_pieces(parts, schema)
    else:
        columns = json_text([{"name": f.name, "type": type_name(f.type)} for f in schema])
        lines = (
            line.rstrip("\n") for part in parts for line in json_rows(schema.names, rows(part))
        )
        contents = (f'"columns":{columns},"rows":[{piece}]' for piece in _joined(lines))
    yield from _events("snapshot", ChangelogPosition(epoch, relation.id), contents)


def changes(
    relation: Table | View,
    history: History,
    after: Epoch,
    upto: Epoch,
    form: AnswerFormat = AnswerFormat.JSON,
) -> Iterator[SentEvent]:
    """Yield the changes of the epochs in (after, upto]; epochs without changes are skipped."""
    key = key_of(relation)
    for first in range(after, upto, _EPOCHS):
        end = Epoch(min(first + _EPOCHS, upto))
        for epoch, delta in history.changes(Epoch(first), end):
            written = delta.table.select([*history.layout.columns.names, WEIGHT])
            if not written.num_rows:
                continue
            if form is AnswerFormat.ARROW:
                ordered = with_operations(written, key)
                contents = _arrow_pieces(iter([ordered]), ordered.schema)
            else:
                pieces = _joined(json_lines(epoch, written, key))
                contents = (f'"changes":[{piece}]' for piece in pieces)
            yield from _events("changes", ChangelogPosition(epoch, relation.id), contents)


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines joined by commas, in pieces; at least one piece."""
    left = iter(lines)
    piece = list(islice(left, _TOGETHER))
    while True:
        yield ",".join(piece)
        piece = list(islice(left, _TOGETHER))
        if not piece:
            return


def _arrow_pieces(parts: Iterator[pa.Table], schema: pa.Schema) -> Iterator[str]:
    """Yield rows as Arrow, in pieces; at least one piece."""
    pieces = (
        part.slice(at, _TOGETHER_IN_ARROW)
        for part in parts
        for at in range(0, part.num_rows, _TOGETHER_IN_ARROW)
    )
    first = next(pieces, schema.empty_table())
    return (f'"arrow":"{_arrow_text(piece)}"' for piece in chain([first], pieces))


def _arrow_text(table: pa.Table) -> str:
    return base64.b64encode(b"".join(ipc(table))).decode()


def _events(kind: str, place: ChangelogPosition, contents: Iterator[str]) -> Iterator[SentEvent]:
    """Yield the events of a snapshot or of one epoch's changes; the last one is marked."""
    part, content = 0, next(contents)
    for following in contents:
        yield _event(kind, place, f'"part":{part},{content}', last=False)
        part, content = part + 1, following
    yield _event(kind, place, f'"part":{part},{content}', last=True)


def progress(place: ChangelogPosition, committed_at: float, pending: int) -> SentEvent:
    """Return a progress event: all changes up to a position were sent."""
    body = f'"committed_at":{committed_at!r},"pending":{pending}'
    return _event("progress", place, body, last=True, is_progress=True)


def goodbye(place: ChangelogPosition, error: HeadraceError) -> bytes:
    """Return the last event of a subscription that fails: the error, and where to resume."""
    body = json_text({"token": str(place), "error": error.to_json()})
    return f"event: error\ndata: {body}\n\n".encode()


def _event(
    kind: str, place: ChangelogPosition, body: str, *, last: bool, is_progress: bool = False
) -> SentEvent:
    token = f'"token":{json_text(str(place))},' if last else ""
    mark = "" if is_progress else f'"last":{"true" if last else "false"},'
    id_ = f"id: {place}\n" if last else ""
    text = f'event: {kind}\n{id_}data: {{"epoch":{place.epoch},{token}{mark}{body}}}\n\n'
    return SentEvent(place.epoch, text.encode(), last, is_progress)


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
