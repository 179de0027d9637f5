"""What the runtime needs of the layers above it: protocols, and the values that cross them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from headrace.runtime.step import Report, Share, Step
    from headrace.types import ArrangementId, Epoch, RelationId
    from headrace.zset import Layout, ZSet


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """A recursion of a view, and where a step puts what the next round and the end must know.

    ``handed`` are the rows that have changed; the next round takes them. Rows in ``beyond`` are of
    the level ``limit``, on which there must be none at the end.
    """

    view: RelationId
    handed: ArrangementId
    beyond: ArrangementId
    layout: Layout
    limit: int


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What a step of some views needs: the inputs it reads, the arrangements it touches.

    ``globals`` names the operators that publish one row even over no input. ``shared`` are those
    of the arrangements that some operator reads as the contents of a relation. ``loops`` are the
    recursions that the step has; what is arranged for them is not among ``arrangements``.
    """

    reads: frozenset[RelationId]
    arrangements: Mapping[ArrangementId, Layout]
    globals: frozenset[str]
    shared: Mapping[ArrangementId, RelationId]
    loops: tuple[LoopPlan, ...] = ()


class StepRunner(Protocol):
    """Runs steps: one job for a connected set of views."""

    def plan_live(
        self,
        changed: frozenset[RelationId],
        without: frozenset[RelationId],
        partitions: int,
        looping: frozenset[RelationId] = frozenset(),
    ) -> StepPlan:
        """Return what an epoch needs in which ``changed`` relations have changes.

        In those of them that are views, time passes.

        Views in ``without``, and those over them, are left out. The step is run in that many
        partitions, which need not be as many as wrote the runs. The recursions of views in
        ``looping`` take what the round before has handed to them.
        """
        ...

    def run_live(
        self,
        step: Step,
        changed: frozenset[RelationId],
        without: frozenset[RelationId],
        looping: frozenset[RelationId] = frozenset(),
    ) -> tuple[Report, ...]:
        """Run such an epoch's step; every run that it wrote is durable when this returns."""
        ...

    def temporal(self) -> Mapping[RelationId, Mapping[ArrangementId, Layout]]:
        """Return the arrangements by due time of the views whose rows come and go with time.

        The order of each layout begins with the time at which a row is due, in microseconds.
        """
        ...

    def plan_fill(self, view: RelationId, partitions: int, *, looping: bool = False) -> StepPlan:
        """Return what filling one view from what its inputs have stored needs.

        The steps are run in that many partitions. With ``looping``, it is what a round of its
        recursions needs, without inputs.
        """
        ...

    def run_fill(
        self, step: Step, view: RelationId, *, looping: bool = False
    ) -> tuple[Report, ...]:
        """Run one part of filling a view, or a round of it."""
        ...


class Changelog(Protocol):
    """A view's or table's contents and changes, by epoch."""

    def whole(self, epoch: Epoch) -> pa.Table:
        """Return all rows at an epoch, each as often as it is there."""
        ...

    def changes(self, after: Epoch, upto: Epoch) -> Iterator[tuple[Epoch, ZSet]]:
        """Yield the consolidated change of each epoch in ``(after, upto]`` that has one."""
        ...


class SinkWriter(Protocol):
    """Takes a view's changelog to where it is wanted."""

    @property
    def guarantee(self) -> str:
        """How often a change can take effect, in words."""
        ...

    def write(self, epoch: Epoch, changes: pa.Table) -> None:
        """Make the changes of one epoch last: rows, each with its ``__weight``.

        Epochs come in order. After a crash, the last one may come again, and is the same.
        """
        ...


class Reader(Protocol):
    """Evaluates queries by Spark over snapshots."""

    def select(self, query: str, shares: Mapping[RelationId, Share]) -> Any:
        """Return the answer as an Arrow table."""
        ...
