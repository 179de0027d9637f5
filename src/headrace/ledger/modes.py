"""How a ledger is opened, and errors of opening it."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from headrace.errors import BACKUPS, Code, HeadraceError

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
