"""``RECONCILE``, ``SHOW RECONCILIATION`` and ``SHOW EVIDENCE``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headrace.catalog import PlainView, View
from headrace.errors import Code, HeadraceError
from headrace.parts.naming import shown_name
from headrace.parts.sampling import SLICE_ROWS
from headrace.sql import Listing
from headrace.statements.results import Progress, Result

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.parts.access import Principal
    from headrace.parts.reader import Reader
    from headrace.parts.reconciling import Compared, Reconciling
    from headrace.sql import Name, Reconcile, Show

_COMPARED: Final = ("view", "rows", "differences", "covered", "wrong_at_most", "verdict")
_ROUNDS: Final = (
    "view", "samples", "compared", "wrong", "rounds", "covered", "wrong_at_most", "last_compared",
)  # fmt: skip
_EVIDENCE: Final = (
    "view", "found_at", "epoch", "slice", "differences", "expected", "found", "inputs", "circuit",
    "outcome",
)  # fmt: skip
_TYPES: Final = {
    **dict.fromkeys(("rows", "differences", "samples", "compared", "wrong"), pa.int64()),
    **dict.fromkeys(("rounds", "epoch"), pa.int64()),
    **dict.fromkeys(("covered", "wrong_at_most"), pa.float64()),
}


@dataclass(frozen=True, slots=True)
class Reconciliations:
    """Compares samples of views when asked to, and lists what was compared and found."""

    reader: Reader
    reconciling: Reconciling
    principal: Principal
    report: Callable[[Progress], None]

    def reconcile(self, statement: Reconcile) -> Result:
        """Compare a sample of a view, or of each; views are compared after those that they read."""
        reader = self.reader
        asked = None if statement.name is None else self._view(statement.name)
        views = self.reconciling.views(reader.published) if asked is None else [asked]
        reader.settled([view.id for view in views])
        rows = []
        for number, view in enumerate(views):
            self.report(Progress(f"reconciling {self._shown(view)}", number, len(views), "views"))
            rows += [self._row(each) for each in self._compared(view, statement)]
        return Result.of(_COMPARED, rows, reader.published.epoch, _TYPES)

    def _compared(self, view: View, statement: Reconcile) -> list[Compared]:
        """Compare a sample of a view, unless it was dropped or has stopped meanwhile."""
        state = self.reader.published
        if statement.name is not None:
            self.reader.require_running(view, state)
        there = [each for each in self.reconciling.views(state) if each.id == view.id]

        def wanted(size: int) -> int:
            if statement.percent is not None:
                return -(-size * statement.percent // 100).__trunc__()
            return statement.rows or SLICE_ROWS

        name = self._shown(view)
        return self.reconciling.compare(
            there,
            state,
            wanted,
            lambda done, total: self.report(Progress(f"rebuilding {name}", done, total, "rows")),
        )

    def show(self, statement: Show) -> Result:
        """List what was compared of each view, or the evidence that was found."""
        only = None if statement.relation is None else self._view(statement.relation)
        if statement.listing is Listing.EVIDENCE:
            return self._evidence(only)
        state = self.reader.published
        rows = [
            (
                self._shown(view),
                rounds.samples,
                rounds.total.units,
                rounds.total.wrong,
                rounds.complete,
                rounds.covered,
                rounds.bound,
                None if rounds.at is None else _time(rounds.at),
            )
            for view, rounds in self.reconciling.rounds(state).items()
            if self.principal.sees(view.name) and (only is None or only.id == view.id)
        ]
        return Result.of(_ROUNDS, rows, state.epoch, _TYPES)

    def _evidence(self, only: View | None) -> Result:
        catalog = self.reader.catalog
        rows = [
            (
                self._shown(view),
                _time(found.at),
                found.epoch,
                found.slice.where,
                found.differences,
                _json(found.expected),
                _json(found.found),
                ", ".join(
                    f"{catalog.by_id[id_].name} {offset:,}"
                    for id_, offset in found.offsets.items()
                    if id_ in catalog.by_id and self.principal.sees(catalog.by_id[id_].name)
                ),
                found.circuit,
                found.outcome or None,
            )
            for found in self.reconciling.ledger.evidence(None if only is None else only.id)
            for view in (catalog.by_id.get(found.view),)
            if isinstance(view, View) and self.principal.sees(view.name)
        ]
        return Result.of(_EVIDENCE, rows, self.reader.published.epoch, _TYPES)

    def _view(self, name: Name) -> View:
        relation = self.reader.catalog.resolve(name.dotted, name.span)
        if isinstance(relation, View):
            return relation
        detail = "It stores no rows." if isinstance(relation, PlainView) else None
        raise HeadraceError(
            Code.INVALID,
            f'{relation.kind} "{relation.name}" is no materialized view',
            detail,
            "Name a materialized view: SHOW MATERIALIZED VIEWS lists them.",
            name.span,
        )

    def _row(self, compared: Compared) -> tuple[Any, ...]:
        rounds, count = compared.rounds, compared.differences
        verdict = "equal"
        if compared.failed:
            verdict = f"could not be checked: {compared.outcome}"
        elif count:
            verdict = f"{count} {'row differs' if count == 1 else 'rows differ'}"
            verdict += f"; {compared.outcome}"
        return (
            self._shown(compared.view),
            compared.rows,
            count,
            rounds.covered,
            rounds.bound,
            verdict,
        )

    def _shown(self, view: View) -> str:
        return shown_name(view, self.reader.catalog)


def _json(rows: tuple[Any, ...]) -> str:
    return json.dumps(rows, ensure_ascii=False)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="milliseconds")
