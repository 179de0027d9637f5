"""Followed views and queries: each is read once, however many clients subscribe to it.

A thread per followed view reads the delta of each epoch, encodes it as events, and queues these for
the subscribers. A new subscriber first reads the earlier rows or changes from storage, in a state
that is kept readable meanwhile, and then takes the queued events.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError
from headrace.parts.naming import is_candidate
from headrace.server.answers import AnswerFormat
from headrace.server.events import ChangelogPosition, SentEvent, changes, progress, snapshot

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence

    from headrace.parts.reader import Reader
    from headrace.runtime.published import Published
    from headrace.session import Session
    from headrace.statements.reading.subscription import ViewSubscription
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
