"""Answers requests while another process serves the database, and until this one has taken over."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Self

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.routing import Route

from headrace.errors import Code, HeadraceError
from headrace.interfaces.server.listener import http_settings, tls_settings
from headrace.interfaces.server.requests import done, failure

if TYPE_CHECKING:
    import socket

    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.interfaces.server.address import Transport


_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_UNKNOWN = "It waits for the process that has it open."


class StandbyServer:
    """Serves ``GET /healthz``; any other request is ``unavailable`` and may be tried elsewhere.

    A context manager. It uses a copy of the bound socket, which goes on listening afterwards: a
    client that connects in between is answered by who serves next.
    """

    def __init__(self, bound: socket.socket, transport: Transport) -> None:
        self._socket = bound.dup()
        self._waiting_for = _UNKNOWN
        config = uvicorn.Config(
            Starlette(
                routes=[
                    Route("/healthz", self._health),
                    Route("/{path:path}", self._refuse, methods=_METHODS),
                ]
            ),
            **http_settings(),
            **tls_settings(transport),
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="headrace-standby", daemon=True)

    def waits_for(self, error: HeadraceError) -> None:
        """Say in answers what is waited for: the error of who could not open the database."""
        self._waiting_for = f"{error.primary[:1].upper()}{error.primary[1:]}."

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._server.serve([self._socket]))

    async def _health(self, request: Request) -> Response:
        del request
        return done({"status": "standby"})

    async def _refuse(self, request: Request) -> Response:
        del request
        return failure(
            HeadraceError(
                Code.UNAVAILABLE,
                "this server does not serve the database yet",
                self._waiting_for,
                "Try again, or another server.",
            )
        )
