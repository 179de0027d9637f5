"""The external datasets that streams and tables are fed from, and that sinks write to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import Sink, Stream, Table
from headrace.connectors import (
    CONNECTOR,
    REFERENCE,
    Reference,
    feeding_connector,
    sink_connector,
)
from headrace.connectors.datasets import of_table

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.catalog import Declaration, Relation
    from headrace.connectors import Captures
    from headrace.connectors.datasets import ExternalDataset


@dataclass(frozen=True, slots=True)
class Datasets:
    """Returns external datasets. ``directory`` is the data directory."""

    directory: Path
    captures: Captures

    def of(self, relation: Relation) -> ExternalDataset | None:
        """Return the external dataset of a stream, table or sink; None if it has none with a name.

        Views have none.
        """
        root = (self.directory / "sinks").resolve()
        if isinstance(relation, Stream | Table):
            return self._source(relation.declaration, root)
        if not isinstance(relation, Sink) or relation.target is not None:
            return None
        connector = sink_connector(dict(relation.options)[CONNECTOR])
        return connector.dataset(connector.restored(relation.options), root)

    def _source(self, declaration: Declaration, root: Path) -> ExternalDataset | None:
        stored = dict(declaration.source)
        if declaration.shared_source is not None:
            capture = self.captures.find(declaration.shared_source)
            access = self.captures.connections.find(capture.connection).options
            return of_table(access, Reference.of(stored[REFERENCE]))
        connector = feeding_connector(stored.get(CONNECTOR, ""))
        if connector is None:
            return None
        return connector.dataset(connector.restored(declaration.source), root)
