"""``headrace doctor``: whether a database is sound, and what to do if it is not.

What a check has found, and what to do about it.

Whether the files that a ledger names are there, as it names them.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.published import STOPPED, WAITING
from headrace.files import mounts
from headrace.files.bundles import bundle_of, members, object_of, unit_of
from headrace.lifecycle.copies.repository import (
    DamagedFileError,
    Meter,
    checked,
    checked_pieces,
    run_all,
)
from headrace.planning.catalog import Catalog, relation_of_json
from headrace.planning.circuit.digest import outdated
from headrace.storage.ledger import LEDGER_FORMAT, DeliveryState, holder_of, ledger_to_read
from headrace.storage.log import checked_part
from headrace.storage.log.seen import require_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from headrace.files import ObjectStore
    from headrace.storage.ledger import Ledger, NeededFile, PostgresAddress


class State(StrEnum):
    """Whether something is wrong."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing has to be done."""
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; ``hint`` says what to do, if anything."""

    check: str
    state: State
    found: str
    hint: str = ""


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


_LEAST_FREE: Final = 1 << 30
"""Fewer bytes than that are too few, and ..."""
_LEAST_SHARE: Final = 20
"""... less than one part in so many of the disk is worth a note."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """A database that is inspected: its directory, ledger, and how its store is reached.

    ``store_at`` returns the store at the URL that the ledger has.
    """

    directory: Path
    address: PostgresAddress | None
    store_at: Callable[[str], ObjectStore]


def inspect(
    inspected: Inspected,
    *,
    quick: bool = False,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[Finding]:
    """Check a database; change nothing.

    ``quick`` compares no checksums. ``report`` is given the bytes that were read, and all.
    """
    found = [_disk(inspected.directory)]
    try:
        with ledger_to_read(inspected.directory, inspected.address) as ledger:
            found += _of_ledger(inspected, ledger, report, quick=quick)
    except HeadraceError as error:
        if _is_older(error):
            return [*found, _migrated(error)]
        why = f"{error.primary}: {error.detail}" if error.detail else error.primary
        found.append(Finding("ledger", State.WRONG, why, error.hint or ""))
    return found


def _is_older(error: HeadraceError) -> bool:
    """Whether a ledger cannot be read because it is of an earlier format."""
    return error.code is Code.INVALID and "which is migrated first" in error.primary


def _migrated(error: HeadraceError) -> Finding:
    done = "It is migrated; then views whose state is not kept are rebuilt."
    return Finding("ledger", State.NOTE, f"{error.primary}", done)


def upgrades(inspected: Inspected) -> list[Finding]:
    """Return what opening a database with this version would change, without opening it.

    Raises:
        HeadraceError: if its ledger cannot be read; not if that is of an earlier format.
    """
    try:
        with ledger_to_read(inspected.directory, inspected.address) as ledger:
            return [*_outdated(ledger)]
    except HeadraceError as error:
        if not _is_older(error):
            raise
        return [_migrated(error)]


def _outdated(ledger: Ledger) -> Iterator[Finding]:
    catalog = _catalog(ledger)
    for view, why in outdated(catalog):
        done = "It is rebuilt before the first epoch, and read as it is meanwhile."
        yield Finding(f'view "{view.name}"', State.NOTE, "; ".join(why), done)


def _catalog(ledger: Ledger) -> Catalog:
    return Catalog.of(relation_of_json(dict(r.definition)) for r in ledger.relations.existing())


def _of_ledger(
    inspected: Inspected, ledger: Ledger, report: Callable[[int, int], None], *, quick: bool
) -> Iterator[Finding]:
    epoch = ledger.head.epoch
    text = f"{ledger.place}: format {LEDGER_FORMAT}, epoch {epoch:,}"
    text += f"; this is Headrace {version('headrace')}"
    yield Finding("ledger", State.OK, text)
    holder = holder_of(inspected.directory)
    writer = ledger.writer
    if writer is not None:
        yield Finding("writer", State.NOTE, f"the last one is {writer}")
    else:
        yield Finding("writer", State.NOTE, holder or "no process has it open")
    broken = ledger.violations()
    hint = "Please report this; restore a backup, or have the views rebuilt."
    for name, why in broken.items():
        yield Finding("invariants", State.WRONG, f"{name}: {why}", hint)
    if not broken:
        yield Finding("invariants", State.OK, "all hold")
    url = ledger.settings.get("store")
    store = inspected.store_at(url) if url else None
    # Who writes to a ledger in PostgreSQL may be alive: what it writes is not taken for a stray.
    files = FileChecks(inspected.directory, ledger, store, holder is not None or writer is not None)
    yield from files.run(report, quick=quick)
    yield from _of_catalog(ledger)


def _of_catalog(ledger: Ledger) -> Iterator[Finding]:
    catalog = _catalog(ledger)
    yield from _outdated(ledger)
    names = {relation.id: relation.name for relation in catalog}
    wrong, dirty = 0, 0
    for entry in ledger.head.dirty:
        name, why = names.get(entry.view, f"{entry.view}"), entry.detail.partition("\n")[0]
        if entry.cause == STOPPED:
            hint = "Correct what it says, then REPAIR; SHOW ERRORS FOR it shows more."
            yield Finding("views", State.WRONG, f'"{name}" has stopped: {why}', hint)
        elif entry.cause == WAITING:
            hint = "Open the database with that function: headrace serve --functions FILE."
            yield Finding("views", State.WRONG, f'"{name}" waits: {why}', hint)
        else:
            dirty += 1
            continue
        wrong += 1
    if dirty:
        hint = "They are repaired while the database is open, or by REPAIR: see SHOW DIRTY."
        yield Finding("views", State.NOTE, f"{dirty:,} dirty slices", hint)
    elif not wrong:
        yield Finding("views", State.OK, "none has stopped, waits or is dirty")
    for relation in catalog:
        rejected = ledger.rejects.count(relation.id)
        if rejected:
            hint = f"SHOW REJECTS FOR {relation.name} shows them, with the reasons."
            text = f'"{relation.name}" has rejected {rejected:,} rows'
            yield Finding("sources", State.NOTE, text, hint)
    for id_, delivery in ledger.deliveries.all().items():
        name = names.get(id_, f"{id_}")
        if delivery.state is DeliveryState.STOPPED:
            why = (delivery.why or "").partition("\n")[0]
            hint = f"Correct what it says, then RESUME SINK {name}."
            yield Finding("sinks", State.WRONG, f'"{name}" has stopped: {why}', hint)
        elif delivery.state is DeliveryState.PAUSED:
            hint = f"RESUME SINK {name} continues it."
            yield Finding("sinks", State.NOTE, f'"{name}" is paused', hint)


def _disk(directory: Path) -> Finding:
    try:
        usage = shutil.disk_usage(directory)
    except OSError as error:
        return Finding("disk", State.WRONG, f'"{directory}": {error.strerror}', "Check the path.")
    text = f"{usage.free:,} of {usage.total:,} bytes are free"
    if usage.free < _LEAST_FREE:
        return Finding("disk", State.WRONG, text, "Free some space: writes fail without.")
    nearly = usage.free < usage.total // _LEAST_SHARE
    return Finding("disk", State.NOTE if nearly else State.OK, text)
