"""Merging of logs: many small segments become few large ones, concurrently with all else.

A merge reads and writes files, and then exchanges the segments in one transaction of the ledger. It
changes nothing that can be read. What epochs are to read is not merged before: they read what was
appended together in one epoch, which a merged segment does not say. Others read by offsets. The
files of former segments are held for readers that may have been given them: for all states that
were published by the exchange, and all segments that were read of the ledger.

Files that compaction does not delete though no readable epoch needs them.

Backups copy them, or branches in the store of the database read them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.retirement import newest_time
from headrace.files import mounts
from headrace.files.bundles import unit_of
from headrace.planning.catalog import Stream
from headrace.storage.ledger import Files, SegmentFile
from headrace.storage.log import SegmentWriter, open_segment
from headrace.storage.log.merging import TAIL_SEGMENTS, Piece, due, merged
from headrace.types import Offset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path
    from weakref import WeakSet

    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.published import Published
    from headrace.storage.ledger import LoggedSegment, Retired, Segment
    from headrace.storage.ledger.holds import ReadHold
    from headrace.storage.log.merging import Merged
    from headrace.types import RelationId


_log: Final = logging.getLogger(__name__)

_SPANS: Final = 10
"""The segments of a log with retention have events of about so many parts of it, at least."""
_AT_ONCE: Final = 16_384
"""About so many segments of a log are looked at together, however many wait to be merged."""
_NOTHING: Final = (Offset(0), 0)
RESTING_SEGMENTS: Final = 16
"""So many landings are merged of a log to which nothing is appended for a while."""
_DEAD_BYTES: Final = 1 << 23
"""So many bytes in files of landings that are not needed are not worth a copy of others, ..."""
_DEAD_AT_REST: Final = 1 << 20
"""... and at rest; more ..."""
_NEEDED_OF_ONE: Final = 4
"""... where so many are needed for each of them."""


@dataclass(frozen=True, slots=True)
class _Replaced:
    """What may still read segments that were merged, and the hold of their files."""

    relation: RelationId
    segments: int
    since: float
    states: WeakSet[Published]
    holds: WeakSet[ReadHold]
    hold: Hold


class HeldSegments(NamedTuple):
    """Merged segments of a log whose files stay, since so many states or reads may need them.

    ``since`` is in Unix seconds.
    """

    relation: RelationId
    segments: int
    since: float
    states: int
    reads: int


@dataclass(slots=True)
class LogMerging:
    """Merges the logs of one database; one thread does so at a time.

    ``_left`` are the first offsets of segments that stay as they are, by log, and ``_apart`` those
    of segments that cannot be merged with the one before. ``_done`` is where the first segment of
    each log begins that may ever be merged, and the newest time of an event before that: what is
    full is not looked at again.
    """

    loop: EpochLoop
    held: HeldFiles
    close_files: Callable[[frozenset[str]], frozenset[str]]
    """As that of :class:`headrace.execution.runtime.compaction.Compaction`."""
    _left: dict[RelationId, set[Offset]] = field(default_factory=dict)
    _apart: dict[RelationId, set[Offset]] = field(default_factory=dict)
    _done: dict[RelationId, tuple[Offset, int]] = field(default_factory=dict)
    _replaced: list[_Replaced] = field(default_factory=list)
    _merged_out_of: set[str] = field(default_factory=set)
    """The files with segments that this process has merged, if others in them are needed."""
    _begun: bool = False

    def begin(self) -> None:
        """Count the segments of all logs, once: as if they had been appended now."""
        if not self._begun:
            self._begun = True
            ledger = self.loop.ledger
            for relation, count in ledger.log_merges.counts().items():
                ledger.log.landed.add(relation, count)

    def run(self, pause: Callable[[], None] = lambda: None, tail: int = TAIL_SEGMENTS) -> int:
        """Merge what is due; return the number of segments that were.

        Logs with fewer new segments than a ``tail`` are not looked at. ``pause`` is called often.
        """
        self.begin()
        count = self._merge_due(pause, tail)
        resting = tail < TAIL_SEGMENTS
        if count or resting:
            self._leave_files(resting=resting)
        return count

    def _merge_due(self, pause: Callable[[], None], tail: int) -> int:
        count = 0
        for relation in self.loop.ledger.log.landed.take(tail):
            if relation not in self.loop.ledger.head.ends:
                continue  # it was dropped
            before = count
            while found := self._merge(relation, pause, tail):
                count += found
                if self.loop.closing.is_set():
                    return count
            if count == before:
                # Epochs have not read enough of it yet.
                self.loop.ledger.log.landed.add(relation, tail // 2)
        return count

    def release(self) -> None:
        """Let go of the files that nobody can read any more."""
        current = self.loop.published.current
        if any(current in each.states for each in self._replaced):
            del current
            with self.loop.between():
                pass  # the state is published again: who reads the former one holds that
        left = []
        for each in self._replaced:
            if len(each.states) or len(each.holds):
                left.append(each)
            else:
                self.held.let_go(each.hold)
        self._replaced = left

    def held_segments(self) -> list[HeldSegments]:
        """Return what is left of each merge, the oldest first."""
        return [
            HeldSegments(
                each.relation, each.segments, each.since, len(each.states), len(each.holds)
            )
            for each in list(self._replaced)
        ]

    def _merge(self, relation: RelationId, pause: Callable[[], None], tail: int) -> int:
        """Merge the groups of a log that are due; return how many segments were replaced."""
        known, groups = self._due(relation, tail)
        count = 0
        for group in groups:
            those = known[group.start : group.stop]
            segments = [each.segment for each in those]
            for found in merged(self.loop.directory / "log", segments, pause):
                size = len(found.segments)
                if found.file is None:
                    self._leave(relation, found.segments)
                elif self._exchange(those[:size], found):
                    count += size
                those = those[size:]
                if those:
                    self._apart.setdefault(relation, set()).add(those[0].segment.range.first)
        return count

    def _due(
        self, relation: RelationId, tail: int
    ) -> tuple[tuple[LoggedSegment, ...], list[range]]:
        """Return some segments of a log, and which of them are to be merged; none if none is."""
        most, end = _AT_ONCE, self._limit(relation)
        while True:
            first, _ = self._done.get(relation, _NOTHING)
            known = self.loop.ledger.log_merges.segments(relation, first, end, most)
            pieces = self._pieces(relation, known)
            passed = self._pass_over(relation, known, pieces)
            groups = due(pieces[passed:], tail)
            if groups or len(known) < most:
                return known[passed:], groups
            most *= 1 if passed else 2

    def _pass_over(
        self, relation: RelationId, known: Sequence[LoggedSegment], pieces: Sequence[Piece]
    ) -> int:
        """Return how many of the first segments stay as they are: they are not looked at again."""
        left = self._left.get(relation, set())
        first, newest = self._done.get(relation, _NOTHING)
        count = 0
        for (segment, _, of_last), piece in zip(known, pieces, strict=True):
            if not piece.is_full and segment.range.first not in left:
                break
            count += 1
            first, newest = segment.range.end, max(newest, self._time(relation, of_last))
            left.discard(segment.range.first)
        self._done[relation] = first, newest
        return count

    def _leave_files(self, *, resting: bool) -> None:
        """Copy landings out of files that are mostly not needed, if that is worth it.

        A file is deleted once nothing in it is needed. So a landing of a log that gets few would
        keep the bytes of all others beside it that were merged. While others arrive, it is asked
        only about files that have had some merged.
        """
        directory = self.loop.directory / "log"
        if mounts.mount_of(directory) is not None:
            return  # there, a file has the landings of one moment
        uses = self.loop.ledger.files.log_uses(None if resting else self._merged_out_of)
        self._merged_out_of &= uses.keys()
        most = _DEAD_AT_REST if resting else _DEAD_BYTES
        dead = {
            name: (directory / name).stat().st_size - used
            for name, used in uses.items()
            if (directory / name).exists()  # who reads a missing one says so
        }
        total, most = sum(dead.values()), max(most, sum(uses.values()) // _NEEDED_OF_ONE)
        if total <= most:
            return
        left = []
        for name in sorted(dead, key=lambda name: uses[name] / max(1, dead[name])):
            if total <= most // 2 or uses[name] > dead[name]:
                break
            left.append(name)
            total -= dead[name]
        unsettled = self.close_files(frozenset(left))
        for name in left:
            if name not in unsettled and not self.loop.closing.is_set():
                self._leave_file(directory, name)

    def _leave_file(self, directory: Path, name: str) -> None:
        """Copy the landings in a file that are needed, and name the copies instead."""
        loop, those = self.loop, self.loop.ledger.log_merges.landings_in(name)
        if not those:
            return
        rows = [open_segment(directory, each.file) for each in those]
        streams = (loop.catalog.by_id.get(each.relation) for each in those)
        # As where they landed: a log with retention shares no file.
        owners = [
            each.id if isinstance(each, Stream) and each.declaration.retention is not None else None
            for each in streams
        ]
        writer = SegmentWriter(directory)
        written = writer.write(rows, owners)
        writer.close()
        copies = [each for each in written if isinstance(each, SegmentFile)]
        names = sorted({each.name for each in copies})
        for each in written:
            if isinstance(each, HeadraceError):
                mounts.discard(directory, names)
                raise each
        loop.fault("log copied")
        try:
            loop.ledger.log_merges.move(list(zip(those, copies, strict=True)))
        except HeadraceError as error:
            if error.code is not Code.CONFLICT:
                raise
            mounts.discard(directory, names)  # nothing was committed
            loop.ledger.require_newest()
            return
        for relation, count in Counter(each.relation for each in those).items():
            self._keep_for_readers(relation, count, frozenset([name]))

    def _limit(self, relation: RelationId) -> Offset:
        """Return the offset up to which segments are merged: as far as epochs have read them.

        That is all of a log which epochs do not read, as of a stream whose views have stopped: they
        are filled again.
        """
        head = self.loop.ledger.head
        reads = relation in self.loop.published.current.maintained
        return head.position(relation) if reads else head.log_end(relation)

    def _pieces(self, relation: RelationId, known: Sequence[LoggedSegment]) -> list[Piece]:
        left, apart = self._left.get(relation, set()), self._apart.get(relation, set())
        spans = self._spans(relation, known)
        found, alone = [], False
        for (segment, _, _), span in zip(known, spans, strict=True):
            first, before = segment.range.first, alone
            alone = first in left
            found.append(Piece.of(segment.file, span, apart=before or alone or first in apart))
        return found

    def _spans(self, relation: RelationId, known: Sequence[LoggedSegment]) -> Iterable[int]:
        """Yield the part of a log's retention in which each segment ends.

        A segment is retired after those before it, so its time is that of the newest event so far.
        """
        stream = self.loop.catalog.by_id.get(relation)
        retention = stream.declaration.retention if isinstance(stream, Stream) else None
        _, newest = self._done.get(relation, _NOTHING)
        for each in known:
            newest = max(newest, self._time(relation, each.known))
            yield 0 if retention is None else newest // max(1, retention // _SPANS)

    def _time(self, relation: RelationId, known: Retired) -> int:
        """Return the newest time of an event of a segment; 0 if no retention goes by it."""
        stream = self.loop.catalog.by_id.get(relation)
        if not isinstance(stream, Stream) or stream.declaration.retention is None:
            return 0
        return newest_time(stream, known)

    def _leave(self, relation: RelationId, segments: Iterable[Segment]) -> None:
        self._left.setdefault(relation, set()).update(each.range.first for each in segments)

    def _exchange(self, those: Sequence[LoggedSegment], found: Merged) -> bool:
        """Name a merged segment in the ledger instead of the others; whether it was."""
        loop, file = self.loop, found.file
        if file is None:
            return False
        loop.fault("log merged")
        try:
            loop.ledger.log_merges.exchange(those, file)
        except HeadraceError as error:
            if error.code is not Code.CONFLICT:
                raise
            mounts.discard(loop.directory / "log", [file.name])  # nothing was committed
            loop.ledger.require_newest()
            _log.info("%s %s", error.primary, error.detail)
            return False
        names = frozenset(each.file.name for each in found.segments)
        self._keep_for_readers(those[0].segment.relation, len(found.segments), names)
        loop.fault("log exchanged")
        return True

    def _keep_for_readers(self, relation: RelationId, segments: int, names: frozenset[str]) -> None:
        """Hold files for those who were given segments in them; others are given the new ones."""
        self._merged_out_of |= names
        hold = self.held.keep(Files(segments=names))
        states, holds = self.loop.published.alive(), self.loop.ledger.log.holds.alive()
        self._replaced.append(_Replaced(relation, segments, time.time(), states, holds, hold))


@dataclass(slots=True, eq=False)
class Hold:
    """What one backup or branch holds: every file until it is narrowed (:meth:`narrow`)."""

    files: Files | None = None

    def narrow(self, files: Files) -> None:
        """Hold only these files."""
        self.files = files


@dataclass(slots=True)
class HeldFiles:
    """The holds of one database. Thread-safe.

    Garbage stays garbage. So a file that is garbage before a hold begins is not needed by what is
    copied afterwards, and one that becomes garbage later is not deleted before the hold ends.
    """

    _holds: list[Hold] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def hold(self) -> Iterator[Hold]:
        """Hold files while a block runs."""
        hold = self.keep(None)
        try:
            yield hold
        finally:
            self.let_go(hold)

    def keep(self, files: Files | None) -> Hold:
        """Hold files until :meth:`let_go`; None: all."""
        hold = Hold(files)
        with self._lock:
            self._holds.append(hold)
        return hold

    def let_go(self, hold: Hold) -> None:
        """End a hold."""
        with self._lock:
            self._holds.remove(hold)

    def without(self, garbage: Files) -> Files:
        """Return the garbage that nobody holds; it has to be known before this is called."""
        with self._lock:
            held = [hold.files for hold in self._holds]
        left = garbage
        for files in held:
            if files is None:
                return Files()
            left = Files(_without(left.packs, files.packs), _without(left.segments, files.segments))
        return left


def _without(garbage: frozenset[str], held: frozenset[str]) -> frozenset[str]:
    """Return the files that are not deleted together with any that is held."""
    units = {unit_of(name) for name in held}
    return frozenset(name for name in garbage if unit_of(name) not in units)
