"""Restore a backup into a directory or an object store; every file is compared with its checksum.

The target has a file that says that it is not complete, and no ledger until everything else is in
place; that file is removed last. So nothing that is restored in part can be opened, and a restore
that was interrupted goes on where it ended.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.backups.transfer import Digest, Meter, run_all
from headrace.errors import BACKUPS, Code, HeadraceError
from headrace.ledger import (
    LEDGER,
    LEDGER_FORMAT,
    RESTORING,
    DirectoryLock,
    is_restored,
    restore_ledger,
)
from headrace.objects import DirectoryPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from headrace.backups.manifest import Manifest, StoredFile
    from headrace.backups.repository import Repository
    from headrace.ledger import PostgresAddress
    from headrace.objects import Place

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
