"""Where branches are: what making, removing and listing one needs to know of that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from headrace.ledger import NeededFile
    from headrace.types import Epoch

IDS: Final = "seen"
"""The folder with the ids of streams, whose files the ledger does not name."""
SETTING: Final = "branch"
"""The setting of a branch's ledger with its beginning: name, epoch and time of creation."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch: where it begins, how far it is, and its files. None: its ledger cannot be read.

    ``own_bytes`` are those of files that its parent does not have, or no longer; ``shared_bytes``
    those of files that both have. ``created_at`` is in Unix seconds. ``in_use`` names the process
    that has it open, where that is known.
    """

    name: str
    from_epoch: Epoch | None
    created_at: float | None
    epoch: Epoch | None
    own_bytes: int
    shared_bytes: int
    in_use: str | None


@dataclass(frozen=True, slots=True)
class Begun:
    """What a branch is made of.

    ``draft`` is a directory with the copied ledger, which belongs to the branch already, and with
    its empty folders. The branch needs the files ``needed`` of the parent, and the files ``ids`` of
    the folder :data:`IDS`. ``kept_ids`` are those of them that cannot be made again from logs.
    """

    name: str
    draft: Path
    beginning: Mapping[str, Any]
    needed: Sequence[NeededFile]
    ids: Sequence[str]
    kept_ids: Sequence[str]


class Places(Protocol):
    """The places of the branches of one database."""

    def names(self) -> list[str]:
        """Return the names of the branches, in order."""
        ...

    def make(self, begun: Begun) -> None:
        """Make a branch: it exists as a whole once this returns, and else not at all.

        Raises:
            HeadraceError: CORRUPT if a file is missing; UNAVAILABLE or UNSUPPORTED.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove a branch that exists.

        Raises:
            HeadraceError: CONFLICT if a process has it open, or it has branches.
        """
        ...

    def look(self, name: str) -> Branch:
        """Return what is known of a branch that exists."""
        ...

    def recover(self) -> None:
        """Hold what branches need, and remove what interrupted changes have left."""
        ...
