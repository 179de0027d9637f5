"""Make and drop branches: databases of their own that share the files of their parent.

1. Files are held: compaction deletes none.
2. The ledger is copied, and the copy taken back to the epoch at which the branch begins.
3. The branch gets its files: see :mod:`headrace.lifecycle.copies.branch_places` and
   :mod:`headrace.lifecycle.copies.branch_places`.

What a branch has of the definitions of its parent: all that stays within the database.

A source would take messages from the parent's consumer group or slot, and a sink write to what the
parent writes to. So a stream or table that has a source becomes a plain one, into which rows are
inserted, and sinks to other systems are left out. A sink into a table of the database goes on,
unless the branch begins at an earlier epoch: how far it had been given changes by then is not
recorded.
"""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError, not_written
from headrace.execution.runtime.published import REFILLED, WAITING
from headrace.files import mounts
from headrace.lifecycle.copies.branch_places import IDS, SETTING, Begun, Branch, Places, attempt_in
from headrace.planning.catalog import Catalog, Sink, Stream, Table, View, relation_of_json
from headrace.planning.catalog.naming import HIDDEN, shown_name
from headrace.storage.ledger import LEDGER, Ledger, LedgerCopy, Mode, branch_directory
from headrace.storage.log import appended_by
from headrace.types import RelationId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from headrace.execution.runtime.log_merging import HeldFiles
    from headrace.storage.ledger.rewinding import CopyChange
    from headrace.types import Epoch


LEFT_OUT_SETTINGS: Final = ("captures",)
"""The settings of a ledger that name what takes messages from other systems."""


@dataclass(frozen=True, slots=True)
class BranchDefinitions:
    """The relations that a branch does not have, and those that it has with another definition.

    ``without`` says for people what it is without.
    """

    dropped: tuple[RelationId, ...]
    changed: Mapping[RelationId, Mapping[str, Any]]
    without: tuple[str, ...]


def carried(
    definitions: Mapping[RelationId, dict[str, Any]], *, earlier: bool
) -> BranchDefinitions:
    """Return what becomes of the definitions of a database in a branch of it.

    ``earlier``: the branch does not begin at the last moment of the database.
    """
    dropped: list[RelationId] = []
    changed: dict[RelationId, Mapping[str, Any]] = {}
    without = []
    names = {id_: relation_of_json(value).name for id_, value in definitions.items()}
    for id_, value in definitions.items():
        match relation_of_json(value):
            case Sink() as sink:
                if sink.target is not None and not earlier:
                    continue
                dropped.append(id_)
                if names.get(sink.source, "").startswith(HIDDEN):
                    dropped.append(sink.source)
                without.append(f"sink {sink.name}")
            case (Stream() | Table()) as relation if relation.declaration.source:
                plain = replace(relation.declaration, source=())
                changed[id_] = replace(relation, declaration=plain).to_json()
                without.append(f"the source of {relation.kind} {relation.name}")
    return BranchDefinitions(tuple(dict.fromkeys(dropped)), changed, tuple(sorted(without)))


_FOLDERS: Final = (*mounts.NAMED, IDS, "attempts")
_WHY: Final = "It is filled again: the state of its operators is kept for the last epoch only."


@dataclass(frozen=True, slots=True)
class Created:
    """A branch that was made: the epoch at which it begins, and what it is without."""

    name: str
    epoch: Epoch
    without: tuple[str, ...]
    refilled: tuple[str, ...]
    """The views that are filled again when it is first opened."""


@dataclass(slots=True)
class Branches:
    """The branches of one open database, at ``places``.

    ``retiring`` is held while events are retired.
    """

    directory: Path
    ledger: Ledger
    places: Places
    held: HeldFiles
    retiring: threading.RLock
    fault: Callable[[str], None] = lambda _stage: None
    clock: Callable[[], float] = time.time
    _changing: threading.Lock = field(default_factory=threading.Lock)

    def create(self, name: str, epoch: Epoch | None = None) -> Created:
        """Make a branch that begins at an epoch; None: now, with all that was acknowledged.

        Raises:
            HeadraceError: INVALID for a text that is not a name, or an epoch at which no branch can
                begin; CONFLICT if there is such a branch; CORRUPT if a file is missing; UNSUPPORTED
                if the file system has no hard links; UNAVAILABLE if the disk, the store or the
                ledger fails.
        """
        branch_directory(self.directory, name)
        with self._changing:
            if self.exists(name):
                raise HeadraceError(
                    Code.CONFLICT,
                    f'branch "{name}" exists already',
                    hint="DROP BRANCH removes it.",
                )
            with self._draft() as draft, self.held.hold():
                return self._create(draft, name, epoch)

    @contextmanager
    def _draft(self) -> Iterator[Path]:
        """Yield a new directory among the attempts; what is left of it is deleted."""
        draft = attempt_in(self.directory)
        try:
            for folder in _FOLDERS:
                (draft / folder).mkdir(parents=True)
            yield draft
        except OSError as error:
            raise not_written(f'directory "{draft}"', error) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _create(self, draft: Path, name: str, epoch: Epoch | None) -> Created:
        copy = draft / LEDGER
        with self.retiring:
            self.ledger.copy_to(copy)
            self.fault("branch: ledger copied")
            with LedgerCopy(copy).changing() as change:
                created, beginning = self._begin(change, name, epoch)
            self.fault("branch: begun")
            with Ledger.open(copy, Mode.READ) as begun:
                ids, kept = self._ids(begun)
                needed = begun.files.needed()
            self.places.make(Begun(name, draft, beginning, needed, ids, kept))
        return created

    def _begin(
        self, change: CopyChange, name: str, epoch: Epoch | None
    ) -> tuple[Created, dict[str, Any]]:
        """Make the copy of the ledger that of a branch; return also what it says of that."""
        refilled = frozenset[RelationId]()
        if epoch is not None:
            refilled = change.rewind(epoch, partial(appended_by, self.directory / "log"))
        kept = carried(change.definitions(), earlier=epoch is not None)
        change.define(kept.changed)
        change.drop(kept.dropped)
        views = _filled_again(change, refilled)
        for view in views:
            change.mark(view.id, WAITING, _WHY, {REFILLED: True})
        beginning = {"name": name, "epoch": change.epoch, "created_at": self.clock()}
        left_out: dict[str, Any] = dict.fromkeys(LEFT_OUT_SETTINGS)
        change.set({**left_out, SETTING: beginning})
        change.renew()
        catalog = _catalog(change)
        names = tuple(shown_name(view, catalog) for view in views)
        return Created(name, change.epoch, kept.without, names), beginning

    def _ids(self, begun: Ledger) -> tuple[list[str], list[str]]:
        """Return the files with ids that streams had had; and those of events that are gone."""
        folder, head = self.directory / IDS, begun.head
        found, kept = [], []
        for name in sorted(mounts.files_in(folder)) if folder.exists() else ():
            stem, _, kind = name.rpartition(".")
            if kind != "npy":
                continue
            stream, first, end, _ = stem.rsplit("-", 3)
            id_: Any = int(stream)
            if id_ not in head.ends:
                continue
            gone = int(first) < head.starts[id_]
            if int(end) <= head.ends[id_]:
                found.append(name)
                kept += [name] * gone
            elif gone:
                raise HeadraceError(
                    Code.INVALID,
                    f"a branch cannot begin at epoch {head.epoch}",
                    "Ids of events that are no longer kept are stored together with later ones.",
                    "Begin at a newer epoch.",
                )
        return found, kept

    def drop(self, name: str) -> None:
        """Remove a branch with all that it has; files of the parent stay.

        Raises:
            HeadraceError: INVALID if there is none; CONFLICT if a process has it open, or it has
                branches.
        """
        with self._changing:
            self.places.remove(name)

    def exists(self, name: str) -> bool:
        """Whether there is a branch of this name."""
        return name in self.places.names()

    def all(self) -> list[Branch]:
        """Return the branches, by name."""
        return [self.places.look(name) for name in self.places.names()]

    def recover(self) -> None:
        """Hold what branches need, and remove what interrupted changes have left.

        To be called when the database is opened, before anything is deleted.
        """
        self.places.recover()


def _catalog(change: CopyChange) -> Catalog:
    return Catalog.of(map(relation_of_json, change.definitions().values()))


def _filled_again(change: CopyChange, refilled: Iterable[RelationId]) -> list[View]:
    """Return the views that have to be filled again, with those above, in an order that works."""
    catalog = _catalog(change)
    wanted = {id_ for id_ in refilled if id_ in catalog.by_id}
    above = {each.id for id_ in wanted for each in catalog.dependants(id_)}
    return [view for view in catalog.views_in_order() if view.id in wanted | above]
