"""The next times at which rows of views over the clock change; an idle database waits for them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.spine import Spine, earliest_due
from headrace.zset import DUE, Layout

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from headrace.ledger import Head, Ledger
    from headrace.ledger.records import ArrangementRecord, Build
    from headrace.runtime.published import Published
    from headrace.types import ArrangementId, BuildId, Epoch, RelationId


def machine_clock() -> int:
    """Return the system time: microseconds since 1970, UTC."""
    return time.time_ns() // 1000


def clocked(head: Head) -> frozenset[RelationId]:
    """Return the views that read the clock: they have state ordered by due time."""
    return frozenset(record.owner for record in _timed(head))


def _timed(head: Head) -> list[ArrangementRecord]:
    """Return the arrangements of serving builds that are ordered by due time."""
    return [
        record
        for record in head.arrangements.values()
        if record.build is not None
        and any(by["name"] == DUE for by in record.layout.get("order", ())[:1])
        and head.builds[record.build].serving
    ]


@dataclass(frozen=True, slots=True)
class _Timed:
    """The arrangements that are ordered by due time, in heads with these arrangements and builds.

    Going through all arrangements takes long where there are thousands.
    """

    arrangements: Mapping[ArrangementId, ArrangementRecord]
    builds: Mapping[BuildId, Build]
    records: list[ArrangementRecord]
    views: frozenset[RelationId]

    @classmethod
    def of(cls, head: Head) -> _Timed:
        """Return those of a head."""
        records = _timed(head)
        views = frozenset(record.owner for record in records)
        return cls(head.arrangements, head.builds, records, views)

    def is_of(self, head: Head) -> bool:
        """Whether they are those of a head."""
        return head.arrangements is self.arrangements and head.builds is self.builds


@dataclass(slots=True)
class Timetable:
    """Reads the first due times of the arrangements ordered by time, once per epoch."""

    directory: Path
    ledger: Ledger
    _layouts: dict[ArrangementId, Layout] = field(default_factory=dict)
    _timed: _Timed | None = None
    _known: tuple[Epoch, Mapping[RelationId, int]] | None = None

    def at(self, state: Published) -> Mapping[RelationId, int]:
        """Return the next due time, in microseconds, of each view that has one.

        All of them are after the clock of the epoch.
        """
        known = self._known
        if known is None or known[0] != state.epoch:
            known = self._known = (state.epoch, self._read(state))
        return known[1]

    def views(self) -> frozenset[RelationId]:
        """Return the views that read the clock: they have state ordered by due time."""
        return self._present().views

    def _present(self) -> _Timed:
        head, timed = self.ledger.head, self._timed
        if timed is None or not timed.is_of(head):
            timed = self._timed = _Timed.of(head)
        return timed

    def _read(self, state: Published) -> Mapping[RelationId, int]:
        found: dict[RelationId, int] = {}
        records, known = self._present().records, self._layouts
        layouts = {r.id: known.get(r.id) or Layout.of_json(dict(r.layout)) for r in records}
        self._layouts = layouts
        for record in records:
            runs = [run.file for run in state.spines.get(record.id, ())]
            spine = Spine.open(self.directory / "runs", layouts[record.id], runs)
            due = earliest_due(spine, state.clock)
            if due is not None:
                found[record.owner] = min(due, found.get(record.owner, due))
        return found
