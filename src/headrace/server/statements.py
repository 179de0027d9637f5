"""``POST /v1/sql``, and the sessions in which its statements run."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError
from headrace.server.answers import accepted, answer, done
from headrace.server.fence import no_push, require_served
from headrace.server.requests import json_object
from headrace.server.tokens import Token
from headrace.session import Subscription

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.server.service import Service
    from headrace.session import Session

_FIELDS: Final[Mapping[str, tuple[type, ...]]] = {
    "sql": (str,),
    "parameters": (list, dict),
    "session": (str,),
    "timeout": (int, float),
    "min_epoch": (int, str),
    "max_staleness": (int, float),
}


async def run_sql(service: Service, request: Request) -> Response:
    """Run one statement, or several; answer with the last one's result."""
    form = accepted(request.headers.get("accept"))
    asked = await json_object(request, service.limits.sql_bytes, _FIELDS)
    sql, parameters = asked.get("sql"), asked.get("parameters")
    if sql is None:
        raise HeadraceError(Code.INVALID, 'field "sql" is missing', hint="Give the statement.")
    least, staleness = asked.get("min_epoch"), asked.get("max_staleness")
    token = None if least is None else Token.of(str(least))

    def call(session: Session) -> Response:
        require_served(sql, parameters, service.roots)
        if token is not None:
            session.wait_for(token.epoch, token.ends)
        with nullcontext() if staleness is None else session.at_most_behind(staleness):
            result = session.sql(sql, parameters)
        if isinstance(result, Subscription):  # by a setting of its session
            result.close()
            raise no_push()
        return answer(result, Token(result.epoch, session.written), form, service.limits)

    async with service.sessions.used(asked.get("session")) as session:
        return await service.runner.run(
            session, lambda: call(session), request.receive, asked.get("timeout")
        )


async def open_session(service: Service, request: Request) -> Response:
    """Open a session, whose settings and writes later statements see."""
    del request
    return done({"session": service.sessions.open()}, 201)


async def close_session(service: Service, request: Request) -> Response:
    """End a session; its running statement is cancelled."""
    await service.sessions.close(request.path_params["session"])
    return done({"closed": True})


async def cancel_session(service: Service, request: Request) -> Response:
    """Cancel the running statement of a session."""
    id_ = request.path_params["session"]
    return done({"cancelled": await asyncio.to_thread(service.sessions.cancel, id_)})
