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
REST_SECONDS: Final = 5.0
"""How long the rest of a body may take that is sent after the answer."""
REST_BYTES: Final = 16 << 20
"""The maximum bytes of it."""
_TOO_LONG: Final = "The head of the request is too long."


class BoundedProtocol(HttpToolsProtocol):
    """A connection, which is closed if the head of a request is too slow or too long.

    A request may be answered before its body has arrived, as one that is refused. A short rest of
    the body is discarded, and the connection can be used again; else it is closed.
    """

    head_seconds = HEAD_SECONDS
    rest_seconds = REST_SECONDS

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self._in_head, self._heads = True, 0
        self._incomplete_bytes = 0
        """Received bytes of a head that the parser may not have reported as a whole."""
        self._head_bytes = 0
        """The bytes of the head that the parser has reported."""
        self._rest_bytes: int | None = None
        """The bytes received since the answer, while a body arrives that is discarded."""
        self._until: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout for the head of the first request."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeout."""
        self._stop_timeout()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process received bytes; refuse a head that is too long, and a body after the answer."""
        if self._rest_bytes is not None:
            self._rest_bytes += len(data)
            if self._rest_bytes > REST_BYTES:
                self.transport.close()
                return
        heads = self._heads
        super().data_received(data)
        if self._in_head and heads == self._heads:  # all of it belongs to this head
            self._incomplete_bytes += len(data)
            if self._incomplete_bytes > HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response(_TOO_LONG)

    def on_message_begin(self) -> None:
        """Start the timeout for the head of a request."""
        super().on_message_begin()
        self._heads += 1
        self._await_head()

    def on_url(self, url: bytes) -> None:
        """Count the bytes of the target."""
        super().on_url(url)
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count the bytes of a header."""
        super().on_header(name, value)
        self._count_head(len(name) + len(value) + 4)  # and the colon, a space, the line's end

    def _count_head(self, length: int) -> None:
        """Count bytes of the head.

        Raises:
            ValueError: they are too many; the parser ends, and the request is refused.
        """
        self._head_bytes += length
        if self._head_bytes > HEAD_BYTES:
            raise ValueError(_TOO_LONG)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not a request that can be read, and close the connection."""
        self._stop_timeout()
        super().send_400_response(_TOO_LONG if self._head_bytes > HEAD_BYTES else msg)

    def on_headers_complete(self) -> None:
        """Stop the timeout: the head is complete."""
        self._stop_timeout()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Use the connection again, if the rest of a body has arrived that is discarded."""
        super().on_message_complete()
        if self._rest_bytes is not None:
            self._rest_bytes = None
            self._close_after(self.timeout_keep_alive)

    def on_response_complete(self) -> None:
        """Bound what is still sent of the request."""
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body and self._rest_bytes is None:
            self._rest_bytes = 0
            self._close_after(self.rest_seconds)

    def _await_head(self) -> None:
        self._in_head, self._incomplete_bytes, self._head_bytes = True, 0, 0
        self._close_after(self.head_seconds)

    def _close_after(self, seconds: float) -> None:
        if self._until is not None:
            self._until.cancel()
        self._until = self.loop.call_later(seconds, self.transport.close)

    def _stop_timeout(self) -> None:
        self._in_head = False
        if self._until is not None:
            self._until.cancel()
            self._until = None
