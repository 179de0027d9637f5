"""The result of a fill, as the commit that publishes it needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.ledger import EpochCommit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.ledger import NewRun, Read
    from headrace.types import ArrangementId, Epoch, FrontierId
    from headrace.zset import Layout


@dataclass(frozen=True, slots=True)
class Filled:
    """The runs of a filled view, not yet in the ledger, and the point where they join epochs."""

    previous: Epoch
    reads: tuple[Read, ...]
    runs: tuple[NewRun, ...]
    layouts: Mapping[ArrangementId, Layout]
    """The layouts of the view's own arrangements."""
    rows: int
    caught_up: tuple[FrontierId, ...] = ()
    """The frontier that moves to this epoch, if it is not that of the epochs."""
    clock: int = 0
    quarantines: frozenset[ArrangementId] = frozenset()
    """The quarantines among the view's own arrangements."""
    taken_over: int = 0
    """The number of rows of other views' state that were read or copied in place of inputs."""

    def runs_of(self, id_: ArrangementId) -> tuple[NewRun, ...]:
        """Return the runs of one arrangement."""
        return tuple(run for run in self.runs if run.arrangement == id_)

    def change(
        self, runs: tuple[NewRun, ...], clock: int | None, verb: str, name: str
    ) -> EpochCommit:
        """Return the commit of an epoch that adds runs, and joins epochs at this point.

        The epoch's counters say that the relation of this name was, for example, ``filled``.
        """
        taken = {"taken_over": self.taken_over} if self.taken_over else {}
        return EpochCommit(
            self.previous,
            uuid4().hex,
            self.reads,
            runs,
            caught_up=self.caught_up,
            counters={verb: name, "changes": self.rows, **taken},
            clock=clock,
        )
