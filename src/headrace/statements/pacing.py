"""Adds rates and remaining times to the progress of statements."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.runtime.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.statements.results import Progress


@dataclass(slots=True)
class Paced:
    """Passes on the progress of one statement, with the pace of each piece of work in it.

    Time in which the statement waits does not count.
    """

    report: Callable[[Progress], None]
    clock: Callable[[], float] = time.monotonic
    _by_work: dict[str, Pace] = field(default_factory=dict)

    def __call__(self, made: Progress) -> None:
        """Pass on one report."""
        if not made.unit:
            for pace in self._by_work.values():
                pace.wait()
            self.report(made)
            return
        pace = self._by_work.setdefault(made.what, Pace(self.clock))
        pace.report(made.done)
        rate, left = pace.rate, pace.seconds_left(made.total)
        self.report(
            replace(
                made,
                rate=None if rate is None else round(rate, 3),
                seconds_left=None if left is None else round(left, 1),
            )
        )
