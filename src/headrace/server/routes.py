"""The routes of a server: for each, what handles it and what its description says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from headrace.server.active import cancel_statement, list_statements
from headrace.server.answers import Format, done
from headrace.server.appends import ARROW, LINES, append_rows
from headrace.server.catalog import describe_relation, describe_target, list_catalog
from headrace.server.changes import read_changes
from headrace.server.entrance import Least, asking, log_in, log_out
from headrace.server.lookups import read_view
from headrace.server.pages import application_page, console_file, console_page
from headrace.server.requests import Query
from headrace.server.statements import (
    cancel_session,
    close_session,
    open_session,
    run_sql,
    split_script,
)
from headrace.server.status import follow_status, read_history
from headrace.server.streamed import EVENTS
from headrace.server.subscriptions import subscribe

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from headrace.server.service import Service

    Handler = Callable[[Service, Request], Awaitable[Response]]

_JSON: Final = "application/json"
_TIMEOUT: Final = Query("timeout", "Seconds after which the request is cancelled.", "number")


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path. ``{name}`` in a path stands for a text without a slash.

    ``least`` is what whoever asks needs. ``takes`` and ``answers`` are media types; the first line
    of the handler's docstring is the summary.
    """

    method: str
    path: str
    handler: Handler
    least: Least
    query: tuple[Query, ...] = ()
    takes: tuple[str, ...] = ()
    answers: tuple[str, ...] = (_JSON,)
    status: int = 200
    is_page: bool = False
    """Whether it serves files to browsers; the description is of the others."""
    header: str | None = None
    """A header of requests that this route reads."""

    @property
    def name(self) -> str:
        """The name of the operation."""
        return self.handler.__name__


async def health(service: Service, request: Request) -> Response:
    """Tell that the server answers."""
    del service, request
    return done({"status": "ok"})


async def ready(service: Service, request: Request) -> Response:
    """Tell that the database is open, that epochs are made, and that queries are answered."""
    del request
    service.database.parts.reader.require_epochs()
    service.require_queries()
    return done({"status": "ready", "epoch": service.database.last_epoch()})


async def metrics(service: Service, request: Request) -> Response:
    """Return metrics in the text format of Prometheus."""
    async with service.sessions.used(None, asking(request)) as session:
        text = await service.runner.run(session, service.metrics.text, request.receive)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def openapi(service: Service, request: Request) -> Response:
    """Return the description of all routes."""
    from headrace.server.openapi import document  # noqa: PLC0415  (it describes this module)

    del service, request
    return done(document([route for route in ROUTES if not route.is_page]))


ROUTES: tuple[Route, ...] = (
    Route("POST", "/v1/sql", run_sql, Least.TOKEN, takes=(_JSON,), answers=(*Format, EVENTS)),
    Route("POST", "/v1/script", split_script, Least.TOKEN, takes=(_JSON,)),
    Route("POST", "/v1/sessions", open_session, Least.TOKEN, status=201),
    Route("DELETE", "/v1/sessions/{session}", close_session, Least.TOKEN),
    Route("POST", "/v1/sessions/{session}/cancel", cancel_session, Least.TOKEN),
    Route(
        "GET",
        "/v1/views/{name}",
        read_view,
        Least.READER,
        (
            Query("key", "The value of a column of the key, in their order.", repeated=True),
            Query("select", "The columns, separated by commas; by default, all."),
            Query("where", "A condition, such as price>=2; all must hold.", repeated=True),
            Query("order", "Columns to order by; a hyphen before one reverses its order."),
            Query("limit", "The most rows.", "integer"),
            Query("as_of_epoch", "The epoch to read back.", "integer"),
            Query("min_epoch", "A token or an epoch that the answer must show; it is awaited."),
            Query(
                "max_staleness",
                "How many seconds ago what is missing may have arrived.",
                "number",
            ),
            _TIMEOUT,
        ),
        answers=tuple(Format),
    ),
    Route(
        "GET",
        "/v1/views/{name}/changes",
        read_changes,
        Least.READER,
        (
            Query("limit", "How many changes, at most 1,000; by default, 100.", "integer"),
            _TIMEOUT,
        ),
    ),
    Route("GET", "/v1/catalog", list_catalog, Least.TOKEN),
    Route("GET", "/v1/streams/{name}", describe_target, Least.READER),
    Route(
        "POST",
        "/v1/streams/{name}",
        append_rows,
        Least.WRITER,
        (
            Query("wait", "With readable, answer when views show the rows."),
            Query("producer", "Who appends; a number that it repeats takes effect once."),
            Query("sequence", "The producer's number, which grows.", "integer"),
            Query("session", "The session whose later reads see the rows."),
            _TIMEOUT,
        ),
        takes=(LINES, ARROW),
        header="Idempotency-Key",
    ),
    Route(
        "GET",
        "/v1/subscribe",
        subscribe,
        Least.TOKEN,
        (
            Query("view", "The view, table or stream to follow."),
            Query("sql", "Or the query to follow."),
            Query("after", "The token after which to resume."),
            Query("snapshot", "With false, the changes from now on.", "boolean"),
            _TIMEOUT,
        ),
        answers=(EVENTS,),
        header="Last-Event-ID",
    ),
    Route("GET", "/v1/catalog/{name}", describe_relation, Least.READER),
    Route("GET", "/v1/status", follow_status, Least.TOKEN, answers=(EVENTS,)),
    Route(
        "GET",
        "/v1/history",
        read_history,
        Least.TOKEN,
        (
            Query("seconds", "How far back; at most, and by default, 900.", "integer"),
            Query("relation", "A relation whose own figures are wanted, too."),
        ),
    ),
    Route("GET", "/v1/statements", list_statements, Least.TOKEN),
    Route("POST", "/v1/statements/{statement}/cancel", cancel_statement, Least.TOKEN),
    Route("POST", "/v1/login", log_in, Least.NOTHING, takes=(_JSON,)),
    Route("POST", "/v1/logout", log_out, Least.NOTHING),
    Route("GET", "/healthz", health, Least.NOTHING),
    Route("GET", "/readyz", ready, Least.NOTHING),
    Route("GET", "/metrics", metrics, Least.READER_OF_ALL, answers=("text/plain",)),
    Route("GET", "/openapi.json", openapi, Least.NOTHING),
    Route("GET", "/", console_page, Least.NOTHING, answers=("text/html",), is_page=True),
    Route(
        "GET", "/console/{path:path}", console_file, Least.NOTHING, answers=("*/*",), is_page=True
    ),
    Route(
        "GET", "/pages/{path:path}", application_page, Least.NOTHING, answers=("*/*",), is_page=True
    ),
)
