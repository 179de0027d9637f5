"""Reader processes: several processes accept connections and answer lookups in parallel.

Each holds the published state. A state sent to a reader, and its runs, are kept until the reader
confirms a newer one or ends.

The published state that lookups read, and the messages that update it in reader processes.
"""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.published import NOTHING, applied, difference
from headrace.files.mounts import Mounted
from headrace.interfaces.processes.messages import Child, EndedError
from headrace.lifecycle.states.access import Tokens
from headrace.storage.ledger import NO_EPOCH

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence

    from headrace.execution.runtime.published import Published, StateDifference
    from headrace.interfaces.database import Database
    from headrace.interfaces.server.address import HostNames, Transport
    from headrace.interfaces.server.limits import Limits, Tallies
    from headrace.lifecycle.states.access import AccessToken
    from headrace.types import Epoch, Offset, RelationId


class Holding(Protocol):
    """A holder of a published state, which keeps the state's runs from being collected."""

    @property
    def directory(self) -> Path:
        """The data directory."""
        ...

    @property
    def published(self) -> Published:
        """The state that lookups read."""
        ...

    @property
    def ends(self) -> Mapping[RelationId, Offset]:
        """The end of each log, after all rows that have arrived."""
        ...


@dataclass(frozen=True, slots=True)
class FirstMessage:
    """The first message to a reader process.

    ``socket`` receives the requests that the process does not answer. ``authenticate``: access
    tokens are required even before any exist. ``path`` is Python's module search path. ``mounted``
    says whether the data directory is the cache of a store.
    """

    directory: Path
    socket: Path
    names: HostNames
    transport: Transport
    limits: Limits
    authenticate: bool
    path: tuple[str, ...]
    mounted: Mounted | None = None


@dataclass(frozen=True, slots=True)
class StateUpdate:
    """The changes since the last message; None for what did not change.

    The answer means that the previous state is no longer read. It has the requests counted since
    the last answer, as :meth:`Tallies.taken` returns them.
    """

    change: StateDifference | None
    ends: Mapping[RelationId, Offset] | None
    tokens: Mapping[str, AccessToken] | None


@dataclass(slots=True)
class Held:
    """A reader process's latest state, with the ends of logs and the access tokens at that time.

    ``shown`` is the newest epoch that clients have seen; they are never shown an older one.
    """

    directory: Path
    published: Published = NOTHING
    ends: Mapping[RelationId, Offset] = field(default_factory=dict)
    tokens: Tokens = field(default_factory=Tokens)
    shown: Epoch = NO_EPOCH

    def update(self, update: StateUpdate) -> None:
        """Apply an update message to the held state."""
        if update.change is not None:
            self.published = applied(self.published, update.change)
        if update.ends is not None:
            self.ends = update.ends
        if update.tokens is not None:
            self.tokens.tokens = update.tokens

    def replace(
        self,
        published: Published,
        ends: Mapping[RelationId, Offset],
        tokens: Mapping[str, AccessToken],
    ) -> None:
        """Hold another state."""
        self.published, self.ends, self.tokens.tokens = published, ends, tokens

    def show(self, epoch: Epoch) -> None:
        """Record that clients have seen an epoch: older ones are not shown afterwards."""
        self.shown = max(self.shown, epoch)

    @property
    def is_behind(self) -> bool:
        """Whether clients have seen a newer epoch than the held one."""
        return self.published.epoch < self.shown


_log = logging.getLogger(__name__)

_MODULE: Final = "headrace.interfaces.server.reader_process"
_BEGIN_SECONDS: Final = 120.0
_SILENT_SECONDS: Final = 30.0
"""The time without an answer after which a reader is replaced."""
_AGAIN_SECONDS: Final = 1.0
"""The delay before an ended reader is replaced, and the maximum interval between updates."""
_LISTEN_SECONDS: Final = 0.1
"""The interval at which the ends of logs and the access tokens are checked."""


class Readers:
    """The reader processes of one server, one for each listening socket.

    The sockets stay open here, so clients that connect while a reader is replaced wait.
    """

    def __init__(self, database: Database, sockets: Sequence[socket.socket]) -> None:
        self._database = database
        self._sockets = tuple(sockets)
        self._scratch = Path(tempfile.mkdtemp(prefix="headrace-readers-"))
        self._closed = False
        self._children: dict[int, Child] = {}
        self._answering: set[int] = set()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.lost = 0
        """The number of processes that ended unexpectedly or did not answer."""

    @property
    def socket(self) -> Path:
        """The socket to which requests are forwarded; only this user can enter its directory."""
        return self._scratch / "server"

    @property
    def count(self) -> int:
        """The number of processes that answer."""
        return len(self._answering)

    def start(
        self,
        names: HostNames,
        transport: Transport,
        limits: Limits,
        tallies: Tallies,
        *,
        authenticate: bool,
    ) -> None:
        """Start the processes and wait until all answer; ``tallies`` counts their requests.

        Raises:
            HeadraceError: ``unavailable`` if they do not within two minutes.
        """
        begin = FirstMessage(
            self._database.directory.resolve(),
            self.socket,
            names,
            transport,
            limits,
            authenticate,
            tuple(sys.path),
            Mounted.of(self._database.directory.resolve()),
        )
        for number in range(len(self._sockets)):
            thread = threading.Thread(
                target=self._keep,
                args=(number, begin, tallies),
                name=f"headrace-reader-{number}",
                daemon=True,
            )
            self._threads.append(thread)
            thread.start()
        until = time.monotonic() + _BEGIN_SECONDS
        while self.count < len(self._sockets):
            if time.monotonic() > until:
                raise HeadraceError(Code.UNAVAILABLE, "the reader processes did not start")
            time.sleep(_LISTEN_SECONDS)

    def close(self) -> None:
        """End all processes and close their sockets."""
        with self._lock:
            self._closed = True
            for child in self._children.values():
                child.kill()
        self._database.parts.reader.publisher.wake()
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    # -- one process ---------------------------------------------------------------------------

    def _keep(self, number: int, begin: FirstMessage, tallies: Tallies) -> None:
        """Keep a process serving a socket: replace it when it ends."""
        errors = self._scratch / f"errors-{number}"
        while not self._closed:
            how = "could not be started"
            try:
                child = Child.started(_MODULE, errors, self._sockets[number].fileno())
                try:
                    with self._lock:
                        self._children[number] = child
                    child.ask(begin, 0.0, _BEGIN_SECONDS)
                    self._feed(number, child, tallies)
                finally:
                    self._answering.discard(number)
                    child.kill()
                    how = child.ending
            except (EndedError, OSError):
                if self._closed:
                    return
                self.lost += 1
                _log.warning("a reader process %s", how)
                time.sleep(_AGAIN_SECONDS)

    def _feed(self, number: int, child: Child, tallies: Tallies) -> None:
        """Send published states to a process, skipping some if it is slow, until the server closes.

        Raises:
            EndedError: the process has ended, or does not answer.
        """
        held, tokens = NOTHING, None
        ends: Mapping[RelationId, Offset] = {}
        while not self._closed:
            newest, now, known = self._present()
            update = StateUpdate(
                None if newest is held else difference(held, newest),
                None if now == ends else now,
                None if known is tokens else known,
            )
            answer = child.ask(update, 0.0, _SILENT_SECONDS)
            tallies.add(answer.value)
            # The runs of the previous state may be collected only now.
            held, ends, tokens = newest, now, known
            self._answering.add(number)
            self._wait(held, ends, tokens)

    def _present(self) -> tuple[Published, dict[RelationId, Offset], Mapping[str, AccessToken]]:
        """Return the published state, the ends of logs and the access tokens."""
        parts = self._database.parts
        return parts.reader.published, dict(parts.ledger.head.ends), parts.access.tokens

    def _wait(
        self,
        held: Published,
        ends: Mapping[RelationId, Offset],
        tokens: Mapping[str, AccessToken],
    ) -> None:
        """Wait until the state, the ends of logs or the tokens change, at most a second."""
        reader, until = self._database.parts.reader, time.monotonic() + _AGAIN_SECONDS

        def is_over() -> bool:
            return self._closed or reader.published is not held

        while not is_over() and time.monotonic() < until:
            reader.publisher.wait_for(is_over, _LISTEN_SECONDS)
            _, now, known = self._present()
            if now != ends or known is not tokens:
                return
