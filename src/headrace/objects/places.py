"""Places of files by name: a directory of this machine, or an object store."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from uuid import uuid4

from headrace.errors import Code, HeadraceError, not_written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.objects.store import ObjectStore

PIECE_BYTES: Final = 4 << 20
"""The most bytes that are read from a file at once."""
_DRAFT: Final = ".part"


class Place(Protocol):
    """Files by name, with ``/`` between the parts of names. Thread-safe.

    All methods raise ``unavailable`` if the place does not answer or is full.
    """

    @property
    def url(self) -> str:
        """The URL or path, for messages: without credentials."""
        ...

    def names(self, folder: str = "") -> Iterator[tuple[str, int]]:
        """Yield the names of the files below a folder, and their sizes in bytes."""
        ...

    def put(self, name: str, pieces: Iterable[bytes]) -> None:
        """Store a file: whole, or not at all; it is durable after :meth:`sync`."""
        ...

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a file.

        Raises:
            FileNotFoundError: there is no such file.
        """
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; those that do not exist are no failure."""
        ...

    def sync(self) -> None:
        """Make what was put so far durable."""
        ...


@dataclass(frozen=True, slots=True)
class DirectoryPlace:
    """A directory of this machine, created with the first file."""

    path: Path
    _changed: set[Path] = field(default_factory=set)
    """The directories with new names that are not synced."""

    @property
    def url(self) -> str:
        """The path."""
        return str(self.path)

    def names(self, folder: str = "") -> Iterator[tuple[str, int]]:
        """Yield the names of the files below a folder, and their sizes in bytes."""
        root = self.path / folder
        try:
            for directory, _, files in os.walk(root, onerror=_raise_unless_missing):
                for path in (Path(directory) / file for file in files):
                    yield path.relative_to(self.path).as_posix(), path.stat().st_size
        except OSError as error:
            raise _not_read(root, error) from error

    def put(self, name: str, pieces: Iterable[bytes]) -> None:
        """Store a file: whole, or not at all; it is durable after :meth:`sync`."""
        path = self.path / name
        draft = path.with_name(f".{path.name}.{uuid4().hex}{_DRAFT}")
        try:
            missing = [each for each in (path.parent, *path.parent.parents) if not each.exists()]
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with draft.open("xb") as file:
                    for piece in pieces:
                        file.write(piece)
                    file.flush()
                    os.fsync(file.fileno())
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)
        except OSError as error:
            raise not_written(f'file "{path}"', error) from error
        self._changed.update([path.parent, *(each.parent for each in missing)])

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a file.

        Raises:
            FileNotFoundError: there is no such file.
        """
        path = self.path / name
        try:
            with path.open("rb") as file:
                while piece := file.read(PIECE_BYTES):
                    yield piece
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _not_read(path, error) from error

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; those that do not exist are no failure."""
        for path in (self.path / name for name in names):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise not_written(f'file "{path}"', error) from error

    def sync(self) -> None:
        """Make the names of files durable; their bytes are already."""
        for directory in sorted(self._changed):
            try:
                descriptor = os.open(directory, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise not_written(f'directory "{directory}"', error) from error
            self._changed.discard(directory)


@dataclass(frozen=True, slots=True)
class StorePlace:
    """An object store, below the prefix of its URL."""

    store: ObjectStore

    @property
    def url(self) -> str:
        """The URL."""
        return self.store.address.url

    def names(self, folder: str = "") -> Iterator[tuple[str, int]]:
        """Yield the names of the objects below a folder, and their sizes in bytes."""
        return self.store.names(f"{folder}/" if folder else "")

    def put(self, name: str, pieces: Iterable[bytes]) -> None:
        """Store an object: whole, or not at all."""
        self.store.put_pieces(name, pieces)

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of an object.

        Raises:
            FileNotFoundError: there is no such object.
        """
        return self.store.pieces(name)

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that do not exist are no failure."""
        self.store.delete(names)

    def sync(self) -> None:
        """Do nothing: an object is durable when it was put."""


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _not_read(path: Path, error: OSError) -> HeadraceError:
    return HeadraceError(
        Code.UNAVAILABLE,
        f'"{path}" could not be read',
        f"{error.strerror or error}.",
        "Try again once the cause is gone.",
    )
