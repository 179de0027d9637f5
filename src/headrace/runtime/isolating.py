"""Finding the rows on which the query of a view fails, by trials of a step.

The insertions that a step reads are put in an order. A trial steps the view over the first of them
and all retractions, and its results are discarded. So each state that is tried is a part of the
state after the step. Of the shortest beginning that fails, the last insertion is the one to refuse:
what is before it passes. The search goes on from there until everything passes, so a row is refused
only if the query fails with it and the rows before it.

If the query fails without any insertion, no row of the step is to blame.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import Code, HeadraceError
from headrace.runtime.quarantine import Guarded, Refusal, candidates_in, candidates_of
from headrace.runtime.rounds import remove_runs
from headrace.spine import LOWEST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from headrace.runtime.step import Report
    from headrace.types import ArrangementId


Trial: TypeAlias = "Callable[[Mapping[ArrangementId, Guarded]], Sequence[Report]]"
"""Steps a view with what its quarantines are to do, and returns the reports; raises as a step."""


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
    """Finds what the quarantines of one view have to refuse of one step.

    ``since`` is the clock of the step in microseconds; ``directory`` that of runs. At ``most`` so
    many rows are refused. ``begun`` is what the quarantines do in any case.
    """

    trial: Trial
    quarantines: tuple[ArrangementId, ...]
    since: int
    directory: Path
    most: int
    begun: Mapping[ArrangementId, Guarded] = field(default_factory=dict)
    trials: int = 0
    """How many trials were made."""
    _order: list[tuple[ArrangementId, int]] = field(default_factory=list)
    _refused: list[tuple[ArrangementId, Refusal]] = field(default_factory=list)

    def run(self, failure: HeadraceError) -> dict[ArrangementId, Guarded]:
        """Return what the quarantines have to do for the step to pass, which fails as a whole.

        Raises:
            HeadraceError: ``failure`` with a detail that says why, if that cannot be achieved.
        """
        self._order = self._candidates(failure)
        at, end, error = 0, len(self._order), failure
        while True:
            at, error = first_failing(self._fails, at, end, error)
            id_, hash_ = self._order[at - 1]
            if len(self._refused) == self.most:
                raise _not_quarantined(
                    failure, f"More than {self.most:,} rows of one step fail, which is the limit."
                )
            self._refused.append((id_, Refusal(hash_, error.primary, self.since)))
            found = self._fails(end)
            if found is None:
                return self._guards(None)
            error = found

    def _candidates(self, failure: HeadraceError) -> list[tuple[ArrangementId, int]]:
        """Return the insertions in order, from a trial that has none of them."""
        held = {
            id_: replace(self._before(id_), below=LOWEST, listed=True) for id_ in self.quarantines
        }
        try:
            reports = self._tried(held)
        except HeadraceError as error:
            if not may_be_of_data(error):
                raise
            raise _not_quarantined(
                failure, "It fails as well if no row is inserted, so no inserted row is to blame."
            ) from error
        found: list[tuple[ArrangementId, int]] = []
        for id_ in self.quarantines:
            of = candidates_of(id_)
            runs = [report.runs[of] for report in reports if of in report.runs]
            found += [(id_, hash_) for hash_ in candidates_in(self.directory, runs).tolist()]
        self._remove(reports)
        if not found:
            raise _not_quarantined(failure, "No row is inserted that could be left out.")
        return found

    def _fails(self, count: int) -> HeadraceError | None:
        """Return the error of a trial with the first insertions; None if it passes."""
        try:
            self._remove(self._tried(self._guards(count)))
        except HeadraceError as error:
            if not may_be_of_data(error):
                raise
            return error
        return None

    def _tried(self, guards: Mapping[ArrangementId, Guarded]) -> Sequence[Report]:
        self.trials += 1
        return self.trial(guards)

    def _remove(self, reports: Sequence[Report]) -> None:
        for report in reports:
            remove_runs(self.directory, report.runs.values())

    def _before(self, id_: ArrangementId) -> Guarded:
        return self.begun.get(id_, Guarded())

    def _guards(self, count: int | None) -> dict[ArrangementId, Guarded]:
        """Return what quarantines do with the first insertions; None is with all of them."""
        found = {}
        last = None if count is None or count == len(self._order) else self._order[count]
        held = False
        for id_ in self.quarantines:
            before = self._before(id_)
            refused = (*before.refused, *(r for of, r in self._refused if of == id_))
            below = LOWEST if held else None
            if last is not None and last[0] == id_:
                below, held = last[1], True
            found[id_] = replace(before, refused=refused, below=below)
        return found


def may_be_of_data(error: HeadraceError) -> bool:
    """Return whether the rows that a step reads may be the cause of its failure."""
    return error.code in (Code.INVALID, Code.INTERNAL)


def _not_quarantined(failure: HeadraceError, why: str) -> HeadraceError:
    detail = f"{failure.detail} {why}" if failure.detail else why
    return HeadraceError(
        failure.code,
        failure.primary,
        f"No row is quarantined. {detail}",
        failure.hint,
        failure.span,
    )
