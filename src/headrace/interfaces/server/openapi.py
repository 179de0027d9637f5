"""The OpenAPI description of a server, generated from its routes.

A route: its handler, the required rights, and its part of the OpenAPI description.

The JSON schemas of request and answer bodies, by their names in the OpenAPI description.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import headrace
from headrace.interfaces.server.requests import done

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.interfaces.server.entrance import Least
    from headrace.interfaces.server.requests import QueryParameter


C = TypeVar("C")

JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Route(Generic[C]):
    """One HTTP method of one path. ``{name}`` in a path stands for a text without a slash.

    The handler is a method of the class ``by``, whose fields are the parts of the server that it
    uses. ``least`` is required of the client. ``takes`` and ``answers`` are media types; ``body``
    and ``answer`` name the schemas of JSON bodies in :mod:`headrace.interfaces.server.openapi`. The
    first line of the handler's docstring is the summary.
    """

    method: str
    path: str
    by: type[C]
    handler: Callable[[C, Request], Awaitable[Response]]
    least: Least
    query: tuple[QueryParameter, ...] = ()
    takes: tuple[str, ...] = ()
    body: str = "Object"
    answers: tuple[str, ...] = (JSON,)
    answer: str = "Object"
    status: int = 200
    is_page: bool = False
    """Whether it serves files to browsers; such routes are not in the description."""
    header: str | None = None
    """A header of requests that this route reads."""

    @property
    def name(self) -> str:
        """The name of the operation."""
        return self.handler.__name__


TEXT: Final = {"type": "string"}
_WHOLE: Final = {"type": "integer"}
_NUMBER: Final = {"type": "number"}


def _object(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with required properties; it may have more."""
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


_COLUMN: Final = _object(name=TEXT, type=TEXT)
_MOMENT: Final[dict[str, Any]] = {
    "at": _NUMBER,
    "epoch": _WHOLE,
    "committed_at": _NUMBER,
    "epochs": _WHOLE,
    "narrow": _WHOLE,
    "epoch_seconds": _or_null(_NUMBER),
    "rows": _or_null(_NUMBER),
    "pending": _WHOLE,
    "seconds": _NUMBER,
    "statements": _WHOLE,
    "subscribers": _WHOLE,
}
SCHEMAS: Final[dict[str, Any]] = {
    "Error": _object(
        error=_object(
            code=TEXT,
            primary=TEXT,
            detail=_or_null(TEXT),
            hint=_or_null(TEXT),
            span=_or_null({"type": "object"}),
        )
    ),
    "Statements": {
        "type": "object",
        "required": ["sql"],
        "additionalProperties": False,
        "properties": {
            "sql": {"type": "string", "description": "One statement, or several."},
            "parameters": {
                "type": ["array", "object", "null"],
                "description": "The values of ?, or of :name.",
            },
            "session": {"type": ["string", "null"], "description": "Of POST /v1/sessions."},
            "timeout": {"type": ["number", "null"], "description": "In seconds."},
            "follow": {
                "type": ["boolean", "null"],
                "description": "With events: answer with the parameters of /v1/subscribe.",
            },
            "min_epoch": {
                "type": ["string", "integer", "null"],
                "description": "A token or an epoch for which queries wait.",
            },
            "max_staleness": {
                "type": ["number", "null"],
                "description": "The maximum wait of missing changes, in seconds.",
            },
        },
    },
    "Sql": {
        "type": "object",
        "required": ["sql"],
        "additionalProperties": False,
        "properties": {"sql": {"type": "string", "description": "One statement, or several."}},
    },
    "Result": _object(
        kind={"enum": ["rows", "done"]},
        columns=_list(_COLUMN),
        rows=_list({"type": "array"}),
        message=TEXT,
        epoch=_WHOLE,
        token=TEXT,
        freshness=_or_null(
            _object(
                epoch=_WHOLE,
                committed_at=_NUMBER,
                pending=_WHOLE,
                dirty=_list(TEXT),
                frontier=_or_null(_WHOLE),
            )
        ),
    ),
    "Source": _object(
        name=TEXT,
        state=TEXT,
        connector=_or_null(TEXT),
        shared_source=_or_null(TEXT),
        behind=_or_null(_WHOLE),
        error=_or_null(TEXT),
        rejected=_or_null(_WHOLE),
        acknowledged=_or_null(_WHOLE),
        duplicates=_or_null(_WHOLE),
        late=_or_null(_WHOLE),
        watermark=_or_null(_NUMBER),
        delay=_or_null(_NUMBER),
        lateness=_or_null(_NUMBER),
        end=_or_null(_WHOLE),
    ),
    "Freshness": _object(
        pending=_or_null(_WHOLE),
        seconds=_NUMBER,
        watermark=_or_null(_NUMBER),
        dirty_since=_or_null(_NUMBER),
        dirty_slices=_WHOLE,
        refresh=TEXT,
        epoch=_WHOLE,
        shown_at=_NUMBER,
        next_refresh=_or_null(_NUMBER),
        quarantined=_or_null(_WHOLE),
        waits_for=_or_null(TEXT),
        error=_or_null(TEXT),
        inputs=_list(
            _object(relation=TEXT, position=_WHOLE, end=_WHOLE, watermark=_or_null(_NUMBER))
        ),
    ),
    "Relation": _object(
        name=TEXT,
        kind={"enum": ["stream", "table", "materialized view", "plain view", "sink"]},
        state=TEXT,
        role=_or_null(TEXT),
        key=_list(TEXT),
        columns=_list(_COLUMN),
        inputs=_list(TEXT),
        target=_or_null(TEXT),
        stored=_or_null(
            _object(rows=_or_null(_WHOLE), entries=_WHOLE, bytes=_WHOLE, arrangements=_WHOLE)
        ),
        freshness=_or_null(_ref("Freshness")),
        source=_or_null(_ref("Source")),
        delivery=_or_null({"type": "object"}),
    ),
    "Described": {
        "allOf": [
            _ref("Relation"),
            _object(
                sql=_or_null(TEXT),
                circuit=_or_null(
                    _list(
                        _object(
                            depth=_WHOLE,
                            number=_WHOLE,
                            title=TEXT,
                            arrangements=_list(
                                _object(
                                    id=TEXT,
                                    key=TEXT,
                                    columns=_WHOLE,
                                    relation=_or_null(TEXT),
                                    rows=_or_null(_WHOLE),
                                    bytes=_or_null(_WHOLE),
                                )
                            ),
                            cost=_or_null(TEXT),
                            again={"type": "boolean"},
                            work=_or_null(
                                _object(
                                    epochs=_WHOLE,
                                    changes=_WHOLE,
                                    rows_in=_WHOLE,
                                    rows_out=_WHOLE,
                                    rows_read=_WHOLE,
                                    seconds=_NUMBER,
                                )
                            ),
                        )
                    )
                ),
            ),
        ]
    },
    "Dependence": _object(
        relation=TEXT,
        column=TEXT,
        input=TEXT,
        input_column=TEXT,
        type={"enum": ["direct", "indirect"]},
        influence=TEXT,
        distance=_WHOLE,
        external=_or_null(TEXT),
    ),
    "Lineage": _object(
        relation=TEXT, upstream=_list(_ref("Dependence")), downstream=_list(_ref("Dependence"))
    ),
    "Candidate": _object(
        name=TEXT,
        role=_or_null(TEXT),
        state={"enum": ["being filled", "waits", "served before"]},
        same_columns=_or_null({"type": "boolean"}),
        swapped_with=_or_null(TEXT),
        view_definition=_or_null(TEXT),
        kept_until=_or_null(_NUMBER),
    ),
    "Fill": _object(
        name=TEXT,
        role=_or_null(TEXT),
        kind={"enum": ["view", "candidate", "index"]},
        state=TEXT,
        rows_done=_WHOLE,
        rows_total=_or_null(_WHOLE),
        rows_per_second=_or_null(_NUMBER),
        seconds_left=_or_null(_NUMBER),
        began_at=_NUMBER,
    ),
    "Catalog": _object(
        epoch=_WHOLE,
        committed_at=_NUMBER,
        pending=_WHOLE,
        client=_object(name=_or_null(TEXT), role=_or_null(TEXT)),
        relations=_list(_ref("Relation")),
        sources=_list(_ref("Source")),
        candidates=_list(_ref("Candidate")),
        fills=_list(_ref("Fill")),
        server=_or_null(
            _object(version=TEXT, memory=_or_null(_WHOLE), disk=_WHOLE, disk_free=_WHOLE)
        ),
        costs=_list(
            _object(name=TEXT, candidate={"type": "boolean"}, seconds=_NUMBER, share=_NUMBER)
        ),
        functions=_list(TEXT),
        keywords=_list(TEXT),
    ),
    "History": _object(**{name: _list(schema) for name, schema in _MOMENT.items()}, step=_WHOLE),
    "Epochs": _object(
        epochs=_list(
            _object(
                epoch=_WHOLE,
                committed_at=_NUMBER,
                width=_or_null(TEXT),
                seconds=_or_null(_NUMBER),
                changes=_or_null(_WHOLE),
                jobs=_or_null(_WHOLE),
                rows_in=_or_null(_WHOLE),
                rows_out=_or_null(_WHOLE),
                rows_read=_or_null(_WHOLE),
                spent={"type": "object", "additionalProperties": _NUMBER},
                tasks_spent={"type": "object", "additionalProperties": _NUMBER},
                fans_out=_or_null(TEXT),
                fans_out_view=_or_null(TEXT),
            )
        )
    ),
    "Running": _object(
        statements=_list(
            _object(
                id=TEXT,
                sql=TEXT,
                began_at=_NUMBER,
                by=_or_null(TEXT),
                progress=_or_null({"type": "object"}),
            )
        ),
        ended=_list(
            _object(
                id=TEXT,
                sql=TEXT,
                began_at=_NUMBER,
                by=_or_null(TEXT),
                seconds=_NUMBER,
                outcome=TEXT,
                error=_or_null(TEXT),
            )
        ),
    ),
    "Script": _object(statements=_list(_object(sql=TEXT, start=_WHOLE, end=_WHOLE))),
    "Changes": _object(
        relation=TEXT,
        columns=_list(_COLUMN),
        epoch=_WHOLE,
        token=TEXT,
        complete={"type": "boolean"},
        epochs=_list(
            _object(
                epoch=_WHOLE,
                committed_at=_NUMBER,
                changes=_list(
                    _object(epoch=_WHOLE, op=TEXT, weight=_WHOLE, row={"type": "object"})
                ),
            )
        ),
    ),
    "Object": {"type": "object"},
}


@dataclass(frozen=True, slots=True)
class Description:
    """Serves the description."""

    routes: tuple[Route[Any], ...]

    async def openapi(self, request: Request) -> Response:
        """Return the description of all routes."""
        del request
        return done(document([route for route in self.routes if not route.is_page]))


def document(routes: Sequence[Route[Any]]) -> dict[str, Any]:
    """Return the description of some routes as an OpenAPI 3.1 document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headrace", "version": headrace.__version__},
        "paths": paths,
        "components": {"schemas": SCHEMAS},
    }


def _operation(route: Route[Any]) -> dict[str, Any]:
    answer = _content(route.answers, route.answer)
    error = {"description": "An error.", "content": _content(("application/json",), "Error")}
    summary = (route.handler.__doc__ or "").partition("\n")[0]
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": summary,
        "parameters": _parameters(route),
        "responses": {
            str(route.status): {"description": "The answer.", "content": answer},
            "default": error,
        },
    }
    if route.takes:
        body = _content(route.takes, route.body)
        found["requestBody"] = {"required": True, "content": body}
    return found


def _parameters(route: Route[Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": TEXT}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    for each in route.query:
        one = {"type": each.type}
        schema = {"type": "array", "items": one} if each.repeated else one
        described = {"name": each.name, "in": "query", "description": each.meaning}
        found.append({**described, "schema": schema})
    if route.header is not None:
        found.append({"name": route.header, "in": "header", "schema": TEXT})
    return found


def _content(media: Sequence[str], name: str) -> dict[str, Any]:
    """Return the schema of each media type; types other than JSON are text or bytes."""
    reference = {"$ref": f"#/components/schemas/{name}"}
    return {each: {"schema": reference if each == "application/json" else TEXT} for each in media}
