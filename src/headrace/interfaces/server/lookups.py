"""``GET /v1/views/{name}``: rows of a view or table by key or condition, with their freshness.

The request is turned into a query: names are looked up and quoted, values are bound.
"""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DateType,
    IntegralType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)
from starlette.requests import Request

from headrace.errors import Code, HeadraceError, meant, unknown
from headrace.execution.serving.contents import row_by_key
from headrace.interfaces.server.entrance import asking
from headrace.interfaces.server.requests import (
    StateToken,
    StatusError,
    accepted,
    answer,
    count,
    number,
)
from headrace.interfaces.session import Freshness, Result, Subscription, to_read
from headrace.io.formats.values import RejectedValueError, from_json, from_text
from headrace.planning.catalog import PlainView, Stream, Table, View, key_of
from headrace.planning.sql import quote, quote_dotted
from headrace.types import is_collated

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from headrace.interfaces.server.entrance import Entrance
    from headrace.interfaces.server.limits import Limits, Tallies
    from headrace.interfaces.server.readers import Holding
    from headrace.interfaces.server.running import RequestCalls
    from headrace.interfaces.session import Session
    from headrace.lifecycle.states.access import Principal
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog, Relation
    from headrace.types import Column


_NOT_FOUND: Final = 404
_VIEWS: Final = b"/v1/views/"
_CONDITION: Final = re.compile(
    r"\s*(?P<column>`(?:[^`]|``)+`|[^\s<>=!`][^\s<>=!]*)\s*"
    r"(?:(?P<operator><=|>=|!=|=|<|>)(?P<value>.*)|(?P<null>(?i:is\s+(not\s+)?null))\s*)",
    re.DOTALL,
)
_QUOTED: Final = re.compile(r"`((?:[^`]|``)+)`")
_LISTED: Final = re.compile(r"(?:`(?:[^`]|``)*`|[^,])+")
"""A name in a list; a name in backticks may contain commas."""
_COMPARED: Final = (
    BinaryType, BooleanType, DateType, NumericType, TimestampNTZType, TimestampType,
    TimeType,
)  # fmt: skip
"""The types, other than text, whose values query parameters can give."""


@dataclass(slots=True)
class Lookup:
    """Builds a query: its text, and the values of its parameters."""

    relation: Relation
    values: list[Any] = field(default_factory=list)

    def column(self, text: str) -> Column:
        """Return the column of a name, which may be in backticks.

        Raises:
            HeadraceError: ``invalid`` if the relation lacks it.
        """
        text = text.strip()
        quoted = _QUOTED.fullmatch(text)
        name = text if quoted is None else quoted[1].replace("``", "`")
        columns = self.relation.schema.columns
        for column in columns:
            if column.name.lower() == name.lower():
                return column
        names = self.relation.schema.names
        raise HeadraceError(
            Code.INVALID,
            f'column "{name}" does not exist in {self.relation.kind} "{self.relation.name}"',
            hint=meant(name, names, f"There are: {', '.join(names)}."),
        )

    def columns(self, text: str) -> list[str]:
        """Return the columns of a comma-separated list, spelled as declared."""
        return [self.column(part).name for part in _LISTED.findall(text)]

    def value(self, parameter: str, column: Column, text: str) -> str:
        """Bind a column's value from a query parameter; return its placeholder in the query.

        Raises:
            HeadraceError: ``invalid`` if the text is not a value of the column's type;
                ``unsupported`` if values of this type cannot be written as text.
        """
        if isinstance(column.type, StringType):
            self.values.append(text)
            return f"CAST(? AS {column.sql})" if is_collated(column.type) else "?"
        if not isinstance(column.type, _COMPARED):
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'{parameter}: column "{column.name}" of type {column.sql.upper()} is not compared'
                " with a text",
                hint="Ask POST /v1/sql.",
            )
        text = text.strip()
        read = from_json if isinstance(column.type, BinaryType) else from_text
        try:
            value = read(column)(text)
        except RejectedValueError as error:
            raise HeadraceError(
                Code.INVALID,
                f"{parameter}: {error}",
                hint=f'Column "{column.name}" is of type {column.sql.upper()}.',
            ) from error
        if isinstance(column.type, IntegralType | BooleanType | BinaryType):
            self.values.append(value)
            return "?"
        self.values.append(text)
        return f"CAST(? AS {column.sql})"

    def condition(self, text: str) -> str:
        """Return a condition as SQL, with the value as a parameter.

        The text is ``column = value``, or with ``!=``, ``<``, ``<=``, ``>`` or ``>=``; or ``column
        is null`` or ``column is not null``.
        """
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise HeadraceError(
                Code.INVALID,
                f"'{text}' is not a condition",
                hint="Write where=column=value, or another of != < <= > >=, or where=column is"
                " null; of several, all hold. A name with spaces or operators is written between"
                " backticks.",
            )
        column = self.column(found["column"])
        if found["null"]:
            return f"{quote(column.name)} {' '.join(found['null'].upper().split())}"
        value = self.value("where", column, found["value"])
        return f"{quote(column.name)} {found['operator']} {value}"

    def keys(self, given: list[str]) -> list[str]:
        """Return the conditions that select a key; values are in the order of its columns."""
        key = key_of(self.relation)
        if len(key) != len(given):
            columns = ", ".join(key)
            raise HeadraceError(
                Code.INVALID,
                f'{self.relation.kind} "{self.relation.name}" has a key of {len(key)} columns, and'
                f" {len(given)} values are given",
                hint=f"Give key= once for each of: {columns}." if key else "Use where=.",
            )
        by_name = {column.name: column for column in self.relation.schema.columns}
        return [
            f"{quote(name)} = {self.value('key', by_name[name], text)}"
            for name, text in zip(key, given, strict=True)
        ]

    def ordered(self, text: str) -> str:
        """Return an ORDER BY term; a hyphen before the column means descending order."""
        name = text.strip()
        if name.startswith("-"):
            return f"{quote(self.column(name[1:]).name)} DESC"
        return quote(self.column(name).name)


def query_of(relation: Relation, request: Request) -> tuple[str, list[Any]]:
    """Return the query of a request, and the values of its parameters.

    Raises:
        HeadraceError: ``invalid`` for unknown columns and malformed conditions.
    """
    asked, lookup = request.query_params, Lookup(relation)
    columns = [quote(name) for name in lookup.columns(asked.get("select", ""))]
    conditions = lookup.keys(asked.getlist("key")) if "key" in asked else []
    conditions += [lookup.condition(text) for text in asked.getlist("where")]
    order = [lookup.ordered(part) for part in _LISTED.findall(asked.get("order", ""))]
    limit, epoch = count(request, "limit"), count(request, "as_of_epoch")
    text = f"SELECT {', '.join(columns) or '*'} FROM {quote_dotted(relation.name)}"
    text += f" WHERE {' AND '.join(conditions)}" if conditions else ""
    text += f" ORDER BY {', '.join(order)}" if order else ""
    text += "" if limit is None else f" LIMIT {limit}"
    text += "" if epoch is None else f" AS OF EPOCH {epoch}"
    return text, lookup.values


@dataclass(frozen=True, slots=True)
class ViewHandlers:
    """Reads rows of views and tables by key or condition."""

    reader: Reader
    lookup_calls: RequestCalls
    limits: Limits

    async def read_view(self, request: Request) -> Response:
        """Read rows of a view or table, in the last epoch.

        Runs on a thread. :class:`Lookups` answers most lookups by key before this.
        """
        relation = named(self.reader.catalog, request.path_params["name"], asking(request))
        form = accepted(request.headers.get("accept"))
        least = request.query_params.get("min_epoch")
        token = None if least is None else StateToken.of(least)
        staleness, seconds = number(request, "max_staleness"), number(request, "timeout")
        text, values = query_of(relation, request)

        def call(session: Session) -> Response:
            if token is not None:
                session.wait_for(token.epoch, token.ends)
            with session.at_most_behind(math.inf if staleness is None else staleness):
                result = session.sql(text, values)
            if isinstance(result, Subscription):
                raise HeadraceError(Code.INTERNAL, "a lookup is followed")
            return answer(result, StateToken(result.epoch), form, self.limits)

        return await self.lookup_calls.run(request, call, seconds)


_OF_ROWS: Final = frozenset({"key", "select", "min_epoch", "max_staleness", "timeout"})
"""The query parameters of requests for one row by key."""


def at_once(held: Holding, limits: Limits, request: Request) -> Response | None:
    """Return an answer with the row of a key if that needs no waiting and no Spark.

    Returns None for all other requests, also invalid ones: :class:`ViewHandlers` answers them.

    Raises:
        HeadraceError: ``invalid`` for parameter values.
        StatusError: as :func:`accepted`.
    """
    asked, state = request.query_params, held.published
    if "key" not in asked or not _OF_ROWS.issuperset(asked):
        return None
    given = [name for name, _ in asked.multi_items() if name != "key"]
    relation = state.catalog.find(request.path_params["name"])
    if relation is None or relation.id in state.dirty or len(set(given)) < len(given):
        return None
    fresh = Freshness.of(state, held.ends, [relation.id])
    if "min_epoch" in asked and not StateToken.of(asked["min_epoch"]).shown_by(state):
        return None
    if number(request, "max_staleness") is not None and fresh.pending:
        return None
    row = row_by_key(held.directory, state, relation, asked.getlist("key"))
    if row is None:
        return None
    if "select" in asked:
        names = Lookup(relation).columns(asked["select"])
        row = row.select(names) if names else row
    found = Result(row, state.epoch, freshness=fresh)
    form = accepted(request.headers.get("accept"))
    return answer(found, StateToken(found.epoch), form, limits)


def answered_at_once(
    held: Holding,
    entrance: Entrance,
    limits: Limits,
    scope: Scope,
    left: Callable[[str], None] = lambda _name: None,
) -> Response | None:
    """Return the answer of :func:`at_once` to a request, before routes are tried.

    Returns None for all other requests; the route answers invalid and forbidden ones with an error.
    ``left`` is called with the relation's name if an allowed lookup could not be answered.
    """
    path = scope["raw_path"]
    if scope["method"] != "GET" or not path.startswith(_VIEWS):
        return None
    name = unquote(path[len(_VIEWS) :].decode("latin-1"))
    if "/" in name:
        return None
    request = Request({**scope, "path_params": {"name": name}})
    try:
        principal = entrance.found(request)
        if principal is None or not principal.sees(name):
            return None
        answered = at_once(held, limits, request)
    except (HeadraceError, StatusError):
        return None
    if answered is None:
        left(name)
    return answered


@dataclass(frozen=True, slots=True)
class Lookups:
    """Middleware that answers lookups by key and passes other requests on to the application."""

    app: ASGIApp
    reader: Reader
    entrance: Entrance
    limits: Limits
    tallies: Tallies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        answered, began = None, time.monotonic()
        if scope["type"] == "http" and scope["raw_path"].startswith(_VIEWS):
            answered = answered_at_once(self.reader, self.entrance, self.limits, scope)
        if answered is None:
            await self.app(scope, receive, send)
            return
        self.tallies.observe(ViewHandlers.read_view.__name__, "ok", time.monotonic() - began)
        await answered(scope, receive, send)


def named(catalog: Catalog, name: str, principal: Principal) -> Relation:
    """Return the named view, table or stream.

    Raises:
        HeadraceError: ``forbidden`` if the client may not read it.
        StatusError: ``invalid`` if it does not exist.
    """
    for need in to_read(catalog, name):
        if not need.is_met(principal):
            raise need.error()
    found = catalog.find(name)
    if isinstance(found, View | PlainView | Table | Stream):
        return found
    seen = filter(principal.sees, catalog.by_name)
    wrong = unknown("view or table", name, seen, "SHOW TABLES lists what exists.")
    raise StatusError(_NOT_FOUND, wrong)
