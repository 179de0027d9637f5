"""Make a backup of a database while it runs: its state at one moment, and the files of that.

1. Files are held: compaction deletes none.
2. The ledger is copied. The copy says which files its state needs. Those that the place lacks are
   held from now on, all others are free.
3. Each is copied, and compared with the checksums in the ledger while it is read.
4. The copy of the ledger and then the manifest are written. Only now the backup exists.

The ids of streams are not named by the ledger. Those of retired events are only in their files, so
nothing is retired from before the ledger is copied until these files are.
"""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from headrace.backups.manifest import Manifest, StoredFile, key_of, ledger_key_of, name_of
from headrace.backups.repository import Repository
from headrace.backups.transfer import DamagedFileError, Digest, Meter, checked_pieces, run_all
from headrace.errors import Code, HeadraceError, not_written
from headrace.ledger import LEDGER_FORMAT, Files, Ledger, Mode, NeededFile
from headrace.log import checked_part
from headrace.objects import DirectoryPlace
from headrace.spine import mounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from headrace.objects import Place
    from headrace.runtime.held_files import HeldFiles
    from headrace.types import Epoch

_IDS: Final = "seen"
_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class BackedUp:
    """A backup that was made, what it has cost, and how many files the place had already."""

    name: str
    epoch: Epoch
    files_copied: int
    bytes_copied: int
    files_reused: int


@dataclass(slots=True)
class Backups:
    """Makes backups of one open database, one at a time.

    ``retiring`` is held while events are retired. ``place_at`` returns the place at a URL.
    """

    directory: Path
    ledger: Ledger
    held: HeldFiles
    retiring: threading.RLock
    place_at: Callable[[str], Place]
    fault: Callable[[str], None] = lambda _stage: None
    clock: Callable[[], float] = time.time
    _running: threading.Lock = field(default_factory=threading.Lock)

    def make(
        self,
        url: str,
        keep: int | None = None,
        report: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> BackedUp:
        """Make a backup at a place; delete all but the ``keep`` newest ones, if given.

        ``report`` is given the bytes that are copied, and those to be copied; what it raises ends
        the backup.

        Raises:
            HeadraceError: CONFLICT if another backup is being made; CORRUPT if a file is damaged;
                INVALID for a place that cannot have it; UNAVAILABLE if that does not answer or is
                full. Earlier backups are as they were.
        """
        repository = Repository(self._place(url))
        if not self._running.acquire(blocking=False):
            raise HeadraceError(
                Code.CONFLICT,
                "another backup of this database is being made",
                hint="Wait for its end, or cancel it.",
            )
        try:
            repository.claim(self.ledger.settings.identity)
            made = self._make(repository, report)
            if keep is not None:
                self.fault("backed up")
                repository.keep(keep)
        finally:
            self._running.release()
        return made

    def at(self, url: str) -> list[Manifest]:
        """Return the backups at a place, the oldest first."""
        repository = Repository(self._place(url))
        return [repository.manifest(name) for name in repository.names()]

    def _place(self, url: str) -> Place:
        place = self.place_at(url)
        if isinstance(place, DirectoryPlace):
            if place.path.resolve().is_relative_to(self.directory.resolve()):
                raise HeadraceError(
                    Code.INVALID,
                    f'directory "{place.path}" is in the data directory',
                    "A backup is to outlive that.",
                    "Give another directory, best of all on another disk.",
                )
        else:
            mounted = mounts.mount_of(self.directory / "runs")
            own = "" if mounted is None else mounted.store.address.url
            if own and f"{place.url}/".startswith(f"{own}/"):
                raise HeadraceError(
                    Code.INVALID,
                    f'"{place.url}" is in the store of the database',
                    "Its sweep deletes what the ledger does not name.",
                    "Give another prefix, best of all in another bucket.",
                )
        return place

    def _make(self, repository: Repository, report: Callable[[int, int], None]) -> BackedUp:
        with self._draft() as draft, self.held.hold() as hold:
            copying = _Copying.to(repository, self.directory, report)
            with self.retiring:
                taken_at = self.clock()
                self.ledger.copy_to(draft)
                self.fault("ledger copied")
                with Ledger.open(draft, Mode.READ) as copy:
                    epoch, needed = copy.head.epoch, copy.files.needed()
                    identity = copy.settings.identity
                missing = copying.plan(needed)
                hold.narrow(_held(missing))
                copying.copy(copying.plan(copying.ids()))
            self.fault("ids copied")
            copying.copy(missing)
            self.fault("files copied")
            name = name_of(epoch, taken_at, repository.names())
            ledger = copying.put_ledger(name, draft)
            repository.place.sync()
            self.fault("ledger stored")
            repository.add(
                Manifest(
                    name,
                    epoch,
                    taken_at,
                    version("headrace"),
                    LEDGER_FORMAT,
                    identity,
                    ledger.size,
                    ledger.checksum,
                    tuple(copying.stored),
                )
            )
        size = sum(file.bytes for file in copying.copied)
        reused = len(copying.stored) - len(copying.copied)
        return BackedUp(name, epoch, len(copying.copied), size, reused)

    @contextmanager
    def _draft(self) -> Iterator[Path]:
        """Yield where the ledger is copied to while a block runs."""
        folder = self.directory / "attempts" / f"backup-{uuid4().hex}"
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise not_written(f'directory "{folder}"', error) from error
        try:
            yield folder / "ledger.db"
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(slots=True)
class _Copying:
    """The copying of the files of one backup.

    ``present`` are the names at the place, ``known`` the files of the newest backup by these.
    """

    repository: Repository
    directory: Path
    report: Callable[[int, int], None]
    present: frozenset[str]
    known: Mapping[str, StoredFile]
    meter: Meter = field(default_factory=Meter)
    total: int = 0
    """The bytes to be copied, as far as they are known."""
    stored: list[StoredFile] = field(default_factory=list)
    """The files of the backup that are at the place."""
    copied: list[StoredFile] = field(default_factory=list)
    """Those of them that were copied by this backup."""

    @classmethod
    def to(
        cls, repository: Repository, directory: Path, report: Callable[[int, int], None]
    ) -> _Copying:
        """Return the copying to a place, whose files it lists."""
        present = frozenset(name for name, _ in repository.place.names("files"))
        newest = repository.newest()
        files = () if newest is None else newest.files
        known = {file.key: file for file in files if file.key in present}
        return cls(repository, directory, report, present, known)

    def ids(self) -> Iterator[NeededFile]:
        """Yield the files with ids that streams have had."""
        folder = self.directory / _IDS
        backed_up = {file.name: file for file in self.known.values() if file.folder == _IDS}
        names = mounts.files_in(folder) if folder.exists() else ()
        for name in [name for name in names if name.endswith(".npy")]:
            if name in backed_up:
                yield NeededFile(_IDS, name, backed_up[name].bytes, ())
                continue
            path = folder / name
            if path.exists() or mounts.fetch(str(path)):
                part = checked_part(path)
                yield NeededFile(_IDS, name, part.position + part.bytes, (part,))

    def plan(self, needed: Iterable[NeededFile]) -> list[NeededFile]:
        """Take the files that the newest backup has; return the others, which are to be copied."""
        missing = []
        for file in needed:
            known = self.known.get(key_of(file.folder, file.name, file.bytes))
            if known is None:
                missing.append(file)
                self.total += file.bytes
            else:
                self.stored.append(known)
        return missing

    def copy(self, files: Iterable[NeededFile]) -> None:
        """Copy files to the place."""
        tasks = (partial(self._copy, file) for file in files)
        for stored, copied in run_all(
            tasks, self.meter, lambda done: self.report(min(done, self.total), self.total)
        ):
            if stored is not None:
                self.stored.append(stored)
            if stored is not None and copied:
                self.copied.append(stored)

    def put_ledger(self, name: str, draft: Path) -> Digest:
        """Copy the copy of the ledger to the place."""
        digest, size = Digest(), draft.stat().st_size
        pieces = digest.of(checked_pieces(draft, size, ()), self.meter)
        self.repository.place.put(ledger_key_of(name), pieces)
        return digest

    def _copy(self, file: NeededFile) -> tuple[StoredFile | None, bool]:
        """Copy a file; return it, and whether it was not at the place already.

        None for one of ids that has been merged into another meanwhile: it was needed no longer.
        """
        path = self.directory / file.folder / file.name
        for _ in range(_TRIES):
            try:
                if not path.exists():
                    mounts.fetch(str(path))
                return self._put(path, file)
            except DamagedFileError:
                # In a cache, it may be damaged, or have made room for another one.
                if mounts.fetch(str(path)):
                    continue
                if file.folder == _IDS and not path.exists():
                    return None, False
                raise
        return self._put(path, file)

    def _put(self, path: Path, file: NeededFile) -> tuple[StoredFile, bool]:
        key, digest = key_of(file.folder, file.name, file.bytes), Digest()
        pieces = digest.of(checked_pieces(path, file.bytes, file.ranges), self.meter)
        if key in self.present:  # an interrupted backup has left it: only its checksum is not known
            for _ in pieces:
                pass
        else:
            self.repository.place.put(key, pieces)
        stored = StoredFile(file.folder, file.name, file.bytes, digest.checksum)
        return stored, key not in self.present


def _held(files: Iterable[NeededFile]) -> Files:
    """Return the files that compaction could delete."""
    named = list(files)
    return Files(
        frozenset(file.name for file in named if file.folder == "runs"),
        frozenset(file.name for file in named if file.folder == "log"),
    )
