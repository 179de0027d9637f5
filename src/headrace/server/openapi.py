"""The OpenAPI description of a server, made from its routes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import headrace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.server.routes import Route

_TEXT: Final = {"type": "string"}
_NULLABLE: Final = {"type": ["string", "null"]}
_SCHEMAS: Final[dict[str, Any]] = {
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "primary", "detail", "hint", "span"],
                "properties": {
                    "code": _TEXT,
                    "primary": _TEXT,
                    "detail": _NULLABLE,
                    "hint": _NULLABLE,
                    "span": {"type": ["object", "null"]},
                },
            }
        },
    },
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
                "description": "With events: answer with what to ask of /v1/subscribe.",
            },
            "min_epoch": {
                "type": ["string", "integer", "null"],
                "description": "A token or an epoch that queries must show; it is awaited.",
            },
            "max_staleness": {
                "type": ["number", "null"],
                "description": "How many seconds ago what is missing may have arrived.",
            },
        },
    },
    "Result": {
        "type": "object",
        "required": ["kind", "columns", "rows", "message", "epoch", "token", "freshness"],
        "properties": {
            "kind": {"enum": ["rows", "done"]},
            "columns": {
                "type": "array",
                "items": {"type": "object", "properties": {"name": _TEXT, "type": _TEXT}},
            },
            "rows": {"type": "array", "items": {"type": "array"}},
            "message": _TEXT,
            "epoch": {"type": "integer"},
            "token": _TEXT,
            "freshness": {
                "type": ["object", "null"],
                "properties": {
                    "epoch": {"type": "integer"},
                    "committed_at": {"type": "number"},
                    "pending": {"type": "integer"},
                },
            },
        },
    },
    "Object": {"type": "object"},
}
_BODIES: Final = {"run_sql": "Statements"}
_ANSWERS: Final = {"run_sql": "Result", "read_view": "Result"}


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the description of some routes as an OpenAPI 3.1 document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headrace", "version": headrace.__version__},
        "paths": paths,
        "components": {"schemas": _SCHEMAS},
    }


def _operation(route: Route) -> dict[str, Any]:
    answer = _content(route.answers, _ANSWERS.get(route.name, "Object"))
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
        body = _content(route.takes, _BODIES.get(route.name, "Object"))
        found["requestBody"] = {"required": True, "content": body}
    return found


def _parameters(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": _TEXT}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    for each in route.query:
        one = {"type": each.type}
        schema = {"type": "array", "items": one} if each.repeated else one
        described = {"name": each.name, "in": "query", "description": each.meaning}
        found.append({**described, "schema": schema})
    if route.header is not None:
        found.append({"name": route.header, "in": "header", "schema": _TEXT})
    return found


def _content(media: Sequence[str], name: str) -> dict[str, Any]:
    """Return the schema of each media type; what is not JSON is text or bytes."""
    reference = {"$ref": f"#/components/schemas/{name}"}
    return {each: {"schema": reference if each == "application/json" else _TEXT} for each in media}
