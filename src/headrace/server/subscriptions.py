"""``GET /v1/subscribe``: a view or query as server-sent events."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakValueDictionary

from starlette.responses import Response

from headrace.catalog import Table, View
from headrace.errors import Code, HeadraceError
from headrace.server.answers import AnswerFormat
from headrace.server.entrance import asking
from headrace.server.events import ChangelogPosition, beginning, goodbye
from headrace.server.failures import shown
from headrace.server.followed import FollowedRelation, Subscriber
from headrace.server.lookups import named
from headrace.server.requests import number
from headrace.server.running import left
from headrace.server.streamed import rows_of_events
from headrace.session import Need, to_read
from headrace.sql import Query, quote_dotted
from headrace.sql.parameters import bind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from headrace.parts.access import Principal
    from headrace.parts.reader import Reader
    from headrace.runtime.published import Published
    from headrace.server.limits import Limits
    from headrace.server.running import RequestCalls, Runner
    from headrace.session import Session

_LINGER_SECONDS: Final = 60.0
"""How long a query without subscribers is still followed, so that clients can resume."""


@dataclass(slots=True)
class FollowedRelations:
    """The followed relations, by format and by relation id or query text."""

    reader: Reader
    limits: Limits
    opened: Callable[[], Session]
    """Opens a session."""
    by_key: dict[str, FollowedRelation] = field(default_factory=dict)
    subscribers: int = 0
    _opening: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    async def followed(
        self,
        asked: _Asked,
        runner: Runner,
        receive: Receive,
        seconds: float | None,
    ) -> FollowedRelation:
        """Return the followed relation of a query; start following it if needed.

        Raises:
            HeadraceError: ``unavailable`` if too many different queries are followed.
        """
        key, query = f"{asked.form} {asked.key}", asked.query
        lock = self._opening.setdefault(key, asyncio.Lock())
        async with lock:
            known = self.by_key.get(key)
            if known is not None and not known.is_over:
                return known
            if len(self.by_key) >= self.limits.followed:
                raise too_many(f"{self.limits.followed} views and queries")
            session = self.opened()  # shared by all clients with the needed roles
            made = await runner.run(session, lambda: session.subscribe(query), receive, seconds)
            most = self.limits.lag_bytes
            self.by_key[key] = FollowedRelation(self.reader, session, made, most, asked.form)
            return self.by_key[key]

    async def end_idle(self) -> None:
        """Stop followed relations that ended, or had no subscriber for a minute."""
        oldest = time.monotonic() - _LINGER_SECONDS
        for key, followed in list(self.by_key.items()):
            if followed.is_over or (followed.is_idle and followed.idle_since < oldest):
                del self.by_key[key]
                await asyncio.to_thread(followed.close)

    def close(self) -> None:
        """Stop all; subscribers get their queued events."""
        for followed in list(self.by_key.values()):
            followed.close()
        self.by_key.clear()


@dataclass(frozen=True, slots=True)
class SubscribeHandlers:
    """Streams views and queries to clients."""

    reader: Reader
    calls: RequestCalls
    runner: Runner
    following: FollowedRelations
    limits: Limits
    directory: Path

    async def subscribe(self, request: Request) -> Response:
        """Follow a view or a query: a snapshot, then the changes of whole epochs.

        It ends when either side disconnects. With a token in ``after`` or the header Last-Event-ID,
        it resumes without the snapshot; with ``snapshot=false``, only changes from now on follow.
        """
        now = _flag(request, "snapshot", default=True) is False
        asked = await self._asked(request)
        token = request.headers.get("last-event-id") or request.query_params.get("after")
        after = None if token is None else ChangelogPosition.of(token)
        following, seconds = self.following, number(request, "timeout")
        if following.subscribers >= self.limits.subscribers:
            raise too_many(f"{self.limits.subscribers} subscribers")
        followed = await following.followed(asked, self.runner, request.receive, seconds)
        state, seen = await self.calls.run(
            request, lambda _session: followed.began(after, now=now), seconds
        )
        return EventStream(
            following, self.limits, self.directory, followed, (state, seen), asking(request), asked
        )

    async def _asked(self, request: Request) -> _Asked:
        """Parse what a request asks to follow.

        Raises:
            HeadraceError: ``invalid`` if it is neither one view nor one query; ``unsupported`` for
                a query with LIMIT; ``forbidden``.
        """
        form = rows_of_events(request.headers.get("accept")) or AnswerFormat.JSON
        view, sql = request.query_params.get("view"), request.query_params.get("sql")
        if (view is None) == (sql is None):
            raise HeadraceError(Code.INVALID, "exactly one of view= and sql= is required")
        if view is not None:
            relation = named(self.reader.catalog, view, asking(request))
            query = f"SELECT * FROM {quote_dotted(relation.name)}"
            shared = f"relation {relation.id}" if isinstance(relation, Table | View) else query
            needs = tuple(to_read(self.reader.catalog, relation.name))
            return _Asked(shared, query, form, needs)
        text = sql or ""
        if len(text.encode()) > self.limits.sql_bytes:
            raise HeadraceError(Code.UNSUPPORTED, "the query is too long")
        query_asked = _one_query(text)
        needs = await self.calls.run(request, lambda session: session.require(query_asked))
        return _Asked(text, text, form, needs)


class _Asked(NamedTuple):
    """A request to follow: the key by which it is shared, the query, and the format of rows.

    ``needs`` are the required roles.
    """

    key: str
    query: str
    form: AnswerFormat
    needs: tuple[Need, ...]


def _flag(request: Request, name: str, *, default: bool) -> bool:
    text = request.query_params.get(name)
    if text not in (None, "true", "false"):
        raise HeadraceError(Code.INVALID, f'query parameter "{name}" is neither true nor false')
    return default if text is None else text == "true"


def _one_query(text: str) -> Query:
    """Return the single query in a text.

    Raises:
        HeadraceError: ``invalid`` if the text is not a single query; ``unsupported`` for LIMIT or
            AS OF.
    """
    statements = bind(text, None).statements()
    asked = statements[0] if len(statements) == 1 else None
    if not isinstance(asked, Query):
        raise HeadraceError(
            Code.INVALID, "only a query can be followed", hint="Give one SELECT, or use view=."
        )
    if asked.limit is not None or asked.as_of is not None:
        raise HeadraceError(
            Code.UNSUPPORTED,
            "LIMIT after EMIT CHANGES and AS OF are not supported here",
            hint="Close the connection after as many changes as are wanted; resume with after=.",
        )
    return asked


class EventStream(Response):
    """The answer to one subscriber; it lasts until the client disconnects or is too slow."""

    def __init__(
        self,
        following: FollowedRelations,
        limits: Limits,
        directory: Path,
        followed: FollowedRelation,
        begin: tuple[Published, Published | None],
        principal: Principal,
        asked: _Asked,
    ) -> None:
        state, seen = begin
        super().__init__(None, 200, {"Cache-Control": "no-store"}, "text/event-stream")
        del self.headers["content-length"]
        self._following, self._limits, self._directory = following, limits, directory
        self._followed = followed
        self._principal, self._needs = principal, asked.needs
        self._subscriber = Subscriber(limits.lag_bytes)
        self._at = ChangelogPosition((seen or state).epoch, followed.relation.id)
        place = None if seen is None else ChangelogPosition(seen.epoch, followed.relation.id)
        self._begin = beginning(followed.history, place, followed.form)
        self._events = followed.events(self._subscriber, state, seen)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events."""
        del scope
        following = self._following
        following.subscribers += 1
        sending = asyncio.create_task(self._send_all(send))
        leaving = asyncio.create_task(left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            following.subscribers -= 1
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            await self._events.aclose()

    async def _send_all(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        if self._begin is not None:
            await _sent(send, self._begin)
        limits, last = self._limits, b""
        # A stalled client is disconnected; it can resume with the token of its last event.
        with suppress(TimeoutError):
            try:
                async for event in self._events:
                    self._require_roles()
                    await asyncio.wait_for(_sent(send, event.data), limits.lag_seconds)
                    if event.last:
                        self._at = ChangelogPosition(event.epoch, self._followed.relation.id)
            except HeadraceError as error:
                last = goodbye(self._at, shown(error, self._directory))
            await asyncio.wait_for(_sent(send, last, more=False), limits.lag_seconds)

    def _require_roles(self) -> None:
        """Raise if the access token was dropped, has expired, or has lost a role."""
        for need in self._needs:
            if not need.is_met(self._principal):
                raise need.error()


async def _sent(send: Send, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


def too_many(what: str) -> HeadraceError:
    """Return the error for exceeding a limit on subscriptions."""
    return HeadraceError(
        Code.UNAVAILABLE,
        "the server had too many subscriptions",
        detail=f"It serves {what}.",
        hint="Try again later.",
    )
