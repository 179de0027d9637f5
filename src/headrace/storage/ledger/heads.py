"""The newest state of a ledger as an immutable value, so that reading it asks no database.

The one process that may write knows every change, because it makes them all: each write derives the
next head from the one before. A head is never wrong, only old: a process that lost the fence keeps
the state of its last write, and cannot write any longer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from headrace.storage.ledger.records import (
    LIVE,
    ArrangementRecord,
    Build,
    Dirty,
    Frontier,
    RunKind,
    RunRecord,
)
from headrace.types import ArrangementId, BuildId, Epoch, FrontierId, Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from headrace.storage.ledger.records import EpochCommit, Merge, NewRun, Segment


MOST_IN_TAIL: Final = 64
"""The most segments of a log's tail."""
MOST_RECENT: Final = 64
"""The most epochs whose deltas are known."""


@dataclass(frozen=True, slots=True)
class Head:
    """What the ledger says at its last change.

    ``committed_at`` is the commit time of ``epoch`` in Unix seconds, ``clock`` its ``now()`` in
    microseconds UTC. ``starts`` and ``ends`` are, for every live relation, the first offset of its
    log that can be read, and its end. ``builds`` are those that are not retired. ``spines`` are the
    runs of each live arrangement as of ``epoch``, ``next_spines`` those that the next epoch builds
    on: with every compaction applied. Epochs that change no view leave ``arrangements`` and
    ``builds`` as they are, the same objects. ``tails`` are the newest segments of logs, in order,
    without a gap, that this process has appended and epochs have not read: the last ones, if they
    are many. ``recent`` are the deltas of the last epochs that this process has committed, in
    order: what sinks and followers are given next.
    """

    epoch: Epoch
    committed_at: float
    clock: int
    starts: Mapping[RelationId, Offset]
    ends: Mapping[RelationId, Offset]
    frontiers: Mapping[FrontierId, Frontier]
    builds: Mapping[BuildId, Build]
    dirty: tuple[Dirty, ...]
    arrangements: Mapping[ArrangementId, ArrangementRecord]
    spines: Mapping[ArrangementId, tuple[RunRecord, ...]]
    next_spines: Mapping[ArrangementId, tuple[RunRecord, ...]]
    tails: Mapping[RelationId, tuple[Segment, ...]] = field(default_factory=dict)
    recent: tuple[tuple[Epoch, tuple[RunRecord, ...]], ...] = ()

    @property
    def upper(self) -> Epoch:
        """The first epoch not yet committed."""
        return Epoch(self.epoch + 1)

    def in_tail(
        self, relation: RelationId, first: Offset, end: Offset
    ) -> tuple[Segment, ...] | None:
        """Return the segments with any of the offsets ``[first, end)``; None if not all are known.

        The end is not after that of the log.
        """
        tail = self.tails.get(relation)
        if not tail or first < tail[0].range.first:
            return None
        return tuple(s for s in tail if s.range.first < end and s.range.end > first)

    def deltas(
        self, arrangement: ArrangementId, after: Epoch, upto: Epoch
    ) -> tuple[RunRecord, ...] | None:
        """Return the runs that are the deltas of the epochs ``(after, upto]``, by epoch.

        None if they are not known, or some of them may have been deleted.
        """
        known = self.arrangements.get(arrangement)
        if not self.recent or self.recent[0][0] > after + 1 or upto > self.epoch:
            return None
        if known is None or known.since > after:
            return None
        return tuple(
            run
            for epoch, runs in self.recent
            if after < epoch <= upto
            for run in runs
            if run.arrangement == arrangement
        )

    def log_end(self, relation: RelationId) -> Offset:
        """Return the end of a relation's log."""
        return self.ends.get(relation, Offset(0))

    def position(self, relation: RelationId) -> Offset:
        """Return how far epochs have read a relation's log."""
        return self.positions.get(relation, Offset(0))

    @property
    def positions(self) -> Mapping[RelationId, Offset]:
        """How far epochs have read every live relation's log: the live frontier."""
        return self.frontiers[LIVE].offsets

    def serving(self, view: RelationId) -> Build:
        """Return the build that computes a view's contents."""
        return next(b for b in self.builds.values() if b.view == view and b.serving)

    def frontier(self, build: Build) -> Frontier:
        """Return how far a build has read its inputs.

        A frontier of its own also has offsets of logs that the build reads through views.
        """
        found = self.frontiers[build.frontier]
        if build.frontier != LIVE:
            return found
        offsets = {id_: at for id_, at in found.offsets.items() if id_ in build.inputs}
        return Frontier(self.epoch if found.epoch is None else found.epoch, offsets)

    @property
    def lagging(self) -> Mapping[RelationId, Frontier]:
        """Where the views stand that epochs do not maintain, since they are refreshed apart."""
        return {
            build.view: self.frontiers[build.frontier]
            for build in self.builds.values()
            if build.serving and build.frontier != LIVE
        }

    def needed_from(self, relation: RelationId) -> Offset:
        """Return the offset in a log before which no build has anything left to read."""
        stands = [self.frontier(b).offsets for b in self.builds.values() if relation in b.inputs]
        if any(a.owner == relation for a in self.arrangements.values()):
            stands.append(self.positions)  # a table, whose contents every epoch keeps
        return min((at.get(relation, Offset(0)) for at in stands), default=self.ends[relation])

    def is_live(self, relation: RelationId) -> bool:
        """Whether a build that epochs maintain reads a log."""
        return any(b.frontier == LIVE and relation in b.inputs for b in self.builds.values())

    def after_commit(self, change: EpochCommit, committed_at: float) -> Head:
        """Return the head after an epoch, without the dirty entries that it adds."""
        gone, epoch = frozenset(change.dropped), change.epoch
        right = {(each.view, each.cause) for each in change.repaired}
        cleaned = frozenset(change.cleaned)
        given_up = frozenset(change.retired)
        arrangements, kept = self.arrangements, dict(self.next_spines)
        made = {record.id: record for record in _arranged(change)}
        if gone or given_up or made:
            left = {
                i: a
                for i, a in arrangements.items()
                if a.owner not in gone and a.build not in given_up
            }
            arrangements = left | made
            kept = {i: kept[i] for i in left} | dict.fromkeys(made, ())
        if change.exchanged:
            arrangements = {
                i: replace(a, owner=change.exchanged.get(a.build, a.owner)) if a.build else a
                for i, a in arrangements.items()
            }
        if change.arranged:
            arrangements = {
                i: replace(a, layout=dict(change.arranged[i])) if i in change.arranged else a
                for i, a in arrangements.items()
            }
        kept = _merged(kept, change.merges, epoch)
        kept = _with_runs(kept, change.runs, epoch)
        born = {new.relation: Offset(0) for new in change.created}
        after = replace(
            self,
            epoch=epoch,
            committed_at=committed_at,
            clock=self.clock if change.clock is None else change.clock,
            starts=_without(self.starts, gone) | born,
            ends=_without(self.ends, gone) | born,
            frontiers=_moved(self.frontiers, change, gone, committed_at),
            builds=_rebuilt(self.builds, change, gone),
            dirty=tuple(
                entry
                for entry in self.dirty
                if entry.view not in gone
                and (entry.view, entry.cause) not in right
                and entry.id not in cleaned
            ),
            arrangements=arrangements,
            spines=kept,
            next_spines=kept,
            tails=_unread(self.tails, change, gone),
            recent=(*self.recent, (epoch, _deltas(change)))[-MOST_RECENT:],
        )
        return after.after_since(dict.fromkeys(change.forgets, epoch)) if change.forgets else after

    def after_append(self, relation: RelationId, appended: tuple[Segment, ...]) -> Head:
        """Return the head after segments were appended to a log, in order."""
        if not appended:
            return self
        tail = self.tails.get(relation, ())
        if tail and tail[-1].range.end != appended[0].range.first:
            tail = ()
        tails = {**self.tails, relation: (*tail, *appended)[-MOST_IN_TAIL:]}
        return replace(self, ends={**self.ends, relation: appended[-1].range.end}, tails=tails)

    def after_exchange(self, merged: Segment) -> Head:
        """Return the head after segments of a log were merged into one."""
        tail = self.tails.get(merged.relation)
        if not tail:
            return self
        return replace(self, tails={**self.tails, merged.relation: _after(tail, merged.range.end)})

    def without_tails(self, relations: Collection[RelationId]) -> Head:
        """Return the head after segments of logs were moved to other files."""
        left = {id_: tail for id_, tail in self.tails.items() if id_ not in relations}
        return replace(self, tails=left)

    def after_starts(self, starts: Mapping[RelationId, Offset]) -> Head:
        """Return the head after logs were cut at their beginning."""
        later = {id_: at for id_, at in starts.items() if at > self.starts[id_]}
        tails = dict(self.tails)
        for id_ in later.keys() & tails.keys():
            tails[id_] = _after(tails[id_], later[id_])
        return replace(self, starts={**self.starts, **later}, tails=tails)

    def after_merges(self, merges: Iterable[Merge]) -> Head:
        """Return the head after a compaction, which takes effect with the next epoch."""
        return replace(self, next_spines=_merged(dict(self.next_spines), merges, self.upper))

    def after_since(self, since: Mapping[ArrangementId, Epoch]) -> Head:
        """Return the head after old epochs stopped being kept."""
        changed = {
            id_: replace(self.arrangements[id_], since=epoch)
            for id_, epoch in since.items()
            if id_ in self.arrangements and self.arrangements[id_].since < epoch
        }
        return replace(self, arrangements={**self.arrangements, **changed})


def age(run: RunRecord) -> tuple[int, str, int]:
    """Return the sort key of a spine's runs: oldest first."""
    return run.added, *run.file.place


def _deltas(change: EpochCommit) -> tuple[RunRecord, ...]:
    """Return the deltas that an epoch adds, in order."""
    found = (
        RunRecord(new.file, new.arrangement, new.kind, change.epoch, None)
        for new in change.runs
        if new.kind is RunKind.DELTA
    )
    return tuple(sorted(found, key=age))


def _without(
    offsets: Mapping[RelationId, Offset], gone: frozenset[RelationId]
) -> dict[RelationId, Offset]:
    return {id_: offset for id_, offset in offsets.items() if id_ not in gone}


def _arranged(change: EpochCommit) -> Iterator[ArrangementRecord]:
    """Yield the arrangements that an epoch creates."""
    epoch = change.epoch
    for new in change.created:
        for made in new.arrangements:
            yield ArrangementRecord(made.id, new.relation, None, dict(made.layout), epoch, None)
    for build in change.builds:
        for made in build.arrangements:
            layout = dict(made.layout)
            yield ArrangementRecord(made.id, build.view, build.id, layout, epoch, None)


def _moved(
    frontiers: Mapping[FrontierId, Frontier],
    change: EpochCommit,
    gone: frozenset[RelationId],
    committed_at: float,
) -> dict[FrontierId, Frontier]:
    """Return the frontiers after an epoch."""
    moved = {
        id_: replace(each, offsets=_without(each.offsets, gone)) for id_, each in frontiers.items()
    }
    for id_ in change.caught_up:
        stands = moved.get(id_, Frontier(change.epoch, {}))
        moved[id_] = replace(stands, epoch=change.epoch, at=committed_at)
    read: dict[FrontierId, dict[RelationId, Offset]] = {
        LIVE: {new.relation: Offset(0) for new in change.created}
    }
    for each in change.reads:
        if each.to_offset > each.from_offset:
            read.setdefault(each.frontier, {})[each.relation] = each.to_offset
    for id_, offsets in read.items():
        moved[id_] = replace(moved[id_], offsets={**moved[id_].offsets, **offsets})
    return moved


def _unread(
    tails: Mapping[RelationId, tuple[Segment, ...]],
    change: EpochCommit,
    gone: frozenset[RelationId],
) -> dict[RelationId, tuple[Segment, ...]]:
    """Return the segments of logs that epochs have not read after this one."""
    left = {id_: tail for id_, tail in tails.items() if id_ not in gone}
    for each in change.reads:
        if each.frontier == LIVE and each.relation in left:
            left[each.relation] = _after(left[each.relation], each.to_offset)
    return left


def _after(tail: tuple[Segment, ...], offset: Offset) -> tuple[Segment, ...]:
    """Return the segments that end after an offset."""
    return tuple(segment for segment in tail if segment.range.end > offset)


def _rebuilt(
    kept: Mapping[BuildId, Build], change: EpochCommit, gone: frozenset[RelationId]
) -> Mapping[BuildId, Build]:
    """Return the builds after an epoch: the same object if it changes none."""
    of_builds = change.builds, change.serve, change.retired, change.regrouped, change.redefined
    if not gone and not change.exchanged and not any(of_builds):
        return kept
    begun = frozenset(new.id for new in change.builds if new.serving) | frozenset(change.serve)
    found = dict(kept)
    for id_, view in change.exchanged.items():
        found[id_] = replace(found[id_], view=view)
    for id_, frontier in change.regrouped.items():
        found[id_] = replace(found[id_], frontier=frontier, joined_epoch=change.epoch)
    for id_, each in found.items():
        if each.serving and each.view in change.redefined:
            inputs = change.reading.get(each.view, each.inputs)
            definition = dict(change.redefined[each.view])
            found[id_] = replace(each, definition=definition, inputs=inputs)
    for new in change.builds:
        found[new.id] = Build(
            new.id,
            new.view,
            new.frontier,
            dict(new.definition),
            new.inputs,
            change.epoch,
            change.epoch,
            serving=False,
            begins=new.begins,
        )
    served = {found[id_].view for id_ in begun}
    return {
        id_: replace(each, serving=id_ in begun if each.view in served else each.serving)
        for id_, each in found.items()
        if each.view not in gone and id_ not in change.retired
    }


def _merged(
    kept: dict[ArrangementId, tuple[RunRecord, ...]], merges: Iterable[Merge], epoch: Epoch
) -> dict[ArrangementId, tuple[RunRecord, ...]]:
    """Return spines in which merged runs are replaced by their sums."""
    for merge in merges:
        inputs = frozenset(merge.inputs)
        left = tuple(run for run in kept.get(merge.arrangement, ()) if run.file.place not in inputs)
        kept[merge.arrangement] = left
        if merge.output is not None:
            kept = _with_runs(kept, (merge.output,), epoch)
    return kept


def _with_runs(
    kept: dict[ArrangementId, tuple[RunRecord, ...]], runs: Iterable[NewRun], epoch: Epoch
) -> dict[ArrangementId, tuple[RunRecord, ...]]:
    """Return spines with new runs, which the epoch adds."""
    added: dict[ArrangementId, list[RunRecord]] = {}
    for new in runs:
        run = RunRecord(new.file, new.arrangement, new.kind, epoch, None)
        added.setdefault(new.arrangement, []).append(run)
    for id_, new_runs in added.items():
        before = kept.get(id_, ())
        if len(new_runs) == 1 and (not before or before[-1].added < epoch):
            kept[id_] = (*before, *new_runs)
        else:
            kept[id_] = tuple(sorted((*before, *new_runs), key=age))
    return kept
