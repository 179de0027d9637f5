"""How far each sink has been given changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from headrace.ledger import schema
from headrace.ledger.records import DeliveryRecord, DeliveryState
from headrace.types import Epoch, RelationId

if TYPE_CHECKING:
    from collections.abc import Mapping


def records(connection: sa.Connection) -> Mapping[RelationId, DeliveryRecord]:
    """Return the record of each sink that exists; one that has been given nothing has its first."""
    objects, table = schema.objects.c, schema.deliveries.c
    query = (
        sa.select(objects.relation, objects.created_epoch, schema.deliveries)
        .join_from(schema.objects, schema.deliveries, table.sink == objects.relation, isouter=True)
        .where(objects.kind == "sink", objects.dropped_epoch.is_(None))
    )
    found = {}
    for row in connection.execute(query):
        sink = RelationId(row.relation)
        if row.sink is None:
            found[sink] = DeliveryRecord(sink, Epoch(row.created_epoch))
            continue
        found[sink] = DeliveryRecord(
            sink,
            Epoch(row.begins),
            _epoch(row.delivered),
            DeliveryState(row.state),
            row.why,
            row.clears,
            _epoch(row.writing),
            _epoch(row.written),
        )
    return found


def put(connection: sa.Connection, record: DeliveryRecord) -> None:
    """Store a record in place of the sink's former one."""
    values = {
        "begins": record.begins,
        "delivered": record.delivered,
        "state": record.state,
        "why": record.why,
        "clears": record.clears,
        "writing": record.writing,
        "written": record.written,
    }
    mine = schema.deliveries.c.sink == record.sink
    if not connection.execute(schema.deliveries.update().where(mine).values(values)).rowcount:
        connection.execute(schema.deliveries.insert(), {"sink": record.sink, **values})


def forget_refused(connection: sa.Connection, sink: RelationId) -> None:
    """Delete the rows that a sink's target has refused, and their count."""
    connection.execute(schema.rejects.delete().where(schema.rejects.c.relation == sink))
    mine = schema.logs.c.relation == sink
    connection.execute(schema.logs.update().where(mine).values(rejected=0))


def _epoch(number: int | None) -> Epoch | None:
    return None if number is None else Epoch(number)
