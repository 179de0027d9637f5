"""Sessions that clients use in several requests; idle ones end."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError
from headrace.server.failures import StatusError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from headrace.parts.access import Principal
    from headrace.server.limits import Limits
    from headrace.session import Session

_GONE: Final = 410


@dataclass(slots=True, eq=False)
class NamedSession:
    """A session with an id; ``used`` is its last request, in seconds of the monotonic clock."""

    session: Session
    principal: Principal
    used: float = field(default_factory=time.monotonic)
    waiting: int = 0
    """The number of requests that use it or wait for it."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the request that runs a statement."""


class Sessions:
    """The sessions of one server: those with an id, and those of a single request."""

    def __init__(self, opened: Callable[[Principal], Session], limits: Limits) -> None:
        self._opened = opened
        self._limits = limits
        self._kept: dict[str, NamedSession] = {}
        self._all: set[Session] = set()
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """The number of sessions with an id."""
        return len(self._kept)

    def open(self, principal: Principal) -> str:
        """Open a session for a principal; return its unguessable id.

        Raises:
            HeadraceError: ``unavailable`` if too many are open.
        """
        if len(self._kept) >= self._limits.sessions:
            raise HeadraceError(
                Code.UNAVAILABLE,
                "the server had too many sessions",
                detail=f"There are {len(self._kept)}.",
                hint="DELETE those that are not needed, or wait until idle ones end.",
            )
        id_ = secrets.token_urlsafe(18)
        self._kept[id_] = NamedSession(self._begin(principal), principal)
        return id_

    async def close(self, id_: str, principal: Principal) -> None:
        """End a session and cancel its statement."""
        kept = self._kept.pop(self._known(id_, principal))
        await asyncio.to_thread(self._end, kept.session)

    def cancel(self, id_: str, principal: Principal) -> bool:
        """Cancel a session's running statement; return whether one ran."""
        return self._kept[self._known(id_, principal)].session.cancel()

    @asynccontextmanager
    async def used(self, id_: str | None, principal: Principal) -> AsyncIterator[Session]:
        """Yield the session with an id for exclusive use; without an id, a new session.

        Raises:
            StatusError: ``invalid`` if the principal has no session with this id.
        """
        if id_ is None:
            session = self._begin(principal)
            try:
                yield session
            finally:
                with self._lock:
                    self._all.discard(session)
            return
        kept = self._kept[self._known(id_, principal)]
        kept.waiting += 1
        try:
            async with kept.turn:
                yield kept.session
        finally:
            kept.waiting -= 1
            kept.used = time.monotonic()

    def end_idle(self) -> None:
        """End the sessions that were idle for too long."""
        oldest = time.monotonic() - self._limits.idle_seconds
        for id_, kept in list(self._kept.items()):
            if kept.waiting == 0 and kept.used < oldest:
                del self._kept[id_]
                self._end(kept.session)

    def close_all(self) -> None:
        """End all sessions and cancel their statements."""
        self._kept.clear()
        with self._lock:
            every = list(self._all)
        for session in every:
            self._end(session)

    def _begin(self, principal: Principal) -> Session:
        session = self._opened(principal)
        with self._lock:
            self._all.add(session)
        return session

    def _end(self, session: Session) -> None:
        with self._lock:
            self._all.discard(session)
        session.close()

    def _known(self, id_: str, principal: Principal) -> str:
        kept = self._kept.get(id_)
        # A dropped token differs from a later one of the same name.
        if kept is None or kept.principal.name != principal.name or not kept.principal.is_known:
            raise StatusError(
                _GONE,
                HeadraceError(
                    Code.INVALID,
                    "this session does not exist",
                    detail="It was never opened, was deleted, or was idle for too long.",
                    hint="Open one with POST /v1/sessions.",
                ),
            )
        return id_
