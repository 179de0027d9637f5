"""Listen addresses, TLS, and what a server must have before other machines may reach it."""

from __future__ import annotations

import errno
import re
import socket
import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.lifecycle.states.access import Tokens


_WRITTEN = re.compile(r"(?P<host>\[[^\]]+\]|[^:\[\]]+):(?P<port>\d{1,5})")
_GREATEST_PORT = 65535
_LOCALHOST = "localhost"
_EVERY = frozenset({"0.0.0.0", "::"})  # noqa: S104  (recognised, and refused without a name)
_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9.\-]{0,250}[a-z0-9])?(:\d{1,5})?")


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """A host and a port. Port 0 stands for a free port."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> ListenAddress:
        """Parse ``127.0.0.1:8088``, ``[::1]:8088`` or ``localhost:8088``.

        Raises:
            HeadraceError: ``invalid`` if the text is not an address.
        """
        found = _WRITTEN.fullmatch(text)
        if found is None or int(found["port"]) > _GREATEST_PORT:
            raise HeadraceError(
                Code.INVALID,
                f"'{text}' is not an address to listen on",
                hint="Give a host and a port, such as 127.0.0.1:8088.",
            )
        return cls(found["host"].strip("[]").lower(), int(found["port"]))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == _LOCALHOST:
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def bound(self) -> socket.socket:
        """Return a socket bound to this address.

        Raises:
            HeadraceError: ``conflict`` if another program listens there; ``invalid`` if this
                machine has no such address, or the port is reserved.
        """
        return self._bound()

    def shared(self, count: int) -> list[socket.socket]:
        """Return several sockets bound to this address; the kernel spreads connections over them.

        Raises:
            HeadraceError: as :meth:`bound`, but not if a program of the same user shares the
                address.
        """
        made: list[socket.socket] = []
        try:
            made.extend(self._bound(socket.SO_REUSEPORT) for _ in range(count))
        except BaseException:
            for each in made:
                each.close()
            raise
        return made

    def _bound(self, *reused: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        # asyncio sets TCP_NODELAY only if the protocol is named. Without it, an answer whose head
        # and body are sent separately waits 40 ms for an acknowledgement.
        made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            # Remaining connections of an ended server do not block the address. The kernel requires
            # the option on the earlier listening sockets too.
            for option in (socket.SO_REUSEADDR, *reused):
                made.setsockopt(socket.SOL_SOCKET, option, 1)
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


@dataclass(frozen=True, slots=True)
class HostNames:
    """The allowed values of the headers Host and Origin, in lower case."""

    hosts: frozenset[str]
    origins: frozenset[str]


@dataclass(frozen=True, slots=True)
class Transport:
    """How clients reach a server: the files of its certificate and key, and its host names.

    ``plain``: other machines may reach it without TLS, such as behind a proxy that ends TLS.
    """

    certificate: Path | None = None
    key: Path | None = None
    host_names: tuple[str, ...] = ()
    """Names of the server, each with or without a port, that clients may use."""
    plain: bool = False

    @property
    def scheme(self) -> str:
        """The scheme of the server's URLs."""
        return "http" if self.certificate is None else "https"

    def url(self, address: ListenAddress) -> str:
        """Return the URL of a server."""
        return f"{self.scheme}://{_bracketed(address.host)}:{address.port}"

    def names(self, address: ListenAddress) -> HostNames:
        """Return the Host and Origin values that a server at ``address`` accepts."""
        hosts = {f"{_bracketed(address.host)}:{address.port}"}
        if address.is_loopback or address.host in _EVERY:
            hosts |= {f"{host}:{address.port}" for host in (_LOCALHOST, "127.0.0.1", "[::1]")}
        for name in map(str.lower, self.host_names):
            hosts |= {name} if ":" in name else {name, f"{name}:{address.port}"}
        schemes = {self.scheme, "https"} if self.plain else {self.scheme}
        origins = frozenset(f"{scheme}://{host}" for scheme in schemes for host in hosts)
        return HostNames(frozenset(hosts), origins)

    def require_complete(self, address: ListenAddress) -> None:
        """Raise if other machines could reach the server without TLS, or without a host name.

        Raises:
            HeadraceError: ``unsupported``; ``invalid`` for a certificate without a key or the
                reverse, for missing files, and for a text that is not a host name.
        """
        for name in self.host_names:
            if _HOST_NAME.fullmatch(name.lower()) is None:
                raise HeadraceError(
                    Code.INVALID,
                    f"'{name}' is not the name of a host",
                    hint="Give --host-name as in requests' Host header, such as db.example.com.",
                )
        if (self.certificate is None) != (self.key is None):
            hint = "Give both --certificate and --key."
            raise HeadraceError(Code.INVALID, "TLS needs a certificate and its key", hint=hint)
        if self.certificate is not None and self.key is not None:
            _require_certificate(self.certificate, self.key)
        elif not address.is_loopback and not self.plain:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"listening on '{address.host}' without TLS is not supported",
                detail="Other machines can reach it, and tokens could be intercepted.",
                hint="Give --certificate and --key; or --plain-http if a proxy in front has TLS.",
            )
        if address.host in _EVERY and not self.host_names:
            raise HeadraceError(
                Code.INVALID,
                f"listening on '{address.host}' needs a name",
                detail="Requests for other names are refused: another site's page may make them.",
                hint="Give --host-name with the name that clients use.",
            )


def require_tokens(address: ListenAddress, access: Tokens) -> None:
    """Raise if other machines could reach the server while it requires no access tokens.

    Raises:
        HeadraceError: ``unsupported``.
    """
    if not address.is_loopback and not access.is_required:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"listening on '{address.host}' without access tokens is not supported",
            detail="Other machines can reach it, and its clients would not be authenticated.",
            hint="Create a token first: headrace --data DIR token create NAME --role owner.",
        )


def _require_certificate(certificate: Path, key: Path) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:  # those of TLS are OSErrors
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise HeadraceError(
            Code.INVALID,
            "the certificate and its key cannot be used",
            detail=f"{reason}.",
            hint="Give files in PEM format, the key without a password.",
        ) from error


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
