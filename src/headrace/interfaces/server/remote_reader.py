"""A server that reads on another machine: it answers lookups by key, and forwards all else.

It needs no process of the database: states come from the ledger, and files from the object store.
While the server that writes is gone, or being replaced, lookups go on.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Final, Self

import uvicorn
import uvloop

from headrace.errors import Code, HeadraceError
from headrace.interfaces.server.address import require_tokens
from headrace.interfaces.server.entrance import Entrance
from headrace.interfaces.server.limits import Limits, Tallies
from headrace.interfaces.server.listener import SiteGuard, http_settings, tls_settings
from headrace.interfaces.server.logs import RequestLog
from headrace.interfaces.server.proxy import Proxy
from headrace.interfaces.server.reader_process import Reading
from headrace.interfaces.server.readers import Held
from headrace.interfaces.server.requests import done, failure
from headrace.lifecycle.states.following import LedgerFollower, observed

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

    from starlette.types import Receive, Scope, Send

    from headrace.files.mounts import Mounted
    from headrace.interfaces.server.address import ListenAddress, Transport
    from headrace.interfaces.server.proxy import Upstream
    from headrace.lifecycle.states.following import Observed
    from headrace.storage.ledger import Ledger, PostgresAddress
    from headrace.types import Epoch


_BEGIN_SECONDS: Final = 60.0
_OLD_SECONDS: Final = 10.0
"""For so long without the ledger, lookups are answered; then the server that writes has to."""


class RemoteReader:
    """Serves lookups of a database that another process writes, and forwards to ``primary``.

    A context manager, which waits for the first state. Its own are ``GET /healthz`` and
    ``/readyz``: ready while it has a state that is not older than some seconds.

    Raises:
        HeadraceError: ``unavailable`` if there is no state within a minute; as
            :func:`require_tokens`.
    """

    def __init__(
        self,
        directory: Path,
        where: Path | PostgresAddress,
        mounted: Callable[[str], Mounted | None],
        primary: Upstream,
        address: ListenAddress,
        bound: socket.socket,
        transport: Transport,
        *,
        authenticate: bool = False,
    ) -> None:
        self.url, self._address = transport.url(address), address
        self._socket = bound
        self._held = Held(directory)
        self._first = threading.Event()
        self._follower = LedgerFollower(directory, where, mounted, self._look)
        self._found: Observed | None = None
        self._seen_at = 0.0
        limits = Limits()
        self._reading = Reading(
            self._held,
            limits,
            Entrance(self._held.tokens, limits, authenticate),
            Proxy(primary, self._held.show),
            Tallies(),
        )
        app = RequestLog(SiteGuard(self._answer, transport.names(address)))
        settings = {**http_settings(), **tls_settings(transport)}
        self._uvicorn = uvicorn.Server(uvicorn.Config(app, **settings))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="headrace-http", daemon=True)

    def __enter__(self) -> Self:
        self._follower.begin()
        if not self._first.wait(_BEGIN_SECONDS):
            self._follower.__exit__()
            raise HeadraceError(
                Code.UNAVAILABLE,
                "the database cannot be read",
                f"Its ledger has not answered for {_BEGIN_SECONDS:.0f} seconds.",
                "The log says why.",
            )
        try:
            require_tokens(self._address, self._held.tokens)
        except HeadraceError:
            self._follower.__exit__()
            raise
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._follower.__exit__()
        self._uvicorn.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            self._loop = runner.get_loop()
            runner.run(self._uvicorn.serve([self._socket]))

    def _look(self, ledger: Ledger, _: Mounted | None) -> Epoch:
        """Hold the last state; on the loop's thread, once that runs: no lookup reads meanwhile."""
        self._found = found = observed(ledger, self._found)
        loop = self._loop
        if loop is not None and loop.is_running():
            loop.call_soon_threadsafe(self._held.replace, found.published, found.ends, found.tokens)
        else:
            self._held.replace(found.published, found.ends, found.tokens)
        self._seen_at = time.monotonic()
        self._first.set()
        return found.published.epoch

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        old = time.monotonic() - self._seen_at > _OLD_SECONDS
        if scope["type"] == "http" and scope["path"] in ("/healthz", "/readyz"):
            if scope["path"] == "/healthz":
                await done({"status": "ok"})(scope, receive, send)
            elif old:
                await failure(_behind())(scope, receive, send)
            else:
                epoch = self._held.published.epoch
                await done({"status": "ready", "epoch": epoch})(scope, receive, send)
        elif old and scope["type"] == "http":
            await self._reading.proxy(scope, receive, send)
        else:
            await self._reading(scope, receive, send)


def _behind() -> HeadraceError:
    return HeadraceError(
        Code.UNAVAILABLE,
        "the state of this reader is old",
        f"The ledger has not answered for {_OLD_SECONDS:.0f} seconds.",
    )
