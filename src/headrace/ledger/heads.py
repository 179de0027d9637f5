"""The newest state of a ledger as an immutable value, so that reading it asks no database.

The one process that may write knows every change, because it makes them all: each write derives the
next head from the one before. A head is never wrong, only old: a process that lost the fence keeps
the state of its last write, and can write no more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import sqlalchemy as sa

from headrace.ledger import catalogue, log, schema, spines
from headrace.ledger.commit import last_epoch
from headrace.ledger.records import CLOCK, ArrangementRecord, Dirty, Run
from headrace.types import ArrangementId, Epoch, Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.ledger.records import EpochCommit, Merge, NewRun, OffsetRange


@dataclass(frozen=True, slots=True)
class Head:
    """What the ledger says at its last change.

    ``committed_at`` is the commit time of ``epoch`` in Unix seconds, ``clock`` its ``now()`` in
    microseconds UTC. ``ends`` and ``positions`` are, for every live relation, the end of its log
    and how far epochs have read it. ``spines`` are the runs of each live arrangement as of
    ``epoch``, ``next_spines`` those that the next epoch builds on: with every compaction applied.
    """

    epoch: Epoch
    committed_at: float
    clock: int
    ends: Mapping[RelationId, Offset]
    positions: Mapping[RelationId, Offset]
    dirty: tuple[Dirty, ...]
    arrangements: Mapping[ArrangementId, ArrangementRecord]
    spines: Mapping[ArrangementId, tuple[Run, ...]]
    next_spines: Mapping[ArrangementId, tuple[Run, ...]]

    def after_commit(self, change: EpochCommit, committed_at: float) -> Head:
        """Return the head after an epoch."""
        gone, epoch = frozenset(change.dropped), change.epoch
        right = {(each.view, each.cause) for each in change.repaired}
        arrangements = {i: a for i, a in self.arrangements.items() if a.owner not in gone}
        kept = {i: runs for i, runs in self.next_spines.items() if i in arrangements}
        for new in change.created:
            for made in new.arrangements:
                record = ArrangementRecord(made.id, new.relation, dict(made.layout), epoch, None)
                arrangements[made.id], kept[made.id] = record, ()
        kept = _merged(kept, change.merges, epoch)
        kept = _with_runs(kept, change.runs, epoch)
        born = {new.relation: Offset(0) for new in change.created}
        read = {r.relation: r.to_offset for r in change.reads if r.to_offset > r.from_offset}
        return replace(
            self,
            epoch=epoch,
            committed_at=committed_at,
            clock=self.clock if change.clock is None else change.clock,
            ends=_without(self.ends, gone) | born,
            positions=_without(self.positions, gone) | born | read,
            dirty=tuple(
                entry
                for entry in self.dirty
                if entry.view not in gone and (entry.view, entry.cause) not in right
            ),
            arrangements=arrangements,
            spines=kept,
            next_spines=kept,
        )

    def after_append(self, relation: RelationId, appended: OffsetRange) -> Head:
        """Return the head after changes were appended to a log."""
        return replace(self, ends={**self.ends, relation: appended.end})

    def after_merges(self, merges: Iterable[Merge]) -> Head:
        """Return the head after a compaction, which takes effect with the next epoch."""
        return replace(
            self, next_spines=_merged(dict(self.next_spines), merges, Epoch(self.epoch + 1))
        )

    def after_since(self, since: Mapping[ArrangementId, Epoch]) -> Head:
        """Return the head after old epochs stopped being kept."""
        changed = {
            id_: replace(self.arrangements[id_], since=epoch)
            for id_, epoch in since.items()
            if id_ in self.arrangements and self.arrangements[id_].since < epoch
        }
        return replace(self, arrangements={**self.arrangements, **changed})


def load(connection: sa.Connection) -> Head:
    """Read the head from the database."""
    epoch = last_epoch(connection)
    query = sa.select(schema.epochs).where(schema.epochs.c.epoch == epoch)
    row = connection.execute(query).one()
    arrangements = {record.id: record for record in spines.arrangements(connection)}
    return Head(
        epoch,
        row.committed_at,
        int(row.counters.get(CLOCK, 0)),
        log.log_ends(connection),
        log.positions(connection),
        catalogue.dirty(connection),
        arrangements,
        spines.spines(connection, arrangements, epoch),
        spines.spines(connection, arrangements, None),
    )


def _without(
    offsets: Mapping[RelationId, Offset], gone: frozenset[RelationId]
) -> dict[RelationId, Offset]:
    return {id_: offset for id_, offset in offsets.items() if id_ not in gone}


def _merged(
    kept: dict[ArrangementId, tuple[Run, ...]], merges: Iterable[Merge], epoch: Epoch
) -> dict[ArrangementId, tuple[Run, ...]]:
    """Return spines in which merged runs are replaced by their sums."""
    for merge in merges:
        inputs = frozenset(merge.inputs)
        left = tuple(run for run in kept.get(merge.arrangement, ()) if run.name not in inputs)
        kept[merge.arrangement] = left
        if merge.output is not None:
            kept = _with_runs(kept, (merge.output,), epoch)
    return kept


def _with_runs(
    kept: dict[ArrangementId, tuple[Run, ...]], runs: Iterable[NewRun], epoch: Epoch
) -> dict[ArrangementId, tuple[Run, ...]]:
    """Return spines with new runs, which the epoch adds."""
    added: dict[ArrangementId, list[Run]] = {}
    for new in runs:
        run = Run(
            new.name,
            new.arrangement,
            new.rows,
            new.bytes,
            new.checksum,
            new.low,
            new.high,
            new.kind,
            epoch,
            None,
        )
        added.setdefault(new.arrangement, []).append(run)
    for id_, new_runs in added.items():
        kept[id_] = tuple(sorted((*kept.get(id_, ()), *new_runs), key=spines.age))
    return kept
