"""The schemas of a database: created ones, and those that relations are in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.parts.naming import SYSTEM_SCHEMA

if TYPE_CHECKING:
    from headrace.catalog import Catalog
    from headrace.ledger import Ledger

_CREATED: Final = "schemas"
"""The ledger's setting that stores the names of created schemas."""


@dataclass(frozen=True, slots=True)
class Schemas:
    """Keeps the names of created schemas, which may be empty."""

    ledger: Ledger

    def names(self, catalog: Catalog) -> tuple[str, ...]:
        """Return the names of all schemas: those created, and those of relations of a catalog."""
        used = {relation.name.rpartition(".")[0] for relation in catalog} - {""}
        return tuple(sorted({*used, *self._created(), SYSTEM_SCHEMA}))

    def add(self, name: str) -> None:
        """Store a created schema."""
        self.ledger.settings.set(_CREATED, sorted({*self._created(), name}))

    def remove(self, name: str) -> None:
        """Remove a created schema; it remains as long as a relation is in it."""
        self.ledger.settings.set(_CREATED, [known for known in self._created() if known != name])

    def _created(self) -> list[str]:
        return self.ledger.settings.get(_CREATED) or []
