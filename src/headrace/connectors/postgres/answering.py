"""Sessions that end when their server has fallen silent: frozen, or behind a network that is cut.

A statement may take hours, and so may a lock: what takes long is not ended. But the client waits
without end for a server that will never answer. So when nothing has come for some seconds, the
server is asked for another session. One that gives or refuses that is there, and is waited for; if
it does not even do that, the session is closed, which fails what it was doing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

SILENT_SECONDS: Final = 10.0
"""After how long without anything from the server it is asked whether it is there."""


def session(psycopg: Any, **given: Any) -> Any:
    """Open a session of the client library in autocommit mode, by the parameters of a connection.

    Raises:
        Exception: the client's, if the server does not answer in time, or refuses the session.
    """

    class Session(psycopg.Connection):  # type: ignore[misc]
        """Fails what waits for a server that has fallen silent."""

        def wait(self, gen: Any, *arguments: Any, **more: Any) -> Any:
            """Run what the client does with the server, which waits in between."""
            return super().wait(_watched(gen, self._require_server), *arguments, **more)

        def _require_server(self) -> None:
            try:
                psycopg.connect(**given).close()
            except psycopg.errors.ConnectionTimeout as error:
                self.pgconn.finish()  # what follows, such as a rollback, does not wait as well
                text = f"nothing has come from the server, and it opens no other session: {error}"
                raise psycopg.OperationalError(text) from error
            except psycopg.Error:
                return  # an answer

    return Session.connect(**given, autocommit=True)


def _watched(gen: Any, require_server: Callable[[], None]) -> Generator[Any, Any, Any]:
    """Run what waits for the server; where that takes long, see now and then that it is there.

    The client wakes ten times a second, and says whether there is something to read or write.
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
