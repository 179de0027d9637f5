"""When epochs were committed, and what each one read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import sqlalchemy as sa

from headrace.ledger import schema
from headrace.ledger.commit import last_epoch
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

        It is searched from ``first`` on, which is returned if there is none.
        """
        table = schema.epochs.c
        with self._transactions.reading() as connection:
            low, high = first, last_epoch(connection)
            while low < high:  # times of commit do not fall
                middle = Epoch((low + high + 1) // 2)
                query = sa.select(table.committed_at).where(table.epoch == middle)
                if connection.execute(query).scalar_one() <= timestamp:
                    low = middle
                else:
                    high = Epoch(middle - 1)
            return low

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
