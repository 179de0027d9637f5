"""New ids: one sequence for all kinds of things, so that no id is returned twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from headrace.ledger import schema
from headrace.types import BuildId, FrontierId, RelationId

if TYPE_CHECKING:
    from headrace.ledger.transactions import Transactions


@dataclass(frozen=True, slots=True)
class Ids:
    """Reserves ids for what the next epochs create."""

    _transactions: Transactions

    def relation(self) -> RelationId:
        """Return a new id for a relation."""
        return RelationId(self._reserve())

    def build(self) -> BuildId:
        """Return a new id for a build. The first build of a view has the id of the view."""
        return BuildId(self._reserve())

    def frontier(self) -> FrontierId:
        """Return a new id for a frontier."""
        return FrontierId(self._reserve())

    def _reserve(self) -> int:
        with self._transactions.writing() as writing:
            return reserve(writing.connection)


def reserve(connection: sa.Connection) -> int:
    """Return a new id of any kind; no id is returned twice."""
    reserved: int = connection.execute(sa.select(schema.fence.c.next_id)).scalar_one()
    connection.execute(schema.fence.update().values(next_id=reserved + 1))
    return reserved
