"""The stored contents of relations at an epoch, as shares that a step or a query can read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.catalog import Relation, Stream
from headrace.log import Events, Extent, LogShare, SegmentListing
from headrace.runtime.step import RowsShare, Share, StepArrangement
from headrace.spine import HIGHEST, LOWEST
from headrace.types import ArrangementId, Epoch, Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from headrace.ledger import Ledger
    from headrace.runtime.published import Published
    from headrace.zset import Layout

NOTHING = LogShare((), Offset(0), Offset(0))
"""A share without changes."""


def log_share(ledger: Ledger, relation: RelationId, first: Offset, end: Offset) -> LogShare:
    """Return the share of the changes ``[first, end)`` of a relation."""
    if first >= end:
        return NOTHING
    return LogShare(ledger.log.segments(relation, first, end), first, end)


def whole_log(ledger: Ledger, state: Published, relation: RelationId, end: Offset) -> LogShare:
    """Return the share of all changes of a relation that are kept in a state, up to an offset."""
    first = state.starts.get(relation, Offset(0))
    return replace(log_share(ledger, relation, first, end), since=first)


def as_corrected(share: Share) -> Share:
    """Return a share whose events are read as corrected up to its end."""
    return share.as_corrected() if isinstance(share, LogShare) else share


def events_in(directory: Path, stream: Stream, extent: Extent, listing: SegmentListing) -> Events:
    """Return the events of a stream in an extent of its log; ``directory`` is that of the data."""
    columns = stream.logged.columns
    present = frozenset(column.name for column in columns if not column.nullable)
    names, stored = stream.logged.names, stream.logged.stored
    return Events(directory / "log", extent, names, stored, listing, present)


def parts_of_log(share: LogShare, most: int) -> Iterator[LogShare]:
    """Yield a share in parts of ``most`` rows, each with the segments that hold it."""
    for low in range(0, share.rows, most):
        yield share.between(low, low + most)


def arranged(
    ledger: Ledger, layouts: Mapping[ArrangementId, Layout], epoch: Epoch
) -> dict[ArrangementId, StepArrangement]:
    """Return the arrangements at an epoch."""
    spines = ledger.spines.of(list(layouts), epoch)
    return {
        id_: StepArrangement(layout, tuple(run.file for run in spines.get(id_, ())))
        for id_, layout in layouts.items()
    }


def snapshot(
    ledger: Ledger,
    state: Published,
    relations: Iterable[Relation],
    ends: Mapping[RelationId, Offset],
) -> dict[RelationId, Share]:
    """Return the contents of relations in a state; those of streams end at ``ends``."""
    shares: dict[RelationId, Share] = {}
    for relation in relations:
        if isinstance(relation, Stream):
            end = ends.get(relation.id, Offset(0))
            shares[relation.id] = whole_log(ledger, state, relation.id, end)
        else:
            runs = tuple(run.file for run in state.runs(relation))
            shares[relation.id] = RowsShare(state.layout(relation), runs, LOWEST, HIGHEST)
    return shares


@dataclass(slots=True)
class SharedContents:
    """The contents of relations that the view's operators read instead of a copy of their own.

    Operators see only the rows that the circuit has read so far, as in a copy: the parts of a
    relation are read by ascending hash, so these are the rows with hashes below a bound.
    """

    shares: Mapping[ArrangementId, Share]
    below: dict[ArrangementId, int | None] = field(default_factory=dict)

    def begin(self, id_: ArrangementId, part: Share) -> None:
        """Record that the circuit reads a part now: the rows before it have been read."""
        if isinstance(part, RowsShare):
            self.below[id_] = part.low

    def finish(self, id_: ArrangementId, part: Share) -> None:
        """Record that the circuit has read a part."""
        if isinstance(part, RowsShare):
            self.below[id_] = None if part.high == HIGHEST else part.high + 1

    def arranged(self) -> dict[ArrangementId, StepArrangement]:
        """Return the contents before a step, with the bound of the rows read so far."""
        return {
            id_: StepArrangement(share.layout, share.runs, self.below.get(id_, LOWEST))
            for id_, share in self.shares.items()
            if isinstance(share, RowsShare)
        }
