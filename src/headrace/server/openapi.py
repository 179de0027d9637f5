"""The OpenAPI description of a server, generated from its routes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import headrace
from headrace.server.answers import done
from headrace.server.schemas import SCHEMAS, TEXT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.server.route import Route


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
