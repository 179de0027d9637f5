"""Runs many cases; failures are shrunk and written down, and the search goes on."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from generator.cases import Case, random_case
from generator.coverage import Coverage
from generator.execution import Failure, Player, Verdict
from generator.files import written
from generator.shrinking import SECONDS, Shrinker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

REGRESSIONS = Path(__file__).parent / "regressions"

VIEWS = 8
"""Views per case: they share its epochs."""

PARTED = 4
"""Every so many seeds, a case is played with all steps in all partitions."""

_SHRUNK = 2
"""How many failures of one sort are worth the time."""


@dataclass(slots=True)
class Result:
    """What became of the cases, and how many defects of which sort they show."""

    coverage: Coverage = field(default_factory=Coverage)
    failures: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Result) -> Result:
        return Result(self.coverage + other.coverage, self.failures + other.failures)


@dataclass(slots=True)
class Search:
    """Plays random cases, adding up what happened."""

    player: Player
    report: Callable[[str], None]
    seconds: float = SECONDS
    directory: Path = REGRESSIONS
    result: Result = field(default_factory=Result)

    def run(self, seeds: Iterable[int], pairs: int, views: int = VIEWS) -> None:
        """Play the cases of some seeds until so many views were tried."""
        for seed in seeds:
            if self.result.coverage.views >= pairs:
                break
            case = random_case(seed, min(views, pairs - self.result.coverage.views))
            self.player.parted = seed % PARTED == 0
            try:
                found = self.player.run(case)
            except Exception as error:  # noqa: BLE001  (one case that breaks is not the end)
                self._broken(seed, case, error)
                continue
            self.result.coverage.add(case, found)
            for failure in found.failures:
                self._record(seed, case, failure)
            self.report(f"seed {seed}: {self.result.coverage.line()}")

    def _broken(self, seed: int, case: Case, error: Exception) -> None:
        """Count a case that could not be played at all."""
        self.result.failures[f"not played: {type(error).__name__}"] += 1
        self.result.coverage.verdicts[Verdict.FAILED] += len(case.views)
        self.report(f"seed {seed}: {Verdict.FAILED}: {error!r}")

    def _record(self, seed: int, case: Case, failure: Failure) -> None:
        self.result.failures[failure.sort] += 1
        self.report(
            f"seed {seed}, {failure.view}: {Verdict.FAILED}: {failure.sort}\n{failure.text}"
        )
        if self.result.failures[failure.sort] > _SHRUNK:
            return
        shrinker = Shrinker(self.player, failure, self.seconds)
        small = shrinker.shrink(case)
        view = re.sub(r"\W+", "-", failure.view or "all")
        path = self.directory / f"seed-{seed}-{view}.txt"
        text = written(small, f"seed {seed}: {failure.sort}")
        path.write_text(text, encoding="utf-8")
        self.report(f"shrunk in {shrinker.tried} runs, in {path}:\n{text}")
