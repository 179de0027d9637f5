"""The ASGI application: routes, the middleware before them, and error answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from starlette import routing
from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from headrace.errors import Code, HeadraceError
from headrace.server.failures import StatusError, failure, shown
from headrace.server.guard import SiteGuard
from headrace.server.logs import RequestLog
from headrace.server.lookups import Lookups
from headrace.server.requests import require_known
from headrace.server.routes import ROUTES
from headrace.server.sockets import Socket
from headrace.server.streamed import EVENTS, StatementEvents

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

    from headrace.server.address import HostNames
    from headrace.server.route import Route
    from headrace.server.service import Service
    from headrace.session.injection import Injector

C = TypeVar("C")


def application(service: Service, names: HostNames) -> ASGIApp:
    """Return the application that serves a database under the given host names."""
    injector = service.injector(ROUTES)
    app = Starlette(
        routes=[route for each in ROUTES for route in _routes(service, each, injector)],
        exception_handlers={HTTPException: _unknown},
    )
    reader = service.database.parts.reader
    tallies = service.metrics.tallies
    lookups = Lookups(app, reader, service.entrance, service.limits, tallies)
    return RequestLog(SiteGuard(lookups, names))


def _routes(service: Service, route: Route[Any], injector: Injector) -> Iterator[routing.BaseRoute]:
    """Yield the HTTP endpoint of a route; also a WebSocket one if GET answers with events."""
    endpoint = _endpoint(service, route, injector.of(route.by))
    yield routing.Route(route.path, endpoint, methods=[route.method])
    if route.method == "GET" and EVENTS in route.answers:
        yield routing.WebSocketRoute(route.path, Socket(endpoint))


def _endpoint(
    service: Service, route: Route[C], handlers: C
) -> Callable[[Request], Awaitable[Response]]:
    directory = service.directory

    async def endpoint(request: Request) -> Response:
        began = time.monotonic()

        def observe(outcome: str) -> None:
            service.metrics.observe(route.name, outcome, time.monotonic() - began)

        try:
            request.state.principal = await service.entrance.principal(request, route.least)
            require_known(request, route.query)
            answer = await route.handler(handlers, request)
        except StatusError as refused:
            error, status = shown(refused.error, directory), refused.status
            observe(error.code)
            return failure(error, status)
        except Exception as raised:  # noqa: BLE001  (a stack trace never reaches the client)
            error = shown(raised, directory)
            observe(error.code)
            return failure(error)
        if isinstance(answer, StatementEvents):
            answer.on_end = observe
        else:
            observe("ok")
        return answer

    return endpoint


async def _unknown(request: Request, error: Any) -> Response:
    """Answer a request whose path or method no route serves."""
    wrong = "method" if error.status_code == 405 else "path"  # noqa: PLR2004 (of HTTP)
    value = request.method if wrong == "method" else request.url.path
    found = HeadraceError(
        Code.INVALID,
        f'{wrong} "{value}" does not exist here',
        hint="GET /openapi.json lists the routes.",
    )
    answered = failure(found, error.status_code)
    answered.headers.update(error.headers or {})
    return answered
