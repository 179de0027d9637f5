"""The next times at which rows of views over the clock change; an idle database waits for them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.runtime.shares import arranged
from headrace.spine import Spine, earliest_due

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from headrace.ledger import Ledger
    from headrace.runtime.ports import StepRunner
    from headrace.types import Epoch, RelationId


def machine_clock() -> int:
    """Return the system time: microseconds since 1970, UTC."""
    return time.time_ns() // 1000


@dataclass(slots=True)
class Timetable:
    """Reads the first due times of the arrangements ordered by time, once per epoch."""

    directory: Path
    ledger: Ledger
    runner: StepRunner
    _known: tuple[Epoch, Mapping[RelationId, int]] | None = None

    def at(self, epoch: Epoch) -> Mapping[RelationId, int]:
        """Return the next due time, in microseconds, of each view that has one.

        All of them are after the clock of the epoch, which the caller must keep readable.
        """
        if self._known is None or self._known[0] != epoch:
            self._known = (epoch, self._read(epoch))
        return self._known[1]

    def _read(self, epoch: Epoch) -> Mapping[RelationId, int]:
        found: dict[RelationId, int] = {}
        temporal = self.runner.temporal()
        layouts = {id_: layout for kept in temporal.values() for id_, layout in kept.items()}
        if not layouts:
            return found
        clock, spines = self.ledger.clock(epoch), arranged(self.ledger, layouts, epoch)
        for view, kept in temporal.items():
            for id_, layout in kept.items():
                spine = Spine.open(self.directory / "runs", layout, spines[id_].runs)
                due = earliest_due(spine, clock)
                if due is not None:
                    found[view] = min(due, found.get(view, due))
        return found
