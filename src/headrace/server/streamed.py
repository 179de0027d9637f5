"""``POST /v1/sql`` as a stream of events: progress while the statement runs, then its result.

For statements that take minutes. A comment is sent every few seconds without an event, so that a
client can distinguish a long statement from an unreachable server.
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from headrace.errors import Code
from headrace.server.answers import AnswerFormat, document, ipc, require_served_size
from headrace.server.failures import shown
from headrace.serving.values import json_text
from headrace.statements.reading.following import SubscriptionStart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from starlette.types import Receive, Scope, Send

    from headrace.server.limits import Limits
    from headrace.server.tokens import StateToken
    from headrace.session import Progress, Result
    from headrace.statements.reading.following import Pushed

EVENTS: Final = "text/event-stream"
AT_ONCE_SECONDS: Final = 0.3
"""How long a statement may run before its answer begins; errors before that set the status."""
_REPORT_SECONDS: Final = 0.1
"""The minimum interval between progress events."""
_QUIET_SECONDS: Final = 5.0
"""The time without an event after which a comment is sent."""


def rows_of_events(accept: str | None) -> AnswerFormat | None:
    """Return the format of rows in events; None if an Accept header does not ask for events.

    It is JSON, or Arrow with ``text/event-stream; rows=arrow``.
    """
    name, *parameters = (part.strip().lower() for part in (accept or "").split(";"))
    if name != EVENTS:
        return None
    return AnswerFormat.ARROW if "rows=arrow" in parameters else AnswerFormat.JSON


class ProgressReports:
    """The latest unsent progress of each part of a statement."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._latest: dict[str, Progress] = {}
        self.news = asyncio.Event()

    def report(self, made: Progress) -> None:
        """Store progress; called on the statement's thread."""
        self._loop.call_soon_threadsafe(self._note, made)

    def _note(self, made: Progress) -> None:
        self._latest[made.what] = made
        self.news.set()

    def take(self) -> bytes:
        """Return unsent progress as events; called on the event loop's thread."""
        taken = [event("progress", asdict(made)) for made in self._latest.values()]
        self._latest.clear()
        self.news.clear()
        return b"".join(taken)


def result_events(
    result: Result, token: StateToken, form: AnswerFormat, limits: Limits
) -> Iterator[bytes]:
    """Yield a result as events; Arrow rows come first, as ``rows`` events with base64 of IPC.

    Raises:
        HeadraceError: ``unsupported`` if it exceeds the limit; raised at once.
    """
    table = result.to_arrow()
    require_served_size(table, form, limits)
    if form is AnswerFormat.JSON or result.kind == "done":
        return iter([_event("result", document(result, table, token).encode())])
    rows = (_event("rows", base64.b64encode(part)) for part in ipc(table))
    whole = _event("result", document(result, None, token).encode())
    first = next(rows, b"")  # encoded here, on the statement's thread
    return chain([first], rows, [whole])


def follow_document(pushed: Pushed) -> dict[str, Any]:
    """Return the parameters with which ``GET /v1/subscribe`` follows a statement's query.

    ``limit`` is the number of rows after which it ends; ``start`` is the position of its query in
    the text of the statement, or null if it is not part of the text.
    """
    query, after = pushed
    is_part = query.text == query.span.source and query.span.text != query.text
    return {
        "sql": query.text,
        "after": None if isinstance(after, SubscriptionStart) else after,
        "snapshot": after is SubscriptionStart.CONTENTS,
        "limit": query.limit,
        "start": query.span.start if is_part else None,
    }


def event(kind: str, data: Any) -> bytes:
    """Return an event with JSON data."""
    return _event(kind, json_text(data).encode())


def _event(kind: str, line: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), line)


class StatementEvents(Response):
    """The answer to a running statement: its progress, then its result or its error."""

    def __init__(
        self, running: asyncio.Task[Iterator[bytes]], reports: ProgressReports, directory: Path
    ) -> None:
        super().__init__(None, 200, {"Cache-Control": "no-store"}, EVENTS)
        del self.headers["content-length"]
        self._running = running
        self._reports = reports
        self._directory = directory
        self.on_end: Callable[[str], None] = lambda _outcome: None
        """Called when the statement has ended, with ``ok`` or the code of its error."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the statement ends; its runner cancels it if the client disconnects."""
        del scope, receive
        outcome = str(Code.CANCELLED)
        try:
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            await self._send_progress(send)
            try:
                events = self._running.result()
                while (part := await asyncio.to_thread(next, events, None)) is not None:
                    await _sent(send, part)
            except Exception as raised:  # noqa: BLE001  (a stack trace never reaches the client)
                error = shown(raised, self._directory)
                outcome = str(error.code)
                await _sent(send, event("error", {"error": error.to_json()}))
            else:
                outcome = "ok"
            await _sent(send, b"", more=False)
        finally:
            self._running.cancel()
            self.on_end(outcome)

    async def _send_progress(self, send: Send) -> None:
        while not self._running.done():
            news = asyncio.create_task(self._reports.news.wait())
            await asyncio.wait(
                {self._running, news}, timeout=_QUIET_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            news.cancel()
            await _sent(send, self._reports.take() or b": running\n\n")
            await asyncio.wait({self._running}, timeout=_REPORT_SECONDS)
        if progress := self._reports.take():
            await _sent(send, progress)


async def _sent(send: Send, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})
