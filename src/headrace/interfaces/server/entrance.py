"""Authentication: by an access token, or by the cookie of a browser that logged in with one.

A request names its token in the header ``Authorization: Bearer``. Pages of the console cannot give
the requests of an ``EventSource`` a header, so a browser exchanges a token for a cookie. It names a
login that only this process knows: the browser does not keep the token itself. Another site's page
can make a browser send a cookie, so a request with a cookie must state that it comes from the
server's own page; :mod:`headrace.interfaces.server.listener` has already refused requests that
state another origin.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError
from headrace.interfaces.server.requests import StatusError, done, json_object
from headrace.interfaces.session import Need
from headrace.lifecycle.states.access import OWNER
from headrace.planning.sql import Role

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.interfaces.server.limits import Limits
    from headrace.lifecycle.states.access import Principal, Tokens


COOKIE: Final = "headrace_login"
_UNKNOWN: Final = 401
_FORBIDDEN: Final = 403
_LONGEST_LOGIN: Final = 4096
_REFUSED_SECONDS: Final = 0.1
"""The delay before a client without a valid token is refused. Secrets are too long to guess."""


class Least(Enum):
    """What a route requires of its client; a statement may require more."""

    NOTHING = auto()
    TOKEN = auto()
    """A valid token, if the server requires tokens."""
    READER = auto()
    """The right to read the relation named in the path."""
    WRITER = auto()
    """The right to change the relation named in the path."""
    READER_OF_ALL = auto()
    """The right to read the whole database."""


@dataclass(slots=True)
class BrowserLogin:
    """A logged-in browser; ``used`` is its last request, in seconds of the monotonic clock."""

    principal: Principal
    used: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class Entrance:
    """Authenticates requests. Used on the event loop's thread only.

    ``required``: tokens are required even before any exist.
    """

    access: Tokens
    limits: Limits
    required: bool = False
    _logins: dict[str, BrowserLogin] = field(default_factory=dict)

    async def principal(self, request: Request, least: Least) -> Principal:
        """Return the authenticated principal of a request.

        Raises:
            StatusError: ``forbidden``, with status 401 without a valid token, and 403 without the
                role that the route requires.
        """
        if least is Least.NOTHING:
            return OWNER
        found = self.found(request)
        if found is None:
            await asyncio.sleep(_REFUSED_SECONDS)
            raise _unknown()
        self._require(found, least, request)
        return found

    def found(self, request: Request) -> Principal | None:
        """Return the principal of a request; None if a token is required and none is valid.

        Raises:
            StatusError: ``forbidden`` for a cookie sent by another site's page.
        """
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme:
            bearer = scheme.lower() == "bearer"
            return self.access.principal(secret.strip()) if bearer else None
        login = self._logins.get(request.cookies.get(COOKIE, ""))
        if login is not None and login.principal.is_known:
            _require_own_page(request)
            login.used = time.monotonic()
            return login.principal
        return None if self.required or self.access.is_required else OWNER

    def _require(self, principal: Principal, least: Least, request: Request) -> None:
        name = request.path_params.get("name", "")
        match least:
            case Least.READER | Least.WRITER:
                need = Need.of(Role.READER if least is Least.READER else Role.WRITER, name)
            case Least.READER_OF_ALL:
                need = Need(Role.READER)
            case _:
                return
        if not need.is_met(principal):
            raise need.error()

    def log_in(self, secret: str) -> str:
        """Log in the holder of a token; return the id of the login.

        Raises:
            StatusError: ``forbidden`` if the token is not valid.
        """
        principal = self.access.principal(secret)
        if principal is None:
            raise _unknown()
        if len(self._logins) >= self.limits.logins:
            oldest = min(self._logins, key=lambda id_: self._logins[id_].used)
            del self._logins[oldest]
        id_ = secrets.token_urlsafe(32)
        self._logins[id_] = BrowserLogin(principal)
        return id_

    def log_out(self, id_: str) -> None:
        """End the login of this id, if it exists."""
        self._logins.pop(id_, None)

    def end_idle(self) -> None:
        """End logins that were idle for too long, or whose token has ended."""
        oldest = time.monotonic() - self.limits.login_seconds
        for id_, login in list(self._logins.items()):
            if login.used < oldest or not login.principal.is_known:
                del self._logins[id_]


def asking(request: Request) -> Principal:
    """Return the principal that :meth:`Entrance.principal` has found for a request."""
    principal: Principal = request.state.principal
    return principal


@dataclass(frozen=True, slots=True)
class LoginHandlers:
    """Logs browsers in and out."""

    entrance: Entrance
    limits: Limits

    async def log_in(self, request: Request) -> Response:
        """Exchange a token for a cookie, for a browser's own pages."""
        _require_own_page(request)
        seconds = self.limits.body_seconds
        asked = await json_object(request, _LONGEST_LOGIN, seconds, {"token": (str,)})
        try:
            id_ = self.entrance.log_in(asked.get("token") or "")
        except StatusError:
            await asyncio.sleep(_REFUSED_SECONDS)
            raise
        answered = done({"logged_in": True})
        answered.set_cookie(
            COOKIE,
            id_,
            secure=request.headers.get("origin", "").lower().startswith("https:"),
            httponly=True,
            samesite="strict",
        )
        return answered

    async def log_out(self, request: Request) -> Response:
        """End the login of a browser."""
        self.entrance.log_out(request.cookies.get(COOKIE, ""))
        answered = done({"logged_in": False})
        answered.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answered


def _require_own_page(request: Request) -> None:
    """Raise unless a request proves that a page of this server sent it.

    Browsers state it in one of two headers that pages cannot set.
    """
    if "origin" in request.headers or "sec-fetch-site" in request.headers:
        return  # the guard has compared them
    raise StatusError(
        _FORBIDDEN,
        HeadraceError(
            Code.FORBIDDEN,
            "a cookie is accepted from the server's own pages only",
            detail="The request has neither of the headers Origin and Sec-Fetch-Site.",
            hint="Outside of a browser, send Authorization: Bearer with the token.",
        ),
    )


def _unknown() -> StatusError:
    return StatusError(
        _UNKNOWN,
        HeadraceError(
            Code.FORBIDDEN,
            "a valid access token is needed",
            detail="The request has none, or it was dropped or has expired.",
            hint="Send Authorization: Bearer with a token; CREATE TOKEN makes one.",
        ),
    )
