"""Make a backup of a database while it runs: its state at one moment, and the files of that.

1. Files are held: compaction deletes none.
2. The ledger is copied. The copy says which files its state needs. Those that the place lacks are
   held from now on, all others are free.
3. Each is copied, and compared with the checksums in the ledger while it is read.
4. The copy of the ledger and then the manifest are written. Only now the backup exists.

The ids of streams are not named by the ledger. Those of retired events are only in their files, so
nothing is retired from before the ledger is copied until these files are.

Restore a backup into a directory or an object store; every file is compared with its checksum.

The target has a file that says that it is not complete, and no ledger until everything else is in
place; that file is removed last. So nothing that is restored in part can be opened, and a restore
that was interrupted goes on where it ended.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from headrace.errors import BACKUPS, Code, HeadraceError, not_written
from headrace.files import DirectoryPlace, mounts
from headrace.lifecycle.copies.repository import (
    DamagedFileError,
    Digest,
    Manifest,
    Meter,
    Repository,
    StoredFile,
    checked_pieces,
    key_of,
    ledger_key_of,
    name_of,
    run_all,
)
from headrace.storage.ledger import (
    LEDGER,
    LEDGER_FORMAT,
    RESTORING,
    DirectoryLock,
    Files,
    Ledger,
    Mode,
    NeededFile,
    is_restored,
    restore_ledger,
)
from headrace.storage.log import checked_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from headrace.execution.runtime.log_merging import HeldFiles
    from headrace.files import Place
    from headrace.storage.ledger import PostgresAddress
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


_BACKUP: Final = "backup"
_FOUND: Final = "lost+found"
"""The folder that an empty file system may have."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a database is restored to: a directory, or an object store with a ledger elsewhere.

    ``store`` is the URL of an object store, with its options; empty for a directory.
    """

    place: Place
    address: PostgresAddress | None = None
    store: str = ""

    @property
    def directory(self) -> Path | None:
        """The data directory; None for an object store."""
        return self.place.path if isinstance(self.place, DirectoryPlace) else None


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored: the backup, how many of its files were there already, and the bytes."""

    manifest: Manifest
    files: int
    kept: int
    bytes: int


def restore(
    repository: Repository,
    target: Target,
    name: str | None = None,
    report: Callable[[int, int], None] = lambda _done, _total: None,
    fault: Callable[[str], None] = lambda _stage: None,
) -> Restored:
    """Restore a backup, the newest by default; ``report`` is given the bytes done and in all.

    Raises:
        HeadraceError: INVALID if there is no such backup, or the target has other files; CORRUPT if
            a file of the backup is damaged or missing; CONFLICT if the ledger exists, or another
            process restores there; UNSUPPORTED for a backup of a newer version; UNAVAILABLE if a
            place does not answer, or is full.
    """
    manifest = repository.newest() if name is None else repository.manifest(name)
    if manifest is None:
        raise HeadraceError(
            Code.INVALID,
            f'"{repository.place.url}" has no backups',
            hint="Check the URL; BACKUP TO makes one.",
        )
    if manifest.ledger_format > LEDGER_FORMAT:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'backup "{manifest.name}" was made by a newer version of Headrace',
            f"That was version {manifest.version}.",
            "Use that version, or a newer one.",
        )
    restoring = _Restoring(repository, target, manifest, report, fault)
    return restoring.run()


@dataclass(slots=True)
class _Restoring:
    repository: Repository
    target: Target
    manifest: Manifest
    report: Callable[[int, int], None]
    fault: Callable[[str], None]
    meter: Meter = field(default_factory=Meter)

    def run(self) -> Restored:
        target, place, manifest = self.target, self.target.place, self.manifest
        if target.directory is not None and target.directory.is_file():
            raise HeadraceError(Code.INVALID, f'"{target.directory}" is a file')
        present = dict(place.names())
        begun = RESTORING in present
        same = begun and self._begun() == manifest.name
        complete = same and is_restored(target.directory, target.address, target.store)
        if not begun:
            self._require_empty(present)
        if not complete:
            self._mark()
            self.fault("marked")
        with self._alone():
            kept = 0
            if not complete:
                kept = self._files(present)
                place.sync()
                self.fault("files restored")
                with self._ledger() as copy:
                    directory = target.directory
                    restore_ledger(copy, directory, target.address, store=target.store)
                self.fault("ledger restored")
            place.delete([RESTORING])
            place.sync()
        return Restored(manifest, len(manifest.files), kept, self.meter.done)

    def _require_empty(self, present: Iterable[str]) -> None:
        """Refuse a target that has anything, and a ledger that exists."""
        directory = self.target.directory
        other = next(iter(present), None)
        if other is None and directory is not None and directory.exists():
            other = next((each.name for each in directory.iterdir() if each.name != _FOUND), None)
        if other is not None:
            raise HeadraceError(
                Code.INVALID,
                f'"{self.target.place.url}" is not empty',
                f'It has "{other}".',
                "Restore to a directory or a prefix that does not exist yet.",
            )
        if is_restored(directory, self.target.address, self.target.store):
            raise HeadraceError(Code.INTERNAL, "a ledger belongs to a target that is empty")

    def _begun(self) -> str | None:
        """Return the backup that an interrupted restore has begun with."""
        try:
            found = json.loads(b"".join(self.target.place.pieces(RESTORING)))
            return str(found[_BACKUP])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def _mark(self) -> None:
        what = {_BACKUP: self.manifest.name, "from": self.repository.place.url}
        self.target.place.put(RESTORING, [json.dumps(what).encode()])
        self.target.place.sync()

    def _alone(self) -> AbstractContextManager[object]:
        directory = self.target.directory
        return nullcontext() if directory is None else DirectoryLock(directory)

    def _files(self, present: dict[str, int]) -> int:
        """Restore the files; return how many were there already."""
        tasks = (partial(self._file, file, present) for file in self.manifest.files)
        return sum(run_all(tasks, self.meter, self._report))

    def _report(self, done: int) -> None:
        self.report(min(done, self.manifest.size), self.manifest.size)

    def _file(self, file: StoredFile, present: dict[str, int]) -> bool:
        """Restore a file; return whether it was there already."""
        if present.get(file.path) == file.bytes and self._is_intact(file):
            return True
        pieces = self.repository.pieces(file.key)
        place = self.target.place
        place.put(file.path, self._verified(pieces, file.key, file.bytes, file.checksum))
        return False

    def _is_intact(self, file: StoredFile) -> bool:
        """Whether a file that an interrupted restore has left is as it should be."""
        digest = Digest()
        for _ in digest.of(self.target.place.pieces(file.path), self.meter):
            pass
        return digest.checksum == file.checksum

    @contextmanager
    def _ledger(self) -> Iterator[Path]:
        """Yield the copy of the ledger, which may be moved, while a block runs."""
        manifest, directory = self.manifest, self.target.directory
        attempts = None if directory is None else directory / "attempts"
        if attempts is not None:
            attempts.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=attempts) as folder:
            pieces = self.repository.pieces(manifest.ledger_key)
            DirectoryPlace(Path(folder)).put(
                LEDGER,
                self._verified(
                    pieces, manifest.ledger_key, manifest.ledger_bytes, manifest.ledger_checksum
                ),
            )
            yield Path(folder) / LEDGER

    def _verified(
        self, pieces: Iterable[bytes], key: str, size: int, checksum: str
    ) -> Iterator[bytes]:
        """Yield pieces of a file of the backup; fail at the end if it is not as it was written."""
        digest = Digest()
        yield from digest.of(pieces, self.meter)
        if (digest.size, digest.checksum) != (size, checksum):
            raise HeadraceError(
                Code.CORRUPT,
                f'file "{key}" of backup "{self.manifest.name}" is damaged',
                f"It has {digest.size} bytes and the checksum {digest.checksum}, instead of {size}"
                f" bytes and {checksum}.",
                f"Restore another backup that does not have this file. {BACKUPS}",
            )
