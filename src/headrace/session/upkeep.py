"""The statements that check what is stored, and that have it repaired, for one client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.history.marking import Marking
from headrace.history.slices import Slices
from headrace.sql import (
    ExplainChange,
    ExplainReplay,
    ExplainRow,
    Invalidate,
    Reconcile,
    Repair,
    Replay,
    Verify,
)
from headrace.statements.checking.invalidations import Invalidations
from headrace.statements.checking.reconciliations import Reconciliations
from headrace.statements.checking.repairs import Repairs
from headrace.statements.checking.replays import ReplayStatements
from headrace.statements.checking.verifications import Verifications
from headrace.statements.describing.changes import ChangeExplanations
from headrace.statements.describing.definitions import DefinitionChanges
from headrace.statements.results import Result

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.ledger import Ledger
    from headrace.parts.access import Principal
    from headrace.parts.snapshots import Snapshots
    from headrace.session.parts import Parts
    from headrace.statements.results import Progress


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Runs them."""

    ledger: Ledger
    verifications: Verifications
    reconciliations: Reconciliations
    repairs: Repairs
    replays: ReplayStatements
    invalidations: Invalidations
    changes: ChangeExplanations

    @classmethod
    def of(
        cls,
        parts: Parts,
        snapshots: Snapshots,
        principal: Principal,
        report: Callable[[Progress], None],
    ) -> Upkeep:
        """Give each of them the parts of a database that it uses."""
        slices = Slices(parts.reader, parts.engine, snapshots)
        marking = Marking(parts.ledger, parts.loop, parts.engine)
        return cls(
            parts.ledger,
            Verifications(parts.reader, parts.comparing, report),
            Reconciliations(parts.reader, parts.reconciling, principal, report),
            Repairs(
                parts.reader,
                parts.ledger,
                parts.loop,
                parts.pump,
                parts.repairing,
                parts.definer,
                report,
            ),
            ReplayStatements(
                parts.reader,
                slices,
                parts.replays,
                parts.sources_of_rows,
                parts.repairing,
                report,
            ),
            Invalidations(parts.reader, parts.loop, slices, marking, parts.changes, principal),
            ChangeExplanations(
                parts.reader,
                parts.ledger,
                snapshots,
                parts.log,
                parts.queries,
                slices,
                parts.functions,
                parts.changes,
                DefinitionChanges(parts.reader, parts.pump.compaction.retirement, parts.changes),
                principal,
                report,
            ),
        )

    def run(
        self,
        statement: Verify
        | Reconcile
        | Repair
        | Replay
        | ExplainReplay
        | ExplainRow
        | Invalidate
        | ExplainChange,
    ) -> Result:
        """Run one statement."""
        match statement:
            case Verify():
                rows = self.verifications.verify(statement.name)
                return Result.of(
                    ("view", "rows", "differences", "verdict"), rows, self.ledger.head.epoch
                )
            case Reconcile():
                return self.reconciliations.reconcile(statement)
            case Repair():
                done = self.repairs.repair(statement.name)
                if not done:
                    return Result(
                        None,
                        self.ledger.head.epoch,
                        "nothing is damaged or dirty, and no view has stopped",
                    )
                return Result.of(("relation", "found", "done"), done, self.ledger.head.epoch)
            case Replay() | ExplainReplay() | ExplainRow():
                return self.replays.run(statement)
            case Invalidate():
                message = self.invalidations.invalidate(statement)
                return Result(None, self.ledger.head.epoch, message)
            case ExplainChange():
                return self.changes.explain(statement)
