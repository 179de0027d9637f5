"""The dirty ledger: slices of views that are, or may be, inconsistent; and classified changes.

The progress of reconciliation, and the evidence that it has found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from headrace.storage.ledger import schema
from headrace.storage.ledger.records import (
    Carried,
    ChangeRecord,
    Dirty,
    DirtyState,
    Evidence,
    Gap,
    RepairPath,
    Slice,
)
from headrace.storage.ledger.settings import reserve
from headrace.types import DirtyId, Epoch, EvidenceId, Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.storage.ledger.transactions import Transactions, WriteTransaction


MOST_CHANGES: Final = 1000
"""How many classified changes are kept, the newest."""


@dataclass(frozen=True, slots=True)
class DirtySlices:
    """The dirty entries (in the head), the classified changes, and past gaps."""

    _transactions: Transactions

    def mark(self, *marked: Dirty) -> tuple[Dirty, ...]:
        """Record dirty slices of views, all or none, and return the entries as stored.

        Of equal entries, of the same view, cause, slice and origin, one is kept: with the earlier
        time and epoch. While it is repaired, another is added, which is repaired after it.
        """
        with self._transactions.writing() as writing:
            stored = tuple(mark(writing.connection, entry) for entry in marked)
            self._transactions.fault("marked")
            reread(writing)
            return stored

    def change(
        self,
        id_: DirtyId,
        *,
        state: DirtyState | None = None,
        repair: RepairPath | None = None,
        cost: int | None = None,
        detail: str | None = None,
    ) -> None:
        """Change the given fields of a dirty entry; do nothing if it is gone."""
        given = {"state": state, "repair": repair, "cost": cost, "detail": detail}
        values = {key: value for key, value in given.items() if value is not None}
        mine = schema.dirty.c.id == id_
        with self._transactions.writing() as writing:
            if values:
                writing.connection.execute(schema.dirty.update().where(mine).values(values))
            reread(writing)

    def clear(self, view: RelationId, cause: str | None = None) -> None:
        """Remove the dirty entries of a view: of one cause or, with None, of all causes."""
        with self._transactions.writing() as writing:
            clear(writing.connection, view, cause)
            reread(writing)

    def gap_at(self, view: RelationId, epoch: Epoch) -> Gap | None:
        """Return the gap in which an epoch of a view lies: its contents were not right then."""
        table = schema.gaps.c
        query = sa.select(schema.gaps).where(
            table.view == view, table.after < epoch, table.until > epoch
        )
        with self._transactions.reading() as connection:
            row = connection.execute(query.limit(1)).one_or_none()
        return None if row is None else Gap(Epoch(row.after), Epoch(row.until))

    def gaps(self, view: RelationId) -> tuple[Gap, ...]:
        """Return the gaps of a view: its contents were not right between their epochs."""
        query = sa.select(schema.gaps).where(schema.gaps.c.view == view)
        with self._transactions.reading() as connection:
            rows = connection.execute(query).all()
        return tuple(Gap(Epoch(row.after), Epoch(row.until)) for row in rows)

    def record_changes(self, carried: Sequence[Carried], origin: Mapping[str, Any]) -> None:
        """Record what carries a change to views; the oldest of too many records are forgotten."""
        table, now = schema.changes, self._transactions.clock
        with self._transactions.writing() as writing:
            at = now()
            rows = [
                {
                    "view": each.view,
                    "at": at,
                    "path": each.path.value,
                    "rule": each.rule,
                    "cost": each.cost,
                    "whole": each.whole,
                    "changed": each.changed,
                    "origin": dict(origin),
                }
                for each in carried
            ]
            if rows:
                writing.connection.execute(table.insert(), rows)
                newest = sa.select(sa.func.max(table.c.id))
                last = writing.connection.execute(newest).scalar_one()
                old = table.delete().where(table.c.id <= last - MOST_CHANGES)
                writing.connection.execute(old)

    def changes(self) -> tuple[ChangeRecord, ...]:
        """Return the classified changes that are kept, newest first."""
        query = sa.select(schema.changes).order_by(schema.changes.c.id.desc())
        with self._transactions.reading() as connection:
            return tuple(
                ChangeRecord(
                    row.at,
                    row.origin,
                    Carried(
                        RelationId(row.view),
                        RepairPath(row.path),
                        row.rule,
                        row.cost,
                        row.whole,
                        row.changed,
                    ),
                )
                for row in connection.execute(query)
            )


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
        stored = replace(entry, id=DirtyId(reserve(connection)))
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


def reread(writing: WriteTransaction) -> None:
    """Put the dirty entries that a transaction leaves in the next head."""
    writing.head = replace(writing.head, dirty=entries(writing.connection))


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
        RepairPath(row.repair),
        row.cost,
        row.whole,
        DirtyState(row.state),
        DirtyId(row.id),
    )


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
