"""When epochs were committed, and what each one read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import sqlalchemy as sa

from headrace.ledger import schema
from headrace.ledger.commit import first_epoch, last_epoch
from headrace.ledger.records import CLOCK, EpochRecord, Fence, Read
from headrace.types import Epoch, FrontierId, Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.ledger.transactions import Transactions
    from headrace.zset.equality import Ints

_MICROS: Final = 1_000_000
_FIRST: Final = Epoch(0)

_KEPT: Final = 1000
"""The number of epochs whose counters are kept that were known only after the commit."""
_LEAST: Final = 1000
"""The number of epochs whose record is kept in any case: listings show them."""
_AT_ONCE: Final = 4096
"""How many rows of a table are deleted in one transaction: others that write wait for it."""
_NEXT_READ: Final = sa.select(schema.reads.c.epoch).order_by(schema.reads.c.epoch).limit(1)


@dataclass(frozen=True, slots=True)
class Epochs:
    """The committed epochs."""

    _transactions: Transactions
    _afterwards: dict[Epoch, Mapping[str, Any]] = field(default_factory=dict)

    def add_counters(self, epoch: Epoch, counters: Mapping[str, Any]) -> None:
        """Add counters to the record of an epoch, in memory only: until the database is closed.

        Such are known only after the commit, like the time that it took.
        """
        self._afterwards[epoch] = counters
        if len(self._afterwards) > _KEPT:
            del self._afterwards[next(iter(self._afterwards))]

    def last(self) -> Epoch:
        """Return the newest epoch."""
        with self._transactions.reading() as connection:
            return last_epoch(connection)

    def newest(self, limit: int = 100) -> tuple[EpochRecord, ...]:
        """Return the newest epochs with what each one read, newest first."""
        table = schema.epochs
        query = sa.select(table).where(table.c.epoch > 0).order_by(table.c.epoch.desc())
        with self._transactions.reading() as connection:
            rows = connection.execute(query.limit(limit)).all()
            lineage = _lineage(connection, Epoch(rows[-1].epoch)) if rows else {}
        return tuple(
            EpochRecord(
                Epoch(row.epoch),
                row.committed_at,
                row.attempt,
                Fence(row.fence),
                {**row.counters, **self._afterwards.get(Epoch(row.epoch), {})},
                tuple(lineage.get(row.epoch, ())),
            )
            for row in rows
        )

    def at(self, timestamp: float, first: Epoch = _FIRST) -> Epoch:
        """Return the last epoch committed at or before a time in Unix seconds.

        It is ``first`` if there is none after that.
        """
        table = schema.epochs.c
        query = (
            sa.select(table.epoch)
            .where(table.committed_at <= timestamp, table.epoch > first)
            .order_by(table.committed_at.desc(), table.epoch.desc())
        )
        with self._transactions.reading() as connection:
            found = connection.execute(query.limit(1)).scalar()
        return first if found is None else Epoch(found)

    def forget(self, before: Epoch) -> int:
        """Delete some of the record of epochs that nothing refers to, the oldest; return how many.

        One ``before`` and the newest stay: an epoch is committed after two that follow each other,
        also in a branch that begins there.
        """
        reads, epochs, gaps = schema.reads, schema.epochs, schema.gaps
        last = min(before - 1, self._transactions.head.epoch - _LEAST)
        with self._transactions.reading() as connection:
            first = first_epoch(connection)
            later = connection.execute(_NEXT_READ.offset(_AT_ONCE)).scalar()
        upto = min(first + _AT_ONCE, last)
        if later is not None:
            upto = min(upto, max(later, first + 1))
        if first >= upto:
            return 0
        with self._transactions.writing() as writing:
            for table, past in (
                (reads, reads.c.epoch < upto),
                (epochs, epochs.c.epoch < upto),
                (gaps, gaps.c.until <= upto),
            ):
                writing.connection.execute(table.delete().where(past))
        return upto - first

    def commit_times(self, first: Epoch, last: Epoch) -> tuple[Ints, Ints]:
        """Return the epochs in ``[first, last]`` and when each was committed, in microseconds UTC.

        Both ascend.
        """
        table = schema.epochs.c
        query = sa.select(table.epoch, table.committed_at).order_by(table.epoch)
        with self._transactions.reading() as connection:
            rows = connection.execute(query.where(table.epoch.between(first, last))).all()
        epochs = np.array([row[0] for row in rows], np.int64)
        return epochs, np.round(np.array([row[1] for row in rows]) * _MICROS).astype(np.int64)

    def committed_at(self, epoch: Epoch) -> float:
        """Return when an epoch was committed, in Unix seconds."""
        with self._transactions.reading() as connection:
            return committed(connection, epoch)[0]

    def counters(self, epoch: Epoch) -> Mapping[str, Any]:
        """Return the counters that were committed with an epoch."""
        table = schema.epochs.c
        with self._transactions.reading() as connection:
            counters: Mapping[str, Any] = connection.execute(
                sa.select(table.counters).where(table.epoch == epoch)
            ).scalar_one()
        return counters

    def clock(self, epoch: Epoch | None = None) -> int:
        """Return ``now()`` of an epoch (None: the last one) in microseconds UTC; 0 if never set."""
        head = self._transactions.head
        if epoch is None or epoch == head.epoch:
            return head.clock
        with self._transactions.reading() as connection:
            return committed(connection, epoch)[1]


def committed(connection: sa.Connection, epoch: Epoch) -> tuple[float, int]:
    """Return when an epoch was committed, in Unix seconds, and its clock in microseconds UTC."""
    table = schema.epochs.c
    query = sa.select(table.committed_at, table.counters).where(table.epoch == epoch)
    row = connection.execute(query).one()
    return float(row.committed_at), int(row.counters.get(CLOCK, 0))


def _lineage(connection: sa.Connection, oldest: Epoch) -> dict[int, list[Read]]:
    """Return what epochs have read from one epoch on, by epoch."""
    reads = schema.reads
    query = sa.select(reads).where(reads.c.epoch >= oldest)
    lineage: dict[int, list[Read]] = {}
    for row in connection.execute(query.order_by(reads.c.frontier, reads.c.relation)):
        read = Read(
            RelationId(row.relation),
            Offset(row.from_offset),
            Offset(row.to_offset),
            FrontierId(row.frontier),
        )
        lineage.setdefault(row.epoch, []).append(read)
    return lineage
