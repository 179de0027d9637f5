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
