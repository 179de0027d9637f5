"""Compaction: keep spines short and the data directory small, concurrently with epochs.

A pass retires events whose retention is over, merges runs that are due, stops keeping epochs older
than the configured history, and deletes the files that no readable epoch needs. It does not change
any readable contents, so it can run at any time; a run that a step in progress reads is not deleted
before that step's epoch.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.catalog import View
from headrace.errors import Code, HeadraceError
from headrace.ledger import ArrangementRecord, Merge, NewRun, RunKind
from headrace.objects.bundles import unit_of
from headrace.runtime.held_files import HeldFiles
from headrace.spine import (
    PackWriter,
    delete_packs,
    due_by_partition,
    merge,
    mounts,
    remove_packs,
    sync_directory,
)
from headrace.types import Epoch
from headrace.zset import Layout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from headrace.catalog import KeptHistory
    from headrace.runtime.epoch import EpochLoop
    from headrace.runtime.retirement import Retirement
    from headrace.spine import RunFile
    from headrace.types import ArrangementId

_log: Final = logging.getLogger(__name__)

_SECOND: Final = 1_000_000

_DEAD_BYTES: Final = 1 << 26
"""The dead bytes in packs that are not worth a merge, however few bytes are live."""

_PAUSES_SECONDS: Final = 1.0
"""How long one pass pauses for epochs in all: others may wait for its end."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """Compacts one database."""

    loop: EpochLoop
    retirement: Retirement
    close_files: Callable[[frozenset[str]], None] = lambda _names: None
    """Ends writing to any of these files of the log, which are to be deleted."""
    busy: threading.RLock = field(default_factory=threading.RLock)
    """Held during a pass, and by everything else that removes runs."""
    held: HeldFiles = field(default_factory=HeldFiles)
    """The files that backups are copying: they are not deleted."""
    without_uploads: Callable[[], AbstractContextManager[None]] = nullcontext
    """In its block, no bundle of small files is uploaded."""

    def run(self) -> int:
        """Run one pass, in steps between epochs; return the number of runs that were merged."""
        self.retirement.run()
        with self.busy:
            return self._pass(time.monotonic() + _PAUSES_SECONDS)

    def _pass(self, until: float) -> int:
        """Run a pass that pauses for epochs until some time."""
        merged, spines = 0, self.loop.ledger.spines
        while more := self._merge(spines.arrangements(), until):
            merged += more
            if self.loop.closing.is_set():
                break
        self.loop.let_pass(until)
        self._advance_since(spines.arrangements())
        self.loop.let_pass(until)
        self.sweep()
        return merged

    def _merge(self, arrangements: tuple[ArrangementRecord, ...], until: float) -> int:
        ledger, directory = self.loop.ledger, self.loop.runs
        spines = ledger.spines.of([record.id for record in arrangements])
        layouts = ledger.head.arrangements  # not older than the runs: it applies to all of them
        leaving = self._to_be_left([run.file for runs in spines.values() for run in runs])
        merges = []
        with PackWriter(directory) as pack:
            for record in map(layouts.get, spines):
                if record is None:
                    continue
                files = [run.file for run in spines[record.id]]
                for group in due_by_partition(files, self.loop.partitions, leaving):
                    self.loop.let_pass(until)
                    layout = Layout.of_json(dict(record.layout))
                    output = merge(directory, layout, group, pack)
                    merges.append(
                        Merge(
                            record.id,
                            tuple(file.place for file in group),
                            None if output is None else NewRun(output, record.id, RunKind.MERGED),
                        )
                    )
            pack.finish()
        if merges:
            sync_directory(directory)
            self.loop.fault("merged")
            try:
                ledger.spines.compact(merges)
            except HeadraceError as error:
                if error.code is Code.CONFLICT:  # nothing was committed
                    remove_packs(directory, {m.output.file.pack for m in merges if m.output})
                raise
        return sum(len(m.inputs) for m in merges)

    def _to_be_left(self, live: Sequence[RunFile]) -> frozenset[str]:
        """Return the packs whose runs are to be merged into others, so that they can be deleted.

        These are the ones with the most dead bytes for each byte to be written again, as long as
        dead bytes are more than those of all ``live`` runs, and more than ``_DEAD_BYTES``. Those
        of a bundle are left together.
        """
        uses = self.loop.ledger.files.pack_uses()
        dead, most = sum(use.dead for use in uses), max(sum(r.bytes for r in live), _DEAD_BYTES)
        if dead <= most:
            return frozenset()
        left = set()
        for use in sorted(uses, key=lambda use: use.kept / use.dead):
            if dead <= most // 2:
                break
            if not use.replaced:
                left.add(use.unit)
                dead -= use.dead
        return frozenset(run.pack for run in live if unit_of(run.pack) in left)

    def _advance_since(self, arrangements: tuple[ArrangementRecord, ...]) -> None:
        """Stop keeping old epochs: contents have a history, operator state only the last epoch.

        State keeps nothing by being readable at older epochs if no run of it was replaced.
        """
        ledger, last = self.loop.ledger, self.loop.ledger.head.epoch
        history = Epoch(max(0, last - self.loop.settings.history_epochs))
        with self.loop.kept() as (of_contents, of_state):
            contents, state = min(history, of_contents), min(last, of_state)
            since = {
                record.id: contents if record.build is None else state for record in arrangements
            }
            since |= self._kept_apart(arrangements, of_contents)
            replaced = ledger.spines.replaced()
            later = {
                r.id: since[r.id]
                for r in arrangements
                if since[r.id] > r.since and (r.build is None or r.id in replaced)
            }
            if later:
                ledger.spines.advance_since(later)
            ledger.spines.release_dropped(contents, state)

    def _kept_apart(
        self, arrangements: tuple[ArrangementRecord, ...], read: Epoch
    ) -> dict[ArrangementId, Epoch]:
        """Return the first epoch to keep of each view that says how long its states are kept.

        Epochs from ``read`` on are kept in any case.
        """
        found, by_id = {}, self.loop.catalog.by_id
        for record in arrangements:
            view = by_id.get(record.owner)
            if record.build is None and isinstance(view, View) and view.history is not None:
                found[record.id] = min(read, self._oldest(view.history, record.since))
        return found

    def _oldest(self, kept: KeptHistory, since: Epoch) -> Epoch:
        """Return the first epoch that a history keeps, at least ``since``."""
        if kept.seconds is None:
            return Epoch(max(since, self.loop.ledger.head.epoch - (kept.epochs or 0)))
        until = self.loop.clock() / _SECOND - kept.seconds
        return self.loop.ledger.epochs.at(until, since)

    def sweep(self) -> None:
        """Delete garbage: first the files, then their names, so that a crash loses no file.

        No bundle is uploaded meanwhile: it might have files that are not garbage.
        """
        with self.without_uploads():
            self._sweep()

    def _sweep(self) -> None:
        held, files = self.loop.read_logs(), self.loop.ledger.files
        garbage = self.held.without(files.garbage(held))
        if garbage.segments:
            self.close_files(garbage.segments)
            # Without files that were written to meanwhile.
            garbage = self.held.without(files.garbage(held))
        if not garbage:
            return
        delete_packs(self.loop.runs, garbage.packs)
        mounts.delete_units(self.loop.directory / "log", garbage.segments)
        self.loop.fault("swept")
        files.forget(garbage)

    def sweep_at_opening(self) -> None:
        """Delete what :meth:`sweep_strays` does, unless the store does not answer.

        What is left then takes space until the database is opened again, and nothing else: names
        are never given twice.

        Raises:
            HeadraceError: CONFLICT if another process has taken over.
        """
        try:
            self.sweep_strays()
        except HeadraceError as error:
            if error.code is not Code.UNAVAILABLE or mounts.mount_of(self.loop.runs) is None:
                raise
            _log.warning("files that are not needed are left: %s", error.primary)

    def sweep_strays(self) -> int:
        """Delete files that the ledger does not name: those of attempts and reads that have ended.

        Only safe while nothing else writes: when the database is opened. Files are listed before it
        is asked which ones are named, and whether this process is still the one that writes: what
        another process writes that has taken over is not among them. Return their number.

        Raises:
            HeadraceError: CONFLICT if another process has taken over; UNAVAILABLE while a store of
                objects does not answer.
        """
        directory, strays = self.loop.directory, 0
        small = self.loop.ledger.small_files
        listed = {name: tuple(mounts.files_in(directory / name)) for name in mounts.NAMED}
        waiting = small.names()
        for folder, names in self.loop.ledger.files.known().by_folder.items():
            left = mounts.strays(listed[folder], names)
            mounts.delete(directory / folder, left)
            small.forget(key for key in waiting if key[0] == folder and key[1] not in names)
            strays += len(left)
        for attempt in (directory / "attempts").iterdir():
            shutil.rmtree(attempt, ignore_errors=True)
            strays += 1
        return strays
