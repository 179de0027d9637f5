"""The backups at one place: ``files/`` that they share, and a manifest of each.

A file is written once, under a name that is never used for other bytes, so a later backup copies
what is missing. The manifest of a backup is written last and deleted first: a backup that was
interrupted does not exist, and harms no other.

Where backups are: a directory, or an object store.

Copies files, several at a time, and checks what is read.

What a backup is: the files of one state of a database, each with its size and checksum.
"""

from __future__ import annotations

import json
import re
import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.parse import unquote, urlsplit

import xxhash

from headrace.algebra.spine.pack import ALIGNMENT
from headrace.errors import BACKUPS, Code, HeadraceError
from headrace.files import DirectoryPlace, ObjectStore, StoreAddress, StorePlace
from headrace.files.store import PIECE_BYTES
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from headrace.files import Place
    from headrace.storage.ledger import CheckedRange


def place_at(url: str, environment: Mapping[str, str]) -> Place:
    """Return the place at a path, a ``file://`` URL or the URL of an object store.

    ``environment`` may have the credentials of a store. Nothing is read or written.

    Raises:
        HeadraceError: ``invalid`` for a URL that names no place.
    """
    if StoreAddress.is_store(url):
        return StorePlace(ObjectStore.at(StoreAddress.of(url).completed(environment)))
    parts = urlsplit(url) if url.startswith("file:") else None
    path = url if parts is None else unquote(parts.path)
    if not path or (parts is not None and parts.netloc not in ("", "localhost")):
        raise HeadraceError(
            Code.INVALID,
            f'"{url}" names no place of backups',
            hint="Give a directory, a file:// URL, or s3://bucket/prefix, gs:// or az://.",
        )
    return DirectoryPlace(Path(path).absolute())


def missing_file(place: Place, name: str) -> HeadraceError:
    """Return the error for a file of a backup that does not exist."""
    return HeadraceError(
        Code.CORRUPT,
        f'file "{name}" of a backup is missing',
        f'It should be in "{place.url}".',
        f"Restore another backup. {BACKUPS}",
    )


T = TypeVar("T")

_THREADS: Final = 6
"""Object stores take tens of milliseconds for each file, whatever its size."""
_REPORT_SECONDS: Final = 0.1


@dataclass(slots=True)
class Meter:
    """Counts the bytes that threads have copied, and ends their work."""

    done: int = 0
    stopped: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, size: int) -> None:
        """Count bytes.

        Raises:
            HeadraceError: ``cancelled`` if the work was stopped.
        """
        with self._lock:
            self.done += size
        if self.stopped:
            raise HeadraceError(Code.CANCELLED, "copying was cancelled")


@dataclass(slots=True)
class Digest:
    """The size and the checksum of the bytes that have passed."""

    size: int = 0
    _hash: xxhash.xxh3_64 = field(default_factory=xxhash.xxh3_64)

    @property
    def checksum(self) -> str:
        """The XXH3 of the bytes (64 bits, in hexadecimal)."""
        return self._hash.hexdigest()

    def of(self, pieces: Iterable[bytes], meter: Meter) -> Iterator[bytes]:
        """Yield pieces, and count them."""
        for piece in pieces:
            self._hash.update(piece)
            self.size += len(piece)
            meter.count(len(piece))
            yield piece


class DamagedFileError(HeadraceError):
    """A file does not have the bytes that the ledger says it has."""


def checked_pieces(path: Path, size: int, ranges: Iterable[CheckedRange]) -> Iterator[bytes]:
    """Yield the first ``size`` bytes of a file; check the ranges, which are in order.

    Raises:
        DamagedFileError: it is missing or short, or a range has another checksum.
    """
    try:
        with path.open("rb", buffering=0) as file:
            yield from checked(file.read, path, size, ranges)
    except OSError as error:
        raise _damaged(path, f"{error.strerror}.") from error


def checked(
    read: Callable[[int], bytes], path: Path, size: int, ranges: Iterable[CheckedRange]
) -> Iterator[bytes]:
    """Yield what ``read`` returns of the file at a path, as :func:`checked_pieces`."""
    at = 0
    for each in ranges:
        yield from _between(read, path, at, each.position)
        hashed = xxhash.xxh3_64()
        for piece in _pieces(read, path, each.bytes):
            hashed.update(piece)
            yield piece
        if hashed.hexdigest() != each.checksum:
            raise _damaged(path, f"Its bytes from {each.position} on have been changed.")
        at = each.position + each.bytes
    yield from _pieces(read, path, size - at)


def _between(read: Callable[[int], bytes], path: Path, at: int, position: int) -> Iterator[bytes]:
    """Yield the bytes between two ranges: of what is needed no longer, or zeros that align them."""
    aligns = position - at < ALIGNMENT
    for piece in _pieces(read, path, position - at):
        if aligns and any(piece):
            raise _damaged(path, f"Its bytes from {at} on have been changed.")
        yield piece


def _pieces(read: Callable[[int], bytes], path: Path, size: int) -> Iterator[bytes]:
    left = size
    while left > 0:
        piece = read(min(left, PIECE_BYTES))
        if not piece:
            raise _damaged(path, f"It ends {left} bytes too early.")
        left -= len(piece)
        yield piece


def _damaged(path: Path, detail: str) -> DamagedFileError:
    return DamagedFileError(
        Code.CORRUPT,
        f'file "{path}" is damaged',
        detail,
        "Run REPAIR, which rebuilds views and tables from the log; a damaged file of the log has to"
        " be restored from an earlier backup.",
    )


def run_all(
    tasks: Iterable[Callable[[], T]], meter: Meter, report: Callable[[int], None]
) -> list[T]:
    """Run tasks on threads; return their results, in the order in which they end.

    ``report`` is called on this thread with the bytes that were counted so far. What it raises, and
    what a task raises, ends all of them.
    """
    results: list[T] = []
    left = iter(tasks)
    with ThreadPoolExecutor(_THREADS, "headrace-copying") as pool:
        running = {pool.submit(task) for task in islice(left, 2 * _THREADS)}
        try:
            while running:
                ended, running = wait(running, _REPORT_SECONDS, FIRST_COMPLETED)
                results += [each.result() for each in ended]
                running |= {pool.submit(task) for task in islice(left, len(ended))}
                report(meter.done)
        except BaseException:
            meter.stopped = True
            pool.shutdown(cancel_futures=True)
            raise
    return results


FORMAT: Final = 1
"""The format of manifests that this version reads and writes."""
FOLDERS: Final = ("runs", "log", "seen")
"""The folders of a data directory whose files a backup has."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_NAME: Final = re.compile(r"\d{8}T\d{6}\.\d{3}Z-epoch-\d+")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a data directory in a backup: its first ``bytes``, whose XXH3 is ``checksum``."""

    folder: str
    name: str
    bytes: int
    checksum: str

    @property
    def key(self) -> str:
        """Its name at the place of backups: a file of the log may be there in several lengths."""
        return key_of(self.folder, self.name, self.bytes)

    @property
    def path(self) -> str:
        """Its name in a data directory."""
        return f"{self.folder}/{self.name}"


def key_of(folder: str, name: str, size: int) -> str:
    """Return the name at the place of backups of a file with so many bytes."""
    return f"files/{folder}/{name}.{size}"


def manifest_key_of(name: str) -> str:
    """Return the name at the place of backups of the manifest of a backup."""
    return f"backups/{name}.json"


def ledger_key_of(name: str) -> str:
    """Return the name at the place of backups of the copy of the ledger of a backup."""
    return f"backups/{name}.ledger.db"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A complete backup.

    It has the state at ``epoch``, and all that had been acknowledged at ``taken_at`` (Unix
    seconds). ``identity`` is that of the ledger. ``ledger`` is its copy; the name of that at the
    place is :attr:`ledger_key`.
    """

    name: str
    epoch: Epoch
    taken_at: float
    version: str
    ledger_format: int
    identity: str
    ledger_bytes: int
    ledger_checksum: str
    files: tuple[StoredFile, ...]

    @property
    def ledger_key(self) -> str:
        """The name of the copy of the ledger at the place of backups."""
        return ledger_key_of(self.name)

    @property
    def key(self) -> str:
        """The name of the manifest at the place of backups."""
        return manifest_key_of(self.name)

    @property
    def size(self) -> int:
        """The size of what it has."""
        return self.ledger_bytes + sum(file.bytes for file in self.files)

    def to_json(self) -> str:
        """Return a text that :meth:`of_json` reads."""
        value = {
            "format": FORMAT,
            "name": self.name,
            "epoch": self.epoch,
            "taken_at": self.taken_at,
            "version": self.version,
            "ledger_format": self.ledger_format,
            "identity": self.identity,
            "ledger": {"bytes": self.ledger_bytes, "checksum": self.ledger_checksum},
            "files": [[f.folder, f.name, f.bytes, f.checksum] for f in self.files],
        }
        return json.dumps(value)

    @classmethod
    def of_json(cls, text: bytes, key: str) -> Self:
        """Read a manifest. ``key`` is its name at the place, for messages.

        Raises:
            HeadraceError: ``unsupported`` for another format; ``corrupt`` if it is damaged.
        """
        try:
            value = json.loads(text)
            if value["format"] != FORMAT:
                raise _other_format(key, value["format"])
            found = cls(
                value["name"],
                Epoch(value["epoch"]),
                value["taken_at"],
                value["version"],
                value["ledger_format"],
                value["identity"],
                value["ledger"]["bytes"],
                value["ledger"]["checksum"],
                tuple(_file(*each) for each in value["files"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise _manifest_damaged(key, f"{type(error).__name__}: {error}.") from error
        if found.key != key:
            raise _manifest_damaged(key, f'It is the manifest of "{found.name}".')
        return found


def name_of(epoch: int, taken_at: float, taken: Iterable[str] = ()) -> str:
    """Return a new name for a backup, which follows those of earlier ones in alphabetical order."""
    known, at = set(taken), taken_at
    while True:
        instant = datetime.fromtimestamp(at, UTC)
        text = f"{instant:%Y%m%dT%H%M%S}.{instant.microsecond // 1000:03}Z-epoch-{epoch}"
        if text not in known:
            return text
        at += 0.001


def names_in(keys: Iterable[str]) -> list[str]:
    """Return the names of the backups that have one of these files as their manifest, in order."""
    found = (key.removeprefix("backups/").removesuffix(".json") for key in keys)
    return sorted({name for name in found if _NAME.fullmatch(name)})


def _file(folder: Any, name: Any, size: Any, checksum: Any) -> StoredFile:
    if folder not in FOLDERS or not _PLAIN.fullmatch(name):  # it becomes a path
        raise ValueError(f"{folder}/{name}")
    return StoredFile(folder, name, int(size), str(checksum))


def _other_format(key: str, found: object) -> HeadraceError:
    return HeadraceError(
        Code.UNSUPPORTED,
        f'manifest "{key}" has format {found}',
        f"This version reads format {FORMAT}.",
        "Use the version of Headrace that made the backup, or a newer one.",
    )


def _manifest_damaged(key: str, detail: str) -> HeadraceError:
    return HeadraceError(
        Code.CORRUPT,
        f'manifest "{key}" of a backup is damaged',
        detail,
        f"Restore another backup. {BACKUPS}",
    )


MARKER: Final = "headrace-backups.json"
"""The file that says whose backups are at the place."""


@dataclass(frozen=True, slots=True)
class Repository:
    """The backups at a place."""

    place: Place

    def claim(self, identity: str) -> None:
        """Make the place one of backups of a database, unless it already is.

        Raises:
            HeadraceError: INVALID if it has other files, or backups of another database.
        """
        owner = self._read(MARKER)
        if owner is None:
            other = next(iter(self.place.names()), None)
            if other is not None:
                raise HeadraceError(
                    Code.INVALID,
                    f'"{self.place.url}" is no place of backups',
                    f'It has other files, such as "{other[0]}".',
                    "Give a directory or a prefix that does not exist yet.",
                )
            self._write(MARKER, json.dumps({"identity": identity}))
            return
        try:
            known = json.loads(owner)["identity"]
        except (ValueError, KeyError, TypeError) as error:
            raise HeadraceError(
                Code.CORRUPT, f'file "{MARKER}" in "{self.place.url}" is damaged', f"{error}."
            ) from error
        if known != identity:
            raise HeadraceError(
                Code.INVALID,
                f'"{self.place.url}" has backups of another database',
                hint="Give each database a directory or a prefix of its own.",
            )

    def names(self) -> list[str]:
        """Return the names of the backups, the oldest first."""
        return names_in(name for name, _ in self.place.names("backups") if name.endswith(".json"))

    def manifest(self, name: str) -> Manifest:
        """Return the manifest of a backup.

        Raises:
            HeadraceError: INVALID if there is no such backup; as :meth:`Manifest.of_json`.
        """
        key = manifest_key_of(name)
        text = self._read(key) if names_in([key]) else None
        if text is None:
            known = self.names()
            there = f"There are: {', '.join(known[-5:])}." if known else "There are no backups."
            raise HeadraceError(
                Code.INVALID, f'backup "{name}" does not exist in "{self.place.url}"', there
            )
        return Manifest.of_json(text, key)

    def newest(self) -> Manifest | None:
        """Return the newest backup; None if there is none."""
        names = self.names()
        return self.manifest(names[-1]) if names else None

    def add(self, manifest: Manifest) -> None:
        """Add a backup, whose files are durable at the place."""
        self._write(manifest.key, manifest.to_json())

    def keep(self, newest: int) -> None:
        """Delete all backups but the newest ones, and every file that none of these has."""
        names = self.names()
        kept = [self.manifest(name) for name in names[-newest:]]
        self.place.delete(manifest_key_of(name) for name in names[:-newest])
        self.place.sync()
        named = {file.key for manifest in kept for file in manifest.files}
        named |= {key for manifest in kept for key in (manifest.key, manifest.ledger_key)}
        for folder in ("backups", "files"):
            self.place.delete([key for key, _ in self.place.names(folder) if key not in named])

    def _read(self, key: str) -> bytes | None:
        try:
            return b"".join(self.place.pieces(key))
        except FileNotFoundError:
            return None

    def _write(self, key: str, text: str) -> None:
        self.place.put(key, [text.encode()])
        self.place.sync()

    def pieces(self, key: str) -> Any:
        """Yield the bytes of a file.

        Raises:
            HeadraceError: CORRUPT if there is no such file.
        """
        try:
            yield from self.place.pieces(key)
        except FileNotFoundError as error:
            raise missing_file(self.place, key) from error
