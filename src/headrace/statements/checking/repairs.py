"""REPAIR: rebuilds damaged relations and stopped views; recomputes dirty slices.

Rows in quarantine are retried by filling another build of their view.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import View
from headrace.catalyst.fence import REGISTER
from headrace.parts.naming import shown_name
from headrace.runtime.published import STOPPED, WAITING
from headrace.statements.checking.rebuilds import is_marked
from headrace.statements.results import Listed

if TYPE_CHECKING:
    from headrace.catalog import Table
    from headrace.parts.reader import Reader
    from headrace.sql import Repair
    from headrace.statements.checking.rebuilds import Rebuilds, Row
    from headrace.statements.checking.retries import Retries


@dataclass(frozen=True, slots=True)
class Repairs:
    """Repairs relations."""

    reader: Reader
    rebuilds: Rebuilds
    retries: Retries

    def repair(self, statement: Repair) -> str | Listed:
        """Repair a relation with its inputs, or all relations; list problems and actions."""
        scope, stopped, rows = self.rebuilds.rebuild(statement.name)
        rows += self.retries.retry([each for each in scope if each.id not in stopped])
        rows += self.retries.recompute({relation.id for relation in scope})
        rows += self._waiting(scope)
        if not rows:
            return "nothing is damaged or dirty, and no view has stopped"
        return Listed(("relation", "found", "done"), rows)

    def _waiting(self, scope: list[Table | View]) -> list[Row]:
        """List the views that wait for a function; only registering the function resumes them."""
        ledger = self.reader.ledger
        wait = {e.view: e.detail for e in ledger.head.dirty if e.cause == WAITING}
        return [
            (
                shown_name(view, self.reader.catalog),
                "stopped",
                f"still waiting: {wait[view.id]} {REGISTER}",
            )
            for view in scope
            if isinstance(view, View) and view.id in wait and not is_marked(ledger, view, STOPPED)
        ]
