"""Make and drop branches: data directories whose files are hard links to those of the parent.

1. Files are held: compaction deletes none.
2. The ledger is copied, and the copy taken back to the epoch at which the branch begins.
3. Each file that the copy needs gets a second name, in the branch. From then on the file system
   keeps it, whichever of the two databases deletes its own name of it first.
4. The directory, which was made among the attempts, gets its name. Only now the branch exists.

What is left of a branch that was not completed, or not removed completely, is among the attempts,
which are deleted when the database is opened.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from headrace.branches.carried import LEFT_OUT_SETTINGS, carried
from headrace.catalog import Catalog, View, relation_of_json
from headrace.errors import BACKUPS, Code, HeadraceError, not_written
from headrace.ledger import (
    BRANCHES,
    LEDGER,
    DirectoryLock,
    Ledger,
    LedgerCopy,
    Mode,
    branch_directory,
    existing_branch,
    holder_of,
)
from headrace.runtime.published import REFILLED, WAITING
from headrace.spine import mounts, sync_directory
from headrace.types import RelationId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from headrace.ledger.rewinding import CopyChange
    from headrace.runtime.held_files import HeldFiles
    from headrace.types import Epoch

_IDS: Final = "seen"
_FOLDERS: Final = (*mounts.NAMED, _IDS, "attempts")
_SETTING: Final = "branch"
"""The setting of a branch's ledger with what :class:`Branch` says of its beginning."""
_WHY: Final = "It is filled again: the state of its operators is kept for the last epoch only."


@dataclass(frozen=True, slots=True)
class Created:
    """A branch that was made: the epoch at which it begins, and what it is without."""

    name: str
    epoch: Epoch
    without: tuple[str, ...]
    refilled: tuple[str, ...]
    """The views that are filled again when it is first opened."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch: where it begins, how far it is, and its files. None: its ledger cannot be read.

    ``shared_bytes`` are those of files that the parent has too. ``created_at`` is in Unix seconds.
    ``in_use`` names the process that has it open.
    """

    name: str
    from_epoch: Epoch | None
    created_at: float | None
    epoch: Epoch | None
    own_bytes: int
    shared_bytes: int
    in_use: str | None


@dataclass(slots=True)
class Branches:
    """The branches of one open database.

    ``retiring`` is held while events are retired.
    """

    directory: Path
    ledger: Ledger
    held: HeldFiles
    retiring: threading.RLock
    fault: Callable[[str], None] = lambda _stage: None
    clock: Callable[[], float] = time.time
    _changing: threading.Lock = field(default_factory=threading.Lock)

    # -- making one ------------------------------------------------------------------------

    def create(self, name: str, epoch: Epoch | None = None) -> Created:
        """Make a branch that begins at an epoch; None: now, with all that was acknowledged.

        Raises:
            HeadraceError: INVALID for a text that is not a name, or an epoch at which no branch can
                begin; CONFLICT if there is such a branch; CORRUPT if a file is missing; UNSUPPORTED
                if the files are in an object store, or the file system has no hard links;
                UNAVAILABLE if the disk fails.
        """
        place = branch_directory(self.directory, name)
        if mounts.mount_of(self.directory.resolve() / mounts.PACKS) is not None:
            raise HeadraceError(
                Code.UNSUPPORTED,
                "branches of a database in an object store are not supported",
                "A branch shares files by hard links, which object stores do not have.",
                "Restore a backup into a directory: see BACKUP TO.",
            )
        with self._changing:
            if place.exists():
                raise HeadraceError(
                    Code.CONFLICT,
                    f'branch "{name}" exists already',
                    hint="DROP BRANCH removes it.",
                )
            with self._draft() as draft, self.held.hold():
                return self._create(draft, place, epoch)

    @contextmanager
    def _draft(self) -> Iterator[Path]:
        """Yield a new directory among the attempts; what is left of it is deleted."""
        draft = self._attempt()
        try:
            for folder in _FOLDERS:
                (draft / folder).mkdir(parents=True)
            yield draft
        except OSError as error:
            raise not_written(f'directory "{draft}"', error) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _create(self, draft: Path, place: Path, epoch: Epoch | None) -> Created:
        copy = draft / LEDGER
        with self.retiring:
            self.ledger.copy_to(copy)
            self.fault("branch: ledger copied")
            with LedgerCopy(copy).changing() as change:
                created = self._begin(change, place.name, epoch)
            self.fault("branch: begun")
            with Ledger.open(copy, Mode.READ) as begun:
                needed = begun.files.needed()
                self._link_ids(draft, begun)
        for file in needed:
            self._link(file.folder, file.name, draft)
        self.fault("branch: linked")
        for folder in (*mounts.NAMED, _IDS):
            sync_directory(draft / folder)
        sync_directory(draft)
        place.parent.mkdir(exist_ok=True)
        draft.rename(place)
        self.fault("branch: named")
        sync_directory(place.parent)
        sync_directory(self.directory)
        return created

    def _begin(self, change: CopyChange, name: str, epoch: Epoch | None) -> Created:
        """Make the copy of the ledger that of a branch."""
        refilled = frozenset[RelationId]() if epoch is None else change.rewind(epoch)
        kept = carried(change.definitions(), earlier=epoch is not None)
        change.define(kept.changed)
        change.drop(kept.dropped)
        views = _filled_again(change, refilled)
        for view in views:
            change.mark(view.id, WAITING, _WHY, {REFILLED: True})
        beginning = {"name": name, "epoch": change.epoch, "created_at": self.clock()}
        left_out: dict[str, Any] = dict.fromkeys(LEFT_OUT_SETTINGS)
        change.set({**left_out, _SETTING: beginning})
        change.renew()
        return Created(name, change.epoch, kept.without, tuple(view.name for view in views))

    def _link_ids(self, draft: Path, begun: Ledger) -> None:
        """Link the files with ids that streams had had."""
        folder, head = self.directory / _IDS, begun.head
        for path in sorted(folder.glob("*.npy")) if folder.exists() else ():
            stream, first, end, _ = path.stem.rsplit("-", 3)
            id_: Any = int(stream)
            if id_ not in head.ends:
                continue
            if int(end) <= head.ends[id_]:
                self._link(_IDS, path.name, draft)
            elif int(first) < head.starts[id_]:
                raise HeadraceError(
                    Code.INVALID,
                    f"a branch cannot begin at epoch {head.epoch}",
                    "Ids of events that are no longer kept are stored together with later ones.",
                    "Begin at a newer epoch.",
                )

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

    # -- others ----------------------------------------------------------------------------

    def drop(self, name: str) -> None:
        """Remove a branch with all that it has; files of the parent stay.

        Raises:
            HeadraceError: INVALID if there is none; CONFLICT if a process has it open, or it has
                branches.
        """
        with self._changing:
            place = existing_branch(self.directory, name)
            below = sorted(each.name for each in (place / BRANCHES).glob("*"))
            if below:
                raise HeadraceError(
                    Code.CONFLICT,
                    f'branch "{name}" has a branch "{below[0]}"',
                    hint="Drop that first, in the branch.",
                )
            with DirectoryLock(place):
                gone = self._attempt()
                place.rename(gone)
            self.fault("branch: unnamed")
            sync_directory(place.parent)
            with suppress(OSError):  # it has others
                place.parent.rmdir()
            shutil.rmtree(gone, ignore_errors=True)

    def exists(self, name: str) -> bool:
        """Whether there is a branch of this name."""
        return (branch_directory(self.directory, name) / LEDGER).exists()

    def all(self) -> list[Branch]:
        """Return the branches, by name."""
        found = (self.directory / BRANCHES).glob(f"*/{LEDGER}")
        return [_branch(path.parent) for path in sorted(found)]

    def _attempt(self) -> Path:
        return self.directory / "attempts" / f"branch-{uuid4().hex}"


def _filled_again(change: CopyChange, refilled: Iterable[RelationId]) -> list[View]:
    """Return the views that have to be filled again, with those above, in an order that works."""
    definitions = change.definitions()
    catalog = Catalog.of(relation_of_json(value) for value in definitions.values())
    wanted = {id_ for id_ in refilled if id_ in catalog.by_id}
    above = {each.id for id_ in wanted for each in catalog.dependants(id_)}
    return [view for view in catalog.views_in_order() if view.id in wanted | above]


def _branch(place: Path) -> Branch:
    own = shared = 0
    for folder in (*mounts.NAMED, _IDS):
        for path in (place / folder).glob("*"):
            with suppress(FileNotFoundError):  # it is deleted just now
                status = path.stat()
                if status.st_nlink > 1:
                    shared += status.st_size
                else:
                    own += status.st_size
    beginning: dict[str, Any] = {}
    last: Epoch | None = None
    with suppress(HeadraceError), Ledger.open(place / LEDGER, Mode.READ) as ledger:
        beginning, last = ledger.settings.get(_SETTING) or {}, ledger.head.epoch
    own += sum(path.stat().st_size for path in place.glob(f"{LEDGER}*"))
    return Branch(
        place.name,
        beginning.get("epoch"),
        beginning.get("created_at"),
        last,
        own,
        shared,
        holder_of(place),
    )
