"""All routes of a server, with their descriptions."""

from __future__ import annotations

from typing import Any, Final

from headrace.interfaces.server.active import Active
from headrace.interfaces.server.appends import ARROW, LINES, AppendHandlers
from headrace.interfaces.server.catalog import (
    CatalogHandlers,
    ChangeHandlers,
    Circuits,
    Inventory,
    LineageHandlers,
)
from headrace.interfaces.server.entrance import Least, LoginHandlers
from headrace.interfaces.server.lookups import ViewHandlers
from headrace.interfaces.server.metrics import Metrics
from headrace.interfaces.server.openapi import JSON, Description, Route
from headrace.interfaces.server.pages import PageHandlers
from headrace.interfaces.server.point_in_time import PointInTimeHandlers
from headrace.interfaces.server.requests import AnswerFormat, QueryParameter
from headrace.interfaces.server.statements import EVENTS, SqlHandlers
from headrace.interfaces.server.status import EpochHandlers, HealthHandlers, Status
from headrace.interfaces.server.subscriptions import SubscribeHandlers

_TIMEOUT: Final = QueryParameter(
    "timeout", "Seconds after which the request is cancelled.", "number"
)

ROUTES: Final = (
    Route(
        "POST",
        "/v1/sql",
        SqlHandlers,
        SqlHandlers.run_sql,
        Least.TOKEN,
        takes=(JSON,),
        answers=(*AnswerFormat, EVENTS),
        body="Statements",
        answer="Result",
    ),
    Route(
        "POST",
        "/v1/script",
        SqlHandlers,
        SqlHandlers.split_script,
        Least.TOKEN,
        takes=(JSON,),
        body="Sql",
        answer="Script",
    ),
    Route("POST", "/v1/sessions", SqlHandlers, SqlHandlers.open_session, Least.TOKEN, status=201),
    Route("DELETE", "/v1/sessions/{session}", SqlHandlers, SqlHandlers.close_session, Least.TOKEN),
    Route(
        "POST",
        "/v1/sessions/{session}/cancel",
        SqlHandlers,
        SqlHandlers.cancel_session,
        Least.TOKEN,
    ),
    Route(
        "GET",
        "/v1/views/{name}",
        ViewHandlers,
        ViewHandlers.read_view,
        Least.READER,
        (
            QueryParameter("key", "The values of the key's columns, in order.", repeated=True),
            QueryParameter("select", "The columns, separated by commas; by default, all."),
            QueryParameter("where", "A condition, such as price>=2; all must hold.", repeated=True),
            QueryParameter("order", "Columns to order by; a hyphen before one reverses its order."),
            QueryParameter("limit", "The maximum number of rows.", "integer"),
            QueryParameter("as_of_epoch", "The epoch at which to read.", "integer"),
            QueryParameter("min_epoch", "A token or an epoch for which the request waits."),
            QueryParameter(
                "max_staleness",
                "The maximum wait of missing changes, in seconds.",
                "number",
            ),
            _TIMEOUT,
        ),
        answers=tuple(AnswerFormat),
        answer="Result",
    ),
    Route(
        "GET",
        "/v1/views/{name}/changes",
        ChangeHandlers,
        ChangeHandlers.read_changes,
        Least.READER,
        (
            QueryParameter("limit", "How many changes, at most 1,000; by default, 100.", "integer"),
            _TIMEOUT,
        ),
        answer="Changes",
    ),
    Route(
        "GET",
        "/v1/catalog",
        CatalogHandlers,
        CatalogHandlers.list_catalog,
        Least.TOKEN,
        answer="Catalog",
    ),
    Route(
        "GET", "/v1/streams/{name}", CatalogHandlers, CatalogHandlers.describe_target, Least.READER
    ),
    Route(
        "POST",
        "/v1/streams/{name}",
        AppendHandlers,
        AppendHandlers.append_rows,
        Least.WRITER,
        (
            QueryParameter("wait", "With readable, answer when views show the rows."),
            QueryParameter("producer", "The producer; a repeated number takes effect once."),
            QueryParameter("sequence", "The producer's number, which grows.", "integer"),
            QueryParameter("session", "The session whose later reads see the rows."),
            _TIMEOUT,
        ),
        takes=(LINES, ARROW),
        header="Idempotency-Key",
    ),
    Route(
        "POST",
        "/v1/as_of",
        PointInTimeHandlers,
        PointInTimeHandlers.read_as_of,
        Least.TOKEN,
        (
            QueryParameter(
                "view", "A view, with columns: name(column, column AS new).", repeated=True
            ),
            QueryParameter("time", "The column of times; by default, the only one."),
            QueryParameter("min_epoch", "A token or an epoch for which the request waits."),
            QueryParameter("session", "The session whose writes the values show."),
            _TIMEOUT,
        ),
        takes=(LINES, ARROW),
        answers=tuple(AnswerFormat),
        answer="Result",
    ),
    Route(
        "GET",
        "/v1/subscribe",
        SubscribeHandlers,
        SubscribeHandlers.subscribe,
        Least.TOKEN,
        (
            QueryParameter("view", "The view, table or stream to follow."),
            QueryParameter("sql", "Or the query to follow."),
            QueryParameter("after", "The token after which to resume."),
            QueryParameter("snapshot", "With false, the changes from now on.", "boolean"),
            _TIMEOUT,
        ),
        answers=(EVENTS,),
        header="Last-Event-ID",
    ),
    Route(
        "GET",
        "/v1/catalog/{name}",
        CatalogHandlers,
        CatalogHandlers.describe_relation,
        Least.READER,
        answer="Described",
    ),
    Route(
        "GET",
        "/v1/lineage/{name}",
        LineageHandlers,
        LineageHandlers.read_lineage,
        Least.READER,
        (QueryParameter("column", "A column of the relation; by default, all."),),
        answer="Lineage",
    ),
    Route("GET", "/v1/status", Status, Status.follow_status, Least.TOKEN, answers=(EVENTS,)),
    Route(
        "GET",
        "/v1/history",
        Status,
        Status.read_history,
        Least.TOKEN,
        (
            QueryParameter("seconds", "How far back; at most 172,800, by default 900.", "integer"),
            QueryParameter("relation", "A relation to report separately, too."),
        ),
        answer="History",
    ),
    Route(
        "GET",
        "/v1/epochs",
        EpochHandlers,
        EpochHandlers.list_epochs,
        Least.TOKEN,
        (QueryParameter("limit", "How many epochs, at most 1,000; by default, 100.", "integer"),),
        answer="Epochs",
    ),
    Route("GET", "/v1/statements", Active, Active.list_statements, Least.TOKEN, answer="Running"),
    Route(
        "POST", "/v1/statements/{statement}/cancel", Active, Active.cancel_statement, Least.TOKEN
    ),
    Route("POST", "/v1/login", LoginHandlers, LoginHandlers.log_in, Least.NOTHING, takes=(JSON,)),
    Route("POST", "/v1/logout", LoginHandlers, LoginHandlers.log_out, Least.NOTHING),
    Route("GET", "/healthz", HealthHandlers, HealthHandlers.health, Least.NOTHING),
    Route(
        "GET",
        "/readyz",
        HealthHandlers,
        HealthHandlers.ready,
        Least.NOTHING,
        (QueryParameter("serves", "What has to be served: queries, too. By default, not these."),),
    ),
    Route(
        "GET", "/metrics", Metrics, Metrics.metrics, Least.READER_OF_ALL, answers=("text/plain",)
    ),
    Route("GET", "/openapi.json", Description, Description.openapi, Least.NOTHING),
    Route(
        "GET",
        "/",
        PageHandlers,
        PageHandlers.console_page,
        Least.NOTHING,
        answers=("text/html",),
        is_page=True,
    ),
    Route(
        "GET",
        "/console/{path:path}",
        PageHandlers,
        PageHandlers.console_file,
        Least.NOTHING,
        answers=("*/*",),
        is_page=True,
    ),
    Route(
        "GET",
        "/pages/{path:path}",
        PageHandlers,
        PageHandlers.application_page,
        Least.NOTHING,
        answers=("*/*",),
        is_page=True,
    ),
)

COMPOSED: Final[dict[str, type[Any]]] = {"circuits": Circuits, "inventory": Inventory}
"""Classes constructed from parts for the fields of handlers, by field name."""
