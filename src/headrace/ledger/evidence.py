"""What reconciliation has compared, and the evidence of what it has found."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from headrace.ledger import catalogue, schema
from headrace.ledger.records import Evidence, Slice
from headrace.types import Epoch, EvidenceId, Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEPT: Final = 100
"""The number of pieces of evidence that are kept of a view, the newest."""


def progress(connection: sa.Connection) -> dict[RelationId, Mapping[str, Any]]:
    """Return how far reconciliation has come with each view that exists."""
    query = sa.select(schema.reconciled)
    return {RelationId(row.view): row.progress for row in connection.execute(query)}


def set_progress(connection: sa.Connection, view: RelationId, made: Mapping[str, Any]) -> None:
    """Record how far reconciliation has come with a view."""
    table, row = schema.reconciled, {"view": view, "progress": dict(made)}
    connection.execute(table.delete().where(table.c.view == view))
    connection.execute(table.insert(), row)


def add(connection: sa.Connection, found: Evidence) -> Evidence:
    """Keep evidence, and return it with its id; the oldest of the view beyond a limit goes."""
    stored = replace(found, id=EvidenceId(catalogue.reserve(connection)))
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


def entries(connection: sa.Connection, view: RelationId | None) -> tuple[Evidence, ...]:
    """Return the evidence of a view (None: of all), newest first."""
    table = schema.evidence
    query = sa.select(table).order_by(table.c.id.desc())
    if view is not None:
        query = query.where(table.c.view == view)
    return tuple(
        Evidence(
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
        for row in connection.execute(query)
    )


def settle(connection: sa.Connection, id_: EvidenceId, outcome: str) -> None:
    """Record what became of a slice; do nothing if its evidence is gone."""
    table = schema.evidence
    connection.execute(table.update().where(table.c.id == id_).values(outcome=outcome))
