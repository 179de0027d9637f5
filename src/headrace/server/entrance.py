"""Who asks: by an access token, or by the cookie of a browser that has logged in with one.

A request names its token in the header ``Authorization: Bearer``. Pages of the console cannot give
the requests of an ``EventSource`` a header, so a browser exchanges a token for a cookie. It names a
login that only this process knows: the browser does not keep the token itself. Another site's page
can have a browser send a cookie, so a request with one must say that it is from the server's own
page; :mod:`headrace.server.guard` has refused it already if it says otherwise.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError
from headrace.parts.access import OWNER
from headrace.server.answers import done
from headrace.server.failures import StatusError
from headrace.server.requests import json_object
from headrace.session import Need
from headrace.sql import Role

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.parts.access import Principal, Tokens
    from headrace.server.limits import Limits

COOKIE: Final = "headrace_login"
_UNKNOWN: Final = 401
_FORBIDDEN: Final = 403
_LONGEST_LOGIN: Final = 4096
_REFUSED_SECONDS: Final = 0.1
"""How long a client without a valid token waits. Secrets are too long to be guessed."""


class Least(Enum):
    """The least that a route requires of its client; a statement may require more."""

    NOTHING = auto()
    TOKEN = auto()
    """A valid token, if tokens are needed at all."""
    READER = auto()
    """To read the relation that the path names."""
    WRITER = auto()
    """To change the relation that the path names."""
    READER_OF_ALL = auto()
    """To read the whole database."""


@dataclass(slots=True)
class BrowserLogin:
    """A browser that has logged in, until when it was last used, on the monotonic clock."""

    principal: Principal
    used: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class Entrance:
    """Finds out who asks. Used on the thread that serves only.

    ``required``: tokens are needed although there may be none yet.
    """

    access: Tokens
    limits: Limits
    required: bool = False
    _logins: dict[str, BrowserLogin] = field(default_factory=dict)

    async def principal(self, request: Request, least: Least) -> Principal:
        """Return who asks.

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
        """Return who asks; None if a token is needed and the request has no valid token.

        Raises:
            StatusError: ``forbidden`` for a cookie of another page.
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
        """Return the id of a new login of the holder of a token.

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
        """End a login, if there is one of this id."""
        self._logins.pop(id_, None)

    def end_idle(self) -> None:
        """End the logins that were not used for longer than is allowed, or whose token ended."""
        oldest = time.monotonic() - self.limits.login_seconds
        for id_, login in list(self._logins.items()):
            if login.used < oldest or not login.principal.is_known:
                del self._logins[id_]


def asking(request: Request) -> Principal:
    """Return who asks, as :meth:`Entrance.principal` has found."""
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
    """Refuse a request that does not prove that it is from a page of this server.

    Browsers say so, in one of two headers that pages cannot set.
    """
    if "origin" in request.headers or "sec-fetch-site" in request.headers:
        return  # the guard has compared them
    raise StatusError(
        _FORBIDDEN,
        HeadraceError(
            Code.FORBIDDEN,
            "a cookie is taken from the server's own pages only",
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
