"""The destinations of sinks: tables and streams of this database, and external systems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.catalog import Sink, Stream, Table, key_of
from headrace.connectors import CONNECTOR, Secrets, SinkContext, sink_connector
from headrace.errors import Code, HeadraceError
from headrace.ledger import ProducerPosition
from headrace.parts.written_rows import completed, require_present
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.engine.queries import Queries
    from headrace.parts.log import Log
    from headrace.parts.reader import Reader
    from headrace.runtime.ports import SinkWriter
    from headrace.types import Epoch, RelationId, Schema


@dataclass(frozen=True, slots=True)
class Destinations:
    """Opens what sinks write to."""

    directory: Path
    secrets: Secrets
    reader: Reader
    log: Log
    queries: Queries

    def writer_of(self, sink: Sink) -> SinkWriter:
        """Return the writer for a sink's destination."""
        if sink.target is not None:
            return TableWriter(self.reader, self.log, self.queries, sink, sink.target)
        connector = sink_connector(dict(sink.options)[CONNECTOR])
        source = self.reader.catalog.by_id[sink.source]
        context = self.context(sink.schema, key_of(source))
        if connector.open_sink is None:
            raise HeadraceError(Code.INTERNAL, f"connector {connector.name} has no sink")
        return connector.open_sink(connector.restored(sink.options), context)

    def context(self, schema: Schema, key: tuple[str, ...] = ()) -> SinkContext:
        """Return what a connector needs to know of this database, and of the rows of a sink."""
        return SinkContext(self.directory, schema.arrow, key, self.secrets)


@dataclass(frozen=True, slots=True)
class TableWriter:
    """Appends to a table's or stream's log, as a producer whose sequence numbers are epochs.

    So each epoch is written exactly once. Deletions come before insertions, so that the new row of
    a primary key stays.
    """

    reader: Reader
    log: Log
    queries: Queries
    sink: Sink
    target: RelationId
    guarantee: str = "exactly once: one transaction per epoch"

    def write(self, epoch: Epoch, changes: pa.Table) -> None:
        """Append the changes of an epoch, unless they have been appended."""
        relation = self.reader.catalog.by_id[self.target]
        if not isinstance(relation, Stream | Table):
            raise HeadraceError(Code.INTERNAL, f"sink {self.sink.name} writes to no table")
        weights = changes[WEIGHT]
        given = changes.drop_columns([WEIGHT]).rename_columns(list(self.sink.columns))
        rows = completed(self.queries, relation, given)
        require_present(relation, rows, None)
        if isinstance(relation, Stream):
            if (pc.min(weights).as_py() or 1) < 0:
                raise HeadraceError(
                    Code.INVALID,
                    f'stream "{relation.name}" is append-only, but rows were deleted',
                    hint="Use a TABLE for rows that change.",
                )
            rows = rows.take(_repeated(weights))
        else:
            rows = rows.append_column(WEIGHT, weights).sort_by(WEIGHT)
        producer = ProducerPosition(f"sink {self.sink.id}", epoch)
        self.log.append(relation, rows, producer=producer)


def _repeated(weights: pa.ChunkedArray) -> pa.Array:
    return pa.array(
        [i for i, weight in enumerate(weights.to_pylist()) for _ in range(weight)], pa.int64()
    )
