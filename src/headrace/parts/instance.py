"""The parts of one open database, which the statements of all sessions work on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.catalog import Catalog
    from headrace.connectors import Secrets
    from headrace.engine.engine import Engine
    from headrace.engine.queries import Queries
    from headrace.ledger import Ledger
    from headrace.parts.log import Log
    from headrace.parts.reader import Reader
    from headrace.parts.schemas import Schemas
    from headrace.parts.snapshots import Snapshots
    from headrace.runtime.deliveries import Deliveries
    from headrace.runtime.epoch import EpochLoop
    from headrace.runtime.published import Published
    from headrace.runtime.pump import Pump
    from headrace.types import RelationId


@dataclass(slots=True)
class Instance:
    """The parts of one open database. Statements of all sessions work on it."""

    directory: Path
    ledger: Ledger
    engine: Engine
    queries: Queries
    loop: EpochLoop
    pump: Pump
    secrets: Secrets
    deliveries: Deliveries
    schemas: Schemas
    reader: Reader
    snapshots: Snapshots
    log: Log
    unplanned: set[RelationId] = field(default_factory=set)
    """The views without a circuit, since a function is missing."""

    @property
    def published(self) -> Published:
        """What readers see now."""
        return self.loop.published.current

    @property
    def catalog(self) -> Catalog:
        """The current relations."""
        return self.loop.published.current.catalog
