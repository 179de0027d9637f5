"""A client's connection, kept open between requests and reopened when it is lost.

Parses server-sent events from a response.

The address of a server, and how connections to it are opened.
"""

from __future__ import annotations

import json
import select
import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import urlencode, urlsplit

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from http.client import HTTPResponse
    from pathlib import Path


MEDIA_TYPE = "text/event-stream"
WITH_ARROW = f"{MEDIA_TYPE}; rows=arrow"
"""The media type of events whose rows are Arrow."""


class Event(NamedTuple):
    """One complete event; an incomplete one is discarded."""

    kind: str
    data: bytes

    @property
    def json(self) -> Any:
        """The data as JSON."""
        return json.loads(self.data)


def events(lines: Iterable[bytes]) -> Iterator[Event | None]:
    """Yield the events in lines of a response; None for each comment, a keep-alive.

    Headrace writes one line of data for each event.
    """
    kind, data = "", b""
    for raw in lines:
        line = raw.rstrip(b"\r\n")
        if line.startswith(b":"):
            yield None
        elif line:
            name, _, value = line.partition(b": ")
            if name == b"event":
                kind = value.decode()
            elif name == b"data":
                data = value
        elif raw:
            if kind:
                yield Event(kind, data)
            kind, data = "", b""


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


T = TypeVar("T")

JSON: Final = "application/json"
READ_SECONDS: Final = 60.0
"""A server that sends no byte for this long is lost: it sends some every few seconds."""
_KEPT_SECONDS: Final = 3.0
"""The longest idle time of a connection that is reused: servers and proxies close some soon."""
_TRIES: Final = 3
_LONGEST_PAUSE: Final = 5.0
_LONGEST_ERROR: Final = 1 << 20
_FIRST_ERROR: Final = 400
_GONE: Final = 410
_BUSY: Final = 503


class SessionGoneError(HeadraceError):
    """The server has ended a session; nothing of the request was run."""


class LostError(HeadraceError):
    """A connection was lost: whether the request took effect is unknown."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request. A ``repeatable`` one takes effect once, however often it is sent.

    ``path`` is percent-encoded, ``query`` is not; a list gives a parameter several times.
    """

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str | list[str]] = field(default_factory=dict)
    repeatable: bool = False

    @classmethod
    def of_json(cls, method: str, path: str, value: Any, **more: Any) -> Request:
        """Return a request with a JSON body."""
        headers = {"Content-Type": JSON, **more.pop("headers", {})}
        return cls(method, path, json.dumps(value).encode(), headers, **more)


class Connection:
    """The connection of one client, for one request at a time.

    Another thread may :meth:`abort` that request.
    """

    def __init__(self, server: Server, seconds: float = READ_SECONDS) -> None:
        self._server = server
        self._seconds = seconds
        self._lock = threading.RLock()
        self._http: HTTPConnection | None = None
        self._used = 0.0
        self._aborted = False

    def ask(self, request: Request, read: Callable[[HTTPResponse], T]) -> T:
        """Send a request, and return the result of ``read`` on its response.

        If the connection is lost, or the server is busy, a repeatable request is sent again.

        Raises:
            HeadraceError: the error in the response; ``unavailable`` if the server does not
                answer; ``invalid`` if it is not a Headrace server.
        """
        with self._lock:
            self._aborted = False
            for attempt in range(1, _TRIES + 1):
                try:
                    return self._once(request, read)
                except LostError:
                    if not request.repeatable or attempt == _TRIES or self._aborted:
                        raise
                except _BusyError as busy:
                    if not request.repeatable or attempt == _TRIES:
                        raise busy.error from None
                    time.sleep(busy.seconds)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _once(self, request: Request, read: Callable[[HTTPResponse], T]) -> T:
        http = self._connected()
        done = False
        try:
            where = self._server.prefix + request.path
            if request.query:
                where += f"?{urlencode(request.query, doseq=True)}"
            http.request(
                request.method, where, request.body, {**self._server.headers, **request.headers}
            )
            answer = http.getresponse()
            if answer.status >= _FIRST_ERROR:
                raise self._failure(answer)
            found = read(answer)
            done = answer.isclosed() or not answer.read(1)
        except (OSError, HTTPException) as error:
            raise self.lost(error) from error
        else:
            return found
        finally:
            self._used = time.monotonic()
            if not done:
                self.close()

    def _connected(self) -> HTTPConnection:
        """Return the open connection, or a new one if the server has closed it."""
        http = self._http
        if http is not None and http.sock is not None:
            idle = time.monotonic() - self._used
            if idle < _KEPT_SECONDS and not _is_closed(http.sock):
                return http
        self.close()
        self._http = self._server.connected(self._seconds)
        return self._http

    def _failure(self, answer: HTTPResponse) -> Exception:
        """Return the error that a response describes."""
        body = answer.read(_LONGEST_ERROR)
        try:
            error = HeadraceError.of_json(json.loads(body)["error"])
        except (ValueError, KeyError, TypeError):
            return self.stranger(answer)
        if answer.status == _GONE:
            return SessionGoneError(*error.args)
        seconds = answer.headers.get("Retry-After", "")
        if answer.status == _BUSY and seconds.isdigit():
            return _BusyError(error, min(float(seconds), _LONGEST_PAUSE))
        return error

    def stranger(self, answer: HTTPResponse) -> HeadraceError:
        """Return the error that the server is not Headrace."""
        kind = answer.headers.get("Content-Type", "no type")
        return HeadraceError(
            Code.INVALID,
            f"the server at {self._server.url} is not a Headrace server",
            detail=f"It answered with status {answer.status} and {kind}.",
            hint="Check the address, and whether a proxy is between.",
        )

    def lost(self, error: BaseException | None = None) -> LostError:
        """Return the error that the connection was lost."""
        reason = str(error).strip().rstrip(".") if error is not None else ""
        return LostError(
            Code.UNAVAILABLE,
            f"the connection to {self._server.url} was lost",
            detail=f"{reason or 'It was closed'}. What was asked for last may have taken effect.",
            hint="Check whether it has, then try again.",
        )

    def abort(self) -> None:
        """Close the socket, so that the running request fails. Thread-safe."""
        self._aborted = True
        http = self._http
        if http is not None and http.sock is not None:
            with suppress(OSError):
                http.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._http is not None:
            self._http.close()
            self._http = None


class _BusyError(Exception):
    """The server is too busy for a request; ``seconds`` is when to retry."""

    def __init__(self, error: HeadraceError, seconds: float) -> None:
        super().__init__(error)
        self.error = error
        self.seconds = seconds


def read_json(answer: HTTPResponse) -> Any:
    """Return the JSON of a response; None if it is not JSON."""
    try:
        return json.loads(answer.read())
    except ValueError:
        return None


def _is_closed(sock: socket.socket) -> bool:
    """Return whether the peer has closed a connection that no response is expected on."""
    readable, _, _ = select.select([sock], [], [], 0)
    return bool(readable)
