"""The next times at which rows of views over the clock change; an idle database waits for them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.spine import Spine, earliest_due

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from headrace.runtime.ports import StepRunner
    from headrace.runtime.published import Published
    from headrace.types import Epoch, RelationId


def machine_clock() -> int:
    """Return the system time: microseconds since 1970, UTC."""
    return time.time_ns() // 1000


@dataclass(slots=True)
class Timetable:
    """Reads the first due times of the arrangements ordered by time, once per epoch."""

    directory: Path
    runner: StepRunner
    _known: tuple[Epoch, Mapping[RelationId, int]] | None = None

    def at(self, state: Published) -> Mapping[RelationId, int]:
        """Return the next due time, in microseconds, of each view that has one.

        All of them are after the clock of the epoch.
        """
        known = self._known
        if known is None or known[0] != state.epoch:
            known = self._known = (state.epoch, self._read(state))
        return known[1]

    def _read(self, state: Published) -> Mapping[RelationId, int]:
        found: dict[RelationId, int] = {}
        for view, kept in self.runner.temporal().items():
            for id_, layout in kept.items():
                runs = [run.file for run in state.spines.get(id_, ())]
                spine = Spine.open(self.directory / "runs", layout, runs)
                due = earliest_due(spine, state.clock)
                if due is not None:
                    found[view] = min(due, found.get(view, due))
        return found
