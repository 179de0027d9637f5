"""A refresh: views that lag behind read what has changed below them since.

A refresh is an epoch on another frontier. The circuits of the views are stepped over the changes
between where they stand and a published state: of streams the new part of the log, of tables and
views the deltas of the epochs in between. Views that have the same changes to read take them in
one step, from one scan. What views above read of the outcome is its delta, as in any epoch.

Where much has changed, it is read beside the epochs, in parts of bounded size. The rest is read
while the views' connected sets are held, and one commit moves the contents and the frontiers. A
view's contents are its query over exactly what its frontier says, before and after.

A view may read another of the refresh through one that epochs maintain. That one changes in the
commit of the other, so the view has its changes to read only after that: it is of a later level.
Each level is a commit, all of them while the sets are held once.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from headrace.algebra.spine import HIGHEST, LOWEST, RunFile, sync_directory
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.attempt import Attempt
from headrace.execution.runtime.builds import Swap, followed
from headrace.execution.runtime.connected import clocked
from headrace.execution.runtime.dirty import followed_by
from headrace.execution.runtime.rounds import arranged_for
from headrace.execution.runtime.stages import RunStep
from headrace.execution.runtime.step import (
    NOTHING,
    Clock,
    RowsShare,
    Share,
    Step,
    StepArrangement,
    arranged,
    log_share,
    parts_of_log,
)
from headrace.planning.catalog import Stream, View, title
from headrace.storage.ledger import EpochCommit, Frontier, Read, RunKind
from headrace.types import ArrangementId, Offset, RelationId, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.algebra.zset import Layout
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.ports import StepPlan
    from headrace.execution.runtime.published import Published
    from headrace.types import Epoch


_BEGINNING: Final = Offset(0)


@dataclass(frozen=True, slots=True)
class _Stand:
    """How far a view has read: stored relations as of an epoch, streams up to offsets."""

    epoch: Epoch
    offsets: Mapping[RelationId, Offset]
    clock: int


@dataclass(frozen=True, slots=True)
class _Input:
    """What some views have to read of a relation, and the epoch of its contents before that.

    ``delta`` are runs that the ledger names; ``then`` says that what this refresh writes of the
    relation follows them.
    """

    epoch: Epoch
    first: Offset = _BEGINNING
    end: Offset = _BEGINNING
    delta: tuple[RunFile, ...] = ()
    then: bool = False

    def agrees(self, other: _Input) -> bool:
        """Whether one step can read both: the contents before are equal, since the changes are."""
        return replace(self, epoch=other.epoch) == other


@dataclass(slots=True)
class _Group:
    """Views that are stepped together, each after those that it reads."""

    views: list[View] = field(default_factory=list)
    inputs: dict[RelationId, _Input] = field(default_factory=dict)
    clock: int | None = None
    """The clock before, if one of the views reads it."""

    @property
    def ids(self) -> frozenset[RelationId]:
        """The ids of the views."""
        return frozenset(view.id for view in self.views)

    @property
    def rows(self) -> int:
        """How many changes the inputs have that the ledger names."""
        inputs = self.inputs.values()
        return sum(i.end - i.first + sum(run.rows for run in i.delta) for i in inputs)

    def takes(self, inputs: Mapping[RelationId, _Input], clock: int | None) -> bool:
        """Whether a view with these inputs can be stepped together with the views of this group."""
        if clock is not None and self.clock is not None and clock != self.clock:
            return False
        ids = self.ids
        for id_, wanted in inputs.items():
            if id_ in ids:  # its delta passes from circuit to circuit; there must be no other
                if wanted.delta:
                    return False
            elif id_ in self.inputs and not self.inputs[id_].agrees(wanted):
                return False
        return True

    def take(self, view: View, inputs: Mapping[RelationId, _Input], clock: int | None) -> None:
        """Add a view to the group."""
        ids = self.ids
        self.views.append(view)
        self.inputs |= {id_: each for id_, each in inputs.items() if id_ not in ids}
        self.clock = clock if self.clock is None else self.clock


@dataclass(slots=True)
class ViewRefresh:
    """Refreshes views that lag behind, given so that each comes after those that it reads.

    The lock ``loop.refreshing`` is held for as long as the refresh lasts.
    """

    loop: EpochLoop
    views: tuple[View, ...]
    progress: Callable[[int, int], None] = lambda _done, _total: None
    _levels: tuple[_Level, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Find where the views stand, and the order in which they are committed."""
        state = self.loop.published.current
        self._levels = tuple(
            _Level(self.loop, tuple(views), self.progress)
            for views in _in_levels(self.views, state)
        )

    def run(self) -> Epoch:
        """Read everything up to now, and commit; return the epoch.

        Raises:
            HeadraceError: INVALID if a query fails on its data, CONFLICT if a view was dropped or
                replaced meanwhile; nothing has changed then, but in views of the levels before.
        """
        loop, levels = self.loop, self._levels
        try:
            while self._unread() > loop.settings.small_rows:
                state, ends = loop.published.current, loop.ledger.head.ends
                for level in levels:
                    level.read(state, ends, state.clock)
            names = ", ".join(f'"{view.name}"' for view in self.views)
            with loop.holding([view.id for view in self.views], f"the refresh of view {names}"):
                for level in levels:
                    level.require_same()
                ends, clock = loop.ledger.head.ends, loop.quiet_clock()
                epoch = loop.ledger.head.epoch
                for level in levels:
                    level.read(loop.published.current, ends, clock)
                    epoch = level.commit()
                return epoch
        except BaseException:
            for level in levels:
                level.attempt.abandon()
            raise

    def _unread(self) -> int:
        state, ends = self.loop.published.current, self.loop.ledger.head.ends
        return sum(level.unread(state, ends) for level in self._levels)


@dataclass(slots=True)
class _Level:
    """Views of a refresh that one commit moves, each after those that it reads.

    ``ends`` of logs are the same for all levels, so that these agree on streams.
    """

    loop: EpochLoop
    views: tuple[View, ...]
    progress: Callable[[int, int], None]
    _stands: dict[RelationId, _Stand] = field(default_factory=dict)
    _begun: dict[RelationId, Frontier] = field(default_factory=dict)
    _held: Published = field(init=False)
    """The state in which it began: what the views themselves keep is read as of its epoch."""
    _at: Published = field(init=False)
    """The state up to which the inputs have been read; held, so that it stays readable."""
    _layouts: dict[ArrangementId, Layout] = field(default_factory=dict)
    attempt: Attempt = field(init=False)
    """What this refresh has written."""
    _fresh: dict[RelationId, list[RunFile]] = field(default_factory=lambda: defaultdict(list))
    """The deltas among the written runs that other views have not read yet."""
    _rows: int = 0

    def __post_init__(self) -> None:
        """Find where the views stand."""
        loop = self.loop
        self.attempt = Attempt(loop.runs)
        self._held = self._at = state = loop.published.current
        for view in self.views:
            stands = state.lagging.get(view.id)
            if stands is None or stands.epoch is None:
                raise _changed(view)
            self._begun[view.id] = stands
            clock = loop.ledger.epochs.clock(stands.epoch)
            self._stands[view.id] = _Stand(stands.epoch, stands.offsets, clock)

    # -- reading ---------------------------------------------------------------------------

    def read(self, state: Published, log_ends: Mapping[RelationId, Offset], now: int) -> None:
        """Read what has changed up to a state, and to ends of logs; ``now`` is the clock then."""
        ends = self._ends(state, log_ends)
        groups = self._groups(state, ends, now)
        total, done = sum(group.rows for group in groups), 0
        for group in groups:
            for rows in self._read(group, now):
                done += rows
                self.progress(min(done, total), total)
        self._rows += done
        self._fresh.clear()
        self.attempt.compact(self._layouts, self.loop.partitions)
        refreshed: dict[RelationId, Mapping[RelationId, Offset]] = {}
        for view in self.views:
            before = self._stands[view.id].offsets
            streams = {
                id_: Offset(max(ends[id_], before.get(id_, 0)))
                for id_ in view.depends_on
                if id_ in ends
            }
            shown = state.shown_to(view, streams, refreshed)
            offsets = {id_: Offset(max(at, before.get(id_, 0))) for id_, at in shown.items()}
            self._stands[view.id], refreshed[view.id] = _Stand(state.epoch, offsets, now), offsets
        self._at = state

    def unread(self, state: Published, log_ends: Mapping[RelationId, Offset]) -> int:
        """Return how many changes there are to read up to a state."""
        groups = self._groups(state, self._ends(state, log_ends), state.clock)
        return sum(group.rows for group in groups)

    def _ends(
        self, state: Published, ends: Mapping[RelationId, Offset]
    ) -> dict[RelationId, Offset]:
        """Return up to where streams are read: as far as epochs have read them, where they do."""
        read = (view.depends_on for view in self.views)
        return {
            id_: (state.positions if id_ in state.maintained else ends).get(id_, Offset(0))
            for id_ in {each for inputs in read for each in inputs}
            if isinstance(state.catalog.by_id[id_], Stream)
        }

    def _groups(
        self, state: Published, ends: Mapping[RelationId, Offset], clock: int
    ) -> list[_Group]:
        """Return the views in groups, in an order in which they can be stepped."""
        groups: list[_Group] = []
        place: dict[RelationId, int] = {}
        timed, most = clocked(self.loop.ledger.head), self.loop.settings.refresh_views
        for view in self.views:
            stands = self._stands[view.id]
            inputs = {
                id_: self._input(id_, stands, state, ends, then=id_ in place)
                for id_ in view.depends_on
            }
            before = stands.clock if view.id in timed and clock > stands.clock else None
            first = max((place[id_] for id_ in inputs if id_ in place), default=0)
            index = next(
                (
                    i
                    for i in range(first, len(groups))
                    if len(groups[i].views) < most and groups[i].takes(inputs, before)
                ),
                len(groups),
            )
            if index == len(groups):
                groups.append(_Group())
            groups[index].take(view, inputs, before)
            place[view.id] = index
        return groups

    def _input(
        self,
        id_: RelationId,
        stands: _Stand,
        state: Published,
        ends: Mapping[RelationId, Offset],
        *,
        then: bool,
    ) -> _Input:
        if id_ in ends:
            first = stands.offsets.get(id_, Offset(0))
            return _Input(state.epoch, first, Offset(max(first, ends[id_])))
        self._require_kept(id_, stands.epoch)
        runs = self.loop.ledger.spines.delta_runs(rows_of(id_), stands.epoch, state.epoch)
        return _Input(stands.epoch, delta=tuple(run.file for run in runs), then=then)

    def _require_kept(self, id_: RelationId, epoch: Epoch) -> None:
        """Raise if the deltas after an epoch are gone, since a relation was rebuilt."""
        if epoch >= self.loop.ledger.head.arrangements[rows_of(id_)].since:
            return
        relation = self._at.catalog.by_id[id_]
        raise HeadraceError(
            Code.INVALID,
            f"what has changed in {title(relation)} is not known from where the view stands",
            "It was repaired since, and its earlier epochs are not kept.",
            "CREATE OR REPLACE the view, which fills it again.",
        )

    def _read(self, group: _Group, clock: int) -> Iterator[int]:
        """Step a group over its inputs, in parts; yield the number of rows of each."""
        ids, passed = group.ids, defaultdict[RelationId, list[RunFile]](list)
        ticking = group.clock
        for parts in self._parts(group, ticks=ticking is not None):
            before = clock if ticking is None else ticking
            self._step(group, ids, parts, passed, Clock(before, clock), ticks=ticking is not None)
            ticking = None
            for id_, share in parts.items():
                if isinstance(share, RowsShare):
                    passed[id_] += share.runs
            yield sum(share.rows for share in parts.values())

    def _parts(self, group: _Group, *, ticks: bool) -> Iterator[Mapping[RelationId, Share]]:
        """Yield the changes of the inputs in parts of about ``epoch_rows`` rows."""
        shares: dict[RelationId, Share] = {}
        for id_, each in group.inputs.items():
            delta = (*each.delta, *(self._fresh.get(id_, ()) if each.then else ()))
            if delta:
                layout = self._at.layout(self._at.catalog.by_id[id_])
                shares[id_] = RowsShare(layout, delta, LOWEST, HIGHEST)
            elif each.end > each.first:
                log = log_share(self.loop.ledger, id_, each.first, each.end)
                shares[id_] = log.as_corrected()
        most = self.loop.settings.epoch_rows
        if sum(share.rows for share in shares.values()) <= most:
            if shares or ticks:
                yield shares
            return
        for id_, share in shares.items():
            for part in _parts_of(share, most):
                yield {id_: part}

    def _step(
        self,
        group: _Group,
        ids: frozenset[RelationId],
        parts: Mapping[RelationId, Share],
        passed: Mapping[RelationId, list[RunFile]],
        clock: Clock,
        *,
        ticks: bool,
    ) -> None:
        loop, catalog = self.loop, self._at.catalog
        given = {i: share.runs for i, share in parts.items() if isinstance(share, RowsShare)}
        changed = frozenset(parts.keys() - given.keys())
        if ticks:
            changed = changed.union(ids & clocked(loop.ledger.head))
        without = frozenset(view.id for view in catalog.views_in_order()) - ids
        width = loop.widths.of_shares(changed.union(given), parts.values())
        few, partitions = width.few, loop.partitions_of(width)
        none: frozenset[RelationId] = frozenset()
        needs = loop.runner.plan_live(changed, without, partitions, none, frozenset(given), few=few)

        def before(needs: StepPlan) -> dict[ArrangementId, StepArrangement]:
            return self._before(needs, group, ids, passed)

        step = Step(
            uuid4().hex,
            loop.directory,
            partitions,
            {id_: parts.get(id_, NOTHING) for id_ in needs.reads},
            before(needs) | arranged_for(needs.loops, {}),
            clock=clock,
            few=few,
        )
        scanned, begun = needs.scanned(step.shares), self._held.epoch
        stage = RunStep(step, changed, without, needs.loops, begun, given, scanned, width=width)
        loop.fault("refresh")
        done = len(self.attempt.reports)
        loop.run_step(stage, self.attempt, before)
        contents = {rows_of(view.id): view.id for view in group.views}
        for report in self.attempt.reports[done:]:
            for id_ in report.runs.keys() & contents.keys():
                self._fresh[contents[id_]].append(report.runs[id_])
        loop.fault("refreshed")

    def _before(
        self,
        needs: StepPlan,
        group: _Group,
        ids: frozenset[RelationId],
        passed: Mapping[RelationId, list[RunFile]],
    ) -> dict[ArrangementId, StepArrangement]:
        """Return what arrangements have before a step.

        Those of the views themselves have what this refresh has written so far. The contents of
        other relations are as of the epoch at which the views stand, with what has been passed.
        """
        ledger, found = self.loop.ledger, dict[ArrangementId, StepArrangement]()
        own: dict[ArrangementId, Layout] = {}
        for id_, layout in needs.arrangements.items():
            relation = needs.shared.get(id_)
            if relation is None or relation in ids:
                own[id_] = layout
                continue
            (there,) = arranged(ledger, {id_: layout}, group.inputs[relation].epoch).values()
            written = self.attempt.written(rows_of(relation))  # of it in earlier readings
            read = written[: len(written) - len(self._fresh.get(relation, ()))]
            found[id_] = replace(there, runs=(*there.runs, *read, *passed.get(relation, ())))
        self._layouts |= own
        for id_, there in arranged(ledger, own, self._held.epoch).items():
            found[id_] = replace(there, runs=(*there.runs, *self.attempt.written(id_)))
        return found

    # -- committing ------------------------------------------------------------------------

    def require_same(self) -> None:
        """Refuse if a view is not what it was when the refresh began; its set is held."""
        now, head = self.loop.published.current, self.loop.ledger.head
        for view in self.views:
            if (
                now.catalog.by_id.get(view.id) is not view
                or view.id in now.stopped
                or head.lagging.get(view.id) != self._begun[view.id]
            ):
                raise _changed(view)

    def commit(self) -> Epoch:
        """Commit what has been read; the views' sets are held since."""
        loop, head = self.loop, self.loop.ledger.head
        frontiers = {view.id: head.serving(view.id).frontier for view in self.views}
        reads = tuple(
            Read(id_, self._begun[view.id].offsets.get(id_, Offset(0)), end, frontiers[view.id])
            for view in self.views
            for id_, end in self._stands[view.id].offsets.items()
        )
        reads = tuple(read for read in reads if read.to_offset > read.from_offset)
        runs = self.attempt.new_runs(RunKind.DELTA)
        sync_directory(loop.runs)
        clock = self._stands[self.views[0].id].clock
        loop.fault("refresh follows")
        deltas = {view.id: self.attempt.written(rows_of(view.id)) for view in self.views}
        above = followed(loop, self.attempt, deltas, clock)
        self._require_read(above)
        counters = {
            **self.attempt.counters(reads),
            "refreshed": len(self.views),
            "changes": self._rows,
            "jobs": self.attempt.jobs + above.jobs,
            "rows_scanned": self.attempt.scanned + above.scanned,
        }
        change = EpochCommit(
            self._at.epoch,
            uuid4().hex,
            reads,
            runs,
            caught_up=tuple(frontiers.values()),
            cleaned=followed_by(frontiers, loop.ledger.head.dirty, loop.catalog),
            counters=counters,
            clock=clock,
        )
        with loop.between():
            return Swap(loop, self.attempt, change, above).commit()

    def _require_read(self, above: Attempt) -> None:
        """Raise if the commit would claim that a view has read changes that it has not.

        The views stand at the new epoch afterwards. So none may read a view whose rows change in it
        by what follows this refresh: no step has read that.
        """
        changed = {id_ for report in above.reports for id_ in report.runs}
        for view in self.views:
            for id_ in view.depends_on:
                if rows_of(id_) in changed:
                    relation = self._at.catalog.by_id[id_]
                    raise HeadraceError(
                        Code.INTERNAL,
                        f'view "{view.name}" would miss changes of {title(relation)}',
                        "They are made in the epoch of its refresh, which has not read them.",
                        "Nothing was committed. Please report this with the detail above.",
                    )


def _in_levels(views: tuple[View, ...], state: Published) -> list[list[View]]:
    """Return views by level: one that reads another through a maintained view is a level above."""
    catalog, lagging = state.catalog, state.lagging
    level: dict[RelationId, int] = {}
    found: list[list[View]] = []
    for view in views:
        maintained = [id_ for id_ in view.depends_on if id_ not in lagging]
        through = catalog.shown_by(maintained, lagging)
        direct = [level[id_] for id_ in view.depends_on if id_ in level]
        at = max([0, *direct, *(level[id_] + 1 for id_ in through & level.keys())])
        level[view.id] = at
        if at == len(found):
            found.append([])
        found[at].append(view)
    return found


def _changed(view: View) -> HeadraceError:
    return HeadraceError(
        Code.CONFLICT,
        f'view "{view.name}" was dropped, altered, replaced or stopped while it was refreshed',
        hint="Refresh it again.",
    )


def _parts_of(share: Share, most: int) -> Iterator[Share]:
    """Yield a share in parts of about ``most`` rows; a run is not divided."""
    if not isinstance(share, RowsShare):
        yield from parts_of_log(share, most)
        return
    runs: list[RunFile] = []
    for run in share.runs:
        if runs and sum(r.rows for r in runs) + run.rows > most:
            yield replace(share, runs=tuple(runs))
            runs = []
        runs.append(run)
    yield replace(share, runs=tuple(runs))
