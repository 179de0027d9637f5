"""``POST /v1/sql``, and the routes of sessions.

``POST /v1/sql`` as a stream of events: progress while the statement runs, then its result.

For statements that take minutes. A comment is sent every few seconds without an event, so that a
client can distinguish a long statement from an unreachable server.
"""

from __future__ import annotations

import asyncio
import base64
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from headrace.errors import Code, HeadraceError
from headrace.execution.serving.values import json_text
from headrace.interfaces.server.entrance import asking
from headrace.interfaces.server.fence import no_push, require_served
from headrace.interfaces.server.requests import (
    AnswerFormat,
    StateToken,
    accepted,
    answer,
    document,
    done,
    ipc,
    json_object,
    require_served_size,
    shown,
)
from headrace.interfaces.session import Subscription
from headrace.interfaces.statements.reading.following import SubscriptionStart
from headrace.planning.sql import split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from headrace.interfaces.server.active import Active
    from headrace.interfaces.server.fence import Roots
    from headrace.interfaces.server.limits import Limits
    from headrace.interfaces.server.running import RequestCalls, Sessions
    from headrace.interfaces.session import Progress, Result, Session
    from headrace.interfaces.statements.reading.following import Pushed
    from headrace.lifecycle.states.access import Principal
    from headrace.planning.sql.parameters import Parameters


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


_FIELDS: Final[Mapping[str, tuple[type, ...]]] = {
    "sql": (str,),
    "parameters": (list, dict),
    "session": (str,),
    "timeout": (int, float),
    "min_epoch": (int, str),
    "max_staleness": (int, float),
    "follow": (bool,),
}


@dataclass(frozen=True, slots=True)
class _Script:
    """The body of a request to run statements."""

    sql: str
    parameters: Parameters | None
    session: str | None
    timeout: float | None
    follow: bool
    """Whether to follow a query that would otherwise run once."""
    least: StateToken | None
    """The token that queries must show."""
    staleness: float | None


@dataclass(frozen=True, slots=True)
class SqlHandlers:
    """Runs statements, optionally in a client's session."""

    calls: RequestCalls
    sessions: Sessions
    active: Active
    limits: Limits
    roots: Roots
    directory: Path

    async def run_sql(self, request: Request) -> Response:
        """Run one or several statements; answer with the last one's result."""
        accept = request.headers.get("accept")
        streamed = rows_of_events(accept)
        form = None if streamed else accepted(accept)
        script = await self._script(request)
        if form is None:
            return await self._streamed(request, script, streamed or AnswerFormat.JSON)
        if script.follow:
            raise no_push()
        principal = asking(request)

        def call(session: Session) -> Response:
            result, token = self._run(script, session, principal)
            return answer(result, token, form, self.limits)

        return await self.calls.run(request, call, script.timeout, script.session)

    async def split_script(self, request: Request) -> Response:
        """Split a script into its statements, without running them.

        ``start`` and ``end`` are the range of each in the script, in characters.
        """
        limits = self.limits
        asked = await json_object(request, limits.sql_bytes, limits.body_seconds, {"sql": (str,)})
        found = [
            {"sql": each.sql, "start": each.start, "end": each.end}
            for each in split(asked.get("sql") or "")
        ]
        return done({"statements": found})

    async def open_session(self, request: Request) -> Response:
        """Open a session, whose settings and writes later statements see."""
        return done({"session": self.sessions.open(asking(request))}, 201)

    async def close_session(self, request: Request) -> Response:
        """End a session; its running statement is cancelled."""
        await self.sessions.close(request.path_params["session"], asking(request))
        return done({"closed": True})

    async def cancel_session(self, request: Request) -> Response:
        """Cancel the running statement of a session."""
        id_, principal = request.path_params["session"], asking(request)
        return done({"cancelled": await asyncio.to_thread(self.sessions.cancel, id_, principal)})

    async def _script(self, request: Request) -> _Script:
        """Parse the body of a request to run statements.

        Raises:
            HeadraceError: ``invalid`` if it does not have these fields and types.
        """
        limits = self.limits
        asked = await json_object(request, limits.sql_bytes, limits.body_seconds, _FIELDS)
        sql = asked.get("sql")
        if sql is None:
            raise HeadraceError(Code.INVALID, 'field "sql" is missing', hint="Give the statement.")
        least = asked.get("min_epoch")
        return _Script(
            sql,
            asked.get("parameters"),
            asked.get("session"),
            asked.get("timeout"),
            bool(asked.get("follow")),
            None if least is None else StateToken.of(str(least)),
            asked.get("max_staleness"),
        )

    def _run(
        self,
        script: _Script,
        session: Session,
        principal: Principal,
        progress: Callable[[Progress], None] | None = None,
    ) -> tuple[Result, StateToken]:
        """Run statements; return the last one's result, and the session's token."""
        require_served(script.sql, script.parameters, self.roots, principal)
        if script.least is not None:
            session.wait_for(script.least.epoch, script.least.ends)
        staleness = script.staleness
        demand = nullcontext() if staleness is None else session.at_most_behind(staleness)
        with demand, self.active.running(session, script.sql, principal, progress) as listed:
            result = session.sql(script.sql, script.parameters, progress=listed.report)
        if isinstance(result, Subscription):  # by a setting of its session
            result.close()
            raise no_push()
        return result, StateToken(result.epoch, session.written)

    async def _streamed(self, request: Request, script: _Script, form: AnswerFormat) -> Response:
        """Run statements and answer with events, beginning after at most ``AT_ONCE_SECONDS``.

        A statement that follows changes is answered with the parameters of ``GET /v1/subscribe``.
        """
        reports, principal = ProgressReports(), asking(request)
        seconds = self.limits.longest_seconds if script.timeout is None else script.timeout

        def call(session: Session) -> Iterator[bytes]:
            pushed = session.pushed(script.sql, script.parameters, follow=script.follow)
            if pushed is not None:
                return iter([event("follow", follow_document(pushed))])
            result, token = self._run(script, session, principal, reports.report)
            return result_events(result, token, form, self.limits)

        running = asyncio.create_task(self.calls.run(request, call, seconds, script.session))
        try:
            await asyncio.wait({running}, timeout=AT_ONCE_SECONDS)
            if running.done():
                running.result()
            return StatementEvents(running, reports, self.directory)
        except BaseException:
            running.cancel()
            raise
