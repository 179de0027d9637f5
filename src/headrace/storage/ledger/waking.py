"""Waits for epochs that another process commits.

A commit in PostgreSQL notifies whoever listens, in its transaction. A reader asks the database
besides, since a notification may be lost with a session: seldom while it listens, otherwise often.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.storage.ledger.commit import last_epoch

if TYPE_CHECKING:
    from headrace.storage.ledger.postgres import CommitListener
    from headrace.storage.ledger.transactions import Transactions
    from headrace.types import Epoch


POLL_SECONDS: Final = 0.2
"""How often the database is asked by who does not listen."""
_LISTENING_SECONDS: Final = 5.0
"""How often it is asked by who listens."""


@dataclass(slots=True)
class Waking:
    """Waits for epochs, for one thread at a time; the session is kept between the calls."""

    _transactions: Transactions
    _listener: CommitListener | None = field(default=None)

    def wait(self, after: Epoch, seconds: float) -> Epoch:
        """Return the last epoch as soon as it is later than one; at the latest after some seconds.

        Raises:
            HeadraceError: UNAVAILABLE if the database does not answer.
        """
        until = time.monotonic() + seconds
        while True:
            self._listen()  # first, so that no commit is missed in between
            epoch = self._transactions.store.read(last_epoch)
            left = until - time.monotonic()
            if epoch > after or left <= 0:
                return epoch
            if self._listener is None:
                time.sleep(min(left, POLL_SECONDS))
            elif not self._listener.wait(min(left, _LISTENING_SECONDS)):
                self.close()

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = self._transactions.listener()

    def close(self) -> None:
        """Stop listening."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
