"""The routes of a server: for each, what handles it and what its description says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.server.answers import done
from headrace.server.appends import append_rows
from headrace.server.lookups import read_view
from headrace.server.statements import cancel_session, close_session, open_session, run_sql
from headrace.server.subscriptions import subscribe

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.server.service import Service

    Handler = Callable[[Service, Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path. ``{name}`` in a path stands for a text without a slash."""

    method: str
    path: str
    handler: Handler


async def health(service: Service, request: Request) -> Response:
    """Tell that the server answers."""
    del service, request
    return done({"status": "ok"})


async def ready(service: Service, request: Request) -> Response:
    """Tell that the database is open and that epochs are made."""
    del request
    service.database.parts.reader.require_epochs()
    return done({"status": "ready", "epoch": service.database.last_epoch()})


ROUTES: tuple[Route, ...] = (
    Route("POST", "/v1/sql", run_sql),
    Route("POST", "/v1/sessions", open_session),
    Route("DELETE", "/v1/sessions/{session}", close_session),
    Route("POST", "/v1/sessions/{session}/cancel", cancel_session),
    Route("GET", "/v1/views/{name}", read_view),
    Route("POST", "/v1/streams/{name}", append_rows),
    Route("GET", "/v1/subscribe", subscribe),
    Route("GET", "/healthz", health),
    Route("GET", "/readyz", ready),
)
