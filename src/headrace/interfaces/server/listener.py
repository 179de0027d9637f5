"""The HTTP server: the application, its limits, and the thread that runs it on a socket.

Refuses requests that another site's page made a browser send.

A page can have a browser call a server on the loopback address. Its requests are distinguished by
three headers that a page cannot forge: Host, which names another host if the page's own name was
bound to 127.0.0.1 (DNS rebinding); Origin; and Sec-Fetch-Site.

The ASGI application: routes, the middleware before them, and error answers.

Uvicorn's HTTP protocol with limits on the time and size of a request's head.

Without limits, a client could hold a connection or fill the memory with an endless head.

Settings of uvicorn, for each process of the server.
"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import uvicorn
import uvloop
from starlette import routing
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.pump import QUICK_SWITCHING
from headrace.interfaces.server.address import Transport, require_tokens
from headrace.interfaces.server.events import Socket
from headrace.interfaces.server.limits import Limits
from headrace.interfaces.server.logs import RequestLog
from headrace.interfaces.server.lookups import Lookups
from headrace.interfaces.server.readers import Readers
from headrace.interfaces.server.requests import StatusError, failure, require_known, shown
from headrace.interfaces.server.routes import ROUTES
from headrace.interfaces.server.service import Service
from headrace.interfaces.server.statements import EVENTS, StatementEvents

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from headrace.interfaces.database import Database
    from headrace.interfaces.processes.queries import ProcessBeforehand, QuerySettings
    from headrace.interfaces.server.address import HostNames, ListenAddress
    from headrace.interfaces.server.openapi import Route
    from headrace.interfaces.session.client import Injector


_FORBIDDEN: Final = 403
_OWN: Final = frozenset({"", "none", "same-origin"})
_PAGES: Final = ("/console/", "/pages/")
"""Paths of files that are the same for every client."""


@dataclass(frozen=True, slots=True)
class SiteGuard:
    """Middleware that passes on requests to one of the server's names from its own pages."""

    app: ASGIApp
    names: HostNames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request by the application or with status 403."""
        if scope["type"] in ("http", "websocket"):
            refused = self._refused(scope)
            if refused is not None:
                await failure(refused, _FORBIDDEN)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _refused(self, scope: Scope) -> HeadraceError | None:
        sent = [(name.lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        given = dict(sent)
        host = given.get(b"host", "").lower()
        if host not in self.names.hosts or sum(name == b"host" for name, _ in sent) != 1:
            names = ", ".join(sorted(self.names.hosts))
            return _refusal("another host", f"The Host header must be one of: {names}.")
        origin = given.get(b"origin")
        if origin is not None and origin.lower() not in self.names.origins:
            return _refusal("another origin", "The Origin header names another site.")
        own = given.get(b"sec-fetch-site", "").lower() in _OWN
        if not own and not _is_visit(scope, given):
            return _refusal("another site", "The Sec-Fetch-Site header says so.")
        return None


def _is_visit(scope: Scope, given: Mapping[bytes, str]) -> bool:
    """Whether a request is a navigation to a page, which by itself shows no data.

    The page's own requests are then same-origin, and other sites cannot frame it.
    """
    path = scope["path"]
    return (
        scope.get("method") == "GET"
        and (path == "/" or path.startswith(_PAGES))
        and given.get(b"sec-fetch-mode") == "navigate"
        and given.get(b"sec-fetch-dest") == "document"
    )


def _refusal(what: str, detail: str) -> HeadraceError:
    return HeadraceError(
        Code.INVALID,
        f"a request for or from {what} is refused",
        detail,
        "Use the address that the server has printed; browsers only from its own pages.",
    )


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


HEAD_SECONDS: Final = 20.0
"""How long a connection may take to send the head of a request."""
HEAD_BYTES: Final = 64 << 10
REST_SECONDS: Final = 5.0
"""How long the rest of a body may take that is sent after the answer."""
REST_BYTES: Final = 16 << 20
"""The maximum bytes of it."""
_TOO_LONG: Final = "The head of the request is too long."


class BoundedProtocol(HttpToolsProtocol):
    """A connection, which is closed if the head of a request is too slow or too long.

    A request may be answered before its body has arrived, as one that is refused. A short rest of
    the body is discarded, and the connection can be used again; else it is closed.
    """

    head_seconds = HEAD_SECONDS
    rest_seconds = REST_SECONDS

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self._in_head, self._heads = True, 0
        self._incomplete_bytes = 0
        """Received bytes of a head that the parser may not have reported as a whole."""
        self._head_bytes = 0
        """The bytes of the head that the parser has reported."""
        self._rest_bytes: int | None = None
        """The bytes received since the answer, while a body arrives that is discarded."""
        self._until: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout for the head of the first request."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeout."""
        self._stop_timeout()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process received bytes; refuse a head that is too long, and a body after the answer."""
        if self._rest_bytes is not None:
            self._rest_bytes += len(data)
            if self._rest_bytes > REST_BYTES:
                self.transport.close()
                return
        heads = self._heads
        super().data_received(data)
        if self._in_head and heads == self._heads:  # all of it belongs to this head
            self._incomplete_bytes += len(data)
            if self._incomplete_bytes > HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response(_TOO_LONG)

    def on_message_begin(self) -> None:
        """Start the timeout for the head of a request."""
        super().on_message_begin()
        self._heads += 1
        self._await_head()

    def on_url(self, url: bytes) -> None:
        """Count the bytes of the target."""
        super().on_url(url)
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count the bytes of a header."""
        super().on_header(name, value)
        self._count_head(len(name) + len(value) + 4)  # and the colon, a space, the line's end

    def _count_head(self, length: int) -> None:
        """Count bytes of the head.

        Raises:
            ValueError: they are too many; the parser ends, and the request is refused.
        """
        self._head_bytes += length
        if self._head_bytes > HEAD_BYTES:
            raise ValueError(_TOO_LONG)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not a request that can be read, and close the connection."""
        self._stop_timeout()
        super().send_400_response(_TOO_LONG if self._head_bytes > HEAD_BYTES else msg)

    def on_headers_complete(self) -> None:
        """Stop the timeout: the head is complete."""
        self._stop_timeout()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Use the connection again, if the rest of a body has arrived that is discarded."""
        super().on_message_complete()
        if self._rest_bytes is not None:
            self._rest_bytes = None
            self._close_after(self.timeout_keep_alive)

    def on_response_complete(self) -> None:
        """Bound what is still sent of the request."""
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body and self._rest_bytes is None:
            self._rest_bytes = 0
            self._close_after(self.rest_seconds)

    def _await_head(self) -> None:
        self._in_head, self._incomplete_bytes, self._head_bytes = True, 0, 0
        self._close_after(self.head_seconds)

    def _close_after(self, seconds: float) -> None:
        if self._until is not None:
            self._until.cancel()
        self._until = self.loop.call_later(seconds, self.transport.close)

    def _stop_timeout(self) -> None:
        self._in_head = False
        if self._until is not None:
            self._until.cancel()
            self._until = None


_CONNECTIONS: Final = 4096
LONGEST_MESSAGE: Final = 4096
"""The maximum bytes of a client's WebSocket message, which is ignored."""
_GOODBYE_SECONDS: Final = 5
"""How long unfinished answers may take once the server stops."""


def http_settings() -> dict[str, Any]:
    """Return uvicorn's settings, except the application and the address."""
    return {
        "http": BoundedProtocol,
        "ws": "websockets-sansio",
        "ws_max_size": LONGEST_MESSAGE,
        "ws_per_message_deflate": False,  # compression would repeat for each subscriber
        "lifespan": "off",
        "proxy_headers": False,
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "limit_concurrency": _CONNECTIONS,
        "timeout_graceful_shutdown": _GOODBYE_SECONDS,
    }


def tls_settings(transport: Transport) -> dict[str, Any]:
    """Return uvicorn's settings for TLS."""
    return {"ssl_certfile": transport.certificate, "ssl_keyfile": transport.key}


_START_SECONDS = 30.0
_HTTP = Transport()


class HttpServer:
    """Serves an open database at an address until it is closed. A context manager.

    Statements of clients may read only files below ``roots``, and make backups in directories only
    below ``backup_roots``. ``queries`` evaluates their queries
    in separate processes, the first one in that started ``beforehand``; by default they run in this
    one. ``/pages/`` serves the files of the
    directory ``pages``. Clients need access tokens if any exist, or always with ``authenticate``.
    Closing the server closes its socket, which is already bound, but not the database. With
    ``readers``, that many processes accept connections, answer lookups, and forward all other
    requests.

    Raises:
        HeadraceError: as :meth:`Transport.require_complete` and :func:`require_tokens`.
    """

    def __init__(
        self,
        database: Database,
        address: ListenAddress,
        bound: socket.socket,
        limits: Limits | None = None,
        roots: Sequence[Path] = (),
        queries: QuerySettings | None = None,
        *,
        pages: Path | None = None,
        transport: Transport = _HTTP,
        authenticate: bool = False,
        readers: int = 0,
        backup_roots: Sequence[Path] = (),
        beforehand: ProcessBeforehand | None = None,
    ) -> None:
        transport.require_complete(address)
        require_tokens(address, database.parts.access)
        self.address = replace(address, port=bound.getsockname()[1])
        self.transport = transport
        self._socket = bound
        self._readers = None
        if readers:
            bound.close()  # SO_REUSEPORT must be set before binding
            self._readers = Readers(database, self.address.shared(readers))
        self.service = Service.of(
            database,
            limits or Limits(),
            roots,
            queries,
            pages,
            readers=self._readers,
            authenticate=authenticate,
            backup_roots=backup_roots,
            beforehand=beforehand,
        )
        listening = tls_settings(transport)
        if self._readers is not None:
            listening = {"uds": str(self._readers.socket)}
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                application(self.service, transport.names(self.address)),
                **http_settings(),
                **listening,
            )
        )
        self._thread = threading.Thread(target=self._run, name="headrace-http", daemon=True)

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self.transport.url(self.address)

    def start(self) -> None:
        """Start serving.

        Raises:
            HeadraceError: ``unavailable`` if the server did not start within 30 seconds, or its
                reader processes within two minutes.
        """
        QUICK_SWITCHING.begin()
        self._thread.start()
        if not self._uvicorn.ready.wait(_START_SECONDS):
            raise HeadraceError(Code.UNAVAILABLE, "the server did not start")
        if self._readers is not None:
            names = self.transport.names(self.address)
            self._readers.start(
                names,
                self.transport,
                self.service.limits,
                self.service.metrics.tallies,
                authenticate=self.service.entrance.required,
            )
        if self.service.query_processes is not None:
            self.service.query_processes.warm()

    def close(self) -> None:
        """Stop the server: cancel statements and end subscriptions."""
        self.service.close()
        self._uvicorn.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
            QUICK_SWITCHING.end()
        if self._readers is not None:
            self._readers.close()
        self._socket.close()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        beside = [
            asyncio.create_task(self.service.tidy()),
            asyncio.create_task(self.service.status.run()),
        ]
        try:
            await self._uvicorn.serve(None if self._readers else [self._socket])
        finally:
            for task in beside:
                task.cancel()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Uvicorn(uvicorn.Server):
    """A uvicorn server that signals when it has started."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        self.ready.set()
