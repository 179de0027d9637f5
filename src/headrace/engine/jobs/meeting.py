"""Where the driver and the executors exchange files: a directory that they share, or a store."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from headrace.errors import HeadraceError
from headrace.objects import ObjectStore
from headrace.spine.mounts import Mounted

if TYPE_CHECKING:
    from collections.abc import Iterable

SHARED_DIRECTORY = (
    "Put the data directory on storage that the driver and all executors see under the same path,"
    " with the same contents; or keep the files of the database in an object store (setting store)."
)
REACHED_STORE = (
    "Executors read and write the store themselves: let them reach its address, and install"
    ' "headrace[objects]" for their interpreter. They get the credentials of the driver.'
)

DRIVER = "driver"
"""The name of the text that the driver leaves for executors."""


class MeetingPlace(Protocol):
    """Where one process leaves short texts, by name, that others read."""

    @property
    def name(self) -> str:
        """What it is, for messages."""
        ...

    @property
    def hint(self) -> str:
        """What to do where two processes do not meet."""
        ...

    def leave(self, name: str, text: str) -> None:
        """Leave a text.

        Raises:
            OSError, HeadraceError: if it cannot be written.
        """
        ...

    def read(self, name: str) -> str:
        """Return a text.

        Raises:
            OSError, HeadraceError: if there is none, or it cannot be read.
        """
        ...

    def clear(self, names: Iterable[str]) -> None:
        """Delete the texts, as far as possible."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value from which :func:`place_of_json` makes it in another process."""
        ...


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder of a data directory."""

    path: Path

    @property
    def name(self) -> str:
        return f'data directory "{self.path.parent.parent}"'

    @property
    def hint(self) -> str:
        return SHARED_DIRECTORY

    def leave(self, name: str, text: str) -> None:
        (self.path / name).write_text(text, encoding="ascii")

    def read(self, name: str) -> str:
        return (self.path / name).read_text(encoding="ascii")

    def clear(self, names: Iterable[str]) -> None:  # noqa: ARG002  (the folder has no others)
        shutil.rmtree(self.path, ignore_errors=True)

    def to_json(self) -> dict[str, Any]:
        return {"folder": str(self.path)}


@dataclass(frozen=True, slots=True)
class _Objects:
    """A prefix of an object store."""

    mounted: Mounted
    prefix: str

    @property
    def name(self) -> str:
        return f'object store "{self.mounted.store.url}"'

    @property
    def hint(self) -> str:
        return REACHED_STORE

    def leave(self, name: str, text: str) -> None:
        with TemporaryDirectory() as place:
            file = Path(place) / name
            file.write_text(text, encoding="ascii")
            self._store.put(f"{self.prefix}/{name}", file)

    def read(self, name: str) -> str:
        with TemporaryDirectory() as place:
            file = Path(place) / name
            self._store.fetch(f"{self.prefix}/{name}", file)
            return file.read_text(encoding="ascii")

    def clear(self, names: Iterable[str]) -> None:
        self._store.delete([f"{self.prefix}/{name}" for name in names])

    def to_json(self) -> dict[str, Any]:
        return {"store": self.mounted.to_json(), "prefix": self.prefix}

    @property
    def _store(self) -> ObjectStore:
        return ObjectStore.at(self.mounted.store)


def place_for(directory: Path) -> MeetingPlace:
    """Return a new place where the driver and the executors of a data directory can meet.

    Raises:
        OSError: if it cannot be made.
    """
    mounted = Mounted.of(directory)
    name = f"probe-{uuid4().hex}"
    if mounted is not None:
        return _Objects(mounted, f"probes/{name}")
    folder = directory / "attempts" / name
    folder.mkdir(parents=True)
    return _Folder(folder)


def place_of_json(value: dict[str, Any]) -> MeetingPlace:
    """Return the place that :meth:`MeetingPlace.to_json` describes."""
    if "folder" in value:
        return _Folder(Path(value["folder"]))
    return _Objects(Mounted.of_json(value["store"]), value["prefix"])


def exchange(place: MeetingPlace, name: str, expected: str) -> str | None:
    """Read what the driver has left and leave the same; return what is wrong, None if nothing."""
    try:
        found = place.read(DRIVER)
        place.leave(name, expected)
    except HeadraceError as error:
        return f"{error.primary}: {error.detail or ''}".rstrip(": .")
    except OSError as error:
        return f"{error.strerror or error}: {error.filename or name}"
    return None if found == expected else "reads another file"
