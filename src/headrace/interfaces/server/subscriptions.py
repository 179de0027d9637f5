"""``GET /v1/subscribe``: a view or query as server-sent events.

Followed views and queries: each is read once, however many clients subscribe to it.

A thread per followed view reads the delta of each epoch, encodes it as events, and queues these for
the subscribers. A new subscriber first reads the earlier rows or changes from storage, in a state
that is kept readable meanwhile, and then takes the queued events.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakValueDictionary

from starlette.responses import Response

from headrace.errors import Code, HeadraceError
from headrace.interfaces.server.entrance import asking
from headrace.interfaces.server.events import (
    ChangelogPosition,
    SentEvent,
    beginning,
    changes,
    goodbye,
    progress,
    snapshot,
)
from headrace.interfaces.server.lookups import named
from headrace.interfaces.server.requests import AnswerFormat, number, shown
from headrace.interfaces.server.running import left
from headrace.interfaces.server.statements import rows_of_events
from headrace.interfaces.session import Need, to_read
from headrace.planning.catalog import Table, View
from headrace.planning.catalog.naming import is_candidate
from headrace.planning.sql import Query, quote_dotted
from headrace.planning.sql.parameters import bind

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
    from pathlib import Path

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from headrace.execution.runtime.published import Published
    from headrace.interfaces.server.limits import Limits
    from headrace.interfaces.server.running import RequestCalls, Runner
    from headrace.interfaces.session import Session
    from headrace.interfaces.statements.reading.following import ViewSubscription
    from headrace.lifecycle.states.access import Principal
    from headrace.lifecycle.states.reader import Reader
    from headrace.types import Epoch


PROGRESS_SECONDS: Final = 1.0


@dataclass(slots=True, eq=False)
class Subscriber:
    """The queue of events for one client, at most ``most`` bytes.

    If the queue grows larger, the subscriber falls ``behind``: the queue is cleared, and the
    changes are read from storage. Used on the event loop's thread only.
    """

    most: int
    waiting: deque[SentEvent] = field(default_factory=deque)
    bytes: int = 0
    behind: bool = False
    ended: HeadraceError | None = None
    is_over: bool = False
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, events: Sequence[SentEvent]) -> None:
        """Queue events; of several progress marks in a row, the last replaces the others."""
        if self.behind:
            return
        for event in events:
            if event.is_progress and self.waiting and self.waiting[-1].is_progress:
                self.bytes -= len(self.waiting.pop().data)
            self.waiting.append(event)
            self.bytes += len(event.data)
        if self.bytes > self.most:
            self.fall_behind()
        self._news.set()

    def fall_behind(self) -> None:
        """Mark the subscriber as lagging: it catches up from storage."""
        self.forget(behind=True)
        self._news.set()

    def forget(self, *, behind: bool) -> None:
        """Clear the queue; while ``behind``, offered events are dropped."""
        self.waiting.clear()
        self.bytes, self.behind = 0, behind

    def end(self, error: HeadraceError | None) -> None:
        """End the subscription after the queued events."""
        self.ended, self.is_over = error, True
        self._news.set()

    async def take(self) -> SentEvent | None:
        """Return the next event; None if the subscriber lags behind, or no event follows."""
        while not self.waiting:
            if self.is_over or self.behind:
                return None
            self._news.clear()
            await self._news.wait()
        event = self.waiting.popleft()
        self.bytes -= len(event.data)
        return event


class FollowedRelation:
    """A table or view, its reading thread, and its subscribers."""

    def __init__(
        self,
        reader: Reader,
        session: Session,
        subscription: ViewSubscription,
        most: int,
        form: AnswerFormat = AnswerFormat.JSON,
    ) -> None:
        self.relation = subscription.relation
        self.history = subscription.history
        self.idle_since = time.monotonic()
        self.form = form
        """The format of rows in events."""
        self._reader = reader
        self._most = most
        """The maximum bytes of the events of one advance; beyond, subscribers read from storage."""
        self._told = 0.0
        """The time of the last progress mark, in seconds of the monotonic clock."""
        self._session = session
        self._subscription = subscription
        self._state = reader.published
        """Held so that later changes stay readable."""
        self._delivered = self._state.epoch
        """The epoch up to which subscribers were offered events or marked as lagging."""
        self._subscribers: set[Subscriber] = set()
        self._over = False
        self._error: HeadraceError | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="headrace-followed", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether the last event was queued."""
        return self._over

    @property
    def is_idle(self) -> bool:
        """Whether it has no subscribers."""
        return not self._subscribers

    def began(
        self, after: ChangelogPosition | None, *, now: bool = False
    ) -> tuple[Published, Published | None]:
        """Return the state that a new subscriber reads first, and the state it has already seen.

        The former shows all earlier writes. The latter is None for a new subscriber, or the former
        if changes are followed from ``now``. The caller must hold both while they are read.

        Raises:
            HeadraceError: ``conflict`` if it cannot resume after this position.
        """
        state = self._reader.settled([self.relation.id])
        if after is None:
            return state, state if now else None
        if after.relation not in (None, self.relation.id):
            raise _cannot_resume("Its relation is no longer followed.")
        if after.epoch > state.epoch:
            raise _cannot_resume(f"Epoch {after.epoch} does not exist yet.")
        if self._reader.ledger.dirty.gap_at(self.relation.id, after.epoch) is not None:
            raise _cannot_resume("The view had stopped then.")
        try:
            return state, self._reader.as_of(after.epoch, state, [self.relation])
        except HeadraceError as error:
            if error.code is Code.INVALID:
                detail = f"Epoch {after.epoch} is gone, or precedes the followed relation."
                raise _cannot_resume(detail) from error
            raise

    async def events(
        self, subscriber: Subscriber, state: Published, seen: Published | None
    ) -> AsyncGenerator[SentEvent, None]:
        """Yield the events of a subscriber after the state it has seen, until following ends.

        ``state`` and ``seen`` are those of :meth:`began`.

        Raises:
            HeadraceError: ``conflict`` if it was so slow that the changes it needs are no longer
                kept; the error that ended following.
        """
        at, held = state.epoch, [state, seen]
        before = (
            snapshot(self.relation, self.history, at, self.form)
            if seen is None
            else changes(self.relation, self.history, seen.epoch, at, self.form)
        )
        del state, seen
        async for event in _on_threads(before):
            yield event
        subscriber.behind = True  # until it has caught up with what was delivered in the meantime
        self._subscribers.add(subscriber)
        if self._over:
            subscriber.end(self._error)
        try:
            while True:
                if subscriber.behind:
                    subscriber.forget(behind=False)
                    upto = self._delivered  # later events are queued
                    async for event in self._caught_up(at, upto):
                        yield event
                    at = max(at, upto)
                    del held[:]
                taken = await subscriber.take()
                if taken is None and not subscriber.behind:
                    break
                if taken is None or taken.epoch < at + (not taken.is_progress):
                    continue
                yield taken
                if taken.last:
                    at = taken.epoch
        finally:
            self._subscribers.discard(subscriber)
            self.idle_since = time.monotonic()
        if subscriber.ended is not None:
            raise subscriber.ended

    async def _caught_up(self, after: Epoch, upto: Epoch) -> AsyncIterator[SentEvent]:
        try:
            async for event in _on_threads(
                changes(self.relation, self.history, after, upto, self.form)
            ):
                yield event
        except HeadraceError as error:
            if error.code is Code.INVALID:
                raise _cannot_resume(
                    "The client read too slowly: later changes are no longer kept."
                ) from error
            raise

    def close(self) -> None:
        """Stop; subscribers get their queued events. Must not run on the event loop's thread."""
        self._over = True
        self._reader.publisher.wake()
        self._thread.join()
        self._subscription.close()
        self._session.close()

    def _run(self) -> None:
        try:
            while not self._over:
                self._reader.wait_beyond(self._state.epoch, lambda: self._over, PROGRESS_SECONDS)
                if not self._over:
                    self._advance()
        except HeadraceError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - subscribers get it, and the thread ends
            self._error = HeadraceError(Code.INTERNAL, "following failed", f"{error!r}.")
        self._over = True
        self._deliver(self._end)

    def _advance(self) -> None:
        """Offer the changes of new epochs and, from time to time, a progress mark."""
        state, before = self._reader.published, self._state
        there = state.catalog.by_id.get(self.relation.id)
        if there is None or there.schema != self.relation.schema or is_candidate(there):
            raise HeadraceError(
                Code.CONFLICT,
                "what was followed was dropped or replaced",
                hint="Subscribe again, without a token.",
            )
        self._reader.require_running(there, state)
        found = self._made(before.epoch, state.epoch)
        if found is None:
            self._deliver(partial(self._pass_over, state.epoch))
        else:
            if time.monotonic() - self._told >= PROGRESS_SECONDS:
                self._told = time.monotonic()
                pending = state.behind(self._reader.ledger.head.ends, self.relation.id)
                place = ChangelogPosition(state.epoch, self.relation.id)
                found.append(progress(place, state.committed_at, pending))
            self._deliver(partial(self._offer, state.epoch, found))
        self._state = state

    def _made(self, after: Epoch, upto: Epoch) -> list[SentEvent] | None:
        """Return the events of some epochs; None without subscribers, or if they are too large."""
        found: list[SentEvent] = []
        size = 0
        if self.is_idle and after < upto:
            return None
        for event in changes(self.relation, self.history, after, upto, self.form):
            size += len(event.data)
            if size > self._most:
                return None
            found.append(event)
        return found

    def _deliver(self, call: Callable[[], None]) -> None:
        """Call a function on the event loop's thread, if the loop still runs."""
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            self._over = True

    def _offer(self, epoch: Epoch, events: Sequence[SentEvent]) -> None:
        self._delivered = epoch
        for subscriber in self._subscribers:
            subscriber.offer(events)

    def _pass_over(self, epoch: Epoch) -> None:
        self._delivered = epoch
        for subscriber in self._subscribers:
            subscriber.fall_behind()

    def _end(self) -> None:
        for subscriber in self._subscribers:
            subscriber.end(self._error)


async def _on_threads(events: Iterator[SentEvent]) -> AsyncIterator[SentEvent]:
    """Yield events, each made on a worker thread."""
    while (event := await asyncio.to_thread(next, events, None)) is not None:
        yield event


def _cannot_resume(detail: str) -> HeadraceError:
    return HeadraceError(
        Code.CONFLICT,
        "changes cannot be resumed after this token",
        detail,
        "Subscribe without a token: the snapshot then comes first.",
    )


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
