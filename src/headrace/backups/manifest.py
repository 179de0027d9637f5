"""What a backup is: the files of one state of a database, each with its size and checksum."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self

from headrace.errors import BACKUPS, Code, HeadraceError
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterable

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
            raise _damaged(key, f"{type(error).__name__}: {error}.") from error
        if found.key != key:
            raise _damaged(key, f'It is the manifest of "{found.name}".')
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


def _damaged(key: str, detail: str) -> HeadraceError:
    return HeadraceError(
        Code.CORRUPT,
        f'manifest "{key}" of a backup is damaged',
        detail,
        f"Restore another backup. {BACKUPS}",
    )
