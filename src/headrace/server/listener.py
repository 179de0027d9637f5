"""The HTTP server: runs the application on a socket, on its own thread."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import uvicorn
import uvloop

from headrace.errors import Code, HeadraceError
from headrace.runtime.switching import QUICK_SWITCHING
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
    from headrace.processes.queries import ProcessBeforehand, QuerySettings
    from headrace.server.address import ListenAddress

_START_SECONDS = 30.0
_HTTP = Transport()


class HttpServer:
    """Serves an open database at an address until it is closed. A context manager.

    Statements of clients may read only files below ``roots``, and make backups in directories only
    below ``backup_roots``. ``queries`` evaluates their queries
    in separate processes, the first one in that started ``beforehand``; by default they run in this
    one. ``/pages/`` serves the files of the
    directory ``pages``. Clients need access tokens if any exist, or always with ``authenticate``.
    Closing the server closes its socket, which is already bound, but not the database. With
    ``readers``, that many processes accept connections, answer lookups, and forward all other
    requests.

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
        backup_roots: Sequence[Path] = (),
        beforehand: ProcessBeforehand | None = None,
    ) -> None:
        transport.require_complete(address)
        require_tokens(address, database.parts.access)
        self.address = replace(address, port=bound.getsockname()[1])
        self.transport = transport
        self._socket = bound
        self._readers = None
        if readers:
            bound.close()  # SO_REUSEPORT must be set before binding
            self._readers = Readers(database, self.address.shared(readers))
        self.service = Service.of(
            database,
            limits or Limits(),
            roots,
            queries,
            pages,
            readers=self._readers,
            authenticate=authenticate,
            backup_roots=backup_roots,
            beforehand=beforehand,
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

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self.transport.url(self.address)

    def start(self) -> None:
        """Start serving.

        Raises:
            HeadraceError: ``unavailable`` if the server did not start within 30 seconds, or its
                reader processes within two minutes.
        """
        QUICK_SWITCHING.begin()
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
        """Stop the server: cancel statements and end subscriptions."""
        self.service.close()
        self._uvicorn.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
            QUICK_SWITCHING.end()
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
    """A uvicorn server that signals when it has started."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        self.ready.set()
