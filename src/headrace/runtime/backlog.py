"""What an epoch reads of a backlog.

One of a few narrow epochs is read in as many: that is faster than one wide epoch, and the first
changes are readable sooner. So is a longer one while jobs would have to wait.

The changes that one statement appended are read by one epoch, however many they are: no reader sees
half of an UPDATE. Of a source of several tables, all that has arrived is read: their logs do not
say where its transactions end.

A narrow epoch reads the changes that arrived first in all logs of a set together: a reader never
sees a change without those that were appended to the others before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

from headrace.catalog import Table
from headrace.ledger import OffsetRange
from headrace.types import Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from headrace.catalog import Catalog
    from headrace.ledger import Ledger
    from headrace.runtime.stages import Performer

    Ranges = Mapping[RelationId, OffsetRange]

_NARROW_EPOCHS = 8
"""The most narrow epochs that a backlog is read in, if those that write meanwhile stop."""


def rows_of_ranges(ranges: Ranges) -> int:
    """Return the number of changes in some ranges."""
    return sum(each.rows for each in ranges.values())


@dataclass(frozen=True, slots=True)
class Backlog:
    """Chooses what epochs of one loop read of what waits; the lock of epochs is held."""

    loop: Performer

    def waiting(self, relations: Collection[RelationId]) -> dict[RelationId, OffsetRange]:
        """Return the changes of some relations that no epoch has read yet."""
        ends, done, none = self.loop.ledger.head.ends, self.loop.ledger.head.positions, Offset(0)
        return {
            id_: OffsetRange(done.get(id_, none), ends[id_])
            for id_ in relations
            if ends.get(id_, none) > done.get(id_, none)
        }

    def first(self, ranges: Ranges, catalog: Catalog) -> Ranges:
        """Return those that an epoch reads first: about ``epoch_rows``, and at least one."""
        rows, few = rows_of_ranges(ranges), self.loop.settings.small_rows
        joint = _joint(catalog) if rows > min(few, self.loop.settings.epoch_rows) else frozenset()
        prefers_narrow = rows <= _NARROW_EPOCHS * few or self.loop.runner.jobs_wait
        if few < rows and prefers_narrow and joint.isdisjoint(ranges):
            first = first_arrived(self.loop.ledger, ranges, few)
            if rows_of_ranges(first) <= few and not self.loop.widths.fan_out(frozenset(first), few):
                ranges = first
        return ranges if rows <= self.loop.settings.epoch_rows else self._limited(ranges, joint)

    def _limited(
        self, ranges: Ranges, joint: frozenset[RelationId]
    ) -> dict[RelationId, OffsetRange]:
        """Return about the first ``epoch_rows`` changes of ranges; all of those in ``joint``."""
        left, found = self.loop.settings.epoch_rows, dict[RelationId, OffsetRange]()
        for id_, each in ranges.items():
            first, end = each.first, each.end
            if each.rows > left and id_ not in joint:
                end = self._last_statement(id_, first, Offset(first + left), some=not found)
            if end > first:
                found[id_] = OffsetRange(first, end)
                left -= end - first
        return found

    def _last_statement(
        self, id_: RelationId, first: Offset, limit: Offset, *, some: bool
    ) -> Offset:
        """Return the end of the last statement that ends by ``limit``.

        If none does, return the end of the first statement with ``some``, else ``first``.
        """
        # With the one after the limit: a statement may have appended several segments.
        segments = self.loop.ledger.log.segments(id_, first, Offset(max(limit, first) + 1))
        within = [
            each.range.end
            for each, after in pairwise(segments)
            if each.range.end <= limit and each.appended_at != after.appended_at
        ]
        if within:
            return within[-1]
        return self.loop.ledger.log.appended_end(segments[0]) if some else first


def _joint(catalog: Catalog) -> frozenset[RelationId]:
    """Return the tables of sources of several tables."""
    tables = (each for each in catalog if isinstance(each, Table))
    return frozenset(each.id for each in tables if each.declaration.shared_source)


def first_arrived(
    ledger: Ledger, waiting: Mapping[RelationId, OffsetRange], most: int
) -> dict[RelationId, OffsetRange]:
    """Return the ranges of the changes that arrived first among those that wait.

    At most so many rows, or those of the first statement; no statement is divided.
    """
    pieces = [piece for id_, each in waiting.items() for piece in _pieces(ledger, id_, each, most)]
    pieces.sort(key=itemgetter(0))
    found: dict[RelationId, OffsetRange] = {}
    for _, together in groupby(pieces, itemgetter(0)):
        statement = list(together)
        rows = sum(each.rows for _, _, each in statement)
        if found and rows > most:
            break
        most -= rows
        for _, id_, each in statement:
            first = found[id_].first if id_ in found else each.first
            found[id_] = OffsetRange(first, each.end)
    return found


def _pieces(
    ledger: Ledger, id_: RelationId, waits: OffsetRange, most: int
) -> Iterator[tuple[float, RelationId, OffsetRange]]:
    """Yield when each part of a log arrived, until more than ``most`` rows; times never go back."""
    time = 0.0
    end = Offset(min(waits.end, waits.first + most + 1))
    for segment in ledger.log.segments(id_, waits.first, end):
        time = max(time, segment.appended_at)
        first, last = max(waits.first, segment.range.first), min(waits.end, segment.range.end)
        yield time, id_, OffsetRange(first, last)
