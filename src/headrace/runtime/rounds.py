"""Rounds: a step of recursive views is followed by others, until no recursion has changed.

In each round, a recursion takes what it changed by in the round before; its inputs have no more
changes. A round is a step like any other: what was before it is what was before the epoch, plus
what earlier rounds of the same attempt wrote. Nothing of them counts before the one commit.

After round ``k`` every operator has the value of its inputs with ``r(k) = start + step(r(k-1))``
for the recursion: rows that a query could have, none of them a negative number of times.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.runtime.step import Arranged, Clock, Report, Step
from headrace.spine import RunFile, Spine, merge, sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from headrace.runtime.ports import LoopPlan
    from headrace.types import ArrangementId, RelationId
    from headrace.zset import Layout

_SCAN_ROWS = 1 << 18

Files = dict["ArrangementId", list[RunFile]]


@dataclass(slots=True)
class Rounds:
    """What the recursions of one attempt hand from round to round. ``runs`` is where runs are.

    ``most_rows`` is how many changed rows all rounds together may hand on.
    """

    runs: Path
    loops: tuple[LoopPlan, ...]
    most_rows: int
    count: int = 0
    """How many rounds there were after the first step."""
    _handed: Files = field(default_factory=lambda: defaultdict(list))
    _spent: list[RunFile] = field(default_factory=list)
    _beyond: Files = field(default_factory=lambda: defaultdict(list))
    _rows: int = 0

    def take(self, reports: Iterable[Report]) -> tuple[Report, ...]:
        """Keep what is handed on; return the reports with only the runs that are to stay."""
        handed = {loop.handed for loop in self.loops}
        beyond = {loop.beyond for loop in self.loops}
        kept = []
        for report in reports:
            staying = dict(report.runs)
            for id_, file in report.runs.items():
                if id_ in handed:
                    self._handed[id_].append(staying.pop(id_))
                    self._rows += file.rows
                elif id_ in beyond:
                    self._beyond[id_].append(staying.pop(id_))
            kept.append(replace(report, runs=staying))
        if self._rows > self.most_rows:
            raise HeadraceError(
                Code.INVALID,
                f"a recursive WITH changed by more than {self.most_rows:,} rows at once",
                hint=_HINT,
            )
        return tuple(kept)

    def looping(self) -> frozenset[RelationId]:
        """Return the views whose recursions go on; none when all is done."""
        return frozenset(loop.view for loop in self.loops if self._handed.get(loop.handed))

    @property
    def rows(self) -> int:
        """How many changed rows the next round takes."""
        return sum(file.rows for files in self._handed.values() for file in files)

    def next_step(self, first: Step, before: Mapping[ArrangementId, Arranged]) -> Step:
        """Return the step of the next round; ``before`` is what all rounds so far have left."""
        self.count += 1
        taken = arranged_for(self.loops, self._handed)
        self._spent += [file for files in self._handed.values() for file in files]
        self._handed.clear()
        return replace(
            first,
            attempt=f"{first.attempt}.{self.count}",
            shares={},
            arrangements={**before, **taken},
            initialise=frozenset(),
            clock=Clock(first.clock.after, first.clock.after),
        )

    def finish(self) -> None:
        """Check that no recursion went on for too long, and remove what was handed on."""
        for loop in self.loops:
            spine = Spine.open(self.runs, loop.layout, self._beyond.get(loop.beyond, ()))
            if next(spine.scan(_SCAN_ROWS), None) is not None:
                raise HeadraceError(
                    Code.INVALID,
                    f"a recursive WITH reached its limit of {loop.limit} levels",
                    detail="Rows that lead to themselves again would go on for ever.",
                    hint=_HINT,
                )
        remove_runs(self.runs, self._spent)
        for files in self._beyond.values():
            remove_runs(self.runs, files)


_HINT = "Take the cycle out of the data, or allow for more by MAX RECURSION LEVEL n."


def arranged_for(
    loops: Iterable[LoopPlan], handed: Mapping[ArrangementId, list[RunFile]]
) -> dict[ArrangementId, Arranged]:
    """Return what recursions find before a step: what is handed to them, and nothing beyond."""
    found: dict[ArrangementId, Arranged] = {}
    for loop in loops:
        found[loop.handed] = Arranged(loop.layout, tuple(handed.get(loop.handed, ())))
        found[loop.beyond] = Arranged(loop.layout, ())
    return found


@dataclass(slots=True)
class Written:
    """The reports of all rounds of an attempt, and the runs that they wrote."""

    runs: Path
    reports: list[Report] = field(default_factory=list)
    _files: Files = field(default_factory=lambda: defaultdict(list))

    def add(self, reports: Iterable[Report]) -> None:
        """Add what one round did."""
        for report in reports:
            self.reports.append(report)
            for id_, file in report.runs.items():
                self._files[id_].append(file)

    def after(self, before: Mapping[ArrangementId, Arranged]) -> dict[ArrangementId, Arranged]:
        """Return arrangements as they are after the rounds so far."""
        return {
            id_: Arranged(a.layout, (*a.runs, *self._files.get(id_, ())))
            for id_, a in before.items()
        }

    def merged(self, layouts: Mapping[ArrangementId, Layout]) -> tuple[Report, ...]:
        """Return the reports with one run for each arrangement: the sum of what all rounds wrote.

        It stands in the report that wrote to the arrangement last.
        """
        sums = {id_: self._sum(layouts[id_], files) for id_, files in self._files.items()}
        found = []
        for report in reversed(self.reports):
            own = {id_: file for id_ in report.runs if (file := sums.pop(id_, None)) is not None}
            found.append(replace(report, runs=own))
        sync_directory(self.runs)
        return tuple(reversed(found))

    def _sum(self, layout: Layout, files: list[RunFile]) -> RunFile | None:
        if len(files) == 1:
            return files[0]
        total = merge(self.runs, layout, files)
        remove_runs(self.runs, files)
        return total


def remove_runs(directory: Path, files: Iterable[RunFile]) -> None:
    """Delete files that the ledger does not name."""
    for file in files:
        (directory / file.name).unlink(missing_ok=True)
