"""Rounds: the steps of recursive views are repeated until no recursion has changed.

In each round, the input of a recursion is its own delta of the round before (its *feedback*); the
inputs of the views have no further changes. A round is a step like any other: the state before it
is the state before the epoch plus the runs of earlier rounds of the same attempt. They all take
effect with the single commit of the epoch.

After round ``k``, every operator has the value it has for ``r(k) = start + step(r(k-1))`` as the
recursion: the result of an actual query, without negative weights.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.algebra.spine import PackWriter, RunFile, Spine, merge, sync_directory
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.attempt import Attempt
from headrace.execution.runtime.spent import Activity, Spending
from headrace.execution.runtime.step import Clock, Report, Step, StepArrangement, require_keys
from headrace.types import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.algebra.zset import Layout
    from headrace.execution.runtime.ports import LoopPlan, StepPlan
    from headrace.execution.runtime.stages import Performer, RunStep
    from headrace.types import ArrangementId, RelationId


_SCAN_ROWS = 1 << 18

Files = dict["ArrangementId", list[RunFile]]


@dataclass(slots=True)
class FeedbackRounds:
    """The feedback of the recursions of one attempt, which has it until the end of all rounds.

    ``most_rows`` limits the number of feedback rows of all rounds together.
    """

    attempt: Attempt
    loops: tuple[LoopPlan, ...]
    most_rows: int
    count: int = 0
    """The number of rounds after the first step."""
    _feedback: Files = field(default_factory=lambda: defaultdict(list))
    """What the next round reads."""
    _rows: int = 0

    def take(self, reports: Iterable[Report]) -> tuple[Report, ...]:
        """Take the feedback out of the reports; return them with the other runs.

        Raises ``invalid`` if there are more than ``most_rows`` rows of feedback.
        """
        if not self.loops:
            return tuple(reports)
        feedback = {loop.feedback for loop in self.loops}
        own = feedback | {loop.over_limit for loop in self.loops}
        remaining = []
        for report in reports:
            taken = {id_: file for id_, file in report.runs.items() if id_ in own}
            self.attempt.own([replace(report, runs=taken)])
            for id_ in feedback & taken.keys():
                self._feedback[id_].append(taken[id_])
                self._rows += taken[id_].rows
            left = {id_: file for id_, file in report.runs.items() if id_ not in own}
            remaining.append(replace(report, runs=left))
        if self._rows > self.most_rows:
            self.attempt.own(remaining)
            raise HeadraceError(
                Code.INVALID,
                f"a recursive WITH changed by more than {self.most_rows:,} rows at once",
                hint="Remove the cycle from the data, or raise the setting recursion_rows.",
            )
        return tuple(remaining)

    def looping(self) -> frozenset[RelationId]:
        """Return the views that need another round; none once no recursion has changed."""
        return frozenset(loop.view for loop in self.loops if self._feedback.get(loop.feedback))

    @property
    def rows(self) -> int:
        """The number of feedback rows that the next round reads."""
        return sum(file.rows for files in self._feedback.values() for file in files)

    def next_step(self, first: Step, before: Mapping[ArrangementId, StepArrangement]) -> Step:
        """Return the step of the next round; ``before`` is the state after all rounds so far."""
        self.count += 1
        taken = arranged_for(self.loops, self._feedback)
        self._feedback.clear()
        return replace(
            first,
            attempt=f"{first.attempt}.{self.count}",
            shares={},
            arrangements={**before, **taken},
            initialise=frozenset(),
            clock=Clock(first.clock.after, first.clock.after),
        )

    def finish(self) -> None:
        """Remove the feedback; raise ``invalid`` if a recursion has rows at or over its limit."""
        taken = self.attempt
        for loop in self.loops:
            spine = Spine.open(taken.directory, loop.layout, taken.written(loop.over_limit))
            if next(spine.scan(_SCAN_ROWS), None) is not None:
                raise HeadraceError(
                    Code.INVALID,
                    f"a recursive WITH reached its limit of {loop.limit} levels",
                    detail="A cycle in the data makes a recursion endless.",
                    hint="Remove the cycle from the data, or raise MAX RECURSION LEVEL n.",
                )
        for loop in self.loops:
            taken.put(loop.feedback, ())
            taken.put(loop.over_limit, ())


def arranged_for(
    loops: Iterable[LoopPlan], feedback: Mapping[ArrangementId, list[RunFile]]
) -> dict[ArrangementId, StepArrangement]:
    """Return the arrangements of recursions before a step: feedback, and no rows over the limit."""
    found: dict[ArrangementId, StepArrangement] = {}
    for loop in loops:
        found[loop.feedback] = StepArrangement(loop.layout, tuple(feedback.get(loop.feedback, ())))
        found[loop.over_limit] = StepArrangement(loop.layout, ())
    return found


@dataclass(slots=True)
class Written:
    """What all rounds of a step have written, as an attempt of its own.

    ``given`` are runs that the first round reads as deltas: in later ones, they have been read.
    """

    attempt: Attempt
    given: Mapping[ArrangementId, tuple[RunFile, ...]] = field(default_factory=dict)

    def after(
        self, before: Mapping[ArrangementId, StepArrangement]
    ) -> dict[ArrangementId, StepArrangement]:
        """Return the arrangements ``before`` the epoch plus the runs of the rounds so far."""
        return {
            id_: StepArrangement(
                a.layout, (*a.runs, *self.given.get(id_, ()), *self.attempt.written(id_))
            )
            for id_, a in before.items()
        }

    def merged(self, layouts: Mapping[ArrangementId, Layout]) -> tuple[Report, ...]:
        """Return the reports with one run for each arrangement: the sum of the runs of all rounds.

        It is in the last report that wrote to the arrangement.
        """
        attempt = self.attempt
        with PackWriter(attempt.directory) as pack:
            for id_, files in attempt.files.items():
                if len(files) > 1:
                    total = merge(attempt.directory, layouts[id_], files, pack)
                    attempt.put(id_, () if total is None else (total,))
            pack.finish()
        sums = {id_: files[0] for id_, files in attempt.files.items() if files}
        found = []
        for report in reversed(attempt.reports):
            own = {id_: sums.pop(id_) for id_ in report.runs if id_ in sums}
            found.append(replace(report, runs=own))
        sync_directory(attempt.directory)
        return tuple(reversed(found))


def run_in_rounds(
    loop: Performer,
    stage: RunStep,
    attempt: Attempt,
    before: Callable[[StepPlan], Mapping[ArrangementId, StepArrangement]],
) -> None:
    """Run a step, and the further rounds that its recursions need; see :meth:`run_step`."""
    first, runs = stage.step, stage.step.runs_directory
    layouts = {id_: a.layout for id_, a in first.arrangements.items()}
    stood = dict(first.arrangements)
    with Attempt(runs) as own:
        rounds = FeedbackRounds(own, stage.loops, loop.settings.recursion_rows)
        written = Written(own, {rows_of(id_): delta for id_, delta in stage.given.items()})
        own.take(rounds.take(_run(loop, first, stage, frozenset(), attempt)))
        while looping := rounds.looping():
            loop.fault("round")
            few = first.few and rounds.rows <= loop.settings.small_rows
            partitions = 1 if few else loop.partitions_for(rounds.rows)
            none: frozenset[RelationId] = frozenset()
            with Spending(Activity.PLANNING):
                needs = loop.runner.plan_live(none, stage.without, partitions, looping, few=few)
                there = before(needs)
            layouts |= needs.arrangements
            stood = {**there, **stood}
            there = written.after(there)
            step = rounds.next_step(replace(first, partitions=partitions, few=few), there)
            again = replace(stage, changed=none, given={}, scanned=0)
            own.take(rounds.take(_run(loop, step, again, looping, attempt)))
        rounds.finish()
        reports = written.merged(layouts) if rounds.count else own.reports
        require_keys(loop.catalog.views_in_order(), runs, stood, reports)
    attempt.rounds += rounds.count
    attempt.widths.append(stage.width)
    attempt.take(reports)


def _run(
    loop: Performer, step: Step, stage: RunStep, looping: frozenset[RelationId], attempt: Attempt
) -> tuple[Report, ...]:
    given = frozenset(stage.given)
    done = loop.runner.run_live(step, stage.changed, stage.without, looping, given)
    attempt.jobs += done.jobs
    attempt.scanned += stage.scanned
    return done.reports
