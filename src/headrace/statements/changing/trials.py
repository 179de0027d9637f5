"""The rows that a statement would write: it runs on a log that records but appends nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from headrace.history.trial_log import TrialAmending, TrialLog
from headrace.sql import Correct, Delete, Insert, Truncate, Update
from headrace.statements.changing.corrections import Corrections, as_correction
from headrace.statements.changing.inserts import Inserts
from headrace.statements.changing.updates import Updates

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from headrace.catalog import Stream, Table
    from headrace.history.amending import Amending
    from headrace.parts.access import Principal
    from headrace.parts.log import Log
    from headrace.parts.reader import Reader
    from headrace.parts.snapshots import Snapshots
    from headrace.statements.results import Progress

RowChange: TypeAlias = Insert | Update | Delete | Truncate | Correct


@dataclass(frozen=True, slots=True)
class Trials:
    """Runs statements that change rows without effect."""

    reader: Reader
    snapshots: Snapshots
    log: Log
    amending: Amending
    principal: Principal
    report: Callable[[Progress], None]

    def written(self, statement: RowChange) -> tuple[Stream | Table, pa.Table] | None:
        """Return the relation and the changes that a statement would append; None without changes.

        An epoch with all earlier changes is made first.
        """
        self.reader.settle_all()
        log = TrialLog.of(self.log)
        updates = Updates(self.reader, self.snapshots, log)
        if isinstance(statement, Delete):
            statement = as_correction(self.reader.catalog, statement) or statement
        match statement:
            case Insert():
                Inserts(self.reader, self.snapshots, log).insert(statement)
            case Update():
                updates.update(statement)
            case Delete():
                updates.delete(statement)
            case Truncate():
                updates.truncate(statement)
            case Correct():
                Corrections(
                    self.reader,
                    self.snapshots,
                    log,
                    TrialAmending.of(self.amending),
                    self.principal,
                    self.report,
                ).correct(statement)
        if not any(rows.num_rows for _, rows in log.taken):
            return None
        ((relation, rows),) = log.taken
        return relation, rows
