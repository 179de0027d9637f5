"""A database on a server, with the interface of an embedded one."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakSet

from headrace.errors import Code, HeadraceError, unknown
from headrace.interfaces.remote.connection import Connection, Request, Server, read_json
from headrace.interfaces.remote.session import RemoteSession
from headrace.interfaces.statements.default_session import DefaultSession
from headrace.types import Epoch

if TYPE_CHECKING:
    from pathlib import Path


_RECENT_SECONDS: Final = 1.0
"""The maximum age of the cached catalog when columns of relations are listed in turn."""


def connect(url: str, *, token: str | None = None, ca: str | Path | None = None) -> RemoteDatabase:
    """Connect to the server at a URL, with a token if it requires one.

    ``ca`` is a file of certificates to trust for ``https``, in place of the system's.

    Raises:
        HeadraceError: ``unavailable`` if no server answers; ``invalid`` if it is not a Headrace
            server, or refuses the token.
    """
    database = RemoteDatabase(Server.of(url, token, ca))
    try:
        database.last_epoch()
    except BaseException:
        database.close()
        raise
    return database


class RemoteDatabase(DefaultSession):
    """A database on a server. A context manager; safe to use from several threads.

    It has the methods of :class:`headrace.Database`, with the same results and errors. All
    statements through its methods are one session, the default one.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._open = True
        self._catalog_connection = Connection(server)
        self._known: tuple[float, Any] | None = None
        """The catalog of the last request, with its time, until a statement runs."""
        self._sessions: WeakSet[RemoteSession] = WeakSet()
        self._closing = threading.Lock()
        self._default = self.session()

    @property
    def origin(self) -> tuple[str, str]:
        """The kind of the database, a server, and its URL."""
        return "server", self._server.url

    # -- statements ------------------------------------------------------------------------

    def session(self) -> RemoteSession:
        """Open a session: one client, with its own settings, whose statements run beside others."""
        self._require_open()
        session = RemoteSession(self._server, lambda: self._open, self._forget)
        self._sessions.add(session)
        return session

    def register(self, *_: object, **__: object) -> Any:
        """Refuse to register a function: it would have to run on the server.

        Raises:
            HeadraceError: ``unsupported``.
        """
        raise HeadraceError(
            Code.UNSUPPORTED,
            "registering a function in a server is not supported",
            detail="Functions run in the process that has the database open.",
            hint="Start the server with headrace serve --functions FILE.",
        )

    # -- state -----------------------------------------------------------------------------

    def relations(self) -> list[tuple[str, str]]:
        """Return the kind and name of every stream, table, view, materialized view and sink."""
        return [(each["kind"], each["name"]) for each in self._catalog()["relations"]]

    def columns(self, name: str) -> list[tuple[str, str]]:
        """Return the name and type of a relation's columns."""
        known = self._known
        recent = known is not None and time.monotonic() - known[0] < _RECENT_SECONDS
        catalog = known[1] if known is not None and recent else self._catalog()
        relations = {each["name"].lower(): each["columns"] for each in catalog["relations"]}
        found = relations.get(name.lower())
        if found is None:
            what, otherwise = "table, stream or view", "SHOW TABLES lists what exists."
            raise unknown(what, name, relations, otherwise)
        return [(column["name"], column["type"]) for column in found]

    def functions(self) -> list[str]:
        """Return the names of the Python functions that queries can call."""
        return list(self._catalog()["functions"])

    def last_epoch(self) -> Epoch:
        """Return the last committed epoch."""
        return Epoch(self._catalog()["epoch"])

    def pending(self) -> int:
        """Return the number of changes that have arrived and no epoch has read yet."""
        return int(self._catalog()["pending"])

    def close(self) -> None:
        """End all sessions and their statements. The server continues."""
        with self._closing:
            if not self._open:
                return
            for session in list(self._sessions):
                session.close()
            self._open = False
            self._catalog_connection.close()

    def _catalog(self) -> Any:
        self._require_open()
        connection = self._catalog_connection
        asked = Request("GET", "/v1/catalog", repeatable=True)

        def catalog(answer: Any) -> Any:
            found = read_json(answer)
            if not isinstance(found, dict) or "relations" not in found:
                raise connection.stranger(answer)
            self._known = (time.monotonic(), found)
            return found

        return connection.ask(asked, catalog)

    def _forget(self) -> None:
        self._known = None

    def _require_open(self) -> None:
        if not self._open:
            raise HeadraceError(Code.UNAVAILABLE, "the database is closed")

    def __repr__(self) -> str:
        """Return the address."""
        return f"<headrace.RemoteDatabase {self._server.url}{'' if self._open else ', closed'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
