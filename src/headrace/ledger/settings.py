"""JSON values by name that the ledger keeps for others, and its own identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from headrace.ledger import schema

if TYPE_CHECKING:
    from headrace.ledger.transactions import Transactions

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
