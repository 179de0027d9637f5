"""Backfill: compute the first contents of a new view from the stored contents of its inputs.

The view's own circuit reads its inputs' contents in one published state as insertions, in parts of
bounded size, and then their changes since: epochs go on meanwhile. Only the last few changes are
read with the lock of epochs, and one commit publishes the view and its contents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, assert_never
from uuid import uuid4

from headrace.algebra.spine import HIGHEST, LOWEST, sync_directory
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.attempt import Attempt, retried
from headrace.execution.runtime.failing import found_fault
from headrace.execution.runtime.fill_parts import (
    Filled,
    OfSlice,
    Part,
    Parts,
    in_two,
    kept_views,
    sizes_in,
    whole_log,
)
from headrace.execution.runtime.isolating import isolating, may_be_of_data
from headrace.execution.runtime.ports import LEAF, MoreRowsError, Reach
from headrace.execution.runtime.quarantine import Guarded, require_same
from headrace.execution.runtime.retirement import require_kept
from headrace.execution.runtime.rounds import FeedbackRounds, arranged_for
from headrace.execution.runtime.step import (
    NOTHING,
    Clock,
    RowsShare,
    Share,
    SharedContents,
    Step,
    StepArrangement,
    as_corrected,
    log_share,
    require_key_of_all,
    snapshot,
)
from headrace.planning.catalog import Stream, View
from headrace.storage.ledger import LIVE, Read, RunKind
from headrace.types import ArrangementId, BuildId, FrontierId, Offset, RelationId, rows_of

if TYPE_CHECKING:
    from headrace.algebra.zset import Layout
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.fill_parts import Takeover
    from headrace.execution.runtime.ports import StepPlan
    from headrace.execution.runtime.published import Published
    from headrace.execution.runtime.step import Report
    from headrace.planning.catalog import Relation


Progress = Callable[[int, int], None]
"""Called with the rows read so far and the total; raising an error stops and undoes the fill."""

_EXPLAINED_SECONDS = 10.0
"""How long, in seconds, to search for a row on which a query fails."""


_MOST_HERE = 16_000_000
"""The most rows times partitions of a fill in this process: jobs over more of them use all cores.

In this process a row takes about as long as in jobs on two cores.
"""
_PART_ROWS = 1 << 18
"""The most rows that a step in this process reads, ..."""
_PART_BYTES = 1 << 25
"""... and about how many bytes."""
_NOT_OF_ROWS = frozenset({Code.CANCELLED, Code.UNAVAILABLE, Code.CORRUPT})
"""The codes of errors that a job would have too."""


@dataclass(slots=True)
class Fill:
    """Computes one build of a view that the runner has and the ledger does not; or a slice of one.

    What it writes belongs to its ``attempt``, which whoever commits it names in the ledger.
    """

    loop: EpochLoop
    view: View
    progress: Progress
    clocked: bool = False
    """Whether the view reads the clock."""
    of_slice: OfSlice | None = None
    """The slice that it computes; None for all of the view."""
    may_miss: Mapping[RelationId, Offset] | None = field(default_factory=dict)
    """The offsets of streams before which events may be missing, since no row of the view depends
    on them; None if it reads what streams still have."""
    keeps: bool = False
    """Whether quarantines keep exactly the rows that they have; otherwise the rows on which the
    query fails now are found."""
    names_row: bool = False
    """Whether the error of a failing query names a row on which it fails."""
    takes_over: bool = False
    """Whether state of other views is read in place of inputs, where that costs less."""
    attempt: Attempt = field(init=False)
    taken_over: int = 0
    """The number of rows of such state."""
    _clock: int = 0
    _partitions: int = 1
    _here: bool = False
    """Whether steps run in this process."""
    _at: Published | None = None
    """The state up to which the inputs have been read."""
    _ends: dict[RelationId, Offset] = field(default_factory=dict)
    """How far each stream among them has been read."""
    _rows: int = 0
    _begins: dict[RelationId, Offset] = field(default_factory=dict)
    """The first offset that was read of each log that had been cut at its beginning."""
    _layouts: Mapping[ArrangementId, Layout] = field(default_factory=dict)
    _guards: dict[ArrangementId, Guarded] = field(default_factory=dict)
    """What its quarantines do in the steps that read one state."""

    def __post_init__(self) -> None:
        """Begin with an attempt that has written nothing."""
        self.attempt = Attempt(self.loop.runs)

    @property
    def _known_as(self) -> BuildId:
        return self.view.build if self.of_slice is None else self.of_slice.build

    @property
    def ends(self) -> Mapping[RelationId, Offset]:
        """How far each stream among the inputs has been read."""
        return self._ends

    @property
    def begins(self) -> Mapping[RelationId, Offset]:
        """The first offset that was read of each log that had been cut at its beginning."""
        return self._begins

    @property
    def taken(self) -> int:
        """The number of rows of inputs from which it is computed, as far as they were read."""
        reports = self.attempt.reports
        return sum(report.rows_out for report in reports if report.operator.startswith(LEAF))

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

    def whole(self, clock: int | None, frontier: FrontierId | None) -> Filled:
        """Write the view's contents as of a frontier, after reading everything up to now.

        ``clock`` is what ``now()`` is: other views stay as they are, so none of their rows may be
        due by then. With None for both, write what the view holds where it stands. The loop's lock
        is held.
        """
        published = self.loop.published
        state = published.at_frontier(self.view) if frontier is None else published.current
        self.begin(state, clock)
        return self.written(frontier)

    def _read(self, state: Published) -> None:
        expects = None if self.of_slice is None else self.of_slice.expects
        try:
            self._read_contents(state, expects, few=True)
        except MoreRowsError:
            self._read_contents(state, None, few=False)

    def _read_contents(self, state: Published, expects: int | None, *, few: bool) -> None:
        """Read the contents of the inputs; with ``few``, without a job if they have few rows."""
        if self.may_miss is not None:
            require_kept(state, self.view, self.may_miss)
        self._begins = {id_: at for id_ in self.view.depends_on if (at := state.starts.get(id_))}
        inputs = [state.catalog.by_id[id_] for id_ in sorted(self.view.depends_on)]
        ends = self._fixed_point(inputs, state)
        named = snapshot(self.loop.ledger, state, inputs, ends)
        if not self._seeks_state(named):
            self._read_parts(state, named, ends, expects, few=few)
            return
        kept, sizes = kept_views(state, self.view.depends_on, self.view), sizes_in(state, named)
        takeover: Takeover | None = None
        try:
            with self.loop.runner.taking_over(self._known_as, kept, sizes) as takeover:
                self._read_parts(state, named, ends, expects, few=few, takeover=takeover)
            if takeover is not None:
                takeover.copy(state, self.loop.runs, self.attempt)
        except HeadraceError as error:
            if error.code is not Code.CORRUPT or takeover is None:
                raise
            self.attempt.abandon()
            self._read_parts(state, named, ends, expects, few=few)
            return
        if takeover is not None:
            self._layouts = {**self._layouts, **takeover.layouts()}
            self.taken_over = takeover.rows(state)

    def _seeks_state(self, named: Mapping[RelationId, Share]) -> bool:
        """Whether there are enough rows to look for state that can be taken over."""
        rows = sum(share.rows for share in named.values())
        return self.takes_over and rows >= self.loop.settings.reuse_rows

    def _read_parts(
        self,
        state: Published,
        named: Mapping[RelationId, Share],
        ends: Mapping[RelationId, Offset],
        expects: int | None,
        *,
        few: bool,
        takeover: Takeover | None = None,
    ) -> None:
        """Read inputs part by part: what is taken over, and the other relations."""
        loop = self.loop
        lookups = frozenset[RelationId]() if self.of_slice is None else self.of_slice.lookups
        narrowed = whole_log if self.of_slice is None else self.of_slice.narrowed
        unread = frozenset[RelationId]() if takeover is None else takeover.unread
        groups = () if takeover is None else takeover.groups(state)
        taken = [share for group in groups for share in group.values()]
        every = [*(share for id_, share in named.items() if id_ not in unread), *taken]
        rows = sum(share.rows for share in every)
        self._partitions = loop.partitions_for(rows if expects is None else min(rows, expects))
        size = sum(share.bytes for share in every)
        needs = self._planned(rows, size)
        self._guards = self._begun(needs, state)
        wanted = needs.reads - lookups
        shares = {id_: as_corrected(share) for id_, share in named.items() if id_ in wanted}
        self._ends = {id_: end for id_, end in ends.items() if id_ in needs.reads | unread}
        total, done = sum(share.rows for share in (*shares.values(), *taken)), 0
        self.progress(0, total)
        rounds = FeedbackRounds(self.attempt, needs.loops, loop.settings.recursion_rows)
        pending = needs.globals
        contents = SharedContents({id_: named[of] for id_, of in needs.shared.items()})
        contents.below = dict.fromkeys(map(rows_of, lookups))
        least = total if expects is None or not needs.interpreted else expects
        most = min(loop.settings.fill_rows, self._rows_here(rows, size))
        together = least <= (most if self._here else min(loop.settings.rows_of_one_task, most))
        read = Parts(shares, narrowed, most if self._here else loop.settings.fill_rows, groups)
        divides = not (groups and together)  # those of a group stay together
        for each in read.together() if together else read.one_by_one():
            given = (needs, contents, pending, rounds)
            for rows in self._in_pieces(each, *given, few=few and together, divides=divides):
                done += rows
                self.progress(min(done, total), total)
            pending = frozenset()
        self.progress(total, total)
        if pending:
            self._step(needs, {}, contents, pending, rounds, few=True)
        self._layouts = self._own(needs) | self._rounds(contents, rounds)
        self._at, self._rows = state, total

    def _in_pieces(
        self,
        part: Part,
        needs: StepPlan,
        contents: SharedContents,
        pending: frozenset[str],
        rounds: FeedbackRounds,
        *,
        few: bool,
        divides: bool,
    ) -> Iterator[int]:
        """Step over a part; yield the number of rows after each piece of it.

        If it ``divides``, it does so as long as a piece has too many rows on their way for this
        process, as a join may. Else the rest is left to jobs.
        """
        left = [part]
        while left:
            shares, rows = left.pop()
            pieces = in_two(shares, rows) if self._here and divides else None
            for id_, share in shares.items():
                contents.begin(rows_of(id_), share)
            try:
                splits = pieces is not None
                self._step(needs, shares, contents, pending, rounds, few=few, splits=splits)
            except MoreRowsError:
                if pieces is None:
                    raise
                left += reversed(pieces)
                continue
            for id_, share in shares.items():
                contents.finish(rows_of(id_), share)
            pending = frozenset()
            yield rows

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
            size = sum(share.bytes for share in shares.values())
            needs = self._planned(rows, size, ticks=ticks, at_once=True)
            self._guards = self._begun(needs, state)
            inputs = [before.catalog.by_id[id_] for id_ in needs.shared.values()]
            there = snapshot(loop.ledger, before, inputs, {})
            contents = SharedContents({id_: there[of] for id_, of in needs.shared.items()})
            contents.below = dict.fromkeys(contents.shares)
            parts = {id_: share for id_, share in shares.items() if id_ in needs.reads}
            rounds = FeedbackRounds(self.attempt, (), loop.settings.recursion_rows)
            loop.fault("catch up")
            given = (needs, parts, contents, frozenset[str](), rounds, clock)
            try:
                self._step(*given, ticks=ticks, few=rows <= loop.settings.rows_of_one_task)
            except MoreRowsError:
                self._step(*given, ticks=ticks)
            self._rows += rows
        self._at, self._clock = state, clock.after
        return rows

    def written(self, frontier: FrontierId | None) -> Filled:
        """Return the runs that the ledger does not name yet, and how they move a frontier."""
        if self._at is None:
            raise HeadraceError(Code.INTERNAL, "a fill has not begun")
        runs, files = self.attempt.new_runs(RunKind.MERGED), self.attempt.files
        directory, rows = self.loop.runs, rows_of(self.view.id)
        require_key_of_all(self.view, directory, self._layouts[rows], files[rows])
        sync_directory(directory)
        reads, moved = self._unread(frontier), () if frontier in (None, LIVE) else (frontier,)
        # Not the ledger's last epoch, which may be one that was in doubt, and that was not read.
        last, guards = self.loop.published.current.epoch, frozenset(self._guards)
        if self.keeps and guards:
            require_same(directory, self._at, self._layouts, guards, files)
        return Filled(
            last,
            reads,
            runs,
            self._layouts,
            self._rows,
            moved,
            self._clock,
            guards,
            self.taken_over,
        )

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
        """Return the ranges of logs that the view has read beyond a frontier."""
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
        rounds: FeedbackRounds,
        clock: Clock | None = None,
        *,
        ticks: bool = False,
        few: bool = False,
        splits: bool = False,
    ) -> None:
        """Run the step of one part. Recursions continue only after all parts have been read.

        Raises:
            MoreRowsError: the part ``splits``, and has too many rows on their way for this process.
        """
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
            few=few and self.of_slice is not None,
        )
        loop.fault("fill")
        if self._here and self._done_here(step, needs, rounds, ticks=ticks, splits=splits):
            return
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

    def _planned(
        self, rows: int, size: int, *, ticks: bool = False, at_once: bool = False
    ) -> StepPlan:
        """Return the plan of steps that read so many rows, of ``size`` bytes in all.

        If they are read ``at_once``, there is one step. Steps run in this process as far as the
        plan reaches: starting jobs takes longer. Where no epoch is narrow, all of them are jobs.
        """
        plan, settings = self.loop.runner.plan_fill, self.loop.settings
        self._here = False
        many = rows * self.loop.partitions > _MOST_HERE
        if self.of_slice is None and settings.small_rows and not many:
            needs = plan(self._known_as, 1, ticks=ticks, here=True)
            in_one = rows <= min(settings.fill_rows, self._rows_here(rows, size))
            match needs.reach:
                case Reach.NONE:
                    pass
                case Reach.FEW:
                    self._here = rows <= settings.rows_of_one_task
                case Reach.WHOLE:
                    self._here = in_one
                case Reach.MANY:
                    self._here = in_one or not at_once
                case _:
                    assert_never(needs.reach)
            if self._here:
                return needs
        return plan(self._known_as, self._partitions, ticks=ticks)

    @staticmethod
    def _rows_here(rows: int, size: int) -> int:
        """Return how many of some rows, of ``size`` bytes in all, a step in this process reads."""
        return max(1, min(_PART_ROWS, _PART_BYTES * rows // max(size, 1)))

    def _done_here(
        self, step: Step, needs: StepPlan, rounds: FeedbackRounds, *, ticks: bool, splits: bool
    ) -> bool:
        """Run a step in this process; if it fails or has too many rows, all steps are jobs.

        Raises:
            MoreRowsError: it has too many rows, and ``splits``.
        """
        try:
            self._run(replace(step, partitions=1, few=True), needs, rounds, ticks=ticks)
        except MoreRowsError:
            if splits:
                raise
            self._here = False
        except HeadraceError as failure:
            if failure.code in _NOT_OF_ROWS:
                raise
            self._here = False
        return self._here

    def _with_row(self, step: Step, failure: HeadraceError, *, ticks: bool) -> HeadraceError:
        """Return the error of a step, and a row with which it fails if one is found."""

        def trial(part: Step) -> tuple[Report, ...]:
            return self._reports(part, ticks=ticks)

        fault = found_fault(step, trial, failure, self.loop.row_text, _EXPLAINED_SECONDS)
        return failure if fault is None else fault.named(self.loop.catalog)

    def _begun(self, needs: StepPlan, state: Published) -> dict[ArrangementId, Guarded]:
        """Return the instructions of quarantines for the steps that read a state."""
        stored = state.spines if self.keeps else {}
        return {
            id_: Guarded(known=tuple(run.file for run in stored.get(id_, ())))
            for id_ in needs.guards
        }

    def _isolated(
        self, step: Step, failure: HeadraceError, *, ticks: bool
    ) -> Mapping[ArrangementId, Guarded]:
        """Return the instructions of the quarantines with which a step passes."""
        loop = self.loop

        def trial(guards: Mapping[ArrangementId, Guarded]) -> tuple[Report, ...]:
            loop.fault("isolate")
            return self._reports(replace(step, attempt=uuid4().hex, guards=guards), ticks=ticks)

        most, guards = loop.settings.quarantine_rows, self._guards
        return isolating(loop.runner, self._known_as, step, guards, trial, most).run(failure)

    def _rounds(
        self, contents: SharedContents, rounds: FeedbackRounds
    ) -> dict[ArrangementId, Layout]:
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

    def _before(
        self, needs: StepPlan, contents: SharedContents
    ) -> dict[ArrangementId, StepArrangement]:
        own = self._own(needs)
        return {
            id_: StepArrangement(a, self.attempt.written(id_)) for id_, a in own.items()
        } | contents.arranged()

    def _run(
        self, step: Step, needs: StepPlan, rounds: FeedbackRounds, *, ticks: bool = False
    ) -> None:
        reports = self._reports(step, looping=rounds.count > 0, ticks=ticks)
        self.attempt.take(rounds.take(reports))
        self.attempt.compact(self._own(needs), self.loop.partitions)

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
        """Return the arrangements that only the view itself uses."""
        return {id_: a for id_, a in needs.arrangements.items() if id_ not in needs.shared}
