"""Where a server listens: on a loopback address, since nothing tells its clients apart."""

from __future__ import annotations

import errno
import re
import socket
from dataclasses import dataclass
from ipaddress import ip_address

from headrace.errors import Code, HeadraceError

_WRITTEN = re.compile(r"(?P<host>\[[^\]]+\]|[^:\[\]]+):(?P<port>\d{1,5})")
_GREATEST_PORT = 65535
_LOCALHOST = "localhost"


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port. Port 0 stands for one that is free."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> Address:
        """Parse ``127.0.0.1:8088``, ``[::1]:8088`` or ``localhost:8088``.

        Raises:
            HeadraceError: ``invalid`` if it is none; ``unsupported`` if others than this machine
                could reach it.
        """
        found = _WRITTEN.fullmatch(text)
        if found is None or int(found["port"]) > _GREATEST_PORT:
            raise HeadraceError(
                Code.INVALID,
                f"'{text}' is not an address to listen on",
                hint="Give a host and a port, such as 127.0.0.1:8088.",
            )
        host = found["host"].strip("[]").lower()
        if not _is_loopback(host):
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"listening on '{host}' is not supported",
                detail="Other machines could reach it, and a server does not authenticate clients.",
                hint="Listen on 127.0.0.1 or [::1]; let others in through an SSH tunnel, or a proxy"
                " that authenticates them.",
            )
        return cls(host, int(found["port"]))

    @property
    def names(self) -> frozenset[str]:
        """What a Host header may have for this server."""
        hosts = {_LOCALHOST, "127.0.0.1", "[::1]", _bracketed(self.host)}
        return frozenset(f"{host}:{self.port}" for host in hosts)

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"http://{_bracketed(self.host)}:{self.port}"

    def bound(self) -> socket.socket:
        """Return a socket that is bound to this address.

        Raises:
            HeadraceError: ``conflict`` if another program listens there; ``invalid`` if this
                machine has no such address, or the port is reserved.
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        # With the protocol named, asyncio sends at once what it is given; else an answer whose head
        # and body are sent apart waits for an acknowledgement, which takes 40 ms.
        made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((self.host, self.port))
            made.listen()
        except OSError as error:
            made.close()
            taken = error.errno == errno.EADDRINUSE
            raise HeadraceError(
                Code.CONFLICT if taken else Code.INVALID,
                f"cannot listen on {self.host}:{self.port}",
                detail=f"{error.strerror or error}.",
                hint="Choose another port with --listen.",
            ) from error
        return made


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_loopback(host: str) -> bool:
    if host == _LOCALHOST:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
