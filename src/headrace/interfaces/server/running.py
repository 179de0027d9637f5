"""Runs statements for requests: a limited number at a time, with timeouts.

Sessions that clients use in several requests; idle ones end.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.errors import Code, HeadraceError
from headrace.interfaces.server.entrance import asking
from headrace.interfaces.server.requests import StatusError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.types import Receive

    from headrace.interfaces.server.limits import Limits
    from headrace.interfaces.session import Session
    from headrace.lifecycle.states.access import Principal


T = TypeVar("T")

_CANCEL_AGAIN_SECONDS: Final = 0.2
_GRACE_SECONDS: Final = 10.0
"""How long a request waits for the end of its cancelled statement."""
_TIMED_OUT: Final = 408


class Runner:
    """Runs calls of sessions on its own threads.

    A call that neither ends nor reacts to cancellation keeps its thread and counts as running, so
    the number of threads stays limited.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._threads = ThreadPoolExecutor(limits.statements, "headrace-server")
        self._lock = threading.Lock()
        self._given = 0
        self._cancelling: set[asyncio.Task[None]] = set()
        self._closed = False

    async def run(
        self,
        session: Session,
        call: Callable[[], T],
        receive: Receive,
        seconds: float | None = None,
    ) -> T:
        """Run a call of a session and return its value; ``receive`` reports a client's disconnect.

        A call that succeeds although it was cancelled has taken effect, so its value is returned.

        Raises:
            HeadraceError: the errors of the call; ``unavailable`` if too many calls run or wait, or
                the server is closed; ``cancelled`` if the client disconnected.
            StatusError: ``cancelled`` after the timeout.
        """
        allowed = self.allowed(seconds)
        future = self._submit(call)
        ended = asyncio.wrap_future(future)
        ended.add_done_callback(_retrieved)  # its request may have been answered long before
        leaving = asyncio.create_task(left(receive))
        try:
            both: set[asyncio.Future[Any]] = {ended, leaving}
            done, _ = await asyncio.wait(both, timeout=allowed, return_when=asyncio.FIRST_COMPLETED)
            if ended in done:
                return self._result(ended)
            await self._end(session, future, ended)
            return _after_end(ended, None if done else allowed)
        finally:
            leaving.cancel()
            if not ended.done():
                self._cancel(session, future)

    @property
    def running(self) -> int:
        """The number of calls that run or wait."""
        return self._given

    def allowed(self, seconds: float | None) -> float:
        """Return the timeout of a request in seconds; the default if it sets none.

        Raises:
            HeadraceError: ``invalid`` if it is not a positive number, or exceeds the limit.
        """
        limits = self._limits
        if seconds is None:
            return limits.statement_seconds
        if not 0 < seconds <= limits.longest_seconds:
            raise HeadraceError(
                Code.INVALID,
                f"a timeout of {seconds:g} seconds is out of range",
                hint=f"Give more than 0 and at most {limits.longest_seconds:g} seconds.",
            )
        return seconds

    def close(self) -> None:
        """Drop waiting calls and accept none; closing a session ends its running call."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _result(self, ended: asyncio.Future[T]) -> T:
        """Return the value of a call that has ended; closing the server cancels those that run."""
        try:
            return ended.result()
        except (HeadraceError, asyncio.CancelledError) as error:
            if not self._closed or (
                isinstance(error, HeadraceError) and error.code is not Code.CANCELLED
            ):
                raise
            raise _stopping() from error

    def _submit(self, call: Callable[[], T]) -> Future[T]:
        with self._lock:
            if self._given >= self._limits.statements + self._limits.queued:
                raise HeadraceError(
                    Code.UNAVAILABLE,
                    "the server had too many statements to run",
                    detail=f"{self._limits.statements} run at a time, {self._limits.queued} wait.",
                    hint="Try again in a second.",
                )
            self._given += 1
        try:
            future = self._threads.submit(call)
        except RuntimeError as error:
            self._forget()
            raise _stopping() from error
        future.add_done_callback(lambda _: self._forget())
        return future

    def _forget(self) -> None:
        with self._lock:
            self._given -= 1

    async def _end(self, session: Session, future: Future[T], ended: asyncio.Future[T]) -> None:
        """Cancel a call, and wait until it ends or the grace period is over."""
        if future.cancel():
            return
        self._cancel(session, future)
        await asyncio.wait({ended}, timeout=_GRACE_SECONDS)

    def _cancel(self, session: Session, future: Future[T]) -> None:
        """Repeat the cancellation until the call ends, even after its request was answered."""
        task = asyncio.create_task(_cancel_until_ended(session, future))
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)


@dataclass(frozen=True, slots=True)
class RequestCalls:
    """Runs the calls of requests, each in a session of its client."""

    sessions: Sessions
    runner: Runner

    async def run(
        self,
        request: Request,
        call: Callable[[Session], T],
        seconds: float | None = None,
        session: str | None = None,
    ) -> T:
        """Run a call in the session with this id, or in a new one; return its value.

        ``seconds`` is the timeout, if the request sets one.

        Raises:
            HeadraceError: as :meth:`Runner.run`.
            StatusError: as :meth:`Runner.run`; ``invalid`` if the client has no session with this
                id.
        """
        async with self.sessions.used(session, asking(request)) as used:
            return await self.runner.run(used, lambda: call(used), request.receive, seconds)


async def left(receive: Receive) -> None:
    """Wait until the client disconnects; the request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel_until_ended(session: Session, future: Future[T]) -> None:
    """Repeat the cancellation: between two jobs of a statement, nothing can be cancelled."""
    while not future.done():
        with suppress(Exception):
            await asyncio.to_thread(session.cancel)
        await asyncio.sleep(_CANCEL_AGAIN_SECONDS)


def _stopping() -> HeadraceError:
    return HeadraceError(
        Code.UNAVAILABLE,
        "the server was stopping",
        None,
        "Try again once it is back, or at the server that has taken over.",
    )


def _retrieved(ended: asyncio.Future[Any]) -> None:
    """Mark the error of a call as known: nobody waits for one that was cancelled."""
    if not ended.cancelled():
        ended.exception()


def _after_end(ended: asyncio.Future[T], seconds: float | None) -> T:
    """Return the value of a cancelled call, or raise the error for its request.

    ``seconds`` is the timeout that has passed; None if the client has disconnected.
    """
    detail, hint = None, "Give the request a longer timeout."
    if not ended.done():
        detail = "It has not ended yet, so it is not known whether it takes effect."
    elif not ended.cancelled():
        error = ended.exception()
        if error is None:
            return ended.result()
        if not isinstance(error, HeadraceError) or error.code is not Code.CANCELLED:
            raise error
        detail, hint = error.detail, error.hint or hint
    if seconds is None:
        raise HeadraceError(
            Code.CANCELLED, "the statement was cancelled: its client disconnected", detail
        )
    raise StatusError(
        _TIMED_OUT,
        HeadraceError(
            Code.CANCELLED,
            f"the statement was cancelled after its timeout of {seconds:g} s",
            detail,
            hint,
        ),
    )


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
