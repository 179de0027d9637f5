"""How a ledger is opened, and errors of opening it.

Whether the ledger's database answers, and how long it is waited for.
"""

from __future__ import annotations

import logging
import threading
import time
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from headrace.errors import BACKUPS, Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable


_RESTORE: Final = (
    "Restore the ledger from a backup together with the data directory; "
    f"the files it names are unchanged, so keep them. {BACKUPS}"
)


class MissingLedgerError(HeadraceError):
    """A ledger does not exist, and is not to be created."""


class NotBegunError(HeadraceError):
    """A transaction could not begin for as long as its database is waited for."""


class Mode(Enum):
    """Whether a ledger is opened for writing or only for reading."""

    WRITE = auto()
    READ = auto()


def corrupt(place: str, detail: str) -> HeadraceError:
    """Return the error for a damaged ledger."""
    return HeadraceError(Code.CORRUPT, f'ledger "{place}" is damaged', detail, _RESTORE)


def missing(place: str) -> MissingLedgerError:
    """Return the error for a ledger that does not exist, and is not to be created."""
    return MissingLedgerError(
        Code.INVALID,
        f'ledger "{place}" does not exist',
        hint="Open it for writing once to create it.",
    )


def read_only(place: str, text: str) -> HeadraceError:
    """Return the error for a write to a ledger that is open for reading; ``text`` is from it."""
    return HeadraceError(Code.INVALID, f'ledger "{place}" is open for reading only', f"{text}.")


def unanswered(place: str, text: str) -> HeadraceError:
    """Return the error for a database that did not do as asked; ``text`` is what it says."""
    return HeadraceError(
        Code.UNAVAILABLE,
        f'ledger "{place}" did not answer',
        f"The database says: {text}.",
        "Nothing was changed: try again once the database answers.",
    )


_log: Final = logging.getLogger(__name__)
_FIRST_SECONDS: Final = 0.05
_LONGEST_SECONDS: Final = 1.0


class Availability:
    """Since when a database does not answer, if so. Thread-safe.

    Whoever needs it waits until ``patience`` seconds have passed since it stopped answering; from
    then on, each tries once and fails. So however many wait, none waits longer. Meanwhile ``probe``
    is asked every second whether it answers, so that this is known even if nobody needs it.
    """

    def __init__(self, place: str, patience: float, probe: Callable[[], bool]) -> None:
        self.error: HeadraceError | None = None
        """Why it does not answer; None if it does."""
        self._place = place
        self._patience = patience
        self._probe = probe
        self._since = 0.0
        self._silent_since: float | None = None
        self._closed = threading.Event()
        self._changing = threading.Lock()

    def answers(self) -> None:
        """Note that it has answered."""
        self._silent_since = None
        if self.error is None:
            return
        with self._changing:
            if self.error is None:
                return
            self.error = None
            seconds = time.monotonic() - self._since
        _log.warning('ledger "%s" answers again, after %.1f s', self._place, seconds)

    def was_silent(self, since: float) -> None:
        """Note that it did not respond since then: who waited for it has waited from then on."""
        self._silent_since = since

    def fails(self, error: HeadraceError) -> None:
        """Note that it has not answered."""
        with self._changing:
            first = self.error is None
            if first:
                self._since = self._silent_since or time.monotonic()
            self.error = error
        if first and self._patience > 0:
            threading.Thread(target=self._watch, name="headrace-ledger", daemon=True).start()
        if first:
            _log.warning('ledger "%s" does not answer: %s', self._place, error.detail)

    def _watch(self) -> None:
        while self.error is not None and not self._closed.wait(_LONGEST_SECONDS):
            if self._probe():
                self.answers()

    def pause(self, tried: int, seconds: float = 0.0) -> bool:
        """Wait a little before the next try; return whether there may be one.

        ``tried`` is the number of tries so far; the next one takes as long as the last did, about
        ``seconds``, and has to end in time.
        """
        left = self._since + self._patience - time.monotonic() - seconds
        if self.error is None or left <= 0:
            return False
        pause = min(_FIRST_SECONDS * 2**tried, _LONGEST_SECONDS, left)
        return not self._closed.wait(pause)

    def recovers(self) -> bool:
        """Whether it is worth trying again what was lost on the way: the database is waited for."""
        return self._patience > 0 and not self._closed.is_set()

    def close(self) -> None:
        """End all waiting."""
        self._closed.set()
