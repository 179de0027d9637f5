"""``POST /v1/sql``, and the sessions in which its statements run."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError
from headrace.server.answers import Format, accepted, answer, done
from headrace.server.entrance import asking
from headrace.server.fence import no_push, require_served
from headrace.server.requests import json_object
from headrace.server.streamed import (
    AT_ONCE_SECONDS,
    Reports,
    StatementEvents,
    event,
    follow_document,
    result_events,
    rows_of_events,
)
from headrace.server.tokens import Token
from headrace.session import Subscription
from headrace.sql import split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.parts.access import Principal
    from headrace.server.service import Service
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


async def run_sql(service: Service, request: Request) -> Response:
    """Run one statement, or several; answer with the last one's result."""
    accept = request.headers.get("accept")
    streamed = rows_of_events(accept)
    form = None if streamed else accepted(accept)
    script = await _script(service, request)
    if form is None:
        return await _streamed(service, request, script, streamed or Format.JSON)
    if script.follow:
        raise no_push()

    principal = asking(request)

    def call(session: Session) -> Response:
        result, token = script.run(service, session, principal)
        return answer(result, token, form, service.limits)

    async with service.sessions.used(script.session, principal) as session:
        return await service.runner.run(
            session, lambda: call(session), request.receive, script.timeout
        )


@dataclass(frozen=True, slots=True)
class _Script:
    """What a request asks to be run: the fields of its body."""

    sql: str
    parameters: Parameters | None
    session: str | None
    timeout: float | None
    follow: bool
    """Whether a query is to be followed, though it would run once."""
    least: Token | None
    """What must be seen."""
    staleness: float | None

    def run(
        self,
        service: Service,
        session: Session,
        principal: Principal,
        progress: Callable[[Progress], None] | None = None,
    ) -> tuple[Result, Token]:
        """Run the statements; return the last one's result, and what the session has seen."""
        require_served(self.sql, self.parameters, service.roots, principal)
        if self.least is not None:
            session.wait_for(self.least.epoch, self.least.ends)
        demand = nullcontext() if self.staleness is None else session.at_most_behind(self.staleness)
        with demand, service.active.running(session, self.sql, principal, progress) as listed:
            result = session.sql(self.sql, self.parameters, progress=listed.report)
        if isinstance(result, Subscription):  # by a setting of its session
            result.close()
            raise no_push()
        return result, Token(result.epoch, session.written)


async def split_script(service: Service, request: Request) -> Response:
    """Split a script into its statements, without running them.

    ``start`` and ``end`` are where each is in the script, in characters.
    """
    limits = service.limits
    asked = await json_object(request, limits.sql_bytes, limits.body_seconds, {"sql": (str,)})
    found = [
        {"sql": each.sql, "start": each.start, "end": each.end}
        for each in split(asked.get("sql") or "")
    ]
    return done({"statements": found})


async def _script(service: Service, request: Request) -> _Script:
    limits = service.limits
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
        None if least is None else Token.of(str(least)),
        asked.get("max_staleness"),
    )


async def _streamed(service: Service, request: Request, script: _Script, form: Format) -> Response:
    """Run statements and answer with events, at the latest once they have run for a moment.

    One that follows changes is answered with what ``GET /v1/subscribe`` is to be asked.
    """
    reports, principal = Reports(), asking(request)
    seconds = service.limits.longest_seconds if script.timeout is None else script.timeout

    def call(session: Session) -> Iterator[bytes]:
        pushed = session.pushed(script.sql, script.parameters, follow=script.follow)
        if pushed is not None:
            return iter([event("follow", follow_document(pushed))])
        result, token = script.run(service, session, principal, reports.report)
        return result_events(result, token, form, service.limits)

    async def run() -> Iterator[bytes]:
        async with service.sessions.used(script.session, principal) as session:
            return await service.runner.run(
                session, lambda: call(session), request.receive, seconds
            )

    running = asyncio.create_task(run())
    try:
        await asyncio.wait({running}, timeout=AT_ONCE_SECONDS)
        if running.done():
            running.result()
        return StatementEvents(running, reports, service.database.directory)
    except BaseException:
        running.cancel()
        raise


async def open_session(service: Service, request: Request) -> Response:
    """Open a session, whose settings and writes later statements see."""
    return done({"session": service.sessions.open(asking(request))}, 201)


async def close_session(service: Service, request: Request) -> Response:
    """End a session; its running statement is cancelled."""
    await service.sessions.close(request.path_params["session"], asking(request))
    return done({"closed": True})


async def cancel_session(service: Service, request: Request) -> Response:
    """Cancel the running statement of a session."""
    id_ = request.path_params["session"]
    return done(
        {"cancelled": await asyncio.to_thread(service.sessions.cancel, id_, asking(request))}
    )
