"""Reader processes: several processes accept connections, and answer lookups side by side.

Each holds the published state. The state that a reader has been sent is kept until it says that it
reads another one, or has ended: so are its runs.
"""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError
from headrace.processes.child import Child, EndedError
from headrace.runtime.differences import NOTHING, difference
from headrace.server.held import FirstMessage, StateUpdate

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence

    from headrace.database import Database
    from headrace.parts.access import AccessToken
    from headrace.runtime.published import Published
    from headrace.server.address import HostNames, Transport
    from headrace.server.limits import Limits
    from headrace.server.tallies import Tallies
    from headrace.types import Offset, RelationId

_log = logging.getLogger(__name__)

_MODULE: Final = "headrace.server.reader_process"
_BEGIN_SECONDS: Final = 120.0
_SILENT_SECONDS: Final = 30.0
"""After how long a reader that does not answer is replaced."""
_AGAIN_SECONDS: Final = 1.0
"""How long after the end of a reader another takes its place, and how often one is asked."""
_LISTEN_SECONDS: Final = 0.1
"""How often the ends of logs and the access tokens are looked at."""


class Readers:
    """The reader processes of one server, one for each listening socket.

    The sockets stay open here: who connects while a reader is replaced waits for the next one.
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
        """How many processes have ended by themselves, or did not answer."""

    @property
    def socket(self) -> Path:
        """Where requests are passed on to; only this user can enter its directory."""
        return self._scratch / "server"

    @property
    def count(self) -> int:
        """How many processes answer."""
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
        """Start the processes, and return when all of them answer; ``tallies`` count for them.

        Raises:
            HeadraceError: ``unavailable`` if they do not in two minutes.
        """
        begin = FirstMessage(
            self._database.directory.resolve(),
            self.socket,
            names,
            transport,
            limits,
            authenticate,
            tuple(sys.path),
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
        """End all processes, and close their sockets."""
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
        """Keep a process serving a socket: start another when it has ended."""
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
        """Send a process each state, the newest if it is slow, until the server ends.

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
            # Only now may the runs of what it held before be collected.
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
        """Wait until there is something else to send, or a second has passed."""
        reader, until = self._database.parts.reader, time.monotonic() + _AGAIN_SECONDS

        def is_over() -> bool:
            return self._closed or reader.published is not held

        while not is_over() and time.monotonic() < until:
            reader.publisher.wait_for(is_over, _LISTEN_SECONDS)
            _, now, known = self._present()
            if now != ends or known is not tokens:
                return
