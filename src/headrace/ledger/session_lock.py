"""The lock that admits one writer of a ledger in PostgreSQL: an advisory lock of one session.

The server releases it as soon as the session ends: with the process, even by a crash, or when the
server stops. Safety comes from the fence in the ledger, which every write checks: this lock only
keeps others from taking the fence of a writer that is alive.
"""

from __future__ import annotations

import hashlib
import logging
import select
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from headrace.directories.lock import open_elsewhere
from headrace.errors import Code, HeadraceError
from headrace.ledger.postgres_address import client
from headrace.postgres_session import said

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.directories.lock import Waits
    from headrace.ledger.availability import Availability
    from headrace.ledger.writers import LedgerWriter

_log: Final = logging.getLogger(__name__)
_WAIT_MILLISECONDS: Final = 1000
_RETRY_SECONDS: Final = 0.5
_NOT_AVAILABLE: Final = "55P03"
_SETTINGS: Final = (
    "SELECT set_config(name, value, false) FROM (VALUES"
    " ('idle_session_timeout', '0'), ('statement_timeout', '0'), ('tcp_keepalives_idle', '10'),"
    " ('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3')) AS wanted (name, value)"
    " WHERE current_setting(name, true) IS NOT NULL"
)
"""The server drops a session of a machine that is gone, and keeps one that is idle."""


def lock_key(name: str) -> int:
    """Return the key of an advisory lock, of 64 bits, for a name."""
    digest = hashlib.sha256(f"headrace {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


class SessionLock:
    """Holds an advisory lock from :meth:`acquire` to :meth:`release`.

    A lost session, as when the server restarts, is replaced in the background. If another process
    has the lock by then, it has taken over, or is about to: ``contended`` is called, again and
    again until the lock is taken again or released.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        key: int,
        place: str,
        availability: Availability,
        contended: Callable[[], None],
    ) -> None:
        self._availability = availability
        self._connect = connect
        self._contended = contended
        self._key = key
        self._place = place
        self._session: Any = None
        self._closed = threading.Event()
        self._ours, self._theirs = socket.socketpair()
        self._thread = threading.Thread(target=self._keep, name="headrace-fence", daemon=True)

    def acquire(self, waits: Waits, writer: Callable[[], LedgerWriter | None]) -> None:
        """Take the lock, and keep it from now on.

        Raises:
            HeadraceError: CONFLICT if another process has it and ``waits`` returns false;
                UNAVAILABLE if the server does not answer, likewise; UNSUPPORTED if sessions are
                shared between transactions.
        """
        failure = self._attempt(writer, wait=False)
        while failure is not None:
            if not waits(failure):
                self._lost()
                raise failure
            if failure.code is Code.UNAVAILABLE:
                self._closed.wait(_RETRY_SECONDS)
            failure = self._attempt(writer, wait=True)
        self._require_own_session()
        self._thread.start()

    def release(self) -> None:
        """Release the lock."""
        self._closed.set()
        with suppress(OSError):
            self._ours.send(b"x")
        if self._thread.is_alive():
            self._thread.join()
        self._lost()
        self._ours.close()
        self._theirs.close()

    def _attempt(
        self, writer: Callable[[], LedgerWriter | None], *, wait: bool
    ) -> HeadraceError | None:
        """Try to take the lock; return why it is not taken."""
        try:
            if self._took(wait=wait):
                return None
            holder = writer()
        except client().Error as error:
            self._lost()
            return self._unreachable(error)
        except HeadraceError as error:
            self._lost()
            if error.code is not Code.UNAVAILABLE:
                raise
            return error
        who = "another process" if holder is None else str(holder)
        return open_elsewhere(f'ledger "{self._place}"', who)

    def _took(self, *, wait: bool) -> bool:
        """Try to take the lock, or wait for it for a second; return whether it is taken."""
        if self._session is None:
            self._session = self._connect()
            self._session.execute(_SETTINGS)
        if not wait:
            query = f"SELECT pg_try_advisory_lock({self._key})"
            return bool(self._session.execute(query).fetchone()[0])
        try:
            self._session.execute(f"SET lock_timeout = {_WAIT_MILLISECONDS}")
            self._session.execute(f"SELECT pg_advisory_lock({self._key})")
        except Exception as error:
            if getattr(error, "sqlstate", None) != _NOT_AVAILABLE:
                raise
            return False
        return True

    def _require_own_session(self) -> None:
        """Refuse a pooler that gives the session of the lock to others while it is idle."""
        query = "SELECT pg_backend_pid()"
        (own,) = self._session.execute(query).fetchone()
        with self._connect() as another:
            (other,) = another.execute(query).fetchone()
        if own == other:
            self._lost()
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'ledger "{self._place}" through a pool of transactions is not supported',
                "The lock that admits one writer belongs to a session.",
                "Connect to the server, or to a pool of sessions (pgbouncer: pool_mode = session).",
            )

    def _keep(self) -> None:
        """Notice the loss of the session, and take the lock again, until it is released."""
        while not self._closed.is_set():
            if self._session is not None and self._is_alive():
                continue
            if self._closed.is_set():
                return
            self._lost()
            failure = self._attempt(lambda: None, wait=False)
            if failure is None:
                _log.warning('the lock of ledger "%s" was lost, and taken again', self._place)
                continue
            self._lost()
            if failure.code is Code.UNAVAILABLE:
                self._availability.fails(failure)
            else:
                self._contended()
            self._closed.wait(_RETRY_SECONDS)

    def _is_alive(self) -> bool:
        """Wait until something happens; return whether the session goes on."""
        try:
            heard, _, _ = select.select([self._session.fileno(), self._theirs], [], [])
            if self._theirs in heard:
                return False
            self._session.pgconn.consume_input()
            while self._session.pgconn.notifies() is not None:
                pass
        except Exception:  # noqa: BLE001 - psycopg's error, or that of a closed descriptor
            return False
        return not self._session.closed

    def _lost(self) -> None:
        """Close the session."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):
                session.close()

    def _unreachable(self, error: Exception) -> HeadraceError:
        return HeadraceError(
            Code.UNAVAILABLE,
            f'ledger "{self._place}" did not answer',
            f"The database says: {said(error)}.",
            "Try again once the database answers.",
        )
