"""A session that listens for the commits of a ledger in PostgreSQL."""

from __future__ import annotations

import select
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headrace.ledger.postgres_address import client

if TYPE_CHECKING:
    from collections.abc import Callable


class CommitListener:
    """A session that listens to a channel."""

    def __init__(self, connect: Callable[[], Any], channel: str) -> None:
        self._session = connect()
        try:
            self._session.execute(f'LISTEN "{channel}"')
        except BaseException:
            self.close()
            raise

    def wait(self, seconds: float) -> bool:
        """Wait until it is notified, or for some seconds; return whether the session goes on."""
        if self._pending():
            return True
        try:
            select.select([self._session.fileno()], [], [], seconds)
            self._session.pgconn.consume_input()
        except (client().Error, OSError, ValueError):  # ValueError: of a descriptor that is closed
            return False
        self._pending()
        return not self._session.closed

    def _pending(self) -> bool:
        """Take all notifications that have come; return whether there were any."""
        found = False
        while self._session.pgconn.notifies() is not None:
            found = True
        return found

    def close(self) -> None:
        """End the session."""
        with suppress(Exception):
            self._session.close()
