"""The server's log: one line per record, and an id for each request.

The id is taken from the header ``X-Request-Id`` that proxies send if it is plausible; otherwise it
is generated. It is in the answer and in every record logged for the request.
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
    """Return the id of the request that this task answers, or a generated one."""
    return _current.get() or _new_id()


def _new_id() -> str:
    """Return an id that is unique across processes.

    It makes no system call, which would release the GIL and wait for other threads.
    """
    return f"{_PROCESS}-{next(_numbers):x}"


@dataclass(frozen=True, slots=True)
class RequestLog:
    """Middleware that gives each request an id and logs its answer.

    Only the path is logged, since queries and bodies have users' data.
    """

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of the application."""
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
    """Yield headers except the request id, which another process may have added."""
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
    """Formats a record as a JSON object: time, level, logger, message, and its extra fields."""

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
    """Log warnings and errors to a stream, one line each; optionally also requests."""
    handler = logging.StreamHandler(stream)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if as_json else text)
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
    _log.setLevel(logging.INFO if requests else logging.WARNING)
