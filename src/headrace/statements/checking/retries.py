"""The part of REPAIR beside epochs: retries quarantined rows, recomputes dirty slices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.catalog import View
from headrace.errors import Code, HeadraceError
from headrace.parts.naming import shown_name
from headrace.parts.quarantined import quarantined_count
from headrace.runtime.dirty import awaiting_refresh
from headrace.statements.results import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from headrace.catalog import Table
    from headrace.history.repairing import Repairing
    from headrace.ledger import Dirty, Ledger
    from headrace.parts.definer import Definer
    from headrace.parts.reader import Reader
    from headrace.runtime.fill import Progress as FillProgress
    from headrace.statements.checking.rebuilds import Row
    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class Retries:
    """Repairs views while their present rows stay readable."""

    reader: Reader
    ledger: Ledger
    definer: Definer
    repairing: Repairing
    report: Callable[[Progress], None]

    def retry(self, scope: Iterable[Table | View]) -> list[Row]:
        """Fill another build of each view with rows in quarantine, and swap it in."""
        rows = []
        for view in (each for each in scope if isinstance(each, View)):
            before = self._quarantined(view)
            if not before:
                continue
            another = replace(view, replacement=self.definer.new_build())
            try:
                progress = self._progress(f"filling {view.name}")
                epoch = self.definer.replace_view(view, self.definer.planned(another), progress)
                left = self._quarantined(another) or 0
                done = f"tried again in epoch {epoch}: {left:,} still in quarantine"
            except HeadraceError as error:
                if error.code not in (Code.INVALID, Code.CONFLICT, Code.UNSUPPORTED):
                    raise
                done = f"not tried again: {error.primary}"
            rows.append((shown_name(view, self.reader.catalog), f"{before:,} in quarantine", done))
        return rows

    def _quarantined(self, view: View) -> int | None:
        reader = self.reader
        return quarantined_count(self.ledger, reader.directory, reader.published, view)

    def recompute(self, scope: Collection[RelationId]) -> list[Row]:
        """Recompute the dirty slices of views, and list views that wait for a refresh."""
        by_id = self.reader.catalog.by_id
        wanted = [e.id for e in self.ledger.head.dirty if e.view in scope and e.id is not None]
        done = self.repairing.repair(
            wanted, lambda entry: self._progress(f"recomputing {by_id[entry.view].name}")
        )
        rows = []
        for each in done:
            name, found = by_id[each.entry.view].name, _problem(each.entry)
            if isinstance(each.done, HeadraceError):
                did = f"still dirty: {each.done.primary}"
            else:
                read, changed = each.done.read, each.done.changed
                did = (
                    f"recomputed from {read:,} rows in epoch {each.done.epoch}: {changed:,} changes"
                )
            rows.append((name, found, did))
        for entry, late in awaiting_refresh(self.ledger.head.dirty, self.reader.catalog):
            if entry.view in scope:
                names = ", ".join(view.name for view in late)
                did = f"still dirty: REFRESH {names} reads what was repaired below"
                rows.append((by_id[entry.view].name, _problem(entry), did))
        return rows

    def _progress(self, what: str) -> FillProgress:
        return lambda done, total: self.report(Progress(what, done, total, "rows"))


def _problem(entry: Dirty) -> str:
    where = f", {entry.slice.where}" if entry.slice.where else ""
    return f"dirty: {entry.cause}{where}"
