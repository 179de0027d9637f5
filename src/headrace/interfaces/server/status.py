"""``GET /v1/status`` and ``/v1/history``: the database's state, each second and over a day.

One sample per second serves all listeners. Samples are kept for 15 minutes, so that a page can draw
its charts when it opens; what was before is summed up in the ledger.

``GET /v1/epochs``: how wide the latest epochs were, and where their time went.

``GET /healthz`` and ``/readyz``: liveness and readiness.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.attempt import Width
from headrace.execution.runtime.spent import TASKS, Activity
from headrace.execution.serving.values import json_text
from headrace.interfaces.server.entrance import asking
from headrace.interfaces.server.history import (
    StatusHistory,
    StatusSample,
    of_relation,
    rung,
    totals,
)
from headrace.interfaces.server.requests import count, done
from headrace.interfaces.server.running import left
from headrace.interfaces.server.subscriptions import too_many
from headrace.lifecycle.facts.freshness import view_freshness
from headrace.lifecycle.states.system_relations import COUNTERS, fan_out_words, fanned_out
from headrace.planning.catalog import Stream, Table
from headrace.planning.catalog.naming import HIDDEN
from headrace.planning.sql import Role
from headrace.types import Offset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from headrace.interfaces.processes.queries import QueryProcesses
    from headrace.interfaces.server.limits import Limits
    from headrace.interfaces.server.running import RequestCalls, Runner
    from headrace.interfaces.server.subscriptions import FollowedRelations
    from headrace.interfaces.session import Session
    from headrace.lifecycle.inputs.log import Log
    from headrace.lifecycle.inputs.sources import SourceStates
    from headrace.lifecycle.states.access import Principal
    from headrace.lifecycle.states.reader import Reader
    from headrace.storage.ledger import EpochRecord
    from headrace.types import RelationId


_MOST: Final = 1000
_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class EpochHandlers:
    """Lists epochs."""

    reader: Reader
    calls: RequestCalls

    async def list_epochs(self, request: Request) -> Response:
        """List the latest epochs, newest first.

        Each has its width and why, and the milliseconds that it spent, by activity. Those of the
        tasks of its jobs are added up beside them.
        """
        principal, asked = asking(request), count(request, "limit")
        limit = _SHOWN if asked is None else min(asked, _MOST)

        def call(_session: Session) -> dict[str, Any]:
            records = self.reader.ledger.epochs.newest(limit)
            return {"epochs": [self._shown(each, principal) for each in records]}

        return done(await self.calls.run(request, call))

    def _shown(self, record: EpochRecord, principal: Principal) -> dict[str, Any]:
        counters, catalog = record.counters, self.reader.catalog
        found = fanned_out(counters, catalog, principal.sees)
        view = None if found is None or found.name.startswith(HIDDEN) else found.name
        return {
            "epoch": record.epoch,
            "committed_at": record.committed_at,
            **{name: counters.get(name) for name in ("width", "seconds", *COUNTERS)},
            "spent": _by_activity(counters),
            "tasks_spent": _by_activity(counters.get(TASKS, {})),
            "fans_out": fan_out_words(counters, catalog, principal.sees),
            "fans_out_view": view,
        }


def _by_activity(counters: Mapping[str, Any]) -> dict[str, float]:
    return {each.name.lower(): counters[each.value] for each in Activity if each.value in counters}


_ALWAYS: Final = ("lookups", "writes")
_QUERIES: Final = "queries"


@dataclass(frozen=True, slots=True)
class HealthHandlers:
    """Answers health checks."""

    reader: Reader
    log: Log
    query_processes: QueryProcesses | None

    async def health(self, request: Request) -> Response:
        """Report that the server answers."""
        del request
        return done({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Report what is served: lookups and writes, or else it is an error; and queries.

        With the parameter ``serves=queries``, it is an error as well if those are not.
        """
        wanted = request.query_params.get("serves", _ALWAYS[0])
        if wanted not in (*_ALWAYS, _QUERIES):
            hint = f"There are: {', '.join((*_ALWAYS, _QUERIES))}."
            raise HeadraceError(Code.INVALID, f'"{wanted}" is not what a server serves', hint=hint)
        self.log.require_writable()
        waits = self._waits_for_epochs()
        queries = self._waits_for_queries()
        if wanted == _QUERIES and queries is not None:
            raise queries
        return done(
            {
                "status": "ready",
                "epoch": self.reader.published.epoch,
                "serves": [*_ALWAYS, *([_QUERIES] if queries is None else [])],
                "waits": [each.primary for each in (waits, queries) if each is not None],
            }
        )

    def _waits_for_epochs(self) -> HeadraceError | None:
        """Return why no epochs are made at present: what is read is older meanwhile.

        Raises:
            HeadraceError: that, if it will not pass by itself.
        """
        try:
            self.reader.require_epochs()
        except HeadraceError as error:
            if error.code is not Code.UNAVAILABLE:
                raise
            return error
        return None

    def _waits_for_queries(self) -> HeadraceError | None:
        """Return why a query would not be answered at once."""
        try:
            if self.query_processes is not None:
                self.query_processes.require_ready()
        except HeadraceError as error:
            return error
        return None


_log = logging.getLogger(__name__)

_SECONDS: Final = 1.0
_KEPT: Final = 900
_MOST_EPOCHS: Final = 1000
"""The maximum number of epochs that one sample reads."""
_WAITING: Final = 4
"""The number of samples queued for a slow listener; older ones are dropped."""
_END: Final = b""
_RUNNING: Final = "running"
"""The state of a view that is maintained in every epoch."""
_NOT_MADE: Final = "epochs are not made"
"""The error shown to clients that may not see everything the original message names."""


_TOTALS: Final = (
    "at", "epoch", "committed_at", "epochs", "narrow", "epoch_seconds", "rows", "pending",
    "seconds", "statements", "subscribers",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Listener:
    """A listening client, and its queue of events."""

    principal: Principal
    waiting: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(_WAITING))


@dataclass(slots=True)
class Status:
    """Samples a database once a second, keeps the samples, and sends them to listeners."""

    reader: Reader
    sources: SourceStates
    runner: Runner
    following: FollowedRelations
    limits: Limits
    moments: deque[StatusSample] = field(default_factory=lambda: deque(maxlen=_KEPT))
    history: StatusHistory = field(init=False)
    _listeners: set[Listener] = field(default_factory=set)
    _ends: dict[RelationId, Offset] = field(default_factory=dict)
    """The ends of logs at the last sample."""
    _loop: asyncio.AbstractEventLoop | None = None

    def __post_init__(self) -> None:
        self.history = StatusHistory(self.reader.ledger.spans)

    async def run(self) -> None:
        """Sample once a second, until cancelled."""
        self._loop = asyncio.get_running_loop()
        failed = False
        while True:
            began = time.monotonic()
            try:
                await self.look()
                failed = False
            except Exception as error:  # noqa: BLE001  (the next sample may succeed)
                if not failed:
                    _log.error("the status cannot be read", exc_info=error)
                failed = True
            await asyncio.sleep(max(0.0, _SECONDS - (time.monotonic() - began)))

    async def look(self) -> None:
        """Sample once, and send the sample to listeners."""
        moment = await asyncio.to_thread(self._sampled)
        self.moments.append(moment)
        self._tell(moment)

    def close(self) -> None:
        """Store the history and disconnect all listeners; may be called on another thread."""
        self.history.close()
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._tell, None)

    def _tell(self, moment: StatusSample | None) -> None:
        """Send a sample to all listeners, or disconnect them; the whole JSON is encoded once."""
        whole = None if moment is None else _event(moment, lambda _name: True)
        for each in self._listeners:
            if moment is None or not each.principal.is_known:
                event = _END
            elif whole is not None and each.principal.may(Role.READER):
                event = whole
            else:
                part = moment if moment.error is None else replace(moment, error=_NOT_MADE)
                event = _event(part, each.principal.sees)
            if each.waiting.full():
                each.waiting.get_nowait()
            each.waiting.put_nowait(event)

    def listen(self, principal: Principal) -> Listener:
        """Return a listener that receives all further samples until :meth:`leave`.

        Raises:
            HeadraceError: ``unavailable`` if too many clients listen.
        """
        if len(self._listeners) >= self.limits.subscribers:
            raise too_many(f"{self.limits.subscribers} listeners")
        listener = Listener(principal)
        self._listeners.add(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        """Send nothing more to a listener."""
        self._listeners.discard(listener)

    def _sampled(self) -> StatusSample:
        moment = self._found()
        self.history.add(moment)
        return moment

    def _found(self) -> StatusSample:
        reader, last = self.reader, self.moments[-1] if self.moments else None
        state, now = reader.published, time.time()
        fresh = list(view_freshness(reader, self.sources.admission, state))
        views = {found.view.name: (found.pending, found.seconds) for found in fresh}
        followed = [found for found in fresh if found.state == _RUNNING]
        new = 0 if last is None else state.epoch - last.epoch
        records = reader.ledger.epochs.newest(min(new, _MOST_EPOCHS)) if new > 0 else ()
        took = [r.counters["seconds"] for r in records if "seconds" in r.counters]
        narrow = sum(r.counters.get("width") == Width.NARROW.value for r in records)
        before, ends = self._ends, dict(reader.ledger.head.ends)
        self._ends = ends
        appended = sum(max(0, end - before.get(id_, Offset(0))) for id_, end in ends.items())
        error = reader.pump.error or reader.pump.loop.beside.error() or reader.ledger.trouble
        passed = 1.0 if last is None else max(now - last.at, 0.001)
        named = {
            relation.name: relation.id
            for relation in state.catalog
            if isinstance(relation, Stream | Table) and not relation.name.startswith(HIDDEN)
        }
        return StatusSample(
            now,
            state.epoch,
            state.committed_at,
            len(took),
            narrow,
            sum(took) / len(took) if took else None,
            None if last is None else appended / passed,
            state.behind(ends),
            max((found.seconds for found in followed), default=0.0),
            self.runner.running,
            self.following.subscribers,
            views,
            {name: ends.get(id_, Offset(0)) for name, id_ in named.items()},
            {
                name: max(0, ends[id_] - before.get(id_, Offset(0))) / passed
                for name, id_ in named.items()
                if last is not None and id_ in ends
            },
            None if error is None else error.primary,
        )

    # -- handlers ----------------------------------------------------------------------------

    async def follow_status(self, request: Request) -> Response:
        """Follow the state of the database, by one event a second."""
        return _Stream(self, asking(request))

    async def read_history(self, request: Request) -> Response:
        """Return the state of the database in the last minutes or hours, a list for each figure.

        Of the last quarter of an hour there is a value for each second, and for each 5 seconds from
        before the server was started; farther back, one for each minute or 10 minutes.
        """
        relation, asked = request.query_params.get("relation"), count(request, "seconds")
        seconds = _KEPT if asked is None else asked
        name = None if relation is None else relation.lower()
        if name is not None and not asking(request).sees(name):
            name = None
        return done(await asyncio.to_thread(self._history, seconds, name))

    def _history(self, seconds: int, name: str | None) -> dict[str, Any]:
        since = time.time() - seconds
        moments = [m for m in self.moments if m.at >= since] if seconds <= _KEPT else []
        step = rung(seconds)
        before = [
            span
            for span in self.history.since(step, since)
            if not moments or span.figures["until"] < moments[0].at
        ]
        found: dict[str, Any] = {
            figure: [*values, *(getattr(m, figure) for m in moments)]
            for figure, values in totals(before, _TOTALS).items()
        }
        if name is not None:
            views = [m.views.get(name, (None, None)) for m in moments]
            recent: dict[str, list[Any]] = {
                "pending": [pending for pending, _ in views],
                "seconds": [seconds for _, seconds in views],
                "rows": [m.rates.get(name) for m in moments],
                "end": [m.sources.get(name) for m in moments],
            }
            earlier = of_relation(before, name)
            found["relation"] = {figure: earlier[figure] + recent[figure] for figure in recent}
        return {**found, "step": step if before or not moments else 1}


def shown(moment: StatusSample, sees: Callable[[str], bool]) -> dict[str, Any]:
    """Return a sample as JSON, with the relations that ``sees`` accepts."""
    return {
        **{name: getattr(moment, name) for name in _TOTALS},
        "views": {name: each for name, each in moment.views.items() if sees(name)},
        "sources": {name: end for name, end in moment.sources.items() if sees(name)},
        "error": moment.error,
    }


def _event(moment: StatusSample, sees: Callable[[str], bool]) -> bytes:
    return f"event: status\ndata: {json_text(shown(moment, sees))}\n\n".encode()


class _Stream(Response):
    """The answer to a listener; it lasts until the client disconnects."""

    def __init__(self, status: Status, principal: Principal) -> None:
        super().__init__(None, 200, {"Cache-Control": "no-store"}, "text/event-stream")
        del self.headers["content-length"]
        self._status = status
        self._listener = status.listen(principal)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events."""
        del scope
        sending, leaving = asyncio.create_task(self._send(send)), asyncio.create_task(left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._status.leave(self._listener)
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        event = b" "
        while event != _END:
            event = await self._listener.waiting.get()
            part = {"type": "http.response.body", "body": event, "more_body": event != _END}
            await asyncio.wait_for(send(part), self._status.limits.lag_seconds)
