"""The address of a server, and how connections to it are opened."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPSConnection
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from pathlib import Path

_PORT: Final = 8088
_SCHEMES: Final = ("http", "https")
_REACH_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Server:
    """The address of a server, and the client's token and TLS settings.

    ``prefix`` is its path behind a proxy, if any; ``tls`` is None for plain HTTP.
    """

    url: str
    host: str
    port: int
    prefix: str = ""
    token: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, url: str, token: str | None = None, ca: str | Path | None = None) -> Server:
        """Return the server of a URL; ``ca`` is a file of certificates to trust.

        Raises:
            HeadraceError: ``invalid`` if the URL is not that of a server, or ``ca`` cannot be read.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise _no_address(url, f"{error}.") from error
        if parts.scheme not in _SCHEMES or not host or parts.query or parts.fragment:
            raise _no_address(url)
        if parts.username is not None:
            raise _no_address(url.replace(parts.netloc, "..."), "It has a user and password.")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise HeadraceError(Code.INVALID, "the token has characters that no token has")
        secure = parts.scheme == "https"
        if ca is not None and not secure:
            raise HeadraceError(
                Code.INVALID,
                f'certificates are given for "{url}", which is not encrypted',
                hint="Use https://, or leave ca out.",
            )
        return cls(
            f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}",
            host,
            port or (443 if secure else _PORT),
            parts.path.rstrip("/"),
            token,
            tls_context(ca) if secure else None,
        )

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    def connected(self, seconds: float) -> HTTPConnection:
        """Return a new connection; each read and write may take up to ``seconds``.

        Raises:
            HeadraceError: ``unavailable`` if nothing answers; ``invalid`` if the server's
                certificate is not trusted.
        """
        reach = min(seconds, _REACH_SECONDS)
        made = (
            HTTPConnection(self.host, self.port, timeout=reach)
            if self.tls is None
            else HTTPSConnection(self.host, self.port, timeout=reach, context=self.tls)
        )
        try:
            made.connect()
        except ssl.SSLCertVerificationError as error:
            raise HeadraceError(
                Code.INVALID,
                f"the certificate of {self.url} is not trusted",
                detail=f"{error.verify_message}.",
                hint="Give the file of the authority's certificate with ca= or --ca.",
            ) from error
        except ssl.SSLError as error:
            raise HeadraceError(
                Code.UNAVAILABLE,
                f"no encrypted connection to {self.url} was made",
                detail=f"{error.reason or error}.",
                hint="Does the server speak plain HTTP? Then use http://.",
            ) from error
        except OSError as error:
            raise HeadraceError(
                Code.UNAVAILABLE,
                f"no server answered at {self.url}",
                detail=f"{error.strerror or error}.",
                hint="Check the address; headrace --data DIR serve starts a server.",
            ) from error
        made.sock.settimeout(seconds)
        return made


def is_url(text: object) -> bool:
    """Whether a text names a server, not a directory."""
    return isinstance(text, str) and text.partition("://")[0].lower() in _SCHEMES and "://" in text


def tls_context(ca: str | Path | None) -> ssl.SSLContext:
    """Return how servers are checked: by the certificates in a file, or those of the machine.

    Raises:
        HeadraceError: ``invalid`` if the file cannot be read.
    """
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:
        raise HeadraceError(
            Code.INVALID,
            f'certificates cannot be read from "{ca}"',
            detail=f"{error.strerror or error}.",
        ) from error


def _no_address(url: str, detail: str | None = None) -> HeadraceError:
    return HeadraceError(
        Code.INVALID,
        f'"{url}" is not the address of a server',
        detail,
        "Give a URL such as http://127.0.0.1:8088.",
    )
