"""``RECONCILE``, ``SHOW RECONCILIATION`` and ``SHOW EVIDENCE``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.interfaces.statements.results import Progress, Result, shown_time
from headrace.lifecycle.history.comparing import SLICE_ROWS
from headrace.planning.catalog import Table, View
from headrace.planning.catalog.naming import shown_name
from headrace.planning.sql import Listing

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.execution.runtime.published import Published
    from headrace.lifecycle.history.comparing import Stored
    from headrace.lifecycle.history.reconciling import Reconciling, SampleOutcome
    from headrace.lifecycle.states.access import Principal
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.sql import Name, Reconcile, Show


_COMPARED: Final = ("relation", "rows", "differences", "covered", "wrong_at_most", "verdict")
_ROUNDS: Final = (
    "relation", "samples", "compared", "wrong", "rounds", "covered", "wrong_at_most",
    "last_compared",
)  # fmt: skip
_EVIDENCE: Final = (
    "relation", "found_at", "epoch", "slice", "differences", "expected", "found", "inputs",
    "circuit", "outcome",
)  # fmt: skip
_TYPES: Final = {
    **dict.fromkeys(("rows", "differences", "samples", "compared", "wrong"), pa.int64()),
    **dict.fromkeys(("rounds", "epoch"), pa.int64()),
    **dict.fromkeys(("covered", "wrong_at_most"), pa.float64()),
}


@dataclass(frozen=True, slots=True)
class Reconciliations:
    """Compares samples on request, and lists comparisons and their findings."""

    reader: Reader
    reconciling: Reconciling
    principal: Principal
    report: Callable[[Progress], None]

    def reconcile(self, statement: Reconcile) -> Result:
        """Compare a sample of a relation, or of each; inputs come first."""
        reader = self.reader
        asked = None if statement.name is None else self._stored(statement.name)
        relations = self.reconciling.relations(reader.published) if asked is None else [asked]
        reader.settled([relation.id for relation in relations])
        rows, total = [], len(relations)
        for number, relation in enumerate(relations):
            what = f"reconciling {self._shown(relation)}"
            self.report(Progress(what, number, total, "relations"))
            rows += [self._row(each) for each in self._compared(relation, statement)]
        return Result.of(_COMPARED, rows, reader.published.epoch, _TYPES)

    def _compared(self, relation: Stored, statement: Reconcile) -> list[SampleOutcome]:
        """Compare a sample of a relation, unless it was dropped or stopped meanwhile."""
        state = self.reader.published
        if statement.name is not None:
            self.reader.require_running(relation, state)
            if isinstance(relation, View):
                _require_kept(state, relation, statement.name)
        there = [r for r in self.reconciling.relations(state) if r.id == relation.id]

        def wanted(size: int) -> int:
            if statement.percent is not None:
                return -(-size * statement.percent // 100).__trunc__()
            return statement.rows or SLICE_ROWS

        name = self._shown(relation)
        return self.reconciling.compare(
            there,
            state,
            wanted,
            lambda done, total: self.report(Progress(f"recomputing {name}", done, total, "rows")),
        )

    def show(self, statement: Show) -> Result:
        """List the comparisons of each relation, or the evidence found."""
        only = None if statement.relation is None else self._stored(statement.relation)
        if statement.listing is Listing.EVIDENCE:
            return self._evidence(only)
        state = self.reader.published
        rows = [
            (
                self._shown(relation),
                rounds.samples,
                rounds.total.units,
                rounds.total.wrong,
                rounds.complete,
                rounds.covered,
                rounds.bound,
                None if rounds.at is None else shown_time(rounds.at),
            )
            for relation, rounds in self.reconciling.rounds(state).items()
            if self.principal.sees(relation.name) and (only is None or only.id == relation.id)
        ]
        return Result.of(_ROUNDS, rows, state.epoch, _TYPES)

    def _evidence(self, only: Stored | None) -> Result:
        catalog = self.reader.catalog
        rows = [
            (
                self._shown(relation),
                shown_time(found.at),
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
                found.circuit or None,
                found.outcome or None,
            )
            for found in self.reconciling.ledger.evidence.found(None if only is None else only.id)
            for relation in (catalog.by_id.get(found.view),)
            if isinstance(relation, Table | View) and self.principal.sees(relation.name)
        ]
        return Result.of(_EVIDENCE, rows, self.reader.published.epoch, _TYPES)

    def _stored(self, name: Name) -> Stored:
        relation = self.reader.catalog.resolve(name.dotted, name.span)
        if isinstance(relation, Table | View):
            return relation
        raise HeadraceError(
            Code.INVALID,
            f'{relation.kind} "{relation.name}" has no stored rows to compare',
            hint="Name a table or a materialized view.",
            span=name.span,
        )

    def _row(self, compared: SampleOutcome) -> tuple[Any, ...]:
        rounds, count = compared.rounds, compared.differences
        verdict = "equal"
        if compared.failed:
            verdict = f"could not be checked: {compared.outcome}"
        elif count:
            verdict = f"{count} {'row differs' if count == 1 else 'rows differ'}"
            verdict += f"; {compared.outcome}"
        return (
            self._shown(compared.relation),
            compared.rows,
            count,
            rounds.covered,
            rounds.bound,
            verdict,
        )

    def _shown(self, relation: Stored) -> str:
        return shown_name(relation, self.reader.catalog)


def _json(rows: tuple[Any, ...]) -> str:
    return json.dumps(rows, ensure_ascii=False)


def _require_kept(state: Published, view: View, name: Name) -> None:
    """Raise if a view cannot be recomputed from all of its inputs' history."""
    unkept = state.unkept(view)
    if unkept:
        stream = state.catalog.by_id[next(iter(unkept))]
        raise HeadraceError(
            Code.CONFLICT,
            f'the first {state.starts[stream.id]:,} events of stream "{stream.name}" are no longer'
            " kept",
            f'Rows of view "{view.name}" were computed from them.',
            "REPLAY VIEW recomputes a slice in which these events are not; a view WITH"
            " (since = 'earliest') is compared with the events that are left.",
            span=name.span,
        )
