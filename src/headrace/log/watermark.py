"""Watermarks: a bound on event time, by the slowest active partition of a source.

The watermark is the least, over the partitions, of their newest event time less a delay. A
partition from which nothing has arrived for a while is idle, and not waited for. A row is *late* if
its time is before the watermark, less the allowed lateness.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Partitions: TypeAlias = "Sequence[str] | NDArray[np.object_]"
"""The partition of each of some rows."""
NEVER: Final = np.iinfo(np.int64).min
"""The event time of a row that has none."""


@dataclass(slots=True)
class Watermark:
    """The watermark of one stream, from the newest event time of each of its partitions.

    All times are in microseconds; event times may be before 1970. ``delay`` is subtracted from the
    newest event time; a partition without rows for ``idle`` is not waited for.
    """

    delay: int
    idle: int
    newest: dict[str, int] = field(default_factory=dict)
    heard: dict[str, int] = field(default_factory=dict)
    """When rows of each partition last arrived; missing partitions are idle."""

    def now(self, clock: int) -> int | None:
        """Return the watermark; None if no rows have arrived yet.

        If all partitions are idle, it is that of the most advanced one.
        """
        known = [self.newest[p] for p in self._active(clock) if p in self.newest]
        if known:
            return min(known) - self.delay
        newest = list(self.newest.values())
        return max(newest) - self.delay if newest else None

    def late(
        self,
        times: NDArray[np.int64],
        partitions: Partitions,
        allowed: int,
        clock: int,
    ) -> NDArray[np.bool_]:
        """Return a mask of the rows late by more than ``allowed``, given the rows before each.

        ``partitions`` has the partition of each row. The watermark does not change; see
        :meth:`advance`.
        """
        names, of = np.unique(np.array(partitions, object), return_inverse=True)
        active = self._active(clock) | set(names)
        low = np.full(len(times), np.iinfo(np.int64).max, np.int64)
        for name in active:
            newest = self.newest.get(name, NEVER)
            if name in names:
                own = np.where(of == np.flatnonzero(names == name)[0], times, NEVER)
                before = np.maximum.accumulate(np.concatenate([[newest], own[:-1]]))
            else:
                before = np.full(len(times), newest)
            low = np.where(before == NEVER, low, np.minimum(low, before))
        nothing = low == np.iinfo(np.int64).max
        bound = np.where(nothing, NEVER, low - (0 if nothing.all() else self.delay + allowed))
        found: NDArray[np.bool_] = (times != NEVER) & ~nothing & (times < bound)
        return found

    def advance(
        self, times: NDArray[np.int64], partitions: Partitions, clock: int
    ) -> dict[str, int]:
        """Advance by the times of appended rows; return the newest time by partition."""
        names, of = np.unique(np.array(partitions, object), return_inverse=True)
        found = {}
        for number, name in enumerate(names):
            self.heard[name] = clock
            newest = int(times[of == number].max())
            if newest > self.newest.get(name, NEVER):
                self.newest[name] = found[name] = newest
        return found

    def _active(self, clock: int) -> set[str]:
        # Copied first: other threads read while rows arrive.
        return {name for name, at in list(self.heard.items()) if clock - at < self.idle}
