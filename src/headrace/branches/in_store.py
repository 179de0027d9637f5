"""Branches in an object store: they read what they lack from the objects of their parent.

The ledger of a branch is in the database of that of its parent, in a schema of its own, and its
objects are below ``branches/NAME``. Which files of the parent it needs is recorded in the ledger of
the parent, before there is a ledger of the branch and until it is gone: these are not deleted. So a
branch exists if it is recorded and has a ledger. A record without one is what an interrupted change
has left; it is removed when the database is opened, together with the objects of the branch.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.branches.in_directory import has_branch
from headrace.branches.places import IDS, Begun, Branch
from headrace.errors import Code, HeadraceError, unknown
from headrace.ledger import (
    LEDGER,
    STORE_SETTING,
    Files,
    Ledger,
    MissingLedgerError,
    Mode,
    restore_ledger,
)
from headrace.objects import ObjectStore, StoreAddress
from headrace.spine import mounts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from headrace.ledger import PostgresAddress
    from headrace.runtime.held_files import HeldFiles, Hold
    from headrace.types import Epoch

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
