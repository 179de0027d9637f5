"""A client's connection, kept open between requests and reopened when it is lost."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlencode

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from http.client import HTTPConnection, HTTPResponse

    from headrace.remote.server import Server

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
