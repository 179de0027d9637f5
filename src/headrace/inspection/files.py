"""Whether the files that a ledger names are there, as it names them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.backups.transfer import DamagedFileError, Meter, checked, checked_pieces, run_all
from headrace.errors import Code, HeadraceError
from headrace.inspection.findings import Finding, State
from headrace.log import checked_part
from headrace.log.seen import require_header
from headrace.objects.bundles import bundle_of, members, object_of, unit_of
from headrace.spine import mounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from headrace.ledger import Ledger, NeededFile
    from headrace.objects import ObjectStore

_MOST_SHOWN: Final = 20
_REPAIR: Final = (
    "Stop the process and run REPAIR, which rebuilds tables and views from the log; a file of the"
    " log has to be restored from a backup."
)


class DamagedBundleError(Exception):
    """A bundle is damaged; ``waiting`` are those of its files that the ledger has."""

    def __init__(self, waiting: Mapping[str, bytes | memoryview], why: str) -> None:
        super().__init__(why)
        self.waiting = waiting
        self.why = why.removesuffix(".")


@dataclass(slots=True)
class FileChecks:
    """Checks the files of a database in a directory or, if there is one, in a ``store``.

    ``open_elsewhere``: a process has the database open, and may add and delete files meanwhile.
    """

    directory: Path
    ledger: Ledger
    store: ObjectStore | None
    open_elsewhere: bool
    meter: Meter = field(default_factory=Meter)

    def run(self, report: Callable[[int, int], None], *, quick: bool) -> Iterator[Finding]:
        """Yield what is wrong with files; ``quick`` compares no checksums."""
        needed, own = self.ledger.files.needed(), self._sizes()
        sizes = self._inherited() | own
        wrong = {file: why for file in needed if (why := self._wrong_size(file, sizes)) is not None}
        total = 0
        if not quick:
            rest = [file for file in needed if file not in wrong]
            total = sum(file.bytes for file in rest)
            tasks = (partial(self._damages, files) for files in _by_unit(rest))
            found = run_all(tasks, self.meter, lambda done: report(min(done, total), total))
            wrong |= {file: why for each in found for file, why in each.items()}
        if wrong:  # a process may have deleted what is needed no longer
            still = {(file.folder, file.name) for file in self.ledger.files.needed()}
            wrong = {f: why for f, why in wrong.items() if (f.folder, f.name) in still}
        for file, why in list(wrong.items())[:_MOST_SHOWN]:
            yield Finding("files", State.WRONG, f"{file.folder}/{file.name}: {why}", _REPAIR)
        if len(wrong) > _MOST_SHOWN:
            more = f"{len(wrong) - _MOST_SHOWN:,} more files are damaged or missing"
            yield Finding("files", State.WRONG, more, _REPAIR)
        if not wrong:
            how = "are there with their sizes" if quick else "have their checksums"
            size = sum(file.bytes for file in needed)
            yield Finding("files", State.OK, f"{len(needed):,} files, {size:,} bytes, {how}")
        if not quick:
            yield from self._ids()
        if not self.open_elsewhere:
            yield from self._strays(own)

    def _sizes(self) -> dict[str, int]:
        """Return the sizes of all files and bundles, by folder and name."""
        if self.store is not None:
            small = self.ledger.small_files.names()  # first: they may be uploaded just now
            return {f"{folder}/{name}": size for (folder, name), size in small.items()} | {
                name: size
                for folder in mounts.NAMED
                for name, size in self.store.names(f"{folder}/")
            }
        found = {}
        for folder in mounts.NAMED:
            place = self.directory / folder
            for path in place.iterdir() if place.exists() else ():
                try:
                    found[f"{folder}/{path.name}"] = path.stat().st_size
                except FileNotFoundError:  # it is deleted just now
                    continue
        return found

    def _inherited(self) -> dict[str, int]:
        """Return the sizes of the objects that the store of a branch reads from its parent's."""
        found: dict[str, int] = {}
        origin = None if self.store is None else self.store.origin
        while origin is not None:
            names = (origin.names(f"{folder}/") for folder in mounts.NAMED)
            found = {name: size for each in names for name, size in each} | found
            origin = origin.origin
        return found

    def _wrong_size(self, file: NeededFile, sizes: dict[str, int]) -> str | None:
        size = sizes.get(f"{file.folder}/{file.name}")
        if size is None:
            bundle = bundle_of(file.name)
            known = bundle is not None and f"{file.folder}/{object_of(bundle)}" in sizes
            return None if known else "it is missing"
        return None if size >= file.bytes else f"it has {size:,} bytes instead of {file.bytes:,}"

    def _damages(self, files: Sequence[NeededFile]) -> dict[NeededFile, str]:
        """Return what is wrong with the files of a bundle, or with a file of its own."""
        found, absent = {}, "it is missing"
        try:
            bundled = self._bundled(files)
        except DamagedBundleError as error:
            bundled, absent = error.waiting, f"its bundle is damaged: {error.why}"
        for file in files:
            path = self.directory / file.folder / file.name
            try:
                if self.store is None:
                    pieces = checked_pieces(path, file.bytes, file.ranges)
                else:
                    known = bundled.get(file.name)
                    own = self.store.pieces(f"{file.folder}/{file.name}")
                    stream = _Stream(own if known is None else iter([bytes(known)]))
                    pieces = checked(stream.read, path, file.bytes, file.ranges)
                for piece in pieces:
                    self.meter.count(len(piece))
            except FileNotFoundError:
                found[file] = absent
            except DamagedFileError as error:
                found[file] = (error.detail or "it is damaged").removesuffix(".")
        return found

    def _bundled(self, files: Sequence[NeededFile]) -> Mapping[str, bytes | memoryview]:
        """Return the files of a bundle of a store, and those of them that it does not have yet.

        Raises:
            DamagedBundleError: the bundle is damaged.
        """
        bundle = bundle_of(files[0].name)
        if self.store is None or bundle is None:
            return {}
        small = self.ledger.small_files.read((each.folder, each.name) for each in files)
        waiting = {each.name: each.body for each in small}
        name = f"{files[0].folder}/{object_of(bundle)}"
        try:
            return members(b"".join(self.store.pieces(name)), name) | waiting
        except FileNotFoundError:
            return waiting
        except HeadraceError as error:
            if error.code is not Code.CORRUPT:
                raise
            raise DamagedBundleError(waiting, error.detail or error.primary) from error

    def _ids(self) -> Iterator[Finding]:
        """Check the files with ids of streams in the directory."""
        folder = self.directory / "seen"
        for path in sorted(folder.glob("*.npy")) if folder.exists() else ():
            try:
                require_header(path)
                part = checked_part(path)
                for _ in checked_pieces(path, part.position + part.bytes, (part,)):
                    pass
            except (OSError, HeadraceError):
                if path.exists():
                    hint = "Restore it from a backup, if opening the database does not rebuild it."
                    yield Finding("files", State.WRONG, f"seen/{path.name} is damaged", hint)

    def _strays(self, sizes: dict[str, int]) -> Iterator[Finding]:
        strays = []
        for folder, named in self.ledger.files.known().by_folder.items():
            within = f"{folder}/"
            listed = [name.removeprefix(within) for name in sizes if name.startswith(within)]
            strays += [within + name for name in mounts.strays(listed, named)]
        if strays:
            size = sum(sizes[name] for name in strays)
            text = f"{len(strays):,} files, {size:,} bytes, are not named by the ledger"
            yield Finding("strays", State.NOTE, text, "They are deleted when it is opened.")


def _by_unit(files: Iterable[NeededFile]) -> Iterator[list[NeededFile]]:
    """Yield the files that are one object of a store together, and each other one by itself."""
    units: dict[str, list[NeededFile]] = {}
    for file in files:
        units.setdefault(unit_of(file.name), []).append(file)
    yield from units.values()


@dataclass(slots=True)
class _Stream:
    """Reads from pieces as from a file."""

    pieces: Iterator[bytes]
    left: bytes = b""

    def read(self, size: int) -> bytes:
        """Return at most so many bytes, and none at the end."""
        if not self.left:
            self.left = next(self.pieces, b"")
        found, self.left = self.left[:size], self.left[size:]
        return found
