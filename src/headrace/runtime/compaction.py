"""Compaction: keep spines short and the data directory small, concurrently with epochs.

A pass retires events whose retention is over, merges runs that are due, stops keeping epochs older
than the configured history, and deletes the files that no readable epoch needs. It does not change
any readable contents, so it can run at any time; a run that a step in progress reads is not deleted
before that step's epoch.
"""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.ledger import ArrangementRecord, Merge, NewRun, RunKind
from headrace.spine import due_by_partition, merge, remove_packs, sync_directory
from headrace.types import Epoch
from headrace.zset import Layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.runtime.epoch import EpochLoop
    from headrace.runtime.retirement import Retirement


@dataclass(frozen=True, slots=True)
class Compaction:
    """Compacts one database."""

    loop: EpochLoop
    retirement: Retirement
    close_files: Callable[[frozenset[str]], None] = lambda _names: None
    """Ends writing to any of these files of the log, which are to be deleted."""
    busy: threading.RLock = field(default_factory=threading.RLock)
    """Held during a pass, and by everything else that removes runs."""

    def run(self) -> int:
        """Run one pass; return the number of runs that were merged."""
        self.retirement.run()
        with self.busy:
            return self._pass()

    def _pass(self) -> int:
        arrangements = self.loop.ledger.spines.arrangements()
        merged = self._merge(arrangements)
        self._advance_since(arrangements)
        self.sweep()
        return merged

    def _merge(self, arrangements: tuple[ArrangementRecord, ...]) -> int:
        ledger, directory = self.loop.ledger, self.loop.runs
        spines = ledger.spines.of([record.id for record in arrangements])
        merges = []
        for record in arrangements:
            files = [run.file for run in spines.get(record.id, ())]
            for group in due_by_partition(files, self.loop.partitions):
                output = merge(directory, Layout.of_json(dict(record.layout)), group)
                merges.append(
                    Merge(
                        record.id,
                        tuple(file.place for file in group),
                        None if output is None else NewRun(output, record.id, RunKind.MERGED),
                    )
                )
        if merges:
            sync_directory(directory)
            ledger.spines.compact(merges)
        return sum(len(m.inputs) for m in merges)

    def _advance_since(self, arrangements: tuple[ArrangementRecord, ...]) -> None:
        """Stop keeping old epochs: contents have a history, operator state only the last epoch."""
        ledger, last = self.loop.ledger, self.loop.ledger.head.epoch
        history = Epoch(max(0, last - self.loop.settings.history_epochs))
        with self.loop.kept() as (of_contents, of_state):
            contents, state = min(history, of_contents), min(last, of_state)
            since = {
                record.id: contents if record.build is None else state for record in arrangements
            }
            later = {r.id: since[r.id] for r in arrangements if since[r.id] > r.since}
            if later:
                ledger.spines.advance_since(later)
            ledger.spines.release_dropped(contents, state)

    def sweep(self) -> None:
        """Delete garbage: first the files, then their names, so that a crash loses no file."""
        held, files = self.loop.read_logs(), self.loop.ledger.files
        garbage = files.garbage(held)
        if garbage.segments:
            self.close_files(garbage.segments)
            garbage = files.garbage(held)  # without files that were written to meanwhile
        if not garbage:
            return
        remove_packs(self.loop.runs, garbage.packs)
        for name in garbage.segments:
            (self.loop.directory / "log" / name).unlink(missing_ok=True)
        self.loop.fault("swept")
        files.forget(garbage)

    def sweep_strays(self) -> int:
        """Delete files that the ledger does not name: those of attempts and reads that have ended.

        Only safe while nothing else writes: when the database is opened. Return their number.
        """
        known = self.loop.ledger.files.known()
        strays = 0
        for folder, names in (("runs", known.packs), ("log", known.segments)):
            for path in (self.loop.directory / folder).iterdir():
                if path.name not in names:
                    path.unlink()
                    strays += 1
        for left in (self.loop.directory / "attempts").iterdir():
            shutil.rmtree(left, ignore_errors=True)
            strays += 1
        return strays
