"""Sessions that fail when their server stops responding: it is frozen, or the network is cut.

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

SILENT_SECONDS: Final = 10.0
"""The time without data from the server after which it is probed."""


def session(psycopg: Any, **given: Any) -> Any:
    """Open a monitored session in autocommit mode; ``given`` are psycopg's connection parameters.

    Raises:
        Exception: psycopg's error if the server does not answer in time, or refuses the session.
    """

    class MonitoredSession(psycopg.Connection):  # type: ignore[misc]
        """A connection whose operations fail if the server stops responding."""

        def wait(self, gen: Any, *arguments: Any, **more: Any) -> Any:
            """Run an operation, a generator that waits for the server in between."""
            return super().wait(_watched(gen, self._require_server), *arguments, **more)

        def _require_server(self) -> None:
            try:
                psycopg.connect(**given).close()
            except psycopg.errors.ConnectionTimeout as error:
                self.pgconn.finish()  # so that a following rollback does not wait as well
                text = f"the server has stopped responding, and opens no other session: {error}"
                raise psycopg.OperationalError(text) from error
            except psycopg.Error:
                return  # the server has answered

    return MonitoredSession.connect(**given, autocommit=True)


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
