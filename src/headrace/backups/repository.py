"""The backups at one place: ``files/`` that they share, and a manifest of each.

A file is written once, under a name that is never used for other bytes, so a later backup copies
what is missing. The manifest of a backup is written last and deleted first: a backup that was
interrupted does not exist, and harms no other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.backups.manifest import Manifest, manifest_key_of, names_in
from headrace.backups.places import missing_file
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from headrace.objects import Place

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
