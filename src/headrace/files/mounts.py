"""Directories that are caches of a store of objects.

All files of a database are read and written in a directory of this machine. If the directory is
*mounted* to a store, it is a cache: a file that is not there is fetched, a new one is durable when
the store has it, and the oldest ones that this process has not open make room for others. Elsewhere
a directory is all there is. Who maps a file keeps its bytes when it is deleted.

Small files may be kept elsewhere before the store has them, in bundles (:class:`Uploading`).
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol

from headrace.errors import HeadraceError
from headrace.files import ObjectStore, StoreAddress, bundles
from headrace.files.bundles import bundle_of, bundle_of_object, object_of
from headrace.files.store import DRAFT, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


_LEAST_LOOKED: Final = 1 << 26
"""So many bytes are added to a cache before its size is looked at again, at least; ..."""
LEAST_FREE: Final = 64 << 20
"""A cache gives up files, which can be fetched again, while its disk has fewer bytes free."""
_FREED_SECONDS: Final = 1.0
_LOOKED_SHARE: Final = 16
"""... and one part in so many of what it may have."""
_DIGITS: Final = 12
"""Hexadecimal digits of a store's URL in the name of the directory of its cache."""
SMALL_BYTES: Final = 1 << 20
"""A larger file is always an object of its own."""
WAITS_SECONDS: Final = 60.0
"""How long a small file waits for the store, before no other one waits."""
_LOCKS: Final = tuple(Lock() for _ in range(16))
"""A bundle is fetched by one thread at a time: the others find their files then."""


class Waiting(Protocol):
    """The small files that the store does not have yet. Thread-safe."""

    def body(self, folder: str, name: str) -> bytes | None:
        """Return the bytes of a file; None if it does not wait (any longer).

        Raises:
            HeadraceError: ``unavailable`` if what keeps them does not answer.
        """
        ...


class Uploading(Waiting, Protocol):
    """Keeps small files until the store has them: the side of the process that writes them.

    A file is durable once the transaction of the ledger that names it has been committed.
    """

    @property
    def waiting_bytes(self) -> int:
        """The bytes that wait for the store, as far as is known."""
        ...

    def require_taking(self) -> None:
        """Raise why the store does not take files, if they do not wait for it either.

        Raises:
            HeadraceError: ``unavailable`` in that case.
        """
        ...

    def bundle(self, folder: str, owner: object) -> str | None:
        """Return the bundle for a new file; None if it is to be put into the store at once.

        Files of different owners are never in one bundle.
        """
        ...

    def add(self, folder: str, name: str, body: bytes) -> None:
        """Keep a file."""
        ...

    def drop(self, folder: str, names: Iterable[str]) -> None:
        """Keep some files no longer, as far as no transaction has."""
        ...

    def upload(self) -> None:
        """Upload all files, so that those who have only the store can read them.

        Raises:
            HeadraceError: ``unavailable`` if the store or the ledger does not answer.
        """
        ...


@dataclass(slots=True)
class Mount:
    """A directory that is the cache of a store, of at most about ``most_bytes``.

    ``folder`` is the prefix of the names of its files in the store. ``elsewhere`` is that of
    :class:`Mounted`. ``added`` are the bytes that this process has added since it last looked at
    the size. ``waiting`` finds files that the store does not have yet; ``uploading`` takes them.
    """

    directory: Path
    store: ObjectStore
    folder: str
    most_bytes: int
    elsewhere: str = ""
    added: int = 0
    freed_at: float = -math.inf
    """When room was made last for a disk that is nearly full, by the monotonic clock."""
    lock: Lock = field(default_factory=Lock)
    waiting: Waiting | None = None
    uploading: Uploading | None = None

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

    def keep_free(self) -> None:
        """Make room if its disk is nearly full, also in the caches beside it."""
        free = shutil.disk_usage(self.directory).free
        if free >= LEAST_FREE or time.monotonic() < self.freed_at + _FREED_SECONDS:
            return
        self.freed_at = time.monotonic()
        for each in tuple(_mounts.values()):
            if each.directory.parent == self.directory.parent:
                each.make_room(LEAST_FREE - free)

    def make_room(self, least: int = 0) -> None:
        """Delete the oldest files of the cache until it is as small as it should be.

        So many bytes are deleted at least, if there are.
        A file that may wait for the store is left: other processes could not fetch it.
        """
        found, may_wait = [], time.time() - 2 * WAITS_SECONDS
        with os.scandir(self.directory) as entries:
            for each in entries:
                with suppress(FileNotFoundError):  # another process makes room as well
                    status = each.stat()
                    found.append((status.st_mtime_ns, each.path, status.st_size))
        over = max(least, sum(size for _, _, size in found) - self.most_bytes)
        for age, path, size in sorted(found):
            if over <= 0:
                break
            if path.endswith(DRAFT) or (age > may_wait * 1e9 and bundle_of(path) is not None):
                continue
            with suppress(FileNotFoundError):
                Path(path).unlink()
            over -= size

    def fetch(self, name: str) -> bool:
        """Fetch a file; see :func:`fetch`."""
        bundle = bundle_of(name)
        if bundle is not None:
            body = None if self.waiting is None else self.waiting.body(self.folder, name)
            if body is not None:
                self._write(name, body)
                return True
            if self._fetch_bundle(bundle, name):
                return True
        file = self.directory / name
        try:
            self.store.fetch(self.name(name), file)
            size = file.stat().st_size
        except FileNotFoundError:
            return False
        self.grown(size)
        return True

    def _fetch_bundle(self, bundle: str, wanted: str) -> bool:
        """Fetch a bundle with all its files; return whether the one that is wanted is in it."""
        missing = not (self.directory / wanted).exists()
        with _LOCKS[int(bundle, 16) % len(_LOCKS)]:
            if missing and (self.directory / wanted).exists():
                return True
            name = self.name(object_of(bundle))
            try:
                found = bundles.members(b"".join(self.store.pieces(name)), name)
            except FileNotFoundError:
                return False
            for file, body in found.items():
                if file == wanted or not (self.directory / file).exists():
                    self._write(file, body)
        return wanted in found

    def _write(self, name: str, body: bytes | memoryview) -> None:
        write_whole(self.directory / name, [body])
        self.grown(len(body))


_mounts: dict[str, Mount] = {}
"""The mounts of this process, by directory."""


PACKS: Final = "runs"
SEGMENTS: Final = "log"
FOLDERS: Final = (PACKS, SEGMENTS, "seen", "programs")
"""The folders of a data directory whose files a store has."""
NAMED: Final = (PACKS, SEGMENTS)
"""Those of them whose files the ledger names, and in which small ones come with each commit."""


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


def store_of(directory: Path) -> ObjectStore | None:
    """Return the store of a data directory; None if it is not mounted in this process."""
    found = mount_of(directory / FOLDERS[0])
    return None if found is None else found.store


def wait_in(directory: Path, waiting: Waiting) -> None:
    """Let a mounted data directory find the small files that its store does not have yet."""
    for folder in NAMED:
        found = mount_of(directory / folder)
        if found is not None:
            found.waiting = waiting


def upload_by(directory: Path, uploading: Uploading) -> None:
    """Let small files of the packs and of the log wait before the store has them."""
    wait_in(directory, uploading)
    for folder in NAMED:
        found = mount_of(directory / folder)
        if found is not None:
            found.uploading = uploading


def upload(directory: Path) -> None:
    """Let the store of a mounted data directory have all its files.

    Raises:
        HeadraceError: ``unavailable`` while the store does not answer.
    """
    found = mount_of(directory / FOLDERS[0])
    if found is not None and found.uploading is not None:
        found.uploading.upload()


def require_taking(directory: Path) -> None:
    """Raise if files that are written into a directory could not be kept, as far as is known.

    Raises:
        HeadraceError: ``unavailable`` in that case.
    """
    found = mount_of(directory)
    if found is not None and found.uploading is not None:
        found.uploading.require_taking()


def new_name(directory: Path, stem: str, owner: object = None) -> str:
    """Return the name for a new file that may be small: it begins with ``stem``.

    Files of different owners are not deleted together.
    """
    found = mount_of(directory)
    if found is not None:
        found.keep_free()
    uploading = None if found is None else found.uploading
    if found is None or uploading is None:
        return bundles.name_in(None, stem)
    return bundles.name_in(uploading.bundle(found.folder, owner), stem)


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
    return False if found is None else found.fetch(name)


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

    A small one in a bundle is durable once the transaction that names it is committed.

    Raises:
        HeadraceError: ``unavailable`` while the store does not answer.
    """
    found = mount_of(path.parent)
    if found is None:
        return
    size = path.stat().st_size
    uploading = found.uploading if bundle_of(path.name) is not None else None
    if uploading is not None and size <= SMALL_BYTES:
        uploading.add(found.folder, path.name, path.read_bytes())
    else:
        found.store.put(found.name(path.name), path)
    found.grown(size)


def delete(directory: Path, names: Iterable[str]) -> None:
    """Delete files, everywhere; those that are missing are no failure.

    Raises:
        HeadraceError: ``unavailable`` while the store does not answer.
    """
    gone = list(names)
    _delete_objects(directory, gone)
    _unlink(directory, gone)


def delete_units(directory: Path, names: Iterable[str]) -> None:
    """Delete files, as :func:`delete`, and the bundles that they are in, with all in these."""
    gone = list(names)
    objects = {object_of(bundle) for name in gone if (bundle := bundle_of(name)) is not None}
    _delete_objects(directory, [*gone, *sorted(objects)])
    _unlink(directory, gone)


def strays(listed: Iterable[str], named: frozenset[str]) -> list[str]:
    """Return the files of a list that are not named, and the bundles without any that is.

    The list is that of :func:`files_in`, from before the names were read.
    """
    bundled = {bundle_of(name) for name in named}
    return [
        name
        for name in listed
        if name not in named and (bundle_of_object(name) or name) not in bundled
    ]


def discard(directory: Path, names: Iterable[str]) -> None:
    """Delete files that the ledger does not name; the sweep deletes what a store keeps of them."""
    gone = list(names)
    with suppress(HeadraceError):
        _delete_objects(directory, gone)
    _unlink(directory, gone)


def _delete_objects(directory: Path, names: Sequence[str]) -> None:
    found = mount_of(directory)
    if found is None or not names:
        return
    if found.uploading is not None:
        found.uploading.drop(found.folder, names)
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
