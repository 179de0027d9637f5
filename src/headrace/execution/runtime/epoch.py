"""The life of an epoch: ``poll -> plan -> step -> commit -> publish``.

Polling fixes offset ranges. Planning turns them into stages, as data. Performing a stage is a
match over the closed union of stages. Only ``Commit`` has a lasting effect: the ledger does not
name the files of a failed attempt, and they are deleted later.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from threading import Event
from typing import TYPE_CHECKING, assert_never
from uuid import uuid4

from headrace.algebra.spine import HIGHEST, LOWEST
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.attempt import Attempt, SetAsideError, Width, Widths
from headrace.execution.runtime.beside import SetSteps
from headrace.execution.runtime.cancelling import StatementLock
from headrace.execution.runtime.connected import (
    Backlog,
    Parting,
    Timetable,
    machine_clock,
    rows_of_ranges,
)
from headrace.execution.runtime.failing import FailingViews
from headrace.execution.runtime.ports import MoreRowsError
from headrace.execution.runtime.published import Publisher, maintained_logs, stopped_views
from headrace.execution.runtime.quarantine import NO_GUARDS, Guarded
from headrace.execution.runtime.rounds import arranged_for, run_in_rounds
from headrace.execution.runtime.spent import (
    AFTERWARDS,
    Activity,
    FanOut,
    Spending,
    Spent,
    Work,
    changes_that_reach,
    measured,
    work_in_epoch,
)
from headrace.execution.runtime.stages import Commit, Poll, Publish, RunStep, Stage
from headrace.execution.runtime.step import (
    NOTHING,
    Clock,
    RowsShare,
    Step,
    StepArrangement,
    arranged,
    log_share,
)
from headrace.execution.runtime.unfit import stop_unfit
from headrace.storage.ledger import EpochCommit, Ledger, OutdatedEpochError, Read, RunKind
from headrace.types import ArrangementId, Epoch, Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from headrace.algebra.spine import RunFile
    from headrace.execution.runtime.beside import SetStep
    from headrace.execution.runtime.ports import StepPlan, StepRunner
    from headrace.execution.runtime.settings import RuntimeSettings
    from headrace.planning.catalog import Catalog


_LONGEST_PAUSE_SECONDS = 0.1
"""How long what runs beside epochs waits before each of its steps, if epochs follow each other."""


@dataclass(slots=True)
class EpochLoop:
    """Makes the epochs of one database; see :meth:`exclusive` for what else may not run meanwhile.

    ``clock`` returns the time in microseconds UTC. It may go back: ``now()`` of epochs does not.
    """

    directory: Path
    ledger: Ledger
    runner: StepRunner
    settings: RuntimeSettings
    partitions: int
    published: Publisher
    fault: Callable[[str], None] = field(default=lambda _stage: None)
    clock: Callable[[], int] = machine_clock
    lock: StatementLock = field(default_factory=StatementLock)
    refreshing: StatementLock = field(default_factory=StatementLock)
    """Held while views that lag behind catch up, and by what else changes their state; it is taken
    before the lock of epochs."""
    held: dict[RelationId, Epoch] = field(default_factory=dict)
    """The position of each sink: the changes after it are not delivered, and stay readable."""
    work: Work = field(default_factory=Work)
    closing: Event = field(default_factory=Event)
    """Set when the database is closed: what only explains a failure ends then."""
    row_text: Callable[[pa.Table], str] = field(default=str)
    """Returns a table of one row as errors show it."""
    widths: Widths = field(init=False)
    """Chooses the width of each step."""
    backlog: Backlog = field(init=False)
    """Chooses what each epoch reads."""
    beside: SetSteps = field(init=False)
    """The wide steps that run beside epochs."""
    parting: Parting = field(init=False)
    """Parts what is polled by connected set."""
    timetable: Timetable = field(init=False)
    """Says when rows of views that read the clock are due."""

    def __post_init__(self) -> None:
        """Create what chooses widths and ranges, and what runs beside epochs."""
        self.widths = Widths(self.settings.small_rows)
        self.backlog = Backlog(self)
        self.beside = SetSteps(self.settings.wide_steps)
        self.timetable = Timetable(self.directory, self.ledger)
        self.parting = Parting(self)
        self.beside.members_of = self.parting.held_with

    @property
    def runs(self) -> Path:
        """The directory of runs."""
        return self.directory / "runs"

    @property
    def catalog(self) -> Catalog:
        """The current relations."""
        return self.published.current.catalog

    @contextmanager
    def holding(
        self, among: Collection[RelationId] | None, what: str = "a change of the catalog"
    ) -> Iterator[None]:
        """Run a block while nobody else steps or changes the sets of relations ``among``.

        None stands for all sets. Epochs of others go on; those that the block makes are of these.
        What it has computed is committed as a :class:`Swap`, and published at its end; a block that
        changes the catalog publishes that itself. ``what`` it does is read by people who wait.
        """
        with self.beside.holding(among, what, self.lock):
            try:
                yield
            finally:
                with self.lock:
                    self.published.publish()

    @contextmanager
    def exclusive(self, among: Collection[RelationId] | None = None) -> Iterator[None]:
        """Hold the sets of some relations as :meth:`holding`; no epoch is made of any set."""
        with self.holding(among), self.between():
            yield

    @contextmanager
    def between(self) -> Iterator[None]:
        """Run a block while no epoch is made; publish its effect.

        Wide steps go on beside it: it must change nothing that a step reads or writes.
        """
        with self.lock:
            try:
                yield
            finally:
                self.published.publish()

    def let_pass(self, until: float) -> None:
        """Wait for the end of the epoch that is being made, but not for long.

        What runs beside epochs calls this between its steps: threads that compute share one core,
        so an epoch beside which another thread computes takes twice as long. It never waits after
        ``until``, by the monotonic clock.
        """
        seconds = min(_LONGEST_PAUSE_SECONDS, until - time.monotonic())
        if seconds > 0:
            self.lock.wait_free(seconds)

    # -- making an epoch -------------------------------------------------------------------

    def advance(self, *, rested: bool = False) -> Epoch | None:
        """Make one epoch of the changes that have arrived or are due; None if there are none.

        A failed step is retried. If a view keeps failing on the data, the rows that it fails on are
        quarantined in that epoch if the view has quarantines; otherwise the view is stopped and
        marked dirty with the cause, and the epoch is made without it.

        Where steps may run beside epochs, the wide step of a set is begun, and the epoch is one of
        the sets whose steps are narrow. If ``rested``, sets that rest have no wide step begun.
        """
        with self.lock:
            try:
                return self._advance(rested=rested)
            except OutdatedEpochError:
                # A commit that was in doubt was made: until the ledger answered, the last state
                # that it had acknowledged was polled.
                self.published.publish()
                return self._advance(rested=rested)

    def _advance(self, *, rested: bool) -> Epoch | None:
        """Make one epoch; the lock is held."""
        if self.beside.run is not None and self.beside.held() is None:
            return self._narrow_epoch(rested=rested)
        poll = self.parting.together()
        if self._stops_unfit(poll):
            poll = self.parting.together()
        return self._made(poll) if poll.ranges or poll.due else None

    def _stops_unfit(self, poll: Poll) -> bool:
        """Plan the views that changes reach; return whether some were stopped since they cannot."""
        few = rows_of_ranges(poll.ranges) <= self.settings.small_rows
        return stop_unfit(self, poll.ranges.keys() | poll.due, self.left_out(), few=few)

    def _made(self, poll: Poll, beside: SetStep | None = None) -> Epoch | None:
        """Make an epoch of what was polled; the lock is held, except for a step beside epochs."""
        for left in reversed(range(self.settings.attempts)):
            try:
                return self._attempt(poll, beside=beside)
            except HeadraceError as error:
                failure = error
                if error.code is Code.INVALID:
                    break
                if error.code in (Code.CORRUPT, Code.CONFLICT):
                    raise
                if left == 0 and error.code is not Code.INTERNAL:
                    raise
        guards = FailingViews(self, replace(poll, narrow=False)).run(failure)
        return self._attempt(poll, guards, beside)

    # -- steps beside epochs ---------------------------------------------------------------

    def _narrow_epoch(self, *, rested: bool) -> Epoch | None:
        """Begin the wide steps of sets, and make an epoch of the others; the lock is held."""
        poll, wide = self.parting.parted()
        self._begin(wide, rested=rested)
        while poll.ranges or poll.due:
            if self._stops_unfit(poll):
                return self._narrow_epoch(rested=rested)
            try:
                return self._made(poll)
            except SetAsideError as found:
                poll, wide = self.parting.without_wide(poll, found.changed)
                self._begin(wide, rested=rested)
        return None

    def _begin(self, polls: Iterable[Poll], *, rested: bool) -> None:
        """Begin wide steps, as many as may; the lock is held."""
        for members, poll in self.parting.admitted(polls, rested=rested):
            self.beside.begin(members, poll, self.published.current, self._step_beside)

    def _step_beside(self, step: SetStep) -> None:
        """Make the epoch of a set's step, on a thread of its own."""
        failure: HeadraceError | None = None
        try:
            with step.cancellation.statement():
                if not self._stops_unfit(step.poll):  # else it is polled again
                    self._made(step.poll, step)
        except OutdatedEpochError:
            pass  # it is polled again
        except HeadraceError as error:
            failure = error
        except BaseException as error:  # noqa: BLE001 - it is shown, and must not end the thread
            failure = HeadraceError(Code.INTERNAL, "a step failed", detail=f"{error!r}.")
        if failure is not None:  # the frames that it was raised in keep states
            failure.__traceback__ = failure.__context__ = None
        with self.lock:
            if not step.ended:
                self.published.publish()
            self.beside.end(step, failure)
        self.beside.freed()

    def maintained(self) -> frozenset[RelationId]:
        """Return the relations whose changes the next epoch reads."""
        state, without = self.published.current, self.left_out()
        if without == state.left_out:
            return state.maintained
        return maintained_logs(state.catalog, without)

    def plan(
        self, poll: Poll, guards: Mapping[ArrangementId, Guarded] = NO_GUARDS
    ) -> tuple[Stage, ...]:
        """Return the stages of an epoch, without side effects; ``guards`` say what is refused."""
        attempt = uuid4().hex
        without = self.left_out()
        steps: list[Stage] = []
        for changed in self._changed_sets(poll, without):
            name = f"{attempt}.{len(steps)}"
            steps.append(self.step(name, poll, changed, without, guards))
        reads = tuple(Read(id_, r.first, r.end) for id_, r in poll.ranges.items())
        commit = Commit(poll.previous, attempt, reads, poll.clock.after, without)
        return (*steps, commit, Publish())

    def _changed_sets(
        self, poll: Poll, without: frozenset[RelationId]
    ) -> list[frozenset[RelationId]]:
        """Return what changes in each step: a connected set, or several that have few changes."""
        due, ranges, most = poll.due - without, poll.ranges, self.settings.small_rows
        if poll.apart:
            return self.parting.sets().parted(due.union(ranges))
        if rows_of_ranges(ranges) <= most:
            together = due.union(ranges)
            return [together] if together else []
        temporal = self.timetable.views() - without if due else frozenset()
        sets: list[frozenset[RelationId]] = []
        narrow, rows = frozenset[RelationId](), 0
        for part in self.parting.sets().parted(due.union(ranges)):
            members = self.parting.sets().by_relation[min(part)]
            changed, own = frozenset(part & ranges.keys()), part & due
            more = sum(ranges[id_].rows for id_ in changed)
            if more > most:
                # All views that read the clock, not just those that are due: jobs are built per
                # set of changed relations, and which views are due differs from epoch to epoch.
                sets.append(changed.union(members & temporal) if own else changed)
                continue
            if rows + more > most:
                sets.append(narrow)
                narrow, rows = frozenset(), 0
            narrow, rows = narrow.union(changed, own), rows + more
        return [*sets, narrow] if narrow else sets

    def step(
        self,
        name: str,
        poll: Poll,
        changed: frozenset[RelationId],
        without: frozenset[RelationId],
        guards: Mapping[ArrangementId, Guarded],
    ) -> RunStep:
        """Return the step of some changed relations; see :class:`RunStep`."""
        logs = {
            id_: log_share(self.ledger, id_, poll.ranges[id_].first, poll.ranges[id_].end)
            for id_ in changed & poll.ranges.keys()
        }
        width = self.widths.of_shares(changed, logs.values())
        if poll.narrow and not width.few:
            raise SetAsideError(changed)
        partitions = self.partitions_of(width)
        needs = self.runner.plan_live(changed, without, partitions, few=width.few)
        shares = {id_: logs[id_].as_corrected() if id_ in logs else NOTHING for id_ in needs.reads}
        before = arranged(self.ledger, needs.arrangements, poll.previous)
        before |= arranged_for(needs.loops, {})
        own = {id_: guards[id_] for id_ in guards.keys() & needs.guards}
        step = Step(
            name,
            self.directory,
            partitions,
            shares,
            before,
            clock=poll.clock,
            guards=own,
            few=width.few,
        )
        return RunStep(
            step,
            changed,
            without,
            needs.loops,
            poll.previous,
            scanned=needs.scanned(shares),
            guards=needs.guards,
            width=width,
            narrow=poll.narrow,
        )

    def partitions_of(self, width: Width) -> int:
        """Return the number of partitions of a step of this width."""
        return 1 if width.few else self.partitions

    def partitions_for(self, rows: int) -> int:
        """Return the number of partitions of jobs that read this many rows."""
        return 1 if rows <= self.settings.rows_of_one_task else self.partitions

    def perform(
        self, stage: Stage, attempt: Attempt, beside: SetStep | None = None
    ) -> Epoch | None:
        """Perform one stage, perhaps of a step beside epochs; the commit returns the new epoch."""
        match stage:
            case RunStep():
                self.fault("step")
                self.run_step(stage, attempt)
                self.fault("stepped")
                return None
            case Commit():
                self.fault("commit")
                return self._commit(stage, attempt, beside)
            case Publish():
                self.fault("publish")
                with Spending(Activity.PUBLISHING):
                    self.published.publish()
                    self.lock.reconsider()
                return None
            case _:
                assert_never(stage)

    def _commit(self, stage: Commit, attempt: Attempt, beside: SetStep | None) -> Epoch:
        catalog, last = self.catalog, stage.previous
        if beside is not None:
            self.parting.require_unchanged(stage, beside)
            last = self.ledger.head.epoch
        work = work_in_epoch(attempt.reports, changes_that_reach(catalog, stage.reads))
        fan_out = FanOut.of(work, catalog)
        counters = attempt.counters(stage.reads)
        if fan_out is not None:
            counters["fans_out"] = asdict(fan_out)
        change = EpochCommit(
            last,
            stage.attempt,
            stage.reads,
            attempt.new_runs(RunKind.DELTA),
            counters=counters,
            clock=stage.clock,
        )
        if beside is not None:
            read_clock = not self.parting.sets().clocked.isdisjoint(beside.members)
            change = replace(
                change,
                began=stage.previous,
                members=tuple(sorted(beside.members)),
                clock=stage.clock if read_clock else None,
            )
        with Spending(Activity.COMMIT):
            epoch = attempt.commit(self.ledger, change)
        self.work.add(work)
        return epoch

    def run_step(
        self,
        stage: RunStep,
        attempt: Attempt,
        before: Callable[[StepPlan], Mapping[ArrangementId, StepArrangement]] | None = None,
    ) -> None:
        """Run a step, and the further rounds that its recursions need.

        ``before`` returns what a plan's arrangements have before the step; by default, what they
        have at the epoch before. A narrow step with too many rows on the way is run as jobs.
        """

        def at_previous(needs: StepPlan) -> Mapping[ArrangementId, StepArrangement]:
            return arranged(self.ledger, needs.arrangements, stage.previous)

        before = before or at_previous
        try:
            run_in_rounds(self, stage, attempt, before)
        except MoreRowsError:
            self.widths.fanned_out(stage.changed.union(stage.given), stage.step.rows)
            if stage.narrow:
                raise SetAsideError(stage.changed) from None
            with Spending(Activity.PLANNING):
                wide = self._widened(stage, before)
            run_in_rounds(self, wide, attempt, before)

    def _widened(
        self, stage: RunStep, before: Callable[[StepPlan], Mapping[ArrangementId, StepArrangement]]
    ) -> RunStep:
        """Return a narrow step as a wide one."""
        narrow, given, parts = stage.step, frozenset(stage.given), self.partitions
        none: frozenset[RelationId] = frozenset()
        needs = self.runner.plan_live(stage.changed, stage.without, parts, none, given)
        step = replace(
            narrow,
            attempt=f"{narrow.attempt}.wide",
            partitions=parts,
            few=False,
            shares={id_: narrow.shares.get(id_, NOTHING) for id_ in needs.reads},
            arrangements={**before(needs), **arranged_for(needs.loops, {})},
        )
        scanned = needs.scanned(step.shares)
        return replace(stage, step=step, loops=needs.loops, scanned=scanned, width=Width.FANS_OUT)

    def _attempt(
        self,
        poll: Poll,
        guards: Mapping[ArrangementId, Guarded] = NO_GUARDS,
        beside: SetStep | None = None,
    ) -> Epoch | None:
        epoch, began, spent = None, time.perf_counter(), Spent()
        with measured(spent), Attempt(self.runs, begun=began, spent=spent) as attempt:
            with Spending(Activity.PLANNING):
                stages = self.plan(poll, guards)
            steps = [stage for stage in stages if isinstance(stage, RunStep)]
            took = list[tuple[frozenset[RelationId], float]]()
            for step in steps:
                begun = time.perf_counter()
                try:
                    self.perform(step, attempt)
                except HeadraceError as error:  # others do not wait until it is known why
                    if step.narrow and error.code not in (Code.CORRUPT, Code.CONFLICT):
                        raise SetAsideError(step.changed) from error
                    raise
                took.append((step.changed, time.perf_counter() - begun))
            with self.lock:  # it is held already, unless the step runs beside epochs
                for stage in stages[len(steps) :]:
                    epoch = self.perform(stage, attempt, beside) or epoch
                self.parting.note(took)
                if beside is not None:
                    many = beside.changes > self.settings.small_rows
                    seconds = time.perf_counter() - began
                    self.beside.end(beside, rests=seconds if many else 0.0)
        if epoch is not None:
            self.ledger.epochs.add_counters(epoch, spent.milliseconds(AFTERWARDS))
        return epoch

    def follow(
        self,
        deltas: Mapping[RelationId, tuple[RunFile, ...]],
        clock: int,
        settled: Collection[RelationId] = (),
    ) -> Attempt:
        """Run a step of the views that read some relations, over deltas that no epoch's step made.

        The views ``settled`` change by their own deltas alone, or not at all; what reads a stopped
        one has stopped too. The sets of the relations are held.
        Time stays at ``clock``, by which no row is due.
        """
        attempt = Attempt(self.runs)
        state = self.published.current
        given = {id_: each for id_, each in deltas.items() if each and id_ not in state.stopped}
        without = state.left_out.union(id_ for id_ in settled if id_ not in given)
        maintained = [v.id for v in self.catalog.views_in_order() if v.id not in without]
        apart = given.keys() | state.lagging.keys()
        near = self.catalog.shown_by((i for i in maintained if i not in given), apart)
        if not given.keys() & near:
            return attempt
        shares = {
            id_: RowsShare(state.layout(self.catalog.by_id[id_]), delta, LOWEST, HIGHEST)
            for id_, delta in given.items()
        }
        none: frozenset[RelationId] = frozenset()
        read = frozenset(given)
        width = self.widths.of_shares(read, shares.values())
        partitions = self.partitions_of(width)
        needs = self.runner.plan_live(none, without, partitions, none, read, few=width.few)
        before = arranged(self.ledger, needs.arrangements, state.epoch)
        before |= arranged_for(needs.loops, {})
        step = Step(
            uuid4().hex,
            self.directory,
            partitions,
            {id_: shares[id_] for id_ in needs.reads},
            before,
            clock=Clock(clock, clock),
            few=width.few,
        )
        scanned, last = needs.scanned(step.shares), state.epoch
        stage = RunStep(step, none, without, needs.loops, last, given, scanned, width=width)
        self.run_step(stage, attempt)
        return attempt

    # -- views that fail -------------------------------------------------------------------

    def stopped(self) -> frozenset[RelationId]:
        """Return the views that have stopped, which nothing maintains."""
        return stopped_views(self.ledger.head, self.catalog)

    def left_out(self) -> frozenset[RelationId]:
        """Return the views that the next epoch does not maintain: also those that lag behind."""
        return self.stopped().union(self.ledger.head.lagging)

    # -- time ------------------------------------------------------------------------------

    def now(self) -> int:
        """Return the clock for an epoch made now: not before that of the last epoch."""
        return max(self.clock(), self.ledger.epochs.clock())

    def due(self, now: int, among: frozenset[RelationId] | None = None) -> frozenset[RelationId]:
        """Return the views, by default of all, with rows that are due at or before a time."""
        if among is not None and among.isdisjoint(self.timetable.views()):
            return frozenset()
        due = frozenset(id_ for id_, due in self._due_times().items() if due <= now)
        return due if among is None else due & among

    def quiet_clock(self) -> int:
        """Return the latest time, not after now, at which no row is due yet."""
        now = self.now()
        if not self.timetable.views().isdisjoint(self.beside.busy_elsewhere()):
            return self.ledger.epochs.clock()
        return min([now, *(due - 1 for due in self._due_times().values())])

    def seconds_until_due(self) -> float | None:
        """Return the seconds until the next row is due; None if there is no such row.

        Sets whose wide steps run or wait are left out: whoever waits is woken by their end.
        """
        apart = self.beside.busy | self.beside.waiting
        times = [due for id_, due in self._due_times().items() if id_ not in apart]
        return max(0, min(times) - self.clock()) / 1e6 if times else None

    def _due_times(self) -> Mapping[RelationId, int]:
        state = self.published.current
        times = self.timetable.at(state)
        return {id_: due for id_, due in times.items() if id_ not in state.left_out}

    # -- reading ---------------------------------------------------------------------------

    @contextmanager
    def kept(self) -> Iterator[tuple[Epoch, Epoch]]:
        """Yield the oldest epochs that must stay readable: for contents, and for operators' state.

        Readers need them; sinks, and builds that are refreshed less often, need the changes of
        contents. They stay readable during the block.
        """
        with self.published.oldest() as oldest:
            stands = self.ledger.head.lagging.values()
            read = [frontier.epoch for frontier in stands if frontier.epoch is not None]
            yield min([oldest, *self.held.values(), *read]), oldest

    def read_logs(self) -> dict[RelationId, Offset]:
        """Return the first offset that is read of each log whose retired beginning is read."""
        starts = self.ledger.head.starts
        held = self.published.oldest_starts()
        return {id_: at for id_, at in held.items() if at < starts.get(id_, at)}

    def pending(self) -> int:
        """Return the number of changes that have arrived and that no epoch has read yet."""
        return self.published.current.behind(self.ledger.head.ends)
