"""Finding the rows on which the query of a view fails, by trials of a step.

The insertions that a step reads are put in an order. A trial steps the view over the first of them
and all retractions, and its results are discarded. So each state that is tried is a part of the
state after the step. Of the shortest beginning that fails, the last insertion is the one to refuse:
what is before it passes. The search goes on from there until everything passes, so a row is refused
only if the query fails with it and the rows before it.

Many rows that fail alone, such as by a cast, are found together before that, without trials.

If the query fails without any insertion, no row of the step is to blame.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import uuid4

from headrace.algebra.operators import arrived_in
from headrace.algebra.spine import LOWEST
from headrace.errors import Code, HeadraceError, shortened
from headrace.execution.runtime.attempt import remove_reported
from headrace.execution.runtime.quarantine import Guarded, RefusedHash, candidates_in, candidates_of
from headrace.execution.runtime.step import Step, StepArrangement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from headrace.algebra.spine import RunFile
    from headrace.algebra.zset import Layout
    from headrace.execution.runtime.ports import StepRunner
    from headrace.execution.runtime.step import Report
    from headrace.types import ArrangementId, BuildId


Trial: TypeAlias = "Callable[[Mapping[ArrangementId, Guarded]], Sequence[Report]]"
"""Runs a step of a view with instructions for its quarantines, and returns the reports."""
Sieve: TypeAlias = "Callable[[ArrangementId, Sequence[RunFile]], Mapping[int, str]]"
Row: TypeAlias = "tuple[ArrangementId, int]"
"""Inserted rows: the quarantine that they reach, and their hash."""

_MOST_CHARACTERS: Final = 1000
_EXPLAINED: Final = 8
"""For how many rows of one step that fail alone a trial finds the error."""


def first_failing(
    fails: Callable[[int], HeadraceError | None], passing: int, failing: int, error: HeadraceError
) -> tuple[int, HeadraceError]:
    """Return a length that fails where one less passes, with its error, by bisecting.

    The length ``passing`` passes, and ``failing`` fails with ``error``. Where failures are not
    monotone, it is one of several such lengths.
    """
    while failing - passing > 1:
        middle = (passing + failing) // 2
        found = fails(middle)
        if found is None:
            passing = middle
        else:
            failing, error = middle, found
    return failing, error


@dataclass(slots=True)
class Isolating:
    """Finds the rows of a step that the quarantines of one view have to refuse.

    ``quarantines`` are those of the step, with their layouts. ``sieve`` returns the errors of rows
    in runs that fail alone, by hash. ``since`` is the clock of the step in microseconds;
    ``directory`` that of runs. At ``most`` so many rows are refused. ``begun`` is what the
    quarantines do in any case.
    """

    trial: Trial
    sieve: Sieve
    quarantines: Mapping[ArrangementId, Layout]
    since: int
    directory: Path
    most: int
    begun: Mapping[ArrangementId, Guarded] = field(default_factory=dict)
    trials: int = 0
    """How many trials were made."""
    _order: list[Row] = field(default_factory=list)
    _refused: dict[Row, HeadraceError] = field(default_factory=dict)

    def run(self, failure: HeadraceError) -> dict[ArrangementId, Guarded]:
        """Return the instructions of the quarantines with which a failing step passes.

        Raises:
            HeadraceError: ``failure`` with a detail that says why, if that cannot be achieved.
        """
        suspects = self._begin(failure)
        error: HeadraceError | None = failure
        at, end = 0, len(self._order)
        if suspects:
            for row, what in suspects.items():
                self._refuse(row, HeadraceError(Code.INVALID, what), failure)
            error = self._fails(end)
            if error is None:
                self._explain(suspects)
        while error is not None:
            at, error = first_failing(self._fails, at, end, error)
            self._refuse(self._order[at - 1], error, failure)
            error = self._fails(end)
        return self._guards(None)

    def _begin(self, failure: HeadraceError) -> dict[Row, str]:
        """Put the insertions in order, by a trial without any, and return those that fail alone."""
        held = {
            id_: replace(self._before(id_), below=LOWEST, listed=True) for id_ in self.quarantines
        }
        try:
            reports = self._tried(held)
        except HeadraceError as error:
            if not may_be_of_data(error):
                raise
            why = "It fails as well if no row is inserted, so no inserted row is to blame."
            if _said(error) != _said(failure):
                why += f" It fails then by another error: {_said(error)}"
            raise _not_quarantined(failure, why) from error
        suspects: dict[Row, str] = {}
        try:
            for id_ in sorted(self.quarantines):
                of = candidates_of(id_)
                runs = [report.runs[of] for report in reports if of in report.runs]
                layout = arrived_in(self.quarantines[id_])
                hashes = candidates_in(self.directory, layout, runs)
                self._order += [(id_, hash_) for hash_ in hashes.tolist()]
                found = self._sifted(id_, runs)
                suspects |= {(id_, hash_): what for hash_, what in found.items()}
        finally:
            remove_reported(self.directory, reports)
        if not self._order:
            raise _not_quarantined(failure, "No row is inserted that could be left out.")
        return suspects

    def _sifted(self, id_: ArrangementId, runs: Sequence[RunFile]) -> Mapping[int, str]:
        if not runs:
            return {}
        try:
            return self.sieve(id_, runs)
        except HeadraceError as error:
            if not may_be_of_data(error):
                raise
            return {}

    def _explain(self, suspects: Iterable[Row]) -> None:
        """Find the errors of the first rows that fail alone, by trials; all others pass.

        A row that does not fail after all is not refused.
        """
        for row in sorted(suspects)[:_EXPLAINED]:
            del self._refused[row]
            error = self._fails(bisect_right(self._order, row))
            if error is not None:
                self._refused[row] = error

    def _refuse(self, row: Row, error: HeadraceError, failure: HeadraceError) -> None:
        if len(self._refused) == self.most:
            why = f"More than {self.most:,} rows of one step fail, which is the limit."
            raise _not_quarantined(failure, why)
        self._refused[row] = error

    def _fails(self, count: int) -> HeadraceError | None:
        """Return the error of a trial with the first insertions; None if it passes."""
        try:
            remove_reported(self.directory, self._tried(self._guards(count)))
        except HeadraceError as error:
            if not may_be_of_data(error):
                raise
            return error
        return None

    def _tried(self, guards: Mapping[ArrangementId, Guarded]) -> Sequence[Report]:
        self.trials += 1
        return self.trial(guards)

    def _before(self, id_: ArrangementId) -> Guarded:
        return self.begun.get(id_, Guarded())

    def _guards(self, count: int | None) -> dict[ArrangementId, Guarded]:
        """Return the instructions of quarantines for the first insertions; None means all."""
        found = {}
        last = None if count is None or count == len(self._order) else self._order[count]
        held = False
        for id_ in sorted(self.quarantines):
            before = self._before(id_)
            refused = (
                RefusedHash(hash_, _said(error), self.since)
                for (of, hash_), error in self._refused.items()
                if of == id_
            )
            below = LOWEST if held else None
            if last is not None and last[0] == id_:
                below, held = last[1], True
            found[id_] = replace(before, refused=(*before.refused, *refused), below=below)
        return found


def isolating(
    runner: StepRunner,
    build: BuildId,
    step: Step,
    quarantines: Iterable[ArrangementId],
    trial: Trial,
    most: int,
) -> Isolating:
    """Return the search for rows to refuse in a step of a build, by trials of that step."""
    layouts = {id_: step.arrangements[id_].layout for id_ in quarantines}

    def sieve(id_: ArrangementId, runs: Sequence[RunFile]) -> Mapping[int, str]:
        rows = StepArrangement(arrived_in(layouts[id_]), tuple(runs))
        one = Step(uuid4().hex, step.directory, step.partitions, {}, {id_: rows}, clock=step.clock)
        return runner.sieve(one, build, id_)

    return Isolating(trial, sieve, layouts, step.clock.after, step.runs_directory, most)


def may_be_of_data(error: HeadraceError) -> bool:
    """Return whether the rows that a step reads may be the cause of its failure."""
    return error.code in (Code.INVALID, Code.INTERNAL)


def _said(error: HeadraceError) -> str:
    """Return the text of an error that is stored with each row refused for it."""
    said = f"{error.primary}: {error.detail}" if error.detail else error.primary
    return shortened(said, _MOST_CHARACTERS)


def _not_quarantined(failure: HeadraceError, why: str) -> HeadraceError:
    detail = f"{failure.detail} {why}" if failure.detail else why
    return HeadraceError(
        failure.code,
        failure.primary,
        f"No row is quarantined. {detail}",
        failure.hint,
        failure.span,
    )
