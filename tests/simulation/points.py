"""Points that processes of a simulation reach, and the troubles that wait for them there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from runtime.crashing import Crash

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

STAGES: Final = (
    *("step", "stepped", "commit", "after commit", "publish"),
    *("fill", "catch up", "take over", "refresh", "refreshed", "refresh follows"),
    *("replace", "replaced", "merged", "swept", "sink", "sink written"),
    *("log merged", "log exchanged"),
)
"""The stages of the runtime at which something else may happen: in all others, a transaction is open,
for whose end others wait."""

REQUESTS: Final = ("put runs", "put log", "delete runs", "delete log", "list", "fetch")
"""The requests to a store."""

COMMIT: Final = "commit of the ledger"
BEGIN: Final = "begin of the ledger"
"""What a process asks of the ledger's server."""

CRASHES: Final = "crashes"
"""The process ends before it has done anything more."""
LOSES_MACHINE: Final = "crashes and loses its machine"
"""With its disk, if files are in a store; else all that was not synced."""
CRASHES_AFTERWARDS: Final = "is done and crashes"
FAILS: Final = "fails"
IS_LOST: Final = "is done and fails"
"""The acknowledgement is lost."""
IS_LATE: Final = "fails and is done later"
GOES_AWAY: Final = "fails as all that follow"
IS_LOST_AND_AWAY: Final = "is done and fails as all that follow"
"""Until the end of the step."""
IS_SLOW: Final = "is slow"
"""Something else happens first: a step of this or of another process."""


class Trouble(NamedTuple):
    """What goes wrong at the ``count``-th time, from 1, that a point is reached in a step.

    ``meanwhile`` names the step that happens there if it is slow.
    """

    point: str
    count: int
    effect: str
    meanwhile: str = ""


@dataclass(slots=True, eq=False)
class Life:
    """Whether a process is alive: one that has crashed has no effect any more.

    Its exceptions still pass through its blocks, which would remove files that a real one leaves.
    """

    name: str
    ended: bool = False
    machine_lost: bool = False
    takes: bool = False
    """Whether its next commit makes it the one that writes."""

    def end(self, where: str, *, machine: bool = False) -> None:
        """End the process here; with ``machine``, its machine too."""
        self.ended, self.machine_lost = True, machine
        raise Crash(where)

    def require(self) -> None:
        """End again what has ended already."""
        if self.ended:
            raise Crash("ended before")


@dataclass(slots=True)
class Points:
    """The points that are reached in a step, and the troubles of that step.

    ``slow`` does what happens meanwhile. ``trace`` has all that was reached in the history.
    """

    slow: Callable[[str, str], None]
    troubles: list[Trouble] = field(default_factory=list)
    reached: Counter[str] = field(default_factory=Counter)
    away: set[str] = field(default_factory=set)
    trace: list[str] = field(default_factory=list)
    met: bool = False
    """Whether a trouble was met in this step."""

    def begin(self, troubles: Sequence[Trouble]) -> None:
        """Begin a step."""
        self.troubles = list(troubles)
        self.reached.clear()
        self.away.clear()
        self.met = False

    def end(self) -> None:
        """End a step: what has not been met is forgotten, and everything answers again."""
        self.begin(())

    def effect(self, point: str) -> str:
        """Note that a point is reached; return what goes wrong there, empty for nothing."""
        self.reached[point] += 1
        self.trace.append(point)
        for trouble in self.troubles:
            if trouble.point == point and trouble.count == self.reached[point]:
                self.troubles.remove(trouble)
                self.met = True
                if trouble.effect != IS_SLOW:
                    return trouble.effect
                self.slow(point, trouble.meanwhile)
        return ""
