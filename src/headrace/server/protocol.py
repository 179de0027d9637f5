"""Uvicorn's HTTP protocol with limits on the time and size of a request's head.

Without limits, a client could hold a connection or fill the memory with an endless head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

HEAD_SECONDS: Final = 20.0
"""How long a connection may take to send the head of a request."""
HEAD_BYTES: Final = 64 << 10


class BoundedProtocol(HttpToolsProtocol):
    """A connection, which is closed if the head of a request is too slow or too long."""

    head_seconds = HEAD_SECONDS

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self._in_head, self._head_bytes = True, 0
        self._until: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout for the head of the first request."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeout."""
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process received bytes; refuse a head that is too long."""
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
                self._end_head()
                self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        """Start the timeout for the head of a request."""
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        """Stop the timeout: the head is complete."""
        self._end_head()
        super().on_headers_complete()

    def _await_head(self) -> None:
        self._end_head()
        self._in_head, self._head_bytes = True, 0
        self._until = self.loop.call_later(self.head_seconds, self.transport.close)

    def _end_head(self) -> None:
        self._in_head = False
        if self._until is not None:
            self._until.cancel()
            self._until = None
