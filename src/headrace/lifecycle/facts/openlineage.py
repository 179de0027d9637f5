"""Reports what happens to views and sinks to OpenLineage, if an address is set.

Sends events of OpenLineage from a thread of its own, so that nothing ever waits for them.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from headrace.errors import Code, HeadraceError
from headrace.io.formats.libraries import library
from headrace.lifecycle.facts.openlineage_events import EXTRA, FillJob, Lifecycle, RunState
from headrace.planning.catalog import PlainView, Sink, View
from headrace.planning.catalog.naming import HIDDEN
from headrace.types import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.execution.runtime.published import Published
    from headrace.lifecycle.facts.openlineage_events import OpenLineageEvents
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog, Relation
    from headrace.types import RelationId


if TYPE_CHECKING:
    Making = Callable[[], Any]

_log: Final = logging.getLogger(__name__)

CLIENT: Final = "client"
"""The address that leaves transport to the configuration of OpenLineage's client."""
_MOST_WAITING: Final = 1_000
_CLOSING_SECONDS: Final = 5.0
_EVERY_SECONDS: Final = 60.0


def sender(address: str) -> Callable[[Any], None]:
    """Return a function that sends an event to a URL of HTTP, or appends it to a file.

    An event is an object of the client, or a dictionary from its JSON.

    For :data:`CLIENT`, the client's own configuration says where to: ``openlineage.yml`` or its
    environment variables, which may also complete the one for a URL, such as by a key.

    Raises:
        HeadraceError: ``invalid`` if the client is not installed, or cannot use the address.
    """
    client = library("openlineage.client", "client of OpenLineage", EXTRA)
    config: dict[str, Any] = {"facets": {"source_code_location": {"disabled": True}}}
    if address.startswith(("http://", "https://")):
        config["transport"] = {"type": "http", "url": address}
    elif address != CLIENT:
        path = str(Path(address).absolute())
        config["transport"] = {"type": "file", "log_file_path": path, "append": True}
    try:
        made = client.OpenLineageClient(config=config)
    except Exception as error:  # the client raises what its transports raise
        raise HeadraceError(
            Code.INVALID,
            f'events of OpenLineage cannot be sent to "{address}"',
            f"{error}.",
            "Give a URL of HTTP, a file, or client.",
        ) from error

    def send(event: Any) -> None:
        if isinstance(event, dict):
            made.transport.emit(event)
        else:
            made.emit(event)

    return send


@dataclass(slots=True)
class OpenLineageSending:
    """Sends events in order, in the background; those that do not fit its queue are dropped.

    ``running`` returns functions that make the events on what is running, which are sent every
    ``every_seconds``. Events are made on the thread, too.
    """

    send: Callable[[Any], None]
    running: Callable[[], Iterable[Making]] = tuple
    every_seconds: float = _EVERY_SECONDS
    most: int = _MOST_WAITING
    sent: int = 0
    """The events that were sent."""
    dropped: int = 0
    """The events that were not sent: since the queue was full, or sending failed."""
    _queue: queue.Queue[Making | None] = field(init=False)
    _thread: threading.Thread = field(init=False)
    _failing: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        """Start the thread."""
        self._queue = queue.Queue(self.most)
        self._thread = threading.Thread(target=self._run, name="headrace-openlineage", daemon=True)
        self._thread.start()

    def put(self, make: Making) -> None:
        """Add a function that makes an event, which is then sent. Returns at once."""
        try:
            self._queue.put_nowait(make)
        except queue.Full:
            self._drop("more of them wait than is allowed")

    def close(self) -> None:
        """Send what waits, for a few seconds; drop the rest."""
        with suppress(queue.Full):
            self._queue.put(None, timeout=_CLOSING_SECONDS)
        self._thread.join(_CLOSING_SECONDS)
        self._stopped.set()
        if self._thread.is_alive():
            self._drop("the database is closed", self._queue.qsize())

    def _run(self) -> None:
        due = time.monotonic() + self.every_seconds
        while not self._stopped.is_set():
            try:
                make = self._queue.get(timeout=max(0.0, due - time.monotonic()))
            except queue.Empty:
                due = time.monotonic() + self.every_seconds
                self._send_running()
                continue
            if make is None:
                return
            self._send(make)

    def _send_running(self) -> None:
        for make in self.running():
            if self._stopped.is_set():
                return
            self._send(make)

    def _send(self, make: Making) -> None:
        try:
            self.send(make())
        except Exception as error:  # noqa: BLE001  (whatever a transport raises)
            self._drop(f"{error}")
        else:
            self.sent += 1
            if self._failing:
                _log.warning("events of OpenLineage are sent again; %s were dropped", self.dropped)
            self._failing = False

    def _drop(self, why: str, events: int = 1) -> None:
        with self._lock:
            self.dropped += events
        if not self._failing:
            _log.warning("events of OpenLineage are dropped: %s", why)
        self._failing = True


@dataclass(slots=True)
class OpenLineage:
    """Reports creations, fillings and drops, and at intervals the views whose rows have changed.

    Its methods return at once, and never raise. Without an ``address``, nothing is reported.
    """

    reader: Reader
    events: OpenLineageEvents
    address: str = ""
    sending: OpenLineageSending | None = None
    _shown: dict[RelationId, object] = field(default_factory=dict)
    """The runs of files of each view at its last event."""

    def start(self) -> None:
        """Begin to send events, if there is an address.

        Raises:
            HeadraceError: ``invalid`` if the client of OpenLineage is not installed, or cannot use
                the address.
        """
        if self.address:
            self.sending = OpenLineageSending(sender(self.address), self._running)

    def close(self) -> None:
        """Send what waits, for a few seconds."""
        if self.sending is not None:
            self.sending.close()

    @contextmanager
    def filling(self, view: View, former: View | None = None) -> Iterator[None]:
        """Report that a view is filled while the block runs, and that it then runs, or has failed.

        ``former`` is the view that it replaces.
        """
        if self.sending is None or view.name.startswith(HIDDEN):
            yield
            return
        run, catalog = uuid4(), self.reader.catalog
        filling = FillJob.FILL if former is None else FillJob.REBUILD
        report = partial(self._put, self.events.filling, catalog, view, filling, run)
        if former is None:
            self._put(self.events.run, catalog, view, RunState.START, lifecycle=Lifecycle.CREATE)
        report(RunState.START)
        try:
            yield
        except BaseException as error:
            report(RunState.FAIL, error=f"{error}")
            if former is None:
                self._put(self.events.run, catalog, view, RunState.FAIL, error=f"{error}")
            raise
        state = self.reader.published
        report(RunState.COMPLETE, state)
        if former is not None and former.build != view.build:
            self._ends(catalog, former)
            self._put(self.events.run, state.catalog, view, RunState.START, state)
        self._runs(view, state)

    def replaced(self, catalog: Catalog, pairs: Iterable[tuple[View, View]]) -> None:
        """Report that views of a former catalog have got builds that were filled before."""
        state = self.reader.published
        for former, view in pairs:
            if not view.name.startswith(HIDDEN):
                self._ends(catalog, former)
                self._put(self.events.run, state.catalog, view, RunState.START, state)
                self._runs(view, state)

    def _ends(self, catalog: Catalog, former: View) -> None:
        self._shown.pop(former.id, None)
        self._put(self.events.run, catalog, former, RunState.COMPLETE)

    def _runs(self, view: View, state: Published) -> None:
        self._put(self.events.run, state.catalog, view, RunState.RUNNING, state)
        self._shown[view.id] = state.spines.get(rows_of(view.id))

    def created(self, relation: Relation) -> None:
        """Report a relation that has no rows to be filled with."""
        catalog, create = self.reader.catalog, Lifecycle.CREATE
        if relation.name.startswith(HIDDEN):
            return
        if isinstance(relation, PlainView):
            self._put(self.events.job, catalog, relation, create)
        elif isinstance(relation, Sink):
            self._put(self.events.run, catalog, relation, RunState.START, lifecycle=create)

    def dropped(self, relations: Iterable[Relation]) -> None:
        """Report that relations were dropped."""
        catalog, drop = self.reader.catalog, Lifecycle.DROP
        for each in relations:
            self._shown.pop(each.id, None)
            if each.name.startswith(HIDDEN):
                continue
            if isinstance(each, PlainView):
                self._put(self.events.job, catalog, each, drop)
            elif isinstance(each, View | Sink):
                self._put(self.events.run, catalog, each, RunState.COMPLETE, lifecycle=drop)

    def _put(self, make: Callable[..., Any], *given: object, **named: object) -> None:
        if self.sending is not None:
            self.sending.put(partial(make, *given, **named, at=datetime.now(UTC)))

    def _running(self) -> Iterator[Making]:
        """Yield what makes the events on views whose rows have changed since their last event."""
        state = self.reader.published
        for view in state.catalog.views_in_order():
            files = state.spines.get(rows_of(view.id))
            if view.name.startswith(HIDDEN) or self._shown.get(view.id) == files:
                continue
            self._shown[view.id] = files
            yield partial(self.events.run, state.catalog, view, RunState.RUNNING, state)
