"""JSON values by name that the ledger keeps for others, and its own identity.

New ids: one sequence for all kinds of things, so that no id is returned twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from headrace.storage.ledger import schema
from headrace.types import BuildId, FrontierId, RelationId

if TYPE_CHECKING:
    from headrace.storage.ledger.transactions import Transactions


STORE_SETTING: Final = "store"
"""The name of the URL of the object store that has the files; the directory is its cache then."""

_RESERVED: Final = frozenset(
    {schema.FORMAT_KEY, schema.IDENTITY_KEY, schema.WRITER_KEY, schema.WRITTEN_KEY}
)


@dataclass(frozen=True, slots=True)
class StoredSettings:
    """The values by name; each is replaced as a whole."""

    _transactions: Transactions

    @property
    def identity(self) -> str:
        """The unique and permanent id of this ledger."""
        return str(self.get(schema.IDENTITY_KEY))

    def get(self, key: str) -> Any:
        """Return a setting; None if it was never set."""
        query = sa.select(schema.meta.c.value).where(schema.meta.c.key == key)
        with self._transactions.reading() as connection:
            return connection.execute(query).scalar()

    def set(self, key: str, value: Any) -> None:
        """Set a setting to a value that ``json`` can write."""
        if key in _RESERVED:
            raise ValueError(key)
        mine = schema.meta.c.key == key
        with self._transactions.writing() as writing:
            writing.connection.execute(schema.meta.delete().where(mine))
            writing.connection.execute(schema.meta.insert(), {"key": key, "value": value})


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
