"""A reader process: answers lookups by key from the state that it holds.

:mod:`headrace.interfaces.server.readers` starts it. It accepts connections on an inherited
listening socket and forwards other requests to the process that makes epochs. It ends when its
connection to that process is closed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import uvicorn
import uvloop

from headrace.interfaces.processes.messages import Done
from headrace.interfaces.server.entrance import Entrance
from headrace.interfaces.server.limits import Tallies
from headrace.interfaces.server.listener import SiteGuard, http_settings, tls_settings
from headrace.interfaces.server.logs import RequestLog
from headrace.interfaces.server.lookups import ViewHandlers, answered_at_once
from headrace.interfaces.server.proxy import LocalServer, Proxy
from headrace.interfaces.server.readers import FirstMessage, Held, StateUpdate
from headrace.planning.catalog import Table, View

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from headrace.algebra.spine import Spine
    from headrace.interfaces.server.limits import Limits
    from headrace.types import RelationId


@dataclass(slots=True)
class Reading:
    """The application of a reader process. Used on the event loop's thread only."""

    held: Held
    limits: Limits
    entrance: Entrance
    proxy: Proxy
    tallies: Tallies
    _opening: dict[RelationId, asyncio.Future[Spine]] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request or forward it."""
        if scope["type"] == "websocket":
            await self.proxy.over_socket(scope, receive, send)
            return
        began = time.monotonic()
        answered = self._answered(scope)
        if answered is None:
            await self.proxy(scope, receive, send)
            return
        self.tallies.observe(ViewHandlers.read_view.__name__, "ok", time.monotonic() - began)
        await answered(scope, receive, send)

    def _answered(self, scope: Scope) -> Response | None:
        """Return the answer to a lookup by key in the held state.

        Returns None for other requests and for possible errors: the main process answers these.
        """
        # Only the main process knows exactly how many changes are pending.
        if self.held.is_behind or b"max_staleness" in scope["query_string"]:
            return None
        return answered_at_once(self.held, self.entrance, self.limits, scope, self._open)

    def _open(self, name: str) -> None:
        """Read a relation's runs once, which verifies them, so that the next lookup is fast."""
        state = self.held.published
        relation = state.catalog.find(name)
        if not isinstance(relation, Table | View) or relation.id in self._opening:
            return
        if not state.unread_bytes(relation, self.held.directory):
            return
        opened = partial(state.spine, relation, self.held.directory)
        reading = asyncio.get_running_loop().run_in_executor(None, opened)
        self._opening[relation.id] = reading
        reading.add_done_callback(partial(self._opened, relation.id))

    def _opened(self, id_: RelationId, reading: asyncio.Future[Spine]) -> None:
        reading.exception()  # the main process reports damage
        del self._opening[id_]


class ReaderProcess:
    """One thread receives new states; the main thread serves."""

    def __init__(
        self, connection: Connection, begin: FirstMessage, listening: socket.socket
    ) -> None:
        self._connection = connection
        self._place = begin.socket.parent
        self._listening = listening
        if begin.mounted is not None:
            begin.mounted.mount(begin.directory)
        self._held = Held(begin.directory)
        self._tallies = Tallies()
        proxy = Proxy(LocalServer(begin.socket), self._held.show)
        entrance = Entrance(self._held.tokens, begin.limits, begin.authenticate)
        reading = Reading(self._held, begin.limits, entrance, proxy, self._tallies)
        settings = {**http_settings(), **tls_settings(begin.transport)}
        app = RequestLog(SiteGuard(reading, begin.names))
        self._uvicorn = uvicorn.Server(uvicorn.Config(app, **settings))

    def begin(self) -> None:
        """Wait for the first state; no request is answered before."""
        self._held.update(self._connection.recv())
        self._connection.send(Done(self._tallies.taken()))

    def run(self) -> None:
        """Serve until the process ends."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(loop,), daemon=True).start()
        await self._uvicorn.serve(sockets=[self._listening])

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while True:
                update = self._connection.recv()
                held = asyncio.run_coroutine_threadsafe(self._update(update), loop)
                self._connection.send(Done(held.result()))
        except (EOFError, OSError):
            shutil.rmtree(self._place, ignore_errors=True)  # the server was killed
        finally:
            os.killpg(0, signal.SIGKILL)

    async def _update(self, update: StateUpdate) -> object:
        """Apply an update on the event loop's thread, so that no lookup runs meanwhile."""
        self._held.update(update)
        return self._tallies.taken()


def main() -> None:
    """Run the process; the arguments are the file descriptors of its connection and socket."""
    connection, descriptor = Connection(int(sys.argv[1])), int(sys.argv[2])
    try:
        begin = connection.recv()
        sys.path[:] = begin.path
        process = ReaderProcess(connection, begin, socket.socket(fileno=descriptor))
        connection.send(Done())
        process.begin()
    except (EOFError, OSError):
        return
    process.run()


if __name__ == "__main__":
    main()
