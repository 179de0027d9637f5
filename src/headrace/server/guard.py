"""Refuses requests that another site's page made a browser send.

A page can have a browser call a server on the loopback address. Its requests are distinguished by
three headers that a page cannot forge: Host, which names another host if the page's own name was
bound to 127.0.0.1 (DNS rebinding); Origin; and Sec-Fetch-Site.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError
from headrace.server.failures import failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from headrace.server.address import HostNames

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
