"""How far each sink has been given changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from headrace.ledger import schema
from headrace.ledger.log import append
from headrace.ledger.records import AppendRecord, DeliveryRecord, DeliveryState
from headrace.types import Epoch, RelationId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.ledger.records import Reject
    from headrace.ledger.transactions import Transactions


@dataclass(frozen=True, slots=True)
class DeliveryRecords:
    """The record of each sink that exists."""

    _transactions: Transactions

    def all(self) -> Mapping[RelationId, DeliveryRecord]:
        """Return how far each sink has been given changes."""
        objects, table = schema.objects.c, schema.deliveries.c
        query = (
            sa.select(objects.relation, objects.created_epoch, schema.deliveries)
            .join_from(
                schema.objects, schema.deliveries, table.sink == objects.relation, isouter=True
            )
            .where(objects.kind == "sink", objects.dropped_epoch.is_(None))
        )
        with self._transactions.reading() as connection:
            found = (_record(row) for row in connection.execute(query))
            return {record.sink: record for record in found}

    def put(
        self, record: DeliveryRecord, refused: Sequence[Reject] = (), *, forgets: bool = False
    ) -> None:
        """Store how far a sink has been given changes, with rows that were refused meanwhile.

        Rows that were refused before are deleted where the sink starts over, or if it ``forgets``
        them.

        Raises:
            HeadraceError: CONFLICT if the sink was dropped, or another process took over.
        """
        now = self._transactions.clock
        with self._transactions.writing() as writing:
            if record.clears or forgets:
                _forget_refused(writing.connection, record.sink)
            stored = AppendRecord(record.sink, None, rejects=refused, delivered=record)
            append(writing, stored, now())


def _forget_refused(connection: sa.Connection, sink: RelationId) -> None:
    """Delete the rows that a sink's target has refused, and their count."""
    connection.execute(schema.rejects.delete().where(schema.rejects.c.relation == sink))
    mine = schema.logs.c.relation == sink
    connection.execute(schema.logs.update().where(mine).values(rejected=0, acknowledged=0))


def _record(row: sa.Row[tuple[object, ...]]) -> DeliveryRecord:
    """Return a sink's record; the first one of a sink that has been given nothing."""
    sink = RelationId(row.relation)
    if row.sink is None:
        return DeliveryRecord(sink, Epoch(row.created_epoch))
    return DeliveryRecord(
        sink,
        Epoch(row.begins),
        _epoch(row.delivered),
        DeliveryState(row.state),
        row.why,
        row.clears,
        _epoch(row.writing),
        _epoch(row.written),
    )


def _epoch(number: int | None) -> Epoch | None:
    return None if number is None else Epoch(number)
