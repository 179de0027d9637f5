"""The server itself: an application on a socket, on a thread of its own."""

from __future__ import annotations

import asyncio
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import uvicorn
import uvloop

from headrace.errors import Code, HeadraceError
from headrace.server.address import Transport, require_tokens
from headrace.server.app import application
from headrace.server.http import http_settings, tls_settings
from headrace.server.limits import Limits
from headrace.server.readers import Readers
from headrace.server.service import Service

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from pathlib import Path

    from headrace.database import Database
    from headrace.processes.queries import QuerySettings
    from headrace.server.address import ListenAddress

_START_SECONDS = 30.0
_SWITCH_SECONDS = 0.0005
"""After how long a thread that computes lets the others run: the one that serves waits for it."""
_HTTP = Transport()


class HttpServer:
    """Serves an open database at an address until it is closed. A context manager.

    Its clients' statements may read files below ``roots``, and no others; their queries are
    evaluated in processes of their own, by ``queries``, or by default in this one. Below
    ``/pages/`` are the files of a directory ``pages``. Clients need access tokens if there are any,
    and with ``authenticate`` in any case.
    The socket, which is bound already, is closed with it; the database is not. With ``readers``,
    so many processes accept connections and answer lookups, and pass on what else is asked.

    Raises:
        HeadraceError: as :meth:`Transport.require_complete` and :func:`require_tokens`.
    """

    def __init__(
        self,
        database: Database,
        address: ListenAddress,
        bound: socket.socket,
        limits: Limits | None = None,
        roots: Sequence[Path] = (),
        queries: QuerySettings | None = None,
        *,
        pages: Path | None = None,
        transport: Transport = _HTTP,
        authenticate: bool = False,
        readers: int = 0,
    ) -> None:
        transport.require_complete(address)
        require_tokens(address, database.parts.access)
        self.address = replace(address, port=bound.getsockname()[1])
        self.transport = transport
        self._socket = bound
        self._readers = None
        if readers:
            bound.close()  # what is not shared from the start cannot be shared
            self._readers = Readers(database, self.address.shared(readers))
        self.service = Service.of(
            database,
            limits or Limits(),
            roots,
            queries,
            pages,
            readers=self._readers,
            authenticate=authenticate,
        )
        listening = tls_settings(transport)
        if self._readers is not None:
            listening = {"uds": str(self._readers.socket)}
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                application(self.service, transport.names(self.address)),
                **http_settings(),
                **listening,
            )
        )
        self._thread = threading.Thread(target=self._run, name="headrace-http", daemon=True)
        self._switched = sys.getswitchinterval()

    @property
    def url(self) -> str:
        """Where the server is."""
        return self.transport.url(self.address)

    def start(self) -> None:
        """Serve from now on.

        Raises:
            HeadraceError: ``unavailable`` if it did not start in half a minute, or its readers did
                not in two.
        """
        sys.setswitchinterval(min(self._switched, _SWITCH_SECONDS))
        self._thread.start()
        if not self._uvicorn.ready.wait(_START_SECONDS):
            raise HeadraceError(Code.UNAVAILABLE, "the server did not start")
        if self._readers is not None:
            names = self.transport.names(self.address)
            self._readers.start(
                names,
                self.transport,
                self.service.limits,
                self.service.metrics.tallies,
                authenticate=self.service.entrance.required,
            )
        if self.service.query_processes is not None:
            self.service.query_processes.warm()

    def close(self) -> None:
        """Stop: statements are cancelled, and subscriptions end."""
        self.service.close()
        self._uvicorn.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
            sys.setswitchinterval(self._switched)
        if self._readers is not None:
            self._readers.close()
        self._socket.close()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        beside = [
            asyncio.create_task(self.service.tidy()),
            asyncio.create_task(self.service.status.run()),
        ]
        try:
            await self._uvicorn.serve(None if self._readers else [self._socket])
        finally:
            for task in beside:
                task.cancel()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Uvicorn(uvicorn.Server):
    """A server that signals when it has started."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        self.ready.set()
