"""Settings of uvicorn, for each process of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.server.protocol import BoundedProtocol

if TYPE_CHECKING:
    from headrace.server.address import Transport

_CONNECTIONS: Final = 4096
LONGEST_MESSAGE: Final = 4096
"""The maximum bytes of a client's WebSocket message, which is ignored."""
_GOODBYE_SECONDS: Final = 5
"""How long unfinished answers may take once the server stops."""


def http_settings() -> dict[str, Any]:
    """Return uvicorn's settings, except the application and the address."""
    return {
        "http": BoundedProtocol,
        "ws": "websockets-sansio",
        "ws_max_size": LONGEST_MESSAGE,
        "ws_per_message_deflate": False,  # compression would repeat for each subscriber
        "lifespan": "off",
        "proxy_headers": False,
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "limit_concurrency": _CONNECTIONS,
        "timeout_graceful_shutdown": _GOODBYE_SECONDS,
    }


def tls_settings(transport: Transport) -> dict[str, Any]:
    """Return uvicorn's settings for TLS."""
    return {"ssl_certfile": transport.certificate, "ssl_keyfile": transport.key}
