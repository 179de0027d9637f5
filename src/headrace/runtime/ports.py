"""What the runtime needs of the layers above it: protocols, and the values that cross them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.runtime.step import Report, Share, Step
    from headrace.types import ArrangementId, RelationId
    from headrace.zset import Layout


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What a step of some views needs: the inputs it reads, the arrangements it touches.

    ``globals`` names the operators that publish one row even over no input. ``shared`` are those
    of the arrangements that some operator reads as the contents of a relation.
    """

    reads: frozenset[RelationId]
    arrangements: Mapping[ArrangementId, Layout]
    globals: frozenset[str]
    shared: Mapping[ArrangementId, RelationId]


class StepRunner(Protocol):
    """Runs steps: one job for a connected set of views."""

    def plan_live(
        self, changed: frozenset[RelationId], without: frozenset[RelationId], partitions: int
    ) -> StepPlan:
        """Return what an epoch needs in which ``changed`` relations have changes.

        In those of them that are views, time passes.

        Views in ``without``, and those over them, are left out. The step is run in that many
        partitions, which need not be as many as wrote the runs.
        """
        ...

    def run_live(
        self, step: Step, changed: frozenset[RelationId], without: frozenset[RelationId]
    ) -> tuple[Report, ...]:
        """Run such an epoch's step; every run that it wrote is durable when this returns."""
        ...

    def temporal(self) -> Mapping[RelationId, Mapping[ArrangementId, Layout]]:
        """Return the arrangements by due time of the views whose rows come and go with time.

        The order of each layout begins with the time at which a row is due, in microseconds.
        """
        ...

    def plan_fill(self, view: RelationId) -> StepPlan:
        """Return what filling one view from what its inputs have stored needs."""
        ...

    def run_fill(self, step: Step, view: RelationId) -> tuple[Report, ...]:
        """Run one part of filling a view."""
        ...


class Reader(Protocol):
    """Evaluates queries by Spark over snapshots."""

    def select(self, query: str, shares: Mapping[RelationId, Share]) -> Any:
        """Return the answer as an Arrow table."""
        ...
