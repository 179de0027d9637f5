"""Backfill: compute the first contents of a new view from the stored contents of its inputs.

The view's own circuit reads its inputs' contents in one published state as insertions, in parts of
bounded size, and then their changes since: epochs go on meanwhile. Only the last few changes are
read with the lock of epochs, and one commit publishes the view and its contents.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.catalog import Stream, View
from headrace.circuit import rows_of
from headrace.errors import Code, HeadraceError
from headrace.ledger import (
    LIVE,
    EpochCommit,
    Merge,
    NewArrangement,
    NewBuild,
    NewObject,
    NewRun,
    Read,
    Repaired,
    RunKind,
)
from headrace.runtime.attempt import Attempt, new_run, new_runs, retried
from headrace.runtime.compaction import compacted
from headrace.runtime.declared_keys import require_key_of_all
from headrace.runtime.dirty import removed_with, repairable
from headrace.runtime.faults import found_fault
from headrace.runtime.fill_parts import Narrowed, Parts
from headrace.runtime.filled import Filled
from headrace.runtime.isolating import isolating, may_be_of_data
from headrace.runtime.ports import LEAF, MoreRowsError
from headrace.runtime.quarantine import Guarded, require_same
from headrace.runtime.retirement import require_kept
from headrace.runtime.rounds import Rounds, arranged_for, remove_runs
from headrace.runtime.shares import (
    NOTHING,
    SharedContents,
    as_corrected,
    log_share,
    snapshot,
)
from headrace.runtime.step import Arranged, Clock, RowsShare, Share, Step
from headrace.spine import (
    HIGHEST,
    LOWEST,
    RunFile,
    differences,
    sync_directory,
)
from headrace.types import (
    ArrangementId,
    BuildId,
    DirtyId,
    Epoch,
    FrontierId,
    Offset,
    RelationId,
)

if TYPE_CHECKING:
    from headrace.catalog import Relation
    from headrace.runtime.epoch import EpochLoop
    from headrace.runtime.ports import StepPlan
    from headrace.runtime.published import Published
    from headrace.runtime.step import Report
    from headrace.zset import Layout

Progress = Callable[[int, int], None]
"""Called with the rows read so far and the total; raising an error stops and undoes the fill."""

_EXPLAINED_SECONDS = 10.0
"""How long a row is looked for with which a query fails."""


@dataclass(slots=True)
class Fill:
    """Fills one build of a view that the runner has and the ledger does not; or a slice of one."""

    loop: EpochLoop
    view: View
    progress: Progress
    clocked: bool = False
    """Whether the view reads the clock."""
    build: BuildId | None = None
    """What the runner knows it by, if that is not the build of the view."""
    lookups: frozenset[RelationId] = frozenset()
    """Inputs whose first contents need not be read, since joins find all that matters in them."""
    narrowed: Narrowed = field(default=lambda _id, share: (share,))
    expects: int | None = None
    """About how many rows of the inputs are in a slice, if that is known."""
    earliest: bool = False
    """Whether it reads what streams still have, where that is not all that they have had."""
    without: Mapping[RelationId, Offset] = field(default_factory=dict)
    """Up to where no event of streams is in anything that the view keeps."""
    heard: Callable[[Report], None] = field(default=lambda _report: None)
    """Called with the report of each operator."""
    among: int = 0
    """The number of rows of inputs among which those of a slice were looked for."""
    taken: int = 0
    """The number of rows of inputs in a slice."""
    keeps: bool = False
    """Whether rows that are stored in quarantine stay there, and no others come; otherwise those
    on which the query fails now are found."""
    names_row: bool = False
    """Whether the error of a query that fails is to name a row with which it does."""
    _clock: int = 0
    _partitions: int = 1
    _files: dict[ArrangementId, list[RunFile]] = field(default_factory=lambda: defaultdict(list))
    _at: Published | None = None
    """The state up to which the inputs have been read."""
    _ends: dict[RelationId, Offset] = field(default_factory=dict)
    """How far each stream among them has been read."""
    _rows: int = 0
    _begins: dict[RelationId, Offset] = field(default_factory=dict)
    """The first offset that was read of each log that had been cut at its beginning."""
    _layouts: Mapping[ArrangementId, Layout] = field(default_factory=dict)
    _committing: bool = False
    _guards: dict[ArrangementId, Guarded] = field(default_factory=dict)
    """What its quarantines do in the steps that read one state."""

    @property
    def _known_as(self) -> BuildId:
        return self.view.build if self.build is None else self.build

    @property
    def ends(self) -> Mapping[RelationId, Offset]:
        """How far each stream among the inputs has been read."""
        return self._ends

    @property
    def files(self) -> Mapping[ArrangementId, Sequence[RunFile]]:
        """The runs that were written so far, by arrangement."""
        return self._files

    def begin(self, state: Published, clock: int | None = None) -> None:
        """Read what the inputs hold in a state, and the logs of streams that no view reads.

        ``now()`` is the clock of the state, or the later one that is given, by which no row of
        another view is due. A view that has recursions cannot catch up: it is begun and committed
        with the lock of epochs.
        """
        self._clock = clock or state.clock
        self._read(state)

    def catch_up(self, state: Published, clock: int | None = None) -> int:
        """Read what the inputs changed by up to a later state; return the number of changes.

        ``now()`` is the clock of the state, or the later one that is given.

        Raises:
            HeadraceError: INVALID if their changes are no longer kept.
        """
        return self._read_changes(state, Clock(self._clock, clock or state.clock))

    def commit(self, dropped: tuple[RelationId, ...] = ()) -> Epoch:
        """Commit the view in place of ``dropped``; the lock is held since the last catching up.

        The clock of that is the epoch's.
        """
        frontier, view = self._new_frontier(), self.view
        filled = self.written(frontier)
        contents, state = self._arrangements(filled)
        definition = view.to_json()
        created = NewObject(view.id, view.name, view.kind, definition, view.inputs, (contents,))
        self._committing = True
        return self.loop.ledger.commit(
            EpochCommit(
                filled.previous,
                uuid4().hex,
                filled.reads,
                filled.runs,
                (created,),
                dropped,
                (self._new_build(state, frontier),),
                caught_up=filled.caught_up,
                counters={"filled": view.name, "changes": filled.rows},
                clock=self._clock,
            )
        )

    def take_over(
        self, former: BuildId, cleaned: tuple[DirtyId, ...] = (), *, stays: bool = False
    ) -> Epoch:
        """Commit the build in place of a former one of the same view; see :meth:`commit`.

        The view's contents change by the difference, in the epoch of the commit, and so does
        everything that reads them. The dirty entries ``cleaned`` are repaired by that. If the view
        ``stays`` and lags behind, the fill was begun where it stands, and that does not change.
        """
        view, rows, standing = self.view, rows_of(self.view.id), stays and self.view.refresh.lags
        if standing:
            frontier, filled = self.loop.ledger.head.serving(view.id).frontier, self.written(None)
        else:
            frontier = self._new_frontier()
            filled = self.written(frontier)
        clock = self.loop.ledger.epochs.clock() if standing else self._clock
        _, state = self._arrangements(filled)
        stored = self.loop.ledger.spines.runs(rows)
        kept = tuple(run for run in filled.runs if run.arrangement != rows)
        self.loop.fault("take over")
        changes = self._difference(filled, [run.file for run in stored])
        delta = tuple(run.file for run in changes)
        self._files[rows] = list(delta)
        above = Attempt()
        self.loop.follow({view.id: delta}, clock, above)
        self._committing = True
        return self.loop.ledger.commit(
            EpochCommit(
                filled.previous,
                uuid4().hex,
                filled.reads,
                (*kept, *changes, *new_runs(above.reports, RunKind.DELTA)),
                builds=(self._new_build(state, frontier),),
                retired=(former,),
                caught_up=filled.caught_up,
                cleaned=cleaned,
                counters=above.counters(filled.reads)
                | {"filled": view.name, "changes": filled.rows},
                clock=clock,
            )
        )

    def kept(self, id_: ArrangementId) -> tuple[RunFile, ...]:
        """Return what has been written of an arrangement so far."""
        return tuple(self._files.get(id_, ()))

    def abandon(self) -> None:
        """Remove what was written, unless a commit was begun: the ledger may name it then."""
        if not self._committing:
            for written in self._files.values():
                remove_runs(self.loop.directory / "runs", written)

    def _new_build(self, state: tuple[NewArrangement, ...], frontier: FrontierId) -> NewBuild:
        view, begins = self.view, self._begins
        as_now = view.to_json()
        return NewBuild(view.build, view.id, as_now, view.inputs, state, frontier, begins=begins)

    def _arrangements(self, filled: Filled) -> tuple[NewArrangement, tuple[NewArrangement, ...]]:
        """Return the view's contents, and the state of the build's operators."""
        kept = {id_: NewArrangement(id_, a.to_json()) for id_, a in filled.layouts.items()}
        contents = kept.pop(rows_of(self.view.id))
        return contents, tuple(kept.values())

    def again(self, repaired: Repaired, *, stays: bool = False) -> Epoch:
        """Fill the view again, replacing its stored rows; both locks are held.

        The view is one that no epoch maintains. Its rows change by the difference, as in any
        epoch, so those who follow it get that; what its operators kept is given up. Its slices are
        not dirty any more. If the view ``stays`` and lags behind, it is filled where it stands.
        """
        ledger, rows = self.loop.ledger, rows_of(self.view.id)
        if stays and self.view.refresh.lags:
            filled, clock = self.filled(None, None), ledger.epochs.clock()
        else:
            frontier = ledger.head.serving(self.view.id).frontier
            filled = self.filled(self.loop.quiet_clock(), frontier)
            clock = self._clock
        stored = ledger.spines.of(list(filled.layouts))
        gone = tuple(
            Merge(id_, tuple(run.name for run in runs), None)
            for id_, runs in stored.items()
            if runs and id_ != rows
        )
        kept = tuple(run for run in filled.runs if run.arrangement != rows)
        changes = self._difference(filled, [run.file for run in stored[rows]])
        epoch = ledger.commit(
            EpochCommit(
                filled.previous,
                uuid4().hex,
                filled.reads,
                (*kept, *changes),
                merges=gone,
                caught_up=filled.caught_up,
                repaired=(repaired,),
                cleaned=self._cleaned(),
                counters={"filled": self.view.name, "changes": filled.rows},
                clock=clock,
            )
        )
        ledger.spines.advance_since({id_: epoch for id_ in filled.layouts if id_ != rows})
        self.loop.published.publish()
        return epoch

    def rebuilt(self, *repaired: Repaired) -> Epoch:
        """Fill the view again, replacing its stored rows, damaged or not; both locks are held.

        The view is as of where it stands, so its rows stay what they were, and nothing that is over
        it changes. Epochs before this one cannot be read any more.
        """
        ledger = self.loop.ledger
        filled = self.filled(None, None)
        stored = ledger.spines.of(list(filled.layouts))
        gone = tuple(
            Merge(id_, tuple(run.name for run in runs), None)
            for id_, runs in stored.items()
            if runs
        )
        epoch = ledger.commit(
            EpochCommit(
                filled.previous,
                uuid4().hex,
                filled.reads,
                filled.runs,
                merges=gone,
                repaired=repaired,
                cleaned=self._cleaned(),
                counters={"repaired": self.view.name, "changes": 0},
            )
        )
        ledger.spines.advance_since(dict.fromkeys(filled.layouts, epoch))
        self.loop.published.publish()
        return epoch

    def _cleaned(self) -> tuple[DirtyId, ...]:
        """Return the dirty entries that are repaired once all of the view is computed anew."""
        dirty, catalog = self.loop.ledger.head.dirty, self.loop.published.current.catalog
        return removed_with(repairable(dirty, self.view.id), dirty, catalog)

    def _difference(self, filled: Filled, before: list[RunFile]) -> tuple[NewRun, ...]:
        """Write what the view's stored rows change by, a run for each partition."""
        rows, directory = rows_of(self.view.id), self.loop.directory / "runs"
        after = [run.file for run in filled.runs if run.arrangement == rows]
        layout = filled.layouts[rows]
        found = differences(directory, layout, before, after, self.loop.partitions)
        remove_runs(directory, after)
        sync_directory(directory)
        return tuple(new_run(rows, file, RunKind.DELTA) for file in found)

    def filled(self, clock: int | None, frontier: FrontierId | None) -> Filled:
        """Write what the view holds where a frontier stands once it has read everything up to now.

        ``clock`` is what ``now()`` is: other views stay as they are, so no row of theirs may be due
        by then. With None for both, write what the view holds where it stands. The loop's lock is
        held.
        """
        published = self.loop.published
        try:
            state = published.at_frontier(self.view) if frontier is None else published.current
            self.begin(state, clock)
            return self.written(frontier)
        except BaseException:
            self.abandon()
            raise

    def _read(self, state: Published) -> None:
        try:
            self._read_contents(state, few=True)
        except MoreRowsError:
            self.expects = None
            self._read_contents(state, few=False)

    def _read_contents(self, state: Published, *, few: bool) -> None:
        """Read the contents of the inputs; with ``few``, without a job if they have few rows."""
        loop = self.loop
        if not self.earliest:
            require_kept(state, self.view, self.without)
        self._begins = {id_: at for id_ in self.view.depends_on if (at := state.starts.get(id_))}
        inputs = [state.catalog.by_id[id_] for id_ in sorted(self.view.depends_on)]
        ends = self._fixed_point(inputs, state)
        named = snapshot(loop.ledger, state, inputs, ends)
        rows = sum(share.rows for share in named.values())
        self._partitions = loop.partitions_for(
            rows if self.expects is None else min(rows, self.expects)
        )
        needs = loop.runner.plan_fill(self._known_as, self._partitions)
        self._guards = self._begun(needs, state)
        wanted = needs.reads - self.lookups
        shares = {id_: as_corrected(share) for id_, share in named.items() if id_ in wanted}
        self._ends = {id_: end for id_, end in ends.items() if id_ in needs.reads}
        total, done = sum(share.rows for share in shares.values()), 0
        self.progress(0, total)
        rounds = Rounds(loop.directory / "runs", needs.loops, loop.settings.recursion_rows)
        pending = needs.globals
        contents = SharedContents({id_: named[of] for id_, of in needs.shared.items()})
        contents.below = dict.fromkeys(map(rows_of, self.lookups))
        least = total if self.expects is None or not needs.interpreted else self.expects
        together = least <= min(loop.settings.small_rows, loop.settings.fill_rows)
        read = Parts(shares, self.narrowed, loop.settings.fill_rows)
        for parts, rows in read.together() if together else read.one_by_one():
            for id_, part in parts.items():
                contents.begin(rows_of(id_), part)
            self._step(needs, parts, contents, pending, rounds, few=few and together)
            for id_, part in parts.items():
                contents.finish(rows_of(id_), part)
            pending = frozenset()
            done += rows
            self.progress(min(done, total), total)
        self.progress(total, total)
        if pending:
            self._step(needs, {}, contents, pending, rounds, few=True)
        self._layouts = self._own(needs) | self._rounds(contents, rounds)
        self._at, self._rows = state, total

    def _read_changes(self, state: Published, clock: Clock) -> int:
        loop, before = self.loop, self._at
        if before is None:
            raise HeadraceError(Code.INTERNAL, "a fill has not begun")
        shares: dict[RelationId, Share] = {}
        for id_ in sorted(self.view.depends_on):
            relation = before.catalog.by_id[id_]
            if isinstance(relation, Stream):
                first = self._ends.get(id_, Offset(0))
                end = Offset(max(first, state.positions.get(id_, first)))
                shares[id_] = log_share(loop.ledger, id_, first, end).as_corrected()
                self._ends[id_] = end
            else:
                deltas = loop.ledger.spines.delta_runs(rows_of(id_), before.epoch, state.epoch)
                runs = tuple(run.file for run in deltas)
                shares[id_] = RowsShare(before.layout(relation), runs, LOWEST, HIGHEST)
        rows = sum(share.rows for share in shares.values())
        ticks = self.clocked and clock.after > clock.before
        if rows or ticks:
            self._partitions = loop.partitions_for(rows)
            needs = loop.runner.plan_fill(self._known_as, self._partitions, ticks=ticks)
            self._guards = self._begun(needs, state)
            inputs = [before.catalog.by_id[id_] for id_ in needs.shared.values()]
            there = snapshot(loop.ledger, before, inputs, {})
            contents = SharedContents({id_: there[of] for id_, of in needs.shared.items()})
            contents.below = dict.fromkeys(contents.shares)
            parts = {id_: share for id_, share in shares.items() if id_ in needs.reads}
            rounds = Rounds(loop.directory / "runs", (), loop.settings.recursion_rows)
            loop.fault("catch up")
            given = (needs, parts, contents, frozenset[str](), rounds, clock)
            try:
                self._step(*given, ticks=ticks, few=rows <= loop.settings.small_rows)
            except MoreRowsError:
                self._step(*given, ticks=ticks)
            self._rows += rows
        self._at, self._clock = state, clock.after
        return rows

    def _new_frontier(self) -> FrontierId:
        """Return the frontier of a new build: one of its own if the view is refreshed apart."""
        return self.loop.ledger.ids.frontier() if self.view.refresh.lags else LIVE

    def written(self, frontier: FrontierId | None) -> Filled:
        """Return what is on disk, which the ledger does not name, and how it moves a frontier."""
        if self._at is None:
            raise HeadraceError(Code.INTERNAL, "a fill has not begun")
        runs = tuple(
            new_run(id_, file, RunKind.MERGED) for id_ in self._files for file in self._files[id_]
        )
        directory, rows = self.loop.directory / "runs", rows_of(self.view.id)
        require_key_of_all(self.view, directory, self._layouts[rows], self._files[rows])
        sync_directory(directory)
        reads, moved = self._unread(frontier), () if frontier in (None, LIVE) else (frontier,)
        last, guards = self.loop.ledger.head.epoch, frozenset(self._guards)
        if self.keeps and guards:
            require_same(directory, self._at, self._layouts, guards, self._files)
        return Filled(last, reads, runs, self._layouts, self._rows, moved, self._clock, guards)

    def _fixed_point(
        self, inputs: Iterable[Relation], state: Published
    ) -> dict[RelationId, Offset]:
        """Return the offset up to which each stream is read."""
        ends, done = self.loop.ledger.head.ends, state.positions
        streams = [relation.id for relation in inputs if isinstance(relation, Stream)]
        return {
            id_: (done if id_ in state.maintained else ends).get(id_, Offset(0)) for id_ in streams
        }

    def _unread(self, frontier: FrontierId | None) -> tuple[Read, ...]:
        """Return the ranges of logs that the view has read now, and a frontier had not read."""
        if frontier is None or self._at is None:
            return ()
        stands, none = self.loop.ledger.head.frontiers.get(frontier), Offset(0)
        done = {} if stands is None else stands.offsets
        ends = self._ends if frontier == LIVE else self._at.shown_to(self.view, self._ends)
        starts = {id_: done.get(id_, none) for id_ in ends}
        return tuple(
            Read(id_, starts[id_], end, frontier) for id_, end in ends.items() if end > starts[id_]
        )

    def _step(
        self,
        needs: StepPlan,
        parts: Mapping[RelationId, Share],
        contents: SharedContents,
        initialise: frozenset[str],
        rounds: Rounds,
        clock: Clock | None = None,
        *,
        ticks: bool = False,
        few: bool = False,
    ) -> None:
        """Run the step of one part. Recursions continue only after all parts have been read."""
        loop = self.loop
        step = Step(
            uuid4().hex,
            loop.directory,
            self._partitions,
            {id_: parts.get(id_, NOTHING) for id_ in needs.reads},
            self._before(needs, contents) | arranged_for(needs.loops, {}),
            initialise,
            clock or Clock(self._clock, self._clock),
            guards=self._guards,
            restrictions=needs.restrictions,
            few=few,
        )
        loop.fault("fill")
        try:
            self._run(step, needs, rounds, ticks=ticks)
        except HeadraceError as failure:
            if self.names_row and self._at is None and not needs.guards:
                raise self._with_row(step, failure, ticks=ticks) from failure
            if self.keeps or not needs.guards or not may_be_of_data(failure):
                raise
            found = self._isolated(step, failure, ticks=ticks)
            again = replace(step, attempt=uuid4().hex, guards=found)
            self._run(again, needs, rounds, ticks=ticks)

    def _with_row(self, step: Step, failure: HeadraceError, *, ticks: bool) -> HeadraceError:
        """Return the error of a step, and a row with which it fails if one is found."""

        def trial(part: Step) -> tuple[Report, ...]:
            return self._reports(part, ticks=ticks)

        fault = found_fault(step, trial, failure, self.loop.row_text, _EXPLAINED_SECONDS)
        return failure if fault is None else fault.named(self.loop.catalog)

    def _begun(self, needs: StepPlan, state: Published) -> dict[ArrangementId, Guarded]:
        """Return what quarantines do while a state is read: they have what is known, or nothing."""
        stored = state.spines if self.keeps else {}
        return {
            id_: Guarded(known=tuple(run.file for run in stored.get(id_, ())))
            for id_ in needs.guards
        }

    def _isolated(
        self, step: Step, failure: HeadraceError, *, ticks: bool
    ) -> Mapping[ArrangementId, Guarded]:
        """Return what the quarantines have to refuse for a step to pass."""
        loop = self.loop

        def trial(guards: Mapping[ArrangementId, Guarded]) -> tuple[Report, ...]:
            loop.fault("isolate")
            return self._reports(replace(step, attempt=uuid4().hex, guards=guards), ticks=ticks)

        most, guards = loop.settings.quarantine_rows, self._guards
        return isolating(loop.runner, self._known_as, step, guards, trial, most).run(failure)

    def _rounds(self, contents: SharedContents, rounds: Rounds) -> dict[ArrangementId, Layout]:
        """Run rounds until no recursion changes; return the layouts of the rounds' arrangements."""
        loop, clock = self.loop, Clock(self._clock, self._clock)
        if not rounds.loops:
            return {}
        first = Step(uuid4().hex, loop.directory, self._partitions, {}, {}, clock=clock)
        needs = loop.runner.plan_fill(self._known_as, self._partitions, looping=True)
        while rounds.looping():
            loop.fault("round")
            partitions = loop.partitions_for(rounds.rows)
            needs = loop.runner.plan_fill(self._known_as, partitions, looping=True)
            step = rounds.next_step(
                replace(first, partitions=partitions), self._before(needs, contents)
            )
            self._run(step, needs, rounds)
        rounds.finish()
        return self._own(needs)

    def _before(self, needs: StepPlan, contents: SharedContents) -> dict[ArrangementId, Arranged]:
        own = self._own(needs)
        return {
            id_: Arranged(a, tuple(self._files[id_])) for id_, a in own.items()
        } | contents.arranged()

    def _run(self, step: Step, needs: StepPlan, rounds: Rounds, *, ticks: bool = False) -> None:
        reports = rounds.take(self._reports(step, looping=rounds.count > 0, ticks=ticks))
        for report in reports:
            self.heard(report)
            if report.operator.startswith(LEAF):
                self.among += report.rows_in
                self.taken += report.rows_out
            for id_, file in report.runs.items():
                self._files[id_].append(file)
        for id_, layout in self._own(needs).items():
            self._files[id_] = compacted(
                step.runs_directory, layout, self._files[id_], self.loop.partitions
            )

    def _reports(
        self, step: Step, *, looping: bool = False, ticks: bool = False
    ) -> tuple[Report, ...]:
        run, known_as = self.loop.runner.run_fill, self._known_as
        return retried(
            step,
            self.loop.settings.attempts,
            lambda attempt: run(attempt, known_as, looping=looping, ticks=ticks),
        )

    def _own(self, needs: StepPlan) -> dict[ArrangementId, Layout]:
        """Return what the view keeps itself."""
        return {id_: a for id_, a in needs.arrangements.items() if id_ not in needs.shared}
