"""The statements about sinks that there are, for one client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sql import AlterSink, HandleSink, ReconcileSink
from headrace.statements.results import Result
from headrace.statements.sinks.handling import RECONCILED, SinkChanges

if TYPE_CHECKING:
    from headrace.ledger import Ledger
    from headrace.session.parts import Parts


@dataclass(frozen=True, slots=True)
class SinkStatements:
    """Runs them."""

    ledger: Ledger
    changes: SinkChanges

    @classmethod
    def of(cls, parts: Parts) -> SinkStatements:
        """Give them the parts of a database that they use."""
        changes = SinkChanges(parts.reader, parts.definer, parts.destinations, parts.sinks)
        return cls(parts.ledger, changes)

    def run(self, statement: HandleSink | AlterSink | ReconcileSink) -> Result:
        """Run one statement."""
        match statement:
            case HandleSink():
                message = self.changes.handle(statement)
            case AlterSink():
                message = self.changes.alter(statement)
            case ReconcileSink():
                rows = self.changes.reconcile(statement)
                return Result.of(RECONCILED, rows, self.ledger.head.epoch)
        return Result(None, self.ledger.head.epoch, message)
