"""Sends events of OpenLineage from a thread of its own, so that nothing ever waits for them."""

from __future__ import annotations

import logging
import queue
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError
from headrace.formats.libraries import library
from headrace.parts.openlineage_events import EXTRA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
