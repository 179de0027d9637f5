"""Where the driver and the executors exchange files: a directory that they share, or a store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from headrace.errors import HeadraceError
from headrace.objects import DirectoryPlace, ObjectStore, StorePlace
from headrace.spine.mounts import Mounted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.objects import Place

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


@dataclass(frozen=True, slots=True)
class MeetingPlace:
    """Where one process leaves short texts, by name, that others read.

    ``prefix`` begins the names of its files in the directory or, if that is a cache, in the store.
    """

    directory: Path
    mounted: Mounted | None
    prefix: str
    _files: Place

    @classmethod
    def at(cls, directory: Path, mounted: Mounted | None, prefix: str) -> MeetingPlace:
        """Return a place; nothing is read or written."""
        files: Place = DirectoryPlace(directory)
        if mounted is not None:
            files = StorePlace(ObjectStore.at(mounted.store))
        return cls(directory, mounted, prefix, files)

    @property
    def name(self) -> str:
        """What it is, for messages."""
        if self.mounted is not None:
            return f'object store "{self._files.url}"'
        return f'data directory "{self.directory}"'

    @property
    def hint(self) -> str:
        """What to do where two processes do not meet."""
        return SHARED_DIRECTORY if self.mounted is None else REACHED_STORE

    def leave(self, name: str, text: str) -> None:
        """Leave a text.

        Raises:
            HeadraceError: if it cannot be written.
        """
        self._files.put(self.prefix + name, [text.encode("ascii")])

    def read(self, name: str) -> str:
        """Return a text.

        Raises:
            FileNotFoundError: there is none.
            HeadraceError: if it cannot be read.
        """
        return b"".join(self._files.pieces(self.prefix + name)).decode("ascii")

    def clear(self, names: Iterable[str]) -> None:
        """Delete texts; those that do not exist are no failure."""
        self._files.delete([self.prefix + name for name in names])

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value from which :meth:`of_json` makes it in another process."""
        mounted = None if self.mounted is None else self.mounted.to_json()
        return {"directory": str(self.directory), "mounted": mounted, "prefix": self.prefix}

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> MeetingPlace:
        """Return the place that :meth:`to_json` describes."""
        mounted = None if value["mounted"] is None else Mounted.of_json(value["mounted"])
        return cls.at(Path(value["directory"]), mounted, value["prefix"])


def place_for(directory: Path) -> MeetingPlace:
    """Return a new place where the driver and the executors of a data directory can meet."""
    mounted = Mounted.of(directory)
    folder = "attempts" if mounted is None else "probes"
    return MeetingPlace.at(directory, mounted, f"{folder}/probe-{uuid4().hex}-")


def exchange(place: MeetingPlace, name: str, expected: str) -> str | None:
    """Read what the driver has left and leave the same; return what is wrong, None if nothing."""
    try:
        found = place.read(DRIVER)
        place.leave(name, expected)
    except HeadraceError as error:
        return f"{error.primary}: {error.detail or ''}".rstrip(": .")
    except FileNotFoundError as error:
        return f"{error.strerror or error}: {error.filename or name}"
    return None if found == expected else "reads another file"
