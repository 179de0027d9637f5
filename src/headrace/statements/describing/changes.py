"""EXPLAIN CHANGE: what a statement would do to each view, before it happens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.catalog import Table, View
from headrace.errors import unknown
from headrace.history.changes import in_effect
from headrace.history.trial_log import TrialLog
from headrace.parts.functions import users
from headrace.sql import Correct, Delete, Insert, Invalidate, Name, Truncate, Update
from headrace.statements.changing.corrections import Corrections, as_correction
from headrace.statements.changing.inserts import Inserts
from headrace.statements.changing.updates import Updates
from headrace.statements.checking.invalidations import invalidated
from headrace.statements.describing.definitions import DEFINITIONS
from headrace.statements.results import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headrace.engine.reading.queries import Queries
    from headrace.history.changes import Changes
    from headrace.history.slices import Slices
    from headrace.ledger import Carried, Ledger
    from headrace.parts.access import Principal
    from headrace.parts.functions import Functions
    from headrace.parts.log import Log
    from headrace.parts.reader import Reader
    from headrace.parts.snapshots import Snapshots
    from headrace.sql import ExplainChange
    from headrace.statements.describing.definitions import DefinitionChanges
    from headrace.statements.describing.definitions import Row as DefinitionRow
    from headrace.statements.results import Progress

CARRIED = ("view", "path", "rule", "rows", "changed", "rebuild_rows")
TYPES = dict.fromkeys(("rows", "changed", "rebuild_rows"), pa.int64())


@dataclass(frozen=True, slots=True)
class ChangeExplanations:
    """Explains changes: the rows of a statement are computed, tried and not kept."""

    reader: Reader
    ledger: Ledger
    snapshots: Snapshots
    log: Log
    queries: Queries
    slices: Slices
    functions: Functions
    changes: Changes
    definitions: DefinitionChanges
    principal: Principal
    report: Callable[[Progress], None]

    def explain(self, statement: ExplainChange) -> Result:
        """Return, for each view, what carries the change, why, and the rows that it touches."""
        target = statement.target
        match target:
            case Name():
                carried = self._of_function(target)
            case Invalidate():
                view = invalidated(self.reader.catalog, target)
                carried = self.changes.of_slice(view, self.slices.read(view, target.slice))
            case _ if isinstance(target, DEFINITIONS):
                shown = self._shown(self.definitions.of(target))
                return Result.of(CARRIED, shown, self.ledger.head.epoch, TYPES)
            case _:
                carried = self._of_rows(target)
        return Result.of(CARRIED, self._rows(carried), self.ledger.head.epoch, TYPES)

    def _rows(self, carried: Sequence[Carried]) -> list[tuple[Any, ...]]:
        names = self.reader.catalog.by_id
        return [
            (names[c.view].name, c.path.value, c.rule, c.cost, c.changed, c.whole)
            for c in carried
            if self.principal.sees(names[c.view].name)
        ]

    def _shown(self, found: Iterable[DefinitionRow]) -> list[tuple[Any, ...]]:
        return [
            (relation.name, how, why, None, None, whole)
            for relation, how, why, whole in found
            if self.principal.sees(relation.name)
        ]

    def _of_function(self, name: Name) -> list[Carried]:
        key, known = name.dotted, self.functions.records
        if key not in known:
            otherwise = "SHOW FUNCTIONS lists what exists."
            raise unknown("function", name, known, otherwise, name.span)
        calling = users(self.reader.catalog, key)
        return self.changes.of_function([view for view in calling if isinstance(view, View)])

    def _of_rows(self, target: Insert | Update | Delete | Truncate | Correct) -> list[Carried]:
        self.reader.settle_all()
        if isinstance(target, Delete):
            target = as_correction(self.reader.catalog, target) or target
        log = TrialLog.of(self.log)
        self._write(target, log)
        if not any(rows.num_rows for _, rows in log.taken):
            return []
        ((relation, rows),) = log.taken
        note = in_effect(relation, rows) if isinstance(relation, Table) else ""
        return self.changes.of_rows(relation, rows, note, corrects=isinstance(target, Correct))

    def _write(self, target: Insert | Update | Delete | Truncate | Correct, log: Log) -> None:
        match target:
            case Insert():
                Inserts(self.reader, self.snapshots, log, self.queries).insert(target)
            case Update():
                Updates(self.reader, self.snapshots, log).update(target)
            case Delete():
                Updates(self.reader, self.snapshots, log).delete(target)
            case Truncate():
                Updates(self.reader, self.snapshots, log).truncate(target)
            case Correct():
                Corrections(
                    self.reader,
                    self.snapshots,
                    log,
                    self.queries,
                    lambda stream, _progress: (stream, ()),
                    self.principal,
                    self.report,
                ).correct(target)
