"""Directories that are caches of a store of objects.

All files of a database are read and written in a directory of this machine. If the directory is
*mounted* to a store, it is a cache: a file that is not there is fetched, a new one is durable when
the store has it, and the oldest ones that this process has not open make room for others. Elsewhere
a directory is all there is. Who maps a file keeps its bytes when it is deleted.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import HeadraceError
from headrace.objects import ObjectStore, StoreAddress
from headrace.objects.store import DRAFT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_LEAST_LOOKED: Final = 1 << 26
"""So many bytes are added to a cache before its size is looked at again, at least; ..."""
_LOOKED_SHARE: Final = 16
"""... and one part in so many of what it may have."""
_DIGITS: Final = 12
"""Hexadecimal digits of a store's URL in the name of the directory of its cache."""


@dataclass(slots=True)
class Mount:
    """A directory that is the cache of a store, of at most about ``most_bytes``.

    ``folder`` is the prefix of the names of its files in the store. ``elsewhere`` is that of
    :class:`Mounted`. ``added`` are the bytes that
    this process has added since it last looked at the size.
    """

    directory: Path
    store: ObjectStore
    folder: str
    most_bytes: int
    elsewhere: str = ""
    added: int = 0
    lock: Lock = field(default_factory=Lock)

    def name(self, file: str) -> str:
        """Return the name of a file in the store."""
        return f"{self.folder}/{file}"

    def grown(self, size: int) -> None:
        """Count bytes that were added, and make room if they are many."""
        with self.lock:
            self.added += size
            if self.added < max(_LEAST_LOOKED, self.most_bytes // _LOOKED_SHARE):
                return
            self.added = 0
        self.make_room()

    def make_room(self) -> None:
        """Delete the oldest files of the cache until it is as small as it should be."""
        found = []
        with os.scandir(self.directory) as entries:
            for each in entries:
                with suppress(FileNotFoundError):  # another process makes room as well
                    status = each.stat()
                    found.append((status.st_mtime_ns, each.path, status.st_size))
        over = sum(size for _, _, size in found) - self.most_bytes
        for _, path, size in sorted(found):
            if over <= 0:
                break
            if path.endswith(DRAFT):
                continue
            with suppress(FileNotFoundError):
                Path(path).unlink()
            over -= size


_mounts: dict[str, Mount] = {}
"""The mounts of this process, by directory."""


FOLDERS: Final = ("runs", "log", "seen", "programs")
"""The folders of a data directory whose files a store has."""


@dataclass(frozen=True, slots=True)
class Mounted:
    """A data directory whose files are in a store, as a value for other processes.

    ``most_bytes`` is the size of the cache of runs, and that of the cache of logs. ``elsewhere`` is
    the directory for caches on other machines; if it is empty, each chooses its own.
    """

    store: StoreAddress
    most_bytes: int
    elsewhere: str = ""

    def mount(self, directory: Path) -> None:
        """Make a data directory the cache of the store in this process, if it is not already.

        Raises:
            HeadraceError: ``invalid`` if the client of the store cannot be made.
        """
        known = mount_of(directory / FOLDERS[0])
        if known is not None and known.store.address == self.store:
            return
        store = ObjectStore.at(self.store)
        for folder in FOLDERS:
            mount(directory / folder, store, folder, self.most_bytes, self.elsewhere)

    @staticmethod
    def of(directory: Path) -> Mounted | None:
        """Return how a data directory is mounted in this process; None if it is not."""
        found = mount_of(directory / FOLDERS[0])
        return (
            None
            if found is None
            else Mounted(found.store.address, found.most_bytes, found.elsewhere)
        )

    @staticmethod
    def unmount(directory: Path) -> None:
        """Make a data directory all there is again."""
        for folder in FOLDERS:
            unmount(directory / folder)

    @staticmethod
    def place(store: StoreAddress, caches: Path) -> Path:
        """Return the directory below ``caches`` for the cache of a store; it is not created."""
        digest = hashlib.sha256(store.url.encode()).hexdigest()[:_DIGITS]
        return caches / "stores" / f"{store.url.rpartition('/')[2]}-{digest}"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value that :meth:`of_json` reads. It has the credentials."""
        return {
            "store": self.store.to_json(),
            "most_bytes": self.most_bytes,
            "elsewhere": self.elsewhere,
        }

    @classmethod
    def of_json(cls, value: Any) -> Mounted:
        """Return what :meth:`to_json` wrote."""
        return cls(StoreAddress.of_json(value["store"]), value["most_bytes"], value["elsewhere"])


def mount(
    directory: Path, store: ObjectStore, folder: str, most_bytes: int, elsewhere: str = ""
) -> None:
    """Make a directory, which is created, the cache of a folder of a store."""
    directory.mkdir(parents=True, exist_ok=True)
    _mounts[str(directory)] = Mount(directory, store, folder, most_bytes, elsewhere)


def unmount(directory: Path) -> None:
    """Make a directory all there is again."""
    _mounts.pop(str(directory), None)


def mount_of(directory: Path | str) -> Mount | None:
    """Return the mount of a directory; None if it is no cache."""
    return _mounts.get(str(directory))


def fetch(path: str) -> bool:
    """Fetch a file that is missing or damaged; return False if there is none to be fetched.

    A damaged one stays until it is replaced.

    Raises:
        HeadraceError: ``unavailable`` while the store does not answer.
    """
    directory, _, name = path.rpartition("/")
    found = _mounts.get(directory)
    if found is None:
        return False
    file = found.directory / name
    try:
        found.store.fetch(found.name(name), file)
        size = file.stat().st_size
    except FileNotFoundError:
        return False
    found.grown(size)
    return True


def sync_directory(directory: Path) -> None:
    """Make the names of the files in a directory durable; those of a cache are in the store."""
    if mount_of(directory) is not None:
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def keep(path: Path) -> None:
    """Make a file that was written and closed durable, if its directory is a cache.

    Raises:
        HeadraceError: ``unavailable`` while the store does not answer.
    """
    found = mount_of(path.parent)
    if found is not None:
        found.store.put(found.name(path.name), path)
        found.grown(path.stat().st_size)


def delete(directory: Path, names: Iterable[str]) -> None:
    """Delete files, everywhere; those that are missing are no failure.

    Raises:
        HeadraceError: ``unavailable`` while the store does not answer.
    """
    gone = list(names)
    _delete_objects(directory, gone)
    _unlink(directory, gone)


def discard(directory: Path, names: Iterable[str]) -> None:
    """Delete files that the ledger does not name; the sweep deletes what a store keeps of them."""
    gone = list(names)
    with suppress(HeadraceError):
        _delete_objects(directory, gone)
    _unlink(directory, gone)


def _delete_objects(directory: Path, names: Sequence[str]) -> None:
    found = mount_of(directory)
    if found is not None and names:
        found.store.delete([found.name(name) for name in names])


def _unlink(directory: Path, names: Iterable[str]) -> None:
    for name in names:
        (directory / name).unlink(missing_ok=True)


def files_in(directory: Path, begin: str = "") -> Iterator[str]:
    """Yield the names of the files of a directory, with those that only the store has.

    With ``begin``, those that begin so: of a store, others are not listed, if it lists in order.

    Raises:
        HeadraceError: ``unavailable`` while the store does not answer.
    """
    here = {path.name for path in directory.iterdir() if path.name.startswith(begin)}
    yield from here
    found = mount_of(directory)
    if found is not None:
        folder = f"{found.folder}/"
        for name, _ in found.store.names(folder, folder + begin if begin else ""):
            file = name.removeprefix(folder)
            if not file.startswith(begin):
                return
            if file not in here:
                yield file
