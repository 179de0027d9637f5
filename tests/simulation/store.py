"""A store of objects in memory, as each process sees it: it may fail, be slow or be away."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError
from headrace.files import StoreAddress
from headrace.files.bundles import bundle_of_object, members
from headrace.files.store import Requests
from simulation.points import (
    CRASHES,
    CRASHES_AFTERWARDS,
    FAILS,
    GOES_AWAY,
    IS_LATE,
    IS_LOST,
    LOSES_MACHINE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from simulation.points import Life, Points

_STORE: Final = "store"


@dataclass(slots=True)
class Objects:
    """The objects of a store by name. ``late`` are those of requests that are under way.

    ``arrived`` are those of requests that were under way until others were, perhaps, deleted.
    """

    kept: dict[str, bytes] = field(default_factory=dict)
    late: dict[str, bytes] = field(default_factory=dict)
    arrived: set[str] = field(default_factory=set)

    def arrive(self) -> None:
        """Have the requests that are under way arrive."""
        self.kept |= self.late
        self.arrived |= self.late.keys()
        self.late.clear()

    def in_folder(self, folder: str, *, late: bool = True) -> set[str]:
        """Return the names of the objects of a folder; without ``late``, not those that arrived."""
        within = f"{folder}/"
        gone = set() if late else self.arrived
        return {name[len(within) :] for name in self.kept.keys() - gone if name.startswith(within)}

    def files_in(self, folder: str, *, late: bool = True) -> set[str]:
        """Return the names of the files of a folder: objects, and what is in bundles."""
        found = set[str]()
        for name in self.in_folder(folder, late=late):
            if bundle_of_object(name) is None:
                found.add(name)
            else:
                found |= members(self.kept[f"{folder}/{name}"], name).keys()
        return found


@dataclass(slots=True)
class Client:
    """A store as one process sees it; in place of ``ObjectStore``."""

    objects: Objects
    points: Points
    life: Life
    address: StoreAddress = field(default_factory=lambda: StoreAddress.of("memory:///"))
    requests: Requests = field(default_factory=Requests)

    def put(self, name: str, file: Path | bytes) -> None:
        data = file if isinstance(file, bytes) else file.read_bytes()

        def late() -> None:
            self.objects.late[name] = data

        folder = name.partition("/")[0]
        self._ask(f"put {folder}", lambda: self.objects.kept.__setitem__(name, data), late)

    def fetch(self, name: str, file: Path) -> None:
        def fetch() -> None:
            data = self.objects.kept.get(name)  # it may have been deleted while this was slow
            if data is None:
                raise FileNotFoundError(name)
            file.write_bytes(data)

        if name not in self.objects.kept:
            raise FileNotFoundError(name)
        self._ask("fetch", fetch)

    def pieces(self, name: str) -> Iterator[bytes]:
        self._ask("fetch", lambda: None)
        if name not in self.objects.kept:
            raise FileNotFoundError(name)
        yield self.objects.kept[name]

    def delete(self, names: Iterable[str]) -> None:
        gone = sorted(names)

        def delete(some: Iterable[str]) -> None:
            for name in some:
                self.objects.kept.pop(name, None)

        if gone:
            folder = gone[0].partition("/")[0]
            half = gone[: len(gone) // 2]
            self._ask(f"delete {folder}", lambda: delete(gone), lambda: delete(half))

    def names(self, prefix: str = "", after: str = "") -> Iterator[tuple[str, int]]:
        self._ask("list", lambda: None)
        for name in sorted(self.objects.kept):
            if name.startswith(prefix) and name > after:
                yield name, len(self.objects.kept[name])

    def _ask(
        self, point: str, do: Callable[[], Any], late: Callable[[], Any] = lambda: None
    ) -> None:
        """Do what is asked, or what the troubles at this point want."""
        self.life.require()
        effect = self.points.effect(point)
        self.life.require()
        if effect == GOES_AWAY:
            self.points.away.add(_STORE)
        if _STORE in self.points.away:
            self.points.met = True
            raise HeadraceError(Code.UNAVAILABLE, "the store is away")
        if effect in (CRASHES, LOSES_MACHINE):
            self.life.end(point, machine=effect == LOSES_MACHINE)
        if effect == IS_LATE:
            late()
        if effect not in (FAILS, IS_LATE):
            do()
        if effect == CRASHES_AFTERWARDS:
            self.life.end(point)
        if effect in (FAILS, IS_LATE, IS_LOST):
            raise HeadraceError(Code.UNAVAILABLE, f"the store {effect}")
