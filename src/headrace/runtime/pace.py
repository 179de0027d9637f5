"""How fast a piece of work goes, and how long the rest of it takes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_MEANINGFUL_SECONDS: Final = 0.7
"""The seconds of work after which a rate is meaningful."""


@dataclass(slots=True)
class Pace:
    """The pace of one piece of work since its first report, without the time that it waited.

    ``clock`` returns monotonic seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _first: int | None = None
    """How much had been done at the first report; None before it."""
    _done: int = 0
    _seconds: float = 0.0
    """The seconds of work between the first and the last report."""
    _since: float | None = None
    """When it was last reported; None while it waits."""

    def report(self, done: int) -> None:
        """Record how much is done. If that is less than before, the work has begun again."""
        now = self.clock()
        if self._first is None or done < self._done:
            self._first, self._seconds = done, 0.0
        elif self._since is not None:
            self._seconds += now - self._since
        self._done, self._since = done, now

    def wait(self) -> None:
        """Record that nothing is done from now until the next report."""
        if self._since is not None:
            self._seconds += self.clock() - self._since
            self._since = None

    @property
    def rate(self) -> float | None:
        """How much was done per second of work; None until that is meaningful."""
        made = 0 if self._first is None else self._done - self._first
        if made <= 0 or self._seconds < _MEANINGFUL_SECONDS:
            return None
        return made / self._seconds

    def seconds_left(self, total: int | None) -> float | None:
        """Return the seconds that the rest takes at this rate; None if that is not known."""
        rate = self.rate
        if rate is None or total is None:
            return None
        gone = 0.0 if self._since is None else self.clock() - self._since
        return max(0.0, (total - self._done) / rate - gone)
