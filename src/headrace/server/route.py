"""A route: what handles it, who may ask, and what the description says of it."""

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
    """One method of one path. ``{name}`` in a path stands for a text without a slash.

    A method of the class ``by`` handles it, whose fields are the parts of the server that it uses.
    ``least`` is what whoever asks needs. ``takes`` and ``answers`` are media types; ``body`` and
    ``answer`` the schemas of what is JSON, by their names in :mod:`headrace.server.schemas`. The
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
    """Whether it serves files to browsers; the description is of the others."""
    header: str | None = None
    """A header of requests that this route reads."""

    @property
    def name(self) -> str:
        """The name of the operation."""
        return self.handler.__name__
