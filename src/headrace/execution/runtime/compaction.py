"""Compaction: keep spines short and the data directory small, concurrently with epochs.

A pass retires events whose retention is over, merges segments of logs and runs that are due, stops
keeping epochs older than the configured history, and deletes the files that no readable epoch
needs; every so many epochs, it forgets those that nothing names. Between passes, segments and runs
of what has changed are merged. At rest, once no epoch is made for a while, all that can be is made
small: state of operators, packs that are mostly dead, and the ledger itself.

It does not change any readable contents, so it can run at any time; a run that a step in progress
reads is not deleted before that step's epoch.
"""

from __future__ import annotations

import logging
import math
import shutil
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from headrace.algebra.spine import (
    PackWriter,
    at_rest,
    by_partition,
    delete_packs,
    due_by_partition,
    merge,
    remove_packs,
    sync_directory,
)
from headrace.algebra.zset import Layout
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.log_merging import RESTING_SEGMENTS, HeldFiles, LogMerging
from headrace.files import mounts
from headrace.files.bundles import unit_of
from headrace.planning.catalog import View
from headrace.storage.ledger import ArrangementRecord, EpochCommit, Merge, NewRun, RunKind
from headrace.storage.log.merging import TAIL_SEGMENTS
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.retirement import Retirement
    from headrace.planning.catalog import KeptHistory
    from headrace.storage.ledger import RunRecord
    from headrace.types import ArrangementId


_log: Final = logging.getLogger(__name__)

_SECOND: Final = 1_000_000

_DEAD_BYTES: Final = 1 << 22
"""The dead bytes in packs that are not worth a merge, however few bytes are live, ..."""
_LIVE_OF_ONE: Final = 2
"""... and how many live ones there are for each dead byte if they are many. ..."""
_DEAD_AT_REST: Final = 1 << 20
_LIVE_OF_ONE_AT_REST: Final = 4
"""... The same at rest."""

_FORGET_EVERY: Final = 1024
"""The number of epochs after which those that nothing names are forgotten, although others are
made: about as many as are kept in any case, so the ledger has few more than twice that. ..."""
_FORGOTTEN_AT_ONCE: Final = 4 * _FORGET_EVERY
"""... About so many are forgotten then, at most: more than were made, so that what was named for
long is forgotten in time."""

_PAUSES_SECONDS: Final = 1.0
"""How long one pass pauses for epochs in all: others may wait for its end."""


@dataclass(slots=True)
class Compaction:
    """Compacts one database."""

    loop: EpochLoop
    retirement: Retirement
    close_files: Callable[[frozenset[str]], frozenset[str]] = lambda _names: frozenset()
    """Ends writing to any of these files of the log, which are to be deleted; returns those with
    something that the ledger may not name yet."""
    busy: threading.RLock = field(default_factory=threading.RLock)
    """Held during a pass, and by everything else that removes runs."""
    held: HeldFiles = field(default_factory=HeldFiles)
    """The files that backups are copying: they are not deleted."""
    without_uploads: Callable[[], AbstractContextManager[None]] = nullcontext
    """In its block, no bundle of small files is uploaded."""
    logs: LogMerging = field(init=False)

    _seen: Mapping[ArrangementId, tuple[RunRecord, ...]] = field(default_factory=dict)
    """The runs of each arrangement when runs to merge were last looked for."""
    _dead: float = math.inf
    """At most so many bytes are dead in packs that have other runs, as far as was looked at."""
    _forgot: int = 0
    """The last epoch when earlier ones were last forgotten."""

    def __post_init__(self) -> None:
        """Create what merges the logs."""
        self.logs = LogMerging(self.loop, self.held, self.close_files)

    def run(self, tail: int = TAIL_SEGMENTS) -> int:
        """Run one pass, in steps between epochs; return how many runs and segments were merged.

        Logs are merged that have so many new segments in their ``tail``.
        """
        self.retirement.run()
        with self.busy:
            until = time.monotonic() + _PAUSES_SECONDS
            return self._merge_logs(tail, until) + self._pass(until)

    def merge_logs(self, tail: int = TAIL_SEGMENTS) -> int:
        """Merge logs with so many new segments; return how many were merged.

        It looks at no other log.
        """
        self.logs.begin()
        if self.loop.ledger.log.landed.most < tail:
            return 0
        with self.busy:
            count = self._merge_logs(tail, time.monotonic() + _PAUSES_SECONDS)
            if count:
                self.sweep()
        return count

    def _merge_logs(self, tail: int, until: float) -> int:
        return self.logs.run(lambda: self.loop.let_pass(until), tail)

    def merge_due(self) -> int:
        """Merge the runs that are due of what has changed since the last time; return how many.

        It looks at no other arrangement, and asks the ledger nothing.
        """
        with self.busy:
            return self._merge_all(time.monotonic() + _PAUSES_SECONDS)

    def rest(self) -> Epoch:
        """Make small what is kept, while no epoch is made; return the last epoch.

        That is an empty one if state was merged: earlier ones need what was merged.
        """
        loop, ledger = self.loop, self.loop.ledger
        self.run(RESTING_SEGMENTS)
        with self.busy:
            most = self._most_dead(_DEAD_AT_REST, _LIVE_OF_ONE_AT_REST)
            self._merge(ledger.head.next_spines, math.inf, most, resting=True)
            if any(ledger.head.spines[i] is not r for i, r in ledger.head.next_spines.items()):
                with loop.between():
                    ledger.commit(EpochCommit(ledger.head.epoch, "rest"))
            self._pass(math.inf, resting=True)
            ledger.make_small(self._oldest_named())
        return ledger.head.epoch

    def _pass(self, until: float, *, resting: bool = False) -> int:
        """Run a pass that pauses for epochs until some time."""
        merged = self._merge_all(until)
        while (most := self._most_dead(_DEAD_BYTES, _LIVE_OF_ONE)) is not None:
            more = self._merge(self.loop.ledger.head.next_spines, until, most)
            merged += more
            if not more or self.loop.closing.is_set():
                break
        arrangements, last = self.loop.ledger.spines.arrangements(), self.loop.ledger.head.epoch
        forgets = not resting and last - self._forgot >= _FORGET_EVERY
        self.loop.let_pass(until)
        self._advance_since(arrangements, every=resting or forgets)
        if forgets:
            self._forgot = last
            self._forget(until)
        self.loop.let_pass(until)
        self.sweep()
        return merged

    def _merge_all(self, until: float) -> int:
        """Merge until nothing is due of what has changed; see :meth:`_merge`."""
        merged = 0
        while more := self._merge(self._changed(), until):
            merged += more
            if self.loop.closing.is_set():
                break
        return merged

    def _changed(self) -> dict[ArrangementId, tuple[RunRecord, ...]]:
        """Return the runs of each arrangement that has changed since the last call."""
        before, self._seen = self._seen, self.loop.ledger.head.next_spines
        for id_, runs in before.items():
            now = self._seen.get(id_, ())
            if now is not runs:
                left = {run.file.place for run in now}
                self._dead += sum(r.file.bytes for r in runs if r.file.place not in left)
        return {id_: runs for id_, runs in self._seen.items() if before.get(id_) is not runs}

    def _merge(
        self,
        spines: Mapping[ArrangementId, tuple[RunRecord, ...]],
        until: float,
        most: int | None = None,
        *,
        resting: bool = False,
    ) -> int:
        """Merge once what is due among some arrangements; return how many runs that were.

        Due are also runs in packs that are to be left, if there are more than ``most`` dead bytes;
        and with ``resting`` small runs of the state of operators. Contents are kept at earlier
        epochs: while no epoch is made, a merge only adds another copy.
        """
        ledger, directory = self.loop.ledger, self.loop.runs
        layouts = ledger.head.arrangements  # not older than the runs: it applies to all of them
        leaving = frozenset[str]() if most is None else self._to_be_left(spines, most)
        merges = []
        # Former states of contents stay readable: they are not to keep the bytes of others.
        with PackWriter(directory) as of_contents, PackWriter(directory) as of_state:
            for id_, runs in spines.items():
                record = layouts.get(id_)
                if record is None:
                    continue
                files = [run.file for run in runs]
                kept = resting and record.build is None
                groups = due_by_partition(files, self.loop.partitions, () if kept else leaving)
                if resting and not kept and not groups:
                    groups = [at_rest(part) for part in by_partition(files, self.loop.partitions)]
                for group in filter(None, groups):
                    self.loop.let_pass(until)
                    layout = Layout.of_json(dict(record.layout))
                    pack = of_contents if record.build is None else of_state
                    output = merge(directory, layout, group, pack)
                    merges.append(
                        Merge(
                            record.id,
                            tuple(file.place for file in group),
                            None if output is None else NewRun(output, record.id, RunKind.MERGED),
                        )
                    )
            for pack in (of_contents, of_state):
                pack.finish()
        if merges:
            sync_directory(directory)
            self.loop.fault("merged")
            try:
                ledger.spines.compact(merges)
            except HeadraceError as error:
                if error.code is Code.CONFLICT:  # nothing was committed
                    remove_packs(directory, {m.output.file.pack for m in merges if m.output})
                self._seen = {}
                raise
        return sum(len(m.inputs) for m in merges)

    def _most_dead(self, least: int, live_of_one: int) -> int | None:
        """Return how many dead bytes packs may have: one for so many live ones, or ``least``.

        None if not so many are dead.
        """
        if self._dead <= least:
            return None
        spines = self.loop.ledger.head.next_spines
        live = sum(run.file.bytes for runs in spines.values() for run in runs)
        return max(live // live_of_one, least)

    def _to_be_left(
        self, spines: Mapping[ArrangementId, tuple[RunRecord, ...]], most: int
    ) -> frozenset[str]:
        """Return the packs whose runs are to be merged into others, so that they can be deleted.

        These are the ones with the most dead bytes for each byte to be written again, if there are
        more than ``most`` dead bytes. Those of a bundle are left together.
        """
        uses = self.loop.ledger.files.pack_uses()
        dead = sum(use.dead for use in uses)
        if dead <= most:
            self._dead = dead
            return frozenset()
        left = set()
        for use in sorted(uses, key=lambda use: use.kept / use.dead):
            if dead <= most // 2:
                break
            if not use.replaced:
                left.add(use.unit)
                dead -= use.dead
        packs = {run.file.pack for runs in spines.values() for run in runs}
        return frozenset(pack for pack in packs if unit_of(pack) in left)

    def _advance_since(
        self, arrangements: tuple[ArrangementRecord, ...], *, every: bool = False
    ) -> None:
        """Stop keeping old epochs: contents have a history, operator state only the last epoch.

        State keeps nothing but the record of epochs by being readable at older ones if no run of it
        was replaced: with ``every``, it is advanced as contents are.
        """
        ledger, last = self.loop.ledger, self.loop.ledger.head.epoch
        history = Epoch(max(0, last - self.loop.settings.history_epochs))
        with self.loop.kept() as (of_contents, of_state):
            contents, state = min(history, of_contents), min(last, of_state)
            replaced = ledger.spines.replaced()
            states = {r.id for r in arrangements if r.build is not None}
            since = {r.id: contents for r in arrangements if every or r.id not in states}
            since |= dict.fromkeys(states & replaced, state)
            since |= self._kept_apart(arrangements, of_contents)
            later = {r.id: since[r.id] for r in arrangements if r.since < since.get(r.id, r.since)}
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

    def _forget(self, until: float) -> None:
        """Forget epochs that nothing names, in small transactions between those of others."""
        oldest, forgotten = self._oldest_named(), 0
        while forgotten < _FORGOTTEN_AT_ONCE and not self.loop.closing.is_set():
            self.loop.let_pass(until)
            found = self.loop.ledger.epochs.forget(oldest)
            if not found:
                return
            forgotten += found

    def _oldest_named(self) -> Epoch:
        """Return the oldest epoch that anything refers to; earlier ones may be forgotten."""
        ledger = self.loop.ledger
        stands = (each.epoch for each in ledger.head.frontiers.values())
        delivered = ledger.deliveries.all().values()
        with self.loop.kept() as read:
            held = min(read)
        return min(
            [
                held,
                *(record.since for record in ledger.spines.arrangements()),
                *(epoch for epoch in stands if epoch is not None),
                *(each.held for each in delivered),
                ledger.head.epoch,
            ]
        )

    def sweep(self) -> None:
        """Delete garbage: first the files, then their names, so that a crash loses no file.

        No bundle is uploaded meanwhile: it might have files that are not garbage.
        """
        with self.without_uploads():
            self._sweep()

    def _sweep(self) -> None:
        self.logs.release()
        held, files = self.loop.read_logs(), self.loop.ledger.files
        garbage = self.held.without(files.garbage(held))
        if garbage.segments:
            unsettled = self.close_files(garbage.segments)
            # Without files that were written to meanwhile.
            garbage = self.held.without(files.garbage(held))
            garbage = replace(garbage, segments=garbage.segments - unsettled)
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
