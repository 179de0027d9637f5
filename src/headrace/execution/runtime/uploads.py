"""Uploads small files from the ledger to the object store, together, every second.

A small pack or segment is durable once the ledger's transaction that names it is committed: the
ledger keeps its bytes (:mod:`headrace.storage.ledger.files`). They are uploaded in bundles, one for
the packs and one for the segments that a second brings, and then the ledger keeps them no longer.

What a bundle has is decided when it is first uploaded, since a request that is repeated or arrives
late must not change it. A file that is committed later, and what another process has left, becomes
an object of its own. Whoever looks for a file looks in the ledger, in its bundle, and under its own
name, in this order: so it is found at any time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from headrace.errors import HeadraceError
from headrace.files.bundles import DIGITS, bundle_of, composed, object_of
from headrace.files.mounts import WAITS_SECONDS
from headrace.storage.ledger import SmallFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.files import ObjectStore
    from headrace.storage.ledger import FileKey, Ledger


_log: Final = logging.getLogger(__name__)

EVERY_SECONDS: Final = 1.0
BUNDLE_BYTES: Final = 4 << 20
"""So many bytes are uploaded before the second is over."""
MOST_BYTES: Final = 64 << 20
"""The most bytes that wait, approximately: further files are put into the store at once."""
_PREFIX_DIGITS: Final = 12
_REMEMBERED: Final = 1_024
_READ_BYTES: Final = 16 << 20
"""The most bytes that are read from the ledger at once, approximately."""


@dataclass(slots=True)
class Uploads:
    """The uploads of one database, by the process that writes it. Thread-safe.

    ``store`` is where files of a folder are, under ``folder/name``. Nothing is uploaded in the
    background before :meth:`start`.
    """

    ledger: Ledger
    store: ObjectStore
    error: HeadraceError | None = None
    """Why the last upload failed; None if it did not."""
    _prefix: str = field(default_factory=lambda: uuid4().hex[:_PREFIX_DIGITS])
    """What the bundles of this process begin with, and no others."""
    _count: int = 0
    _open: dict[tuple[str, object], str] = field(default_factory=dict)
    """The bundle for new files, by folder and owner."""
    _decided: dict[str, frozenset[FileKey]] = field(default_factory=dict)
    """What the newest bundles have, and ..."""
    _floor: int = -1
    """... the number up to which others may have been uploaded."""
    _added: int = 0
    """The bytes that were added since the last upload began."""
    _waiting: int = 0
    """The bytes that wait, as far as is known."""
    _since: float | None = None
    """Since when the store has not taken what waits."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _uploading: threading.RLock = field(default_factory=threading.RLock)
    _wanted: threading.Event = field(default_factory=threading.Event)
    _closed: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def waiting_bytes(self) -> int:
        """The bytes that wait for the store, as far as is known."""
        return self._waiting

    # -- what writers do -------------------------------------------------------------------

    def bundle(self, folder: str, owner: object) -> str | None:
        """Return the bundle for a new file; None if too much waits already, or for too long."""
        with self._lock:
            if self._is_full:
                return None
            bundle = self._open.get((folder, owner))
            if bundle is None:
                digits = DIGITS - _PREFIX_DIGITS
                bundle = self._open[folder, owner] = f"{self._prefix}{self._count:0{digits}x}"
                self._count += 1
            return bundle

    @property
    def _is_full(self) -> bool:
        """Whether too much waits already, or for too long."""
        away = self._since is not None and time.monotonic() - self._since > WAITS_SECONDS
        return away or self._waiting >= MOST_BYTES

    def require_taking(self) -> None:
        """Raise why the store does not take files, if they do not wait for it either.

        Raises:
            HeadraceError: ``unavailable`` in that case.
        """
        error = self.error
        if error is not None and self._is_full:
            raise error

    def add(self, folder: str, name: str, body: bytes) -> None:
        """Keep a file until the ledger does."""
        self.ledger.small_files.written.add(SmallFile(folder, name, body))
        with self._lock:
            self._added += len(body)
            self._waiting += len(body)
            if self._added >= BUNDLE_BYTES:
                self._wanted.set()

    def drop(self, folder: str, names: Iterable[str]) -> None:
        """Keep some files no longer, unless the ledger does."""
        self.ledger.small_files.written.remove((folder, name) for name in names)

    def body(self, folder: str, name: str) -> bytes | None:
        """Return the bytes of a file; None if it does not wait (any longer)."""
        return self.ledger.small_files.body(folder, name)

    # -- uploads ---------------------------------------------------------------------------

    def upload(self) -> None:
        """Upload all that waits, also files that no transaction has named yet.

        Raises:
            HeadraceError: ``unavailable`` if the store or the ledger does not answer; CONFLICT if
                another process has taken over.
        """
        with self._uploading:
            for file in self.ledger.small_files.written.all():
                self._put_alone(file)
                self.ledger.small_files.written.remove([file.key])
            self.upload_named()

    def upload_named(self) -> None:
        """Upload what the ledger keeps; as :meth:`upload`."""
        with self._uploading:
            with self._lock:
                self._open.clear()  # later files are in other bundles
                self._added = 0
            waiting = self.ledger.small_files.names()
            try:
                for bundle, keys in _by_bundle(waiting).items():
                    if bundle is not None and self._takes(bundle, keys):
                        self._upload_bundle(bundle, keys)
                    else:
                        self._upload_alone(keys, waiting)
            except HeadraceError:
                with self._lock:
                    self._since = self._since or time.monotonic()
                raise
            unnamed = sum(len(file.body) for file in self.ledger.small_files.written.all())
            with self._lock:
                self._waiting, self._since = self._added + unnamed, None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Upload nothing while a block runs."""
        with self._uploading:
            yield

    def _takes(self, bundle: str, keys: list[FileKey]) -> bool:
        """Whether files are uploaded as a bundle: it has no others, and never had."""
        if not bundle.startswith(self._prefix):
            return False
        decided = self._decided.get(bundle)
        if decided is not None:
            return decided.issuperset(keys)
        return int(bundle[_PREFIX_DIGITS:], 16) > self._floor

    def _upload_bundle(self, bundle: str, keys: list[FileKey]) -> None:
        self._decided.setdefault(bundle, frozenset(keys))
        while len(self._decided) > _REMEMBERED:
            oldest = next(iter(self._decided))
            del self._decided[oldest]
            self._floor = max(self._floor, int(oldest[_PREFIX_DIGITS:], 16))
        files = self.ledger.small_files.read(keys)
        if files:
            body = composed({file.name: file.body for file in files})
            self.store.put(f"{files[0].folder}/{object_of(bundle)}", body)
            self.ledger.small_files.forget(file.key for file in files)

    def _upload_alone(self, keys: list[FileKey], sizes: dict[FileKey, int]) -> None:
        for some in _limited(keys, sizes):
            files = self.ledger.small_files.read(some)
            for file in files:
                self._put_alone(file)
            self.ledger.small_files.forget(file.key for file in files)

    def _put_alone(self, file: SmallFile) -> None:
        self.store.put(f"{file.folder}/{file.name}", file.body)

    # -- in the background -----------------------------------------------------------------

    def start(self) -> None:
        """Upload in the background from now on."""
        self._thread = threading.Thread(target=self._run, name="headrace-uploads", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Upload what waits a last time, if the store answers, and end."""
        self._closed.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            self._try()

    def _run(self) -> None:
        self._try()  # what another process has left
        while not self._closed.is_set():
            self._wanted.wait(EVERY_SECONDS)
            self._wanted.clear()
            if self._waiting or self.error is not None:
                self._try()

    def _try(self) -> None:
        try:
            self.upload_named()
        except HeadraceError as error:
            if self.error is None:
                _log.warning("small files wait for the object store: %s", error.primary)
            self.error = error
            self._closed.wait(EVERY_SECONDS)
        else:
            if self.error is not None:
                _log.warning("the object store has all files again")
            self.error = None


def _by_bundle(keys: Iterable[FileKey]) -> dict[str | None, list[FileKey]]:
    found: dict[str | None, list[FileKey]] = defaultdict(list)
    for key in sorted(keys):
        found[bundle_of(key[1])].append(key)
    return found


def _limited(keys: list[FileKey], sizes: dict[FileKey, int]) -> Iterator[list[FileKey]]:
    """Yield files in groups of limited size."""
    group: list[FileKey] = []
    size = 0
    for key in keys:
        group.append(key)
        size += sizes[key]
        if size >= _READ_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
