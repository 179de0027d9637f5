"""A route: its handler, the required rights, and its part of the OpenAPI description."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.server.entrance import Least
    from headrace.server.requests import QueryParameter

C = TypeVar("C")

JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Route(Generic[C]):
    """One HTTP method of one path. ``{name}`` in a path stands for a text without a slash.

    The handler is a method of the class ``by``, whose fields are the parts of the server that it
    uses. ``least`` is required of the client. ``takes`` and ``answers`` are media types; ``body``
    and ``answer`` name the schemas of JSON bodies in :mod:`headrace.server.schemas`. The first line
    of the handler's docstring is the summary.
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
