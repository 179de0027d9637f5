"""``POST /v1/sql``, and the routes of sessions."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError
from headrace.server.answers import AnswerFormat, accepted, answer, done
from headrace.server.entrance import asking
from headrace.server.fence import no_push, require_served
from headrace.server.requests import json_object
from headrace.server.streamed import (
    AT_ONCE_SECONDS,
    ProgressReports,
    StatementEvents,
    event,
    follow_document,
    result_events,
    rows_of_events,
)
from headrace.server.tokens import StateToken
from headrace.session import Subscription
from headrace.sql import split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.parts.access import Principal
    from headrace.server.active import Active
    from headrace.server.fence import Roots
    from headrace.server.limits import Limits
    from headrace.server.running import RequestCalls
    from headrace.server.sessions import Sessions
    from headrace.session import Progress, Result, Session
    from headrace.sql.parameters import Parameters

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
