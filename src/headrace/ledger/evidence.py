"""The progress of reconciliation, and the evidence that it has found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from headrace.ledger import schema
from headrace.ledger.dirty import mark, reread
from headrace.ledger.ids import reserve
from headrace.ledger.records import Evidence, Slice
from headrace.types import Epoch, EvidenceId, Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.ledger.records import Dirty
    from headrace.ledger.transactions import Transactions

_KEPT: Final = 100
"""The number of pieces of evidence that are kept of a view, the newest."""


@dataclass(frozen=True, slots=True)
class FoundEvidence:
    """How far reconciliation has come with each view, and what it has found."""

    _transactions: Transactions

    def progress(self) -> Mapping[RelationId, Mapping[str, Any]]:
        """Return how far reconciliation has come with each view, as it recorded that."""
        query = sa.select(schema.reconciled)
        with self._transactions.reading() as connection:
            return {RelationId(row.view): row.progress for row in connection.execute(query)}

    def record(
        self,
        view: RelationId,
        progress: Mapping[str, Any],
        found: Evidence | None = None,
        marked: Sequence[Dirty] = (),
    ) -> Evidence | None:
        """Record that a slice of a view was compared, in one transaction with what was found.

        Returns the evidence as stored; its id is in the origin of the dirty entries, as
        ``evidence``.
        """
        with self._transactions.writing() as writing:
            _set_progress(writing.connection, view, progress)
            if found is None:
                return None
            stored = _add(writing.connection, found)
            self._transactions.fault("evidence")
            for entry in marked:
                origin = {**entry.origin, "evidence": stored.id}
                mark(writing.connection, replace(entry, origin=origin))
            reread(writing)
            return stored

    def found(self, view: RelationId | None = None) -> tuple[Evidence, ...]:
        """Return the evidence that was found of a view (None: of all), newest first."""
        table = schema.evidence
        query = sa.select(table).order_by(table.c.id.desc())
        if view is not None:
            query = query.where(table.c.view == view)
        with self._transactions.reading() as connection:
            return tuple(_evidence(row) for row in connection.execute(query))

    def settle(self, id_: EvidenceId, outcome: str) -> None:
        """Record what became of a slice; do nothing if its evidence is gone."""
        table = schema.evidence
        settled = table.update().where(table.c.id == id_).values(outcome=outcome)
        with self._transactions.writing() as writing:
            writing.connection.execute(settled)


def _set_progress(connection: sa.Connection, view: RelationId, made: Mapping[str, Any]) -> None:
    """Record how far reconciliation has come with a view."""
    table, row = schema.reconciled, {"view": view, "progress": dict(made)}
    connection.execute(table.delete().where(table.c.view == view))
    connection.execute(table.insert(), row)


def _add(connection: sa.Connection, found: Evidence) -> Evidence:
    """Keep evidence, and return it with its id; the oldest of the view beyond a limit goes."""
    stored = replace(found, id=EvidenceId(reserve(connection)))
    row = {
        "id": stored.id,
        "view": found.view,
        "epoch": found.epoch,
        "at": found.at,
        "slice_where": found.slice.where,
        "slice_since": found.slice.since,
        "offsets": {str(id_): offset for id_, offset in found.offsets.items()},
        "circuit": found.circuit,
        "expected": [dict(each) for each in found.expected],
        "found": [dict(each) for each in found.found],
        "differences": found.differences,
        "outcome": found.outcome,
    }
    connection.execute(schema.evidence.insert(), row)
    table = schema.evidence
    mine = sa.select(table.c.id).where(table.c.view == found.view)
    old = connection.execute(mine.order_by(table.c.id.desc()).offset(_KEPT)).scalars().all()
    if old:
        connection.execute(table.delete().where(table.c.id.in_(old)))
    return stored


def _evidence(row: sa.Row[tuple[object, ...]]) -> Evidence:
    return Evidence(
        RelationId(row.view),
        Epoch(row.epoch),
        row.at,
        Slice(row.slice_where, row.slice_since),
        {RelationId(int(id_)): Offset(at) for id_, at in row.offsets.items()},
        row.circuit,
        tuple(row.expected),
        tuple(row.found),
        row.differences,
        row.outcome,
        EvidenceId(row.id),
    )
