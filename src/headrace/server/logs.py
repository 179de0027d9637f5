"""The log of a server: a line for each record, and an id for each request.

A request's id is that of its header ``X-Request-Id`` if it has a plausible one, as proxies send it,
or a new one. It is in the answer, and in every record that is logged for the request.
"""

from __future__ import annotations

import json
import logging
import re
import time
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from secrets import token_hex
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, MutableMapping
    from typing import Any, TextIO

    from starlette.types import ASGIApp, Receive, Scope, Send

_log = logging.getLogger("headrace.requests")

_HEADER: Final = b"x-request-id"
_PLAUSIBLE: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_PROCESS: Final = token_hex(5)
_numbers = count(1)
_current: ContextVar[str | None] = ContextVar("request", default=None)


def request_id() -> str:
    """Return the id of the request that this task answers, or a new one."""
    return _current.get() or _new_id()


def _new_id() -> str:
    """Return an id that no other request has, of this process or another.

    It asks the system for nothing: that would let other threads run, and this one wait for them.
    """
    return f"{_PROCESS}-{next(_numbers):x}"


@dataclass(frozen=True, slots=True)
class RequestLog:
    """Gives each request of an application its id, and logs how it was answered.

    Of the path only, since a query and a body have users' data.
    """

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == _HEADER), b"")
        id_ = given.decode() if _PLAUSIBLE.fullmatch(given) else _new_id()
        began, answered, own = time.monotonic(), [0], (_HEADER, id_.encode())

        async def sent(message: MutableMapping[str, Any]) -> None:
            if message["type"] in ("http.response.start", "websocket.accept"):
                answered[0] = message.get("status", 101)
                message["headers"] = [*_others(message.get("headers", ())), own]
            await send(message)

        token = _current.set(id_)
        try:
            await self.app({**scope, "headers": [*_others(scope["headers"]), own]}, receive, sent)
        finally:
            _current.reset(token)
            if _log.isEnabledFor(logging.INFO):
                _record(scope, id_, answered[0], time.monotonic() - began)


def _others(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Yield headers without that of the id, which another process may have added."""
    return ((name, value) for name, value in headers if name.lower() != _HEADER)


def _record(scope: Scope, id_: str, status: int, seconds: float) -> None:
    method = scope.get("method", "WEBSOCKET")
    fields = {
        "request": id_,
        "method": method,
        "path": scope["path"],
        "status": status,
        "seconds": round(seconds, 6),
    }
    client = scope.get("client")
    if client:
        fields["client"] = client[0]
    text = "%s %s: %d in %.1f ms (%s)"
    path = scope["path"].encode("unicode_escape").decode()
    _log.info(text, method, path, status, seconds * 1000, id_, extra={"fields": fields})


class JsonLines(logging.Formatter):
    """A record as a JSON object: time, level, logger and message, and the fields that it has."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        found: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            found["error"] = self.formatException(record.exc_info)
        return json.dumps(found, ensure_ascii=False)


def log_to(stream: TextIO, *, as_json: bool, requests: bool) -> None:
    """Log warnings and errors to a stream, one per line; optionally also each request."""
    handler = logging.StreamHandler(stream)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if as_json else text)
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
    _log.setLevel(logging.INFO if requests else logging.WARNING)
