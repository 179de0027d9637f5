"""Where branches are: what making, removing and listing one needs to know of that.

Branches in directories: files that they share are hard links.

The file system keeps a file as long as it has a name, whichever of the two databases deletes its
own name first. The directory is made among the attempts, and gets its name at last; it is removed
in the other order. What is left among the attempts is deleted when the database is opened.

Branches in an object store: they read what they lack from the objects of their parent.

The ledger of a branch is in the database of that of its parent, in a schema of its own, and its
objects are below ``branches/NAME``. Which files of the parent it needs is recorded in the ledger of
the parent, before there is a ledger of the branch and until it is gone: these are not deleted. So a
branch exists if it is recorded and has a ledger. A record without one is what an interrupted change
has left; it is removed when the database is opened, together with the objects of the branch.
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import uuid4

from headrace.algebra.spine import sync_directory
from headrace.errors import BACKUPS, Code, HeadraceError, unknown
from headrace.files import ObjectStore, StoreAddress, mounts
from headrace.files.store import BRANCHES
from headrace.storage.ledger import (
    LEDGER,
    STORE_SETTING,
    DirectoryLock,
    Files,
    Ledger,
    MissingLedgerError,
    Mode,
    branch_directory,
    existing_branch,
    holder_of,
    restore_ledger,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from headrace.execution.runtime.log_merging import HeldFiles, Hold
    from headrace.storage.ledger import NeededFile, PostgresAddress
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


_RECORDS: Final = "branches"
"""The setting of the parent's ledger with the record of each branch, by name."""


@dataclass(frozen=True, slots=True)
class InStore:
    """The branches of a database whose files are in a ``store``, and whose ledger is elsewhere."""

    directory: Path
    ledger: Ledger
    address: PostgresAddress
    store: ObjectStore
    held: HeldFiles
    fault: Callable[[str], None]
    _holds: dict[str, Hold] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Return the names of the branches, in order."""
        return sorted(self._records())

    def _records(self) -> dict[str, Mapping[str, Any]]:
        return self.ledger.settings.get(_RECORDS) or {}

    def make(self, begun: Begun) -> None:
        """Record what the branch needs; then write its ledger, in one transaction."""
        name, address = begun.name, self.address.of_branch(begun.name)
        if self._has_ledger(name):
            raise HeadraceError(
                Code.CONFLICT,
                f'ledger "{address.place}" exists already',
                "It would be that of the branch, and belongs to another database.",
                "Give the branch another name.",
            )
        mounts.upload(self.directory)
        own = self._store(name)
        for file in begun.kept_ids:
            path = self.directory / IDS / file
            if not path.exists():
                mounts.fetch(str(path))
            own.put(f"{IDS}/{file}", path)
        files: dict[str, list[str]] = {folder: [] for folder in mounts.NAMED}
        for each in begun.needed:
            files[each.folder].append(each.name)
        size = sum(each.bytes for each in begun.needed)
        record = {**begun.beginning, "files": files, "bytes": size}
        self._hold(name, record)
        self.ledger.settings.set(_RECORDS, {**self._records(), name: record})
        self.fault("branch: recorded")
        url = StoreAddress.branch_url(str(self.ledger.settings.get(STORE_SETTING)), name)
        try:
            restore_ledger(begun.draft / LEDGER, None, address, store=url)
        except HeadraceError:
            # If the ledger cannot be asked, the next opening finds out whether there is a branch.
            with suppress(HeadraceError):
                if not self._has_ledger(name):
                    self._forget(name)
            raise
        self.fault("branch: named")

    def remove(self, name: str) -> None:
        """Remove the ledger of a branch, then its objects, then the record."""
        if name not in self._records():
            raise unknown("branch", name, self.names(), "SHOW BRANCHES lists them.")
        address = self.address.of_branch(name)
        with suppress(MissingLedgerError), Ledger.open(address, create=False) as ledger:
            ledger.acquire()
            below = sorted(ledger.settings.get(_RECORDS) or {})
            if below:
                raise has_branch(name, below[0])
            ledger.remove()
        self.fault("branch: unnamed")
        self._forget(name)

    def look(self, name: str) -> Branch:
        """Read the ledger of a branch, and list its objects."""
        record, last = self._records()[name], None
        epoch: Epoch = record["epoch"]
        with suppress(HeadraceError), Ledger.open(self.address.of_branch(name), Mode.READ) as found:
            last = found.head.epoch
        own = sum(size for _, size in self._store(name).names())
        return Branch(name, epoch, record["created_at"], last, own, record["bytes"], None)

    def recover(self) -> None:
        """Hold the files of all branches; remove the records of those that have no ledger."""
        for name, record in self._records().items():
            self._hold(name, record)
            with suppress(HeadraceError):  # it does not answer, or has another format
                if not self._has_ledger(name):
                    self._forget(name)

    def _has_ledger(self, name: str) -> bool:
        try:
            Ledger.open(self.address.of_branch(name), Mode.READ).close()
        except MissingLedgerError:
            return False
        return True

    def _store(self, name: str) -> ObjectStore:
        """Return the store of a branch."""
        address = self.store.address
        return ObjectStore.at(replace(address, url=StoreAddress.branch_url(address.url, name)))

    def _hold(self, name: str, record: Mapping[str, Any]) -> None:
        files = record["files"]
        held = Files(frozenset(files[mounts.PACKS]), frozenset(files[mounts.SEGMENTS]))
        self._holds[name] = self.held.keep(held)

    def _forget(self, name: str) -> None:
        """Delete the objects of a branch that has no ledger, and what is recorded of it."""
        own = self._store(name)
        own.delete([object_ for object_, _ in own.names()])
        left = {each: record for each, record in self._records().items() if each != name}
        self.ledger.settings.set(_RECORDS, left)
        self.held.let_go(self._holds.pop(name))
