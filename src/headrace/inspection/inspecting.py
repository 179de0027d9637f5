"""``headrace doctor``: whether a database is sound, and what to do if it is not."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from headrace.catalog import Catalog, relation_of_json
from headrace.circuit.fingerprint import outdated
from headrace.errors import Code, HeadraceError
from headrace.inspection.files import FileChecks
from headrace.inspection.findings import Finding, State
from headrace.ledger import LEDGER_FORMAT, DeliveryState, holder_of, ledger_to_read
from headrace.runtime.published import STOPPED, WAITING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headrace.ledger import Ledger, PostgresAddress
    from headrace.objects import ObjectStore

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
