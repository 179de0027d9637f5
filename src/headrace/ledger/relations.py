"""The relations of the catalog, now and at earlier epochs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from headrace.ledger import builds, schema
from headrace.ledger.records import ObjectRecord
from headrace.types import Epoch, RelationId

if TYPE_CHECKING:
    from headrace.ledger.transactions import Transactions


@dataclass(frozen=True, slots=True)
class Relations:
    """Every relation that exists or has existed."""

    _transactions: Transactions

    def existing(self, epoch: Epoch | None = None) -> tuple[ObjectRecord, ...]:
        """Return the relations that exist at an epoch (None: now), by id."""
        table, needs = schema.objects, schema.dependencies.c
        alive: sa.ColumnElement[bool] = table.c.dropped_epoch.is_(None)
        if epoch is not None:
            alive = (table.c.created_epoch <= epoch) & (alive | (table.c.dropped_epoch > epoch))
        inputs: dict[int, list[RelationId]] = {}
        with self._transactions.reading() as connection:
            dependencies = sa.select(schema.dependencies).order_by(needs.input)
            for relation, used in connection.execute(dependencies):
                inputs.setdefault(relation, []).append(RelationId(used))
            query = sa.select(table).where(alive).order_by(table.c.relation)
            rows = connection.execute(query).all()
            # What a view was at an earlier epoch is what the build computed that served it then.
            served = {} if epoch is None else builds.definitions(connection, epoch)
        return tuple(
            ObjectRecord(
                RelationId(row.relation),
                row.name,
                row.kind,
                served.get(row.relation, row.definition),
                Epoch(row.created_epoch),
                None if row.dropped_epoch is None else Epoch(row.dropped_epoch),
                tuple(inputs.get(row.relation, ())),
            )
            for row in rows
        )
