"""Rows that were not appended to logs: rejected rows with their text, others as counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from headrace.ledger import schema
from headrace.ledger.records import Reject

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from headrace.ledger.transactions import Transactions
    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class RejectRecord:
    """A rejected row in the ledger, with its number. Times are in Unix seconds."""

    reject: Reject
    at: float
    id: int
    acknowledged_at: float | None = None
    """When somebody said that it needs no attention any more."""


@dataclass(frozen=True, slots=True)
class RejectCount:
    """How many rows of a relation were rejected, and how many of them were acknowledged."""

    rejected: int
    acknowledged: int

    @property
    def unacknowledged(self) -> int:
        """How many still ask for attention."""
        return self.rejected - self.acknowledged


@dataclass(frozen=True, slots=True)
class Rejects:
    """Per relation, the rows that were not appended; appends add to them."""

    _transactions: Transactions

    def newest(self, relation: RelationId, limit: int = 100) -> tuple[RejectRecord, ...]:
        """Return the newest rejected rows of a relation, newest first."""
        table = schema.rejects.c
        query = (
            sa.select(schema.rejects)
            .where(table.relation == relation)
            .order_by(table.id.desc())
            .limit(limit)
        )
        with self._transactions.reading() as connection:
            return tuple(
                RejectRecord(
                    Reject(row.file, row.line, row.column, row.reason, row.raw),
                    row.at,
                    row.id,
                    row.acknowledged_at,
                )
                for row in connection.execute(query)
            )

    def count(self, relation: RelationId) -> int:
        """Return how many rows of a relation were rejected."""
        return self.counted(relation).rejected

    def counted(self, relation: RelationId) -> RejectCount:
        """Return how many rows of a relation were rejected, and how many were acknowledged."""
        its = schema.logs.c
        query = sa.select(its.rejected, its.acknowledged).where(its.relation == relation)
        with self._transactions.reading() as connection:
            found = connection.execute(query).one_or_none()
        return RejectCount(0, 0) if found is None else RejectCount(*found)

    def acknowledge(self, relation: RelationId, ids: Collection[int] | None = None) -> int:
        """Record that rejected rows need no attention any more; return how many are new to that.

        They stay where they are. Without ``ids``, all rows of the relation are acknowledged.
        """
        its, logs = schema.rejects.c, schema.logs
        new = (its.relation == relation) & its.acknowledged_at.is_(None)
        if ids is not None:
            new &= its.id.in_(ids)
        now = self._transactions.clock()
        with self._transactions.writing() as writing:
            connection = writing.connection
            changed = schema.rejects.update().where(new).values(acknowledged_at=now)
            count = connection.execute(changed).rowcount
            counted = logs.update().where(logs.c.relation == relation)
            connection.execute(counted.values(acknowledged=logs.c.acknowledged + count))
        return count

    def left_out(self, relation: RelationId) -> Mapping[str, int]:
        """Return how many rows a relation's log has not taken, by reason, besides rejects."""
        with self._transactions.reading() as connection:
            return left_out(connection, relation)


def left_out(connection: sa.Connection, relation: RelationId) -> dict[str, int]:
    """Return the counts of rows that are no rejects, by reason."""
    its = schema.left_out.c
    query = sa.select(its.reason, its.rows).where(its.relation == relation)
    return {row.reason: row.rows for row in connection.execute(query)}


def add(
    connection: sa.Connection, relation: RelationId, rejects: Sequence[Reject], now: float
) -> None:
    """Store rejected rows, each with as much of its text as is kept."""
    if rejects:
        rows = [_row(relation, each, now) for each in rejects]
        connection.execute(schema.rejects.insert(), rows)


def count(connection: sa.Connection, relation: RelationId, rows: Mapping[str, int]) -> None:
    """Add to the counts of rows that were left out, by reason."""
    known = left_out(connection, relation) if rows else {}
    its = schema.left_out.c
    for reason, more in rows.items():
        if reason not in known:
            row = {"relation": relation, "reason": reason, "rows": more}
            connection.execute(schema.left_out.insert(), row)
            continue
        mine = (its.relation == relation) & (its.reason == reason)
        counted = schema.left_out.update().where(mine).values(rows=known[reason] + more)
        connection.execute(counted)


def _row(relation: RelationId, reject: Reject, now: float) -> dict[str, object]:
    raw = reject.raw.encode("utf-8", "replace")[: schema.REJECT_BYTES].decode("utf-8", "ignore")
    return {
        "relation": relation,
        "file": reject.file,
        "line": reject.line,
        "column": reject.column,
        "reason": reject.reason.replace("\0", "\ufffd"),
        "raw": raw.replace("\0", "\ufffd"),  # PostgreSQL's text cannot hold NUL
        "at": now,
    }
