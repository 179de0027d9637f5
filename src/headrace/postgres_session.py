"""Sessions of PostgreSQL that fail when their server stops responding: it is frozen, or cut off.

A statement or a lock may take hours, so there is no timeout for them. But the client would wait
forever for a server that never answers. So if nothing is received for some seconds, another session
is opened as a probe. If the server accepts or refuses it, the wait continues; if the probe times
out, the session is closed, and its statement fails.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


SILENT_SECONDS: Final = 5.0
"""The time without data from the server after which it is probed."""

_REFUSED: Final = ("28000", "28P01", "3D000", "42501")
_UNREACHABLE: Final = ("08", "57P")
_SAID: Final = (
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "is not permitted to log in",
    "permission denied",
)
"""Texts of errors with which a server refuses a session: libpq gives no code for these."""


def said(error: Any) -> str:
    """Return what an error of psycopg says, as one line without a full stop."""
    return " ".join(str(error).split()).rstrip(".")


def is_refused(error: Any) -> bool:
    """Whether an error of psycopg says that the user or the database is refused."""
    if error.sqlstate is not None:
        return error.sqlstate in _REFUSED
    text = said(error)
    return any(words in text for words in _SAID) and "No such file" not in text


def is_unreachable(error: Any) -> bool:
    """Whether an error of psycopg, which refuses nothing, says that the server does not answer."""
    return error.sqlstate is None or error.sqlstate.startswith(_UNREACHABLE)


def silent_since(error: Any) -> float | None:
    """Return since when the server of a monitored session did not respond, by an error of it.

    A time of the monotonic clock; None for other errors.
    """
    return getattr(error, "silent_since", None)


def session(psycopg: Any, conninfo: str, **given: Any) -> Any:
    """Open a monitored session in autocommit mode.

    ``conninfo`` and ``given`` are psycopg's connection parameters.

    Raises:
        Exception: psycopg's error if the server does not answer in time, or refuses the session.
    """

    class _SilentError(psycopg.OperationalError):  # type: ignore[misc]
        """The server has stopped responding, ``silent_since`` a time of the monotonic clock."""

        silent_since = 0.0

    class MonitoredSession(psycopg.Connection):  # type: ignore[misc]
        """A connection whose operations fail if the server stops responding."""

        def wait(self, gen: Any, *arguments: Any, **more: Any) -> Any:
            """Run an operation, a generator that waits for the server in between."""
            return super().wait(_watched(gen, self._require_server), *arguments, **more)

        def _require_server(self) -> None:
            since = time.monotonic() - SILENT_SECONDS
            try:
                psycopg.connect(conninfo, **given).close()
            except psycopg.errors.ConnectionTimeout as error:
                self.pgconn.finish()  # so that a following rollback does not wait as well
                text = f"the server has stopped responding, and opens no other session: {error}"
                silent = _SilentError(text)
                silent.silent_since = since
                raise silent from error
            except psycopg.Error:
                return  # the server has answered

    return MonitoredSession.connect(conninfo, **given, autocommit=True)


def _watched(gen: Any, require_server: Callable[[], None]) -> Generator[Any, Any, Any]:
    """Run an operation of psycopg; call ``require_server`` whenever nothing is received for long.

    The client resumes the generator ten times a second, with whether the socket is ready.
    """
    heard = time.monotonic()
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENT_SECONDS:
                require_server()
                heard = time.monotonic()
            wanted = gen.send(ready)
    except StopIteration as ended:
        return ended.value
