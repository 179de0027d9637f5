"""Retirement: events that the log of a stream has had for longer than its retention are not kept.

A log is cut at its beginning, by whole segments: the first ones in which every event is older than
the retention, by event time; without one, by when it was appended. What views have computed from
these events stays. It is not kept from a view that has not read it, or that must be recomputed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.dirty import RECOMPUTED
from headrace.planning.catalog import Stream, View
from headrace.storage.log import AMENDED, blocks, bounds_of, merged_bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.published import Published
    from headrace.storage.ledger import Ledger, Retired
    from headrace.types import Offset, RelationId


_EVERY: Final = 1 << 30
_DAY: Final = 86_400_000_000
_SECOND: Final = 1_000_000
SECONDS_BETWEEN: Final = 60.0
"""The seconds between two searches for events to retire while nothing arrives."""


@dataclass(frozen=True, slots=True)
class Retirement:
    """Retires events of one database's streams.

    ``keep_ids`` stores the ids of events before an offset, where repeated ones are recognised.
    ``left_by`` returns the time by which some are in nothing that a view keeps, None if unknown.
    """

    loop: EpochLoop
    keep_ids: Callable[[Stream, Offset], None] = lambda _stream, _end: None
    left_by: Callable[[View, Stream, Retired], int | None] = lambda _view, _stream, _retired: None
    busy: threading.RLock = field(default_factory=threading.RLock)
    """Held while events are retired, and while the files of their ids are copied."""

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The streams that have a retention."""
        found = (r for r in self.loop.catalog if isinstance(r, Stream))
        return tuple(stream for stream in found if stream.declaration.retention is not None)

    def run(self) -> None:
        """Retire what is due, of every stream, unless a backup copies their ids: then later."""
        if not self.busy.acquire(blocking=False):
            return
        try:
            for stream in self.streams:
                self.retire(stream)
                self._settle(stream)
        finally:
            self.busy.release()

    def retire(self, stream: Stream) -> Retired | None:
        """Retire what is due of a stream; return what was retired, None if nothing is due."""
        with self.busy:
            return self._retire(stream)

    def _retire(self, stream: Stream) -> Retired | None:
        due = self.due(stream, stream.declaration.retention)
        if due is None:
            return None
        self.keep_ids(stream, due.start)
        with self.loop.between():
            self.loop.fault("retire")
            try:
                self.loop.ledger.log.retire(stream.id, due)
            except HeadraceError as error:
                if error.code is not Code.CONFLICT or stream.id not in self.loop.catalog.by_id:
                    raise
                return None  # a build that has not read so far has come meanwhile
        self._settle(stream)
        return due

    def _settle(self, stream: Stream) -> None:
        """Advance views that keep no earlier events to the log's start."""
        loop, state = self.loop, self.loop.published.current
        retired = known_of(loop.ledger, loop.directory / "log", stream)
        begun = []
        if retired is None:
            return
        for view in state.catalog.views_in_order():
            if stream.id not in state.unkept(view) or view.id in state.stopped:
                continue
            if self.have_left(view, stream, retired):
                begun.append(view.build)
        if begun:
            with loop.between():
                loop.ledger.builds.begin(stream.id, retired.start, begun)

    def have_left(self, view: View, stream: Stream, retired: Retired) -> bool:
        """Whether a view keeps nothing of some events, since its conditions on the clock do not."""
        time = self.left_by(view, stream, retired)
        stands = self.loop.published.current.lagging.get(view.id)
        clock = self.loop.ledger.epochs.clock(None if stands is None else stands.epoch)
        return time is not None and time <= clock

    def due(self, stream: Stream, retention: int | None) -> Retired | None:
        """Return the events that a retention would retire from a stream; None if none are due.

        ``retention`` is in microseconds.
        """
        if retention is None or any(self.holders(stream)):
            return None
        ledger = self.loop.ledger
        limit = ledger.head.needed_from(stream.id)
        found = [each for each in self._old(stream, retention) if each.start <= limit]
        return merged(ledger.log.retired(stream.id), found) if found else None

    def _old(self, stream: Stream, retention: int) -> tuple[Retired, ...]:
        """Return the first segments of a stream in which all events are older than a retention."""
        before = self.loop.now() - retention
        return self.loop.ledger.log.beginning(stream.id, lambda s: newest_time(stream, s) < before)

    def kept_for(self, stream: Stream) -> list[View]:
        """Return the views for which events are kept that are older than the retention."""
        retention, head = stream.declaration.retention, self.loop.ledger.head
        old = () if retention is None else self._old(stream, retention)
        if not old:
            return []
        waiting = {view.id for view in self.holders(stream)}
        waiting |= {
            build.view
            for build in head.builds.values()
            if stream.id in build.inputs
            and head.frontier(build).offsets.get(stream.id, 0) < old[-1].start
        }
        return [view for view in self.loop.catalog.views_in_order() if view.id in waiting]

    def holders(self, stream: Stream) -> Iterable[View]:
        """Yield the views that have to be recomputed from a stream, and still can be."""
        state = self.loop.published.current
        dirty = {e.view for e in self.loop.ledger.head.dirty if e.repair in RECOMPUTED}
        for view in state.catalog.views_in_order():
            waits = view.id in state.stopped or view.id in dirty
            if waits and stream.id in view.depends_on and stream.id not in state.unkept(view):
                yield view


def merged(before: Retired | None, segments: Iterable[Retired]) -> Retired:
    """Return what is known of what is retired together with some more segments."""
    total = before
    for each in segments:
        if total is None:
            total = each
            continue
        bounds = merged_bounds(total.bounds, each.bounds)
        at = max(total.appended_at, each.appended_at)
        total = replace(each, bounds=bounds, appended_at=at)
    if total is None:
        raise HeadraceError(Code.INTERNAL, "nothing is retired")
    return total


def newest_time(stream: Stream, retired: Retired) -> int:
    """Return the newest event time of events, in microseconds; that of appending if unknown."""
    name = stream.event_time
    column = next((c for c in stream.schema.columns if c.name == name), None)
    stored = "" if column is None else column.stored_name
    _, high = retired.bounds.get(stored, (None, None))
    if column is None or not isinstance(high, int):
        return int(retired.appended_at * _SECOND)
    type_ = column.sql
    if type_ == "date":
        return (high + 1) * _DAY
    return high if type_.startswith("timestamp") else high * 1000


def known_of(ledger: Ledger, directory: Path, stream: Stream) -> Retired | None:
    """Return what is known of a stream's retired events; None if there are none.

    The bounds include the values that stored corrections give to these events. ``directory`` is
    that of the log.
    """
    retired = ledger.log.retired(stream.id)
    if retired is None or not stream.corrected:
        return retired
    bounds, end = retired.bounds, ledger.head.log_end(stream.id)
    for segment in ledger.log.corrections_between(stream.id, retired.start, end):
        first = max(segment.range.first, retired.start)
        for block in blocks(directory, [segment], first, segment.range.end):
            if AMENDED in block.schema.names:
                rows = pa.Table.from_batches([block.read()])
                gone = rows.filter(pc.less(rows[AMENDED], retired.start))
                bounds = merged_bounds(bounds, bounds_of(gone)) if gone.num_rows else bounds
    return replace(retired, bounds=bounds)


def latest_times(stream: Stream, retired: Retired) -> dict[str, int | None]:
    """Return the greatest value of the TIMESTAMP columns of retired events, in microseconds."""
    times = [column for column in stream.schema.columns if column.sql == "timestamp"]
    known = retired.bounds
    return {c.name: known[c.stored_name][1] for c in times if c.stored_name in known}


def require_kept(
    state: Published, view: View, without: Mapping[RelationId, Offset] = MappingProxyType({})
) -> None:
    """Refuse to compute a view from logs that no longer have all that it has, or should have, read.

    It needs no event of streams before the offsets ``without``.

    Raises:
        HeadraceError: CONFLICT.
    """
    missing = [id_ for id_ in state.unkept(view) if state.starts[id_] > without.get(id_, 0)]
    if not missing:
        return
    stream, known = state.catalog.by_id[missing[0]], view.id in state.catalog.by_id
    raise HeadraceError(
        Code.CONFLICT,
        f'the first {state.starts[stream.id]:,} events of stream "{stream.name}" are no longer'
        " kept",
        f'Rows of view "{view.name}" were computed from them, and would be lost.'
        if known
        else "Its query over the events that are left may be another than over all of them.",
        f"{'CREATE OR REPLACE' if known else 'Create'} it WITH (since = 'earliest') to compute it"
        " from what is left.",
    )
