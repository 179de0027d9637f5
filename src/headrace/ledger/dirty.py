"""The dirty ledger: slices of views that are, or may be, inconsistent; and classified changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from headrace.ledger import catalogue, schema
from headrace.ledger.records import Carried, ChangeRecord, Dirty, DirtyState, Repair, Slice
from headrace.types import DirtyId, Epoch, RelationId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOST_CHANGES: Final = 1000
"""How many classified changes are kept, the newest."""


def entries(connection: sa.Connection, view: RelationId | None = None) -> tuple[Dirty, ...]:
    """Return the dirty entries of a view (None: of all), oldest first."""
    table = schema.dirty.c
    query = sa.select(schema.dirty).order_by(table.since, table.view, table.id)
    if view is not None:
        query = query.where(table.view == view)
    return tuple(_entry(row) for row in connection.execute(query))


def mark(connection: sa.Connection, entry: Dirty) -> Dirty:
    """Add an entry, and return it as stored.

    An equal one, of the same cause, slice and origin, is kept instead, with the earlier time and
    epoch and the newer detail; but not while it is repaired, since the repair may have read before
    what is reported now.
    """
    known = next((e for e in entries(connection, entry.view) if _same(e, entry)), None)
    if known is None:
        stored = replace(entry, id=DirtyId(catalogue.reserve(connection)))
        connection.execute(schema.dirty.insert(), _row(stored))
        return stored
    stored = replace(
        entry,
        id=known.id,
        state=known.state,
        since=min(known.since, entry.since),
        after=min(known.after, entry.after),
    )
    mine = schema.dirty.c.id == known.id
    connection.execute(schema.dirty.update().where(mine).values(_row(stored)))
    return stored


def change(
    connection: sa.Connection,
    id_: DirtyId,
    state: DirtyState | None,
    repair: Repair | None,
    cost: int | None,
    detail: str | None,
) -> None:
    """Change what is given of an entry; do nothing if it is gone."""
    given = {"state": state, "repair": repair, "cost": cost, "detail": detail}
    values = {key: value for key, value in given.items() if value is not None}
    if values:
        mine = schema.dirty.c.id == id_
        connection.execute(schema.dirty.update().where(mine).values(values))


def clear(connection: sa.Connection, view: RelationId, cause: str | None) -> None:
    """Remove the entries of a view: of one cause or, with None, of all causes."""
    table = schema.dirty
    change = table.delete().where(table.c.view == view)
    connection.execute(change if cause is None else change.where(table.c.cause == cause))


def clean(connection: sa.Connection, ids: Iterable[DirtyId]) -> None:
    """Remove entries whose slices are repaired, as far as they exist."""
    wanted = list(ids)
    if wanted:
        connection.execute(schema.dirty.delete().where(schema.dirty.c.id.in_(wanted)))


def record_changes(
    connection: sa.Connection, carried: Iterable[Carried], origin: Mapping[str, Any], now: float
) -> None:
    """Record classified changes, and forget the oldest of those that are too many."""
    table = schema.changes
    rows = [
        {
            "view": each.view,
            "at": now,
            "path": each.path.value,
            "rule": each.rule,
            "cost": each.cost,
            "whole": each.whole,
            "changed": each.changed,
            "origin": dict(origin),
        }
        for each in carried
    ]
    if not rows:
        return
    connection.execute(table.insert(), rows)
    newest = connection.execute(sa.select(sa.func.max(table.c.id))).scalar_one()
    connection.execute(table.delete().where(table.c.id <= newest - MOST_CHANGES))


def changes(connection: sa.Connection) -> tuple[ChangeRecord, ...]:
    """Return the classified changes that are kept, newest first."""
    query = sa.select(schema.changes).order_by(schema.changes.c.id.desc())
    return tuple(
        ChangeRecord(
            row.at,
            row.origin,
            Carried(
                RelationId(row.view), Repair(row.path), row.rule, row.cost, row.whole, row.changed
            ),
        )
        for row in connection.execute(query)
    )


def _same(known: Dirty, entry: Dirty) -> bool:
    return known.state is not DirtyState.REPAIRING and (
        (known.cause, known.slice, dict(known.origin))
        == (entry.cause, entry.slice, dict(entry.origin))
    )


def _row(entry: Dirty) -> dict[str, Any]:
    return {
        "id": entry.id,
        "view": entry.view,
        "cause": entry.cause,
        "since": entry.since,
        "detail": entry.detail,
        "after": entry.after,
        "slice_where": entry.slice.where,
        "slice_since": entry.slice.since,
        "origin": dict(entry.origin),
        "repair": entry.repair.value,
        "cost": entry.cost,
        "whole": entry.whole,
        "state": entry.state.value,
    }


def _entry(row: sa.Row[Any]) -> Dirty:
    return Dirty(
        RelationId(row.view),
        row.cause,
        row.since,
        row.detail,
        Epoch(row.after),
        Slice(row.slice_where, row.slice_since),
        row.origin,
        Repair(row.repair),
        row.cost,
        row.whole,
        DirtyState(row.state),
        DirtyId(row.id),
    )
