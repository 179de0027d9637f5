"""The stages of an epoch, as data, and what performs them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from headrace.execution.runtime.attempt import Width

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from threading import Event

    import pyarrow as pa

    from headrace.algebra.spine import RunFile
    from headrace.execution.runtime.attempt import Attempt, Widths
    from headrace.execution.runtime.cancelling import StatementLock
    from headrace.execution.runtime.ports import LoopPlan, StepRunner
    from headrace.execution.runtime.published import Publisher
    from headrace.execution.runtime.quarantine import Guarded
    from headrace.execution.runtime.settings import RuntimeSettings
    from headrace.execution.runtime.step import Clock, Step
    from headrace.planning.catalog import Catalog
    from headrace.storage.ledger import Ledger, OffsetRange, Read
    from headrace.types import ArrangementId, Epoch, RelationId


@dataclass(frozen=True, slots=True)
class Poll:
    """The inputs of one epoch: the changes of each relation that has any, and the clock.

    ``due`` are the views whose rows change by the clock alone. If it is ``narrow``, no wide step is
    run: one that turns out to be wide is undone. If ``apart``, each connected set has its own step.
    """

    previous: Epoch
    ranges: Mapping[RelationId, OffsetRange]
    clock: Clock
    due: frozenset[RelationId]
    narrow: bool = False
    apart: bool = False


@dataclass(frozen=True, slots=True)
class RunStep:
    """Run the step of one connected set of views.

    ``changed`` are the inputs with changes, and the views whose rows change by the clock; views in
    ``without`` are not maintained; the deltas ``given`` of views are among the step's shares.
    The step is repeated until the recursions in ``loops`` do not change any more.
    """

    step: Step
    changed: frozenset[RelationId]
    without: frozenset[RelationId]
    loops: tuple[LoopPlan, ...]
    previous: Epoch
    given: Mapping[RelationId, tuple[RunFile, ...]] = field(default_factory=dict)
    scanned: int = 0
    """How many rows of shares it reads, each as often as it is read."""
    guards: frozenset[ArrangementId] = frozenset()
    """The quarantines that its rows pass through."""
    width: Width = Width.MANY_CHANGES
    narrow: bool = False
    """Whether it is only undone if it turns out to be wide."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit everything that the attempt wrote; views in ``without`` were not stepped."""

    previous: Epoch
    attempt: str
    reads: tuple[Read, ...]
    clock: int
    without: frozenset[RelationId] = frozenset()


@dataclass(frozen=True, slots=True)
class Publish:
    """Show readers the new epoch."""


Stage = RunStep | Commit | Publish


class Performer(Protocol):
    """Plans and runs the steps of one database: the loop of its epochs."""

    ledger: Ledger
    runner: StepRunner
    settings: RuntimeSettings
    published: Publisher
    lock: StatementLock
    closing: Event
    widths: Widths

    @property
    def fault(self) -> Callable[[str], None]:
        """Called with the name of each stage: tests fail there."""
        ...

    @property
    def row_text(self) -> Callable[[pa.Table], str]:
        """Returns a table of one row as errors show it."""
        ...

    @property
    def runs(self) -> Path:
        """The directory of runs."""
        ...

    @property
    def catalog(self) -> Catalog:
        """The current relations."""
        ...

    def left_out(self) -> frozenset[RelationId]:
        """Return the views that the next epoch does not maintain."""
        ...

    def step(
        self,
        name: str,
        poll: Poll,
        changed: frozenset[RelationId],
        without: frozenset[RelationId],
        guards: Mapping[ArrangementId, Guarded],
    ) -> RunStep:
        """Return the step of some changed relations."""
        ...

    def partitions_for(self, rows: int) -> int:
        """Return the number of partitions of jobs that read this many rows."""
        ...

    def run_step(self, stage: RunStep, attempt: Attempt) -> None:
        """Run a step, and the further rounds that its recursions need."""
        ...
