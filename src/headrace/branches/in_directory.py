"""Branches in directories: files that they share are hard links.

The file system keeps a file as long as it has a name, whichever of the two databases deletes its
own name first. The directory is made among the attempts, and gets its name at last; it is removed
in the other order. What is left among the attempts is deleted when the database is opened.
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from headrace.branches.places import IDS, SETTING, Begun, Branch
from headrace.errors import BACKUPS, Code, HeadraceError
from headrace.ledger import (
    LEDGER,
    DirectoryLock,
    Ledger,
    Mode,
    branch_directory,
    existing_branch,
    holder_of,
)
from headrace.objects.address import BRANCHES
from headrace.spine import mounts, sync_directory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.types import Epoch

_SHARED = (*mounts.NAMED, IDS)


@dataclass(frozen=True, slots=True)
class InDirectory:
    """The branches of a database whose files are in a directory."""

    directory: Path
    fault: Callable[[str], None]

    def names(self) -> list[str]:
        """Return the names of the branches, in order."""
        return sorted(each.parent.name for each in (self.directory / BRANCHES).glob(f"*/{LEDGER}"))

    def make(self, begun: Begun) -> None:
        """Link the files, and give the directory its name."""
        if mounts.mount_of(self.directory.resolve() / mounts.PACKS) is not None:
            raise HeadraceError(
                Code.UNSUPPORTED,
                "branches of a database whose ledger is in a directory and whose files are in an"
                " object store are not supported",
                "The directory is a cache, which has not all files.",
                "Keep the ledger in PostgreSQL: BACKUP TO, and restore with the setting ledger.",
            )
        draft, place = begun.draft, branch_directory(self.directory, begun.name)
        for file in begun.needed:
            self._link(file.folder, file.name, draft)
        for name in begun.ids:
            try:
                self._link(IDS, name, draft)
            except HeadraceError as error:
                # It was merged into another one meanwhile, and is made again from the log.
                if error.code is not Code.CORRUPT or name in begun.kept_ids:
                    raise
        self.fault("branch: linked")
        for folder in _SHARED:
            sync_directory(draft / folder)
        sync_directory(draft)
        place.parent.mkdir(exist_ok=True)
        draft.rename(place)
        self.fault("branch: named")
        sync_directory(place.parent)
        sync_directory(self.directory)

    def _link(self, folder: str, name: str, draft: Path) -> None:
        source = self.directory / folder / name
        try:
            os.link(source, draft / folder / name)
        except FileNotFoundError as error:
            raise HeadraceError(
                Code.CORRUPT,
                f'file "{source}" is missing',
                "The ledger names it.",
                f"Run REPAIR, or restore it from a backup. {BACKUPS}",
            ) from error
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            raise HeadraceError(
                Code.UNSUPPORTED,
                "branches in this file system are not supported",
                f"A branch shares files by hard links: {error.strerror}.",
                "Keep the data directory in one file system that has hard links; or restore a"
                " backup into another directory: see BACKUP TO.",
            ) from error

    def remove(self, name: str) -> None:
        """Take the name from the directory, and delete it."""
        place = existing_branch(self.directory, name)
        below = sorted(each.name for each in (place / BRANCHES).glob("*"))
        if below:
            raise has_branch(name, below[0])
        with DirectoryLock(place):
            gone = attempt_in(self.directory)
            place.rename(gone)
        self.fault("branch: unnamed")
        sync_directory(place.parent)
        with suppress(OSError):  # it has others
            place.parent.rmdir()
        shutil.rmtree(gone, ignore_errors=True)

    def look(self, name: str) -> Branch:
        """Read the ledger of a branch, and the sizes of its files."""
        place, own, shared = branch_directory(self.directory, name), 0, 0
        for folder in _SHARED:
            for path in (place / folder).glob("*"):
                with suppress(FileNotFoundError):  # it is deleted just now
                    status = path.stat()
                    if status.st_nlink > 1:
                        shared += status.st_size
                    else:
                        own += status.st_size
        own += sum(path.stat().st_size for path in place.glob(f"{LEDGER}*"))
        beginning: dict[str, Any] = {}
        last: Epoch | None = None
        with suppress(HeadraceError), Ledger.open(place / LEDGER, Mode.READ) as ledger:
            beginning, last = ledger.settings.get(SETTING) or {}, ledger.head.epoch
        return Branch(
            name,
            beginning.get("epoch"),
            beginning.get("created_at"),
            last,
            own,
            shared,
            holder_of(place),
        )

    def recover(self) -> None:
        """Do nothing: the file system holds the files, and the sweep deletes attempts."""


def attempt_in(directory: Path) -> Path:
    """Return the path of a new directory among the attempts, which is not made."""
    return directory / "attempts" / f"branch-{uuid4().hex}"


def has_branch(name: str, below: str) -> HeadraceError:
    """Return the error that a branch cannot be dropped, since it has one."""
    return HeadraceError(
        Code.CONFLICT,
        f'branch "{name}" has a branch "{below}"',
        hint="Drop that first, in the branch.",
    )
