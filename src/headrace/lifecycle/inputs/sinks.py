"""The sinks of a database, and the deliveries to them.

The destinations of sinks: tables and streams of this database, and external systems.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.deliveries import Delivery, DeliverySettings
from headrace.execution.runtime.delivery_position import DeliveryPosition
from headrace.io.connectors import (
    CONNECTOR,
    RefusalPolicy,
    SinkContext,
    SinkOptions,
    sink_connector,
)
from headrace.io.connectors.options import restored_options
from headrace.lifecycle.inputs.rows import completed, require_present
from headrace.planning.catalog import Sink, Stream, Table
from headrace.storage.ledger import DeliveryState, ProducerPosition
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from headrace.execution.engine.reading.queries import Queries
    from headrace.execution.runtime.deliveries import Deliveries
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.ports import RefusedRow, SinkWriter
    from headrace.execution.runtime.pump import Pump
    from headrace.io.connectors import Secrets
    from headrace.lifecycle.inputs.log import Log
    from headrace.lifecycle.states.reader import Reader
    from headrace.storage.ledger import DeliveryRecord, Ledger
    from headrace.types import RelationId, Schema


@dataclass(frozen=True, slots=True)
class Destinations:
    """Opens the writers of sinks."""

    directory: Path
    secrets: Secrets
    reader: Reader
    log: Log
    queries: Queries
    roots: tuple[Path, ...] = ()
    """Directories outside of the data directory, below which sinks may write."""

    def opened(self, sink: Sink) -> tuple[SinkWriter, DeliverySettings]:
        """Return the writer for a sink's destination, and its delivery settings."""
        options = restored_options(SinkOptions, sink.delivery, "a sink")
        if sink.target is not None:
            writer = TableWriter(self.reader, self.log, self.queries, sink, sink.target)
            return writer, options.settings(joins=False)
        connector = sink_connector(dict(sink.options)[CONNECTOR])
        own = connector.restored(sink.options)
        context = self.context(sink.id, sink.schema, sink.key, options)
        return connector.open(own, context), options.settings(joins=connector.joins(own))

    def context(
        self, sink: RelationId, schema: Schema, key: tuple[str, ...], options: SinkOptions
    ) -> SinkContext:
        """Return what a connector needs of this database, and the schema of the sink's rows."""
        identity = f"{self.log.ledger.settings.identity}/{sink}"
        stops = options.on_error is RefusalPolicy.STOP
        return SinkContext(
            self.directory, schema, key, self.secrets, identity, stops, roots=self.roots
        )


@dataclass(frozen=True, slots=True)
class TableWriter:
    """Appends to a table's or stream's log, as a producer whose sequence numbers are epochs.

    So each epoch is written exactly once. The changes of an epoch are one append, and are therefore
    read by one epoch; its parts are written as they arrive. In each part, deletions precede
    insertions, so that the new row of a primary key stays: all changes of a key are in one part.
    """

    reader: Reader
    log: Log
    queries: Queries
    sink: Sink
    into: RelationId
    guarantee: str = "exactly once: one transaction per epoch"

    def durable(self) -> Epoch | None:
        """Return the last epoch that has been appended."""
        found = self.log.ledger.producers.last(self.into, self._producer)
        return None if found is None else Epoch(found)

    def stored(self) -> Iterator[pa.Table] | None:
        """Return None: others may write to the relation as well."""
        return None

    def clear(self) -> None:
        """Do nothing: which rows of the table came from the sink is not known."""

    def close(self) -> None:
        """Do nothing: no resource is held."""

    @property
    def _producer(self) -> str:
        return f"sink {self.sink.id}"

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        """Append the changes of an epoch, unless they were appended before."""
        self._append(epoch, parts, None)
        return ()

    def write_with(self, record: DeliveryRecord, parts: Iterable[pa.Table]) -> None:
        """Append the changes of an epoch; store the sink's record in the same transaction."""
        self._append(record.held, parts, record)

    def _append(
        self, epoch: Epoch, parts: Iterable[pa.Table], delivered: DeliveryRecord | None
    ) -> None:
        relation = self.reader.catalog.by_id[self.into]
        if not isinstance(relation, Stream | Table):
            raise HeadraceError(Code.INTERNAL, f"sink {self.sink.name} writes to no table")
        producer = ProducerPosition(self._producer, epoch)
        changes = (self._changes(relation, part) for part in parts)
        self.log.append_in_parts(relation, changes, producer=producer, delivered=delivered)

    def _changes(self, relation: Stream | Table, changes: pa.Table) -> pa.Table:
        """Convert changes of the view to changes of the relation."""
        weights = changes[WEIGHT]
        given = changes.drop_columns([WEIGHT]).rename_columns(list(self.sink.columns))
        rows = completed(self.queries, relation, given, self.log.admission.micros())
        require_present(relation, rows, None)
        if isinstance(relation, Stream):
            if (pc.min(weights).as_py() or 1) < 0:
                raise HeadraceError(
                    Code.INVALID,
                    f'stream "{relation.name}" is append-only, but rows were deleted',
                    hint="Use a TABLE for rows that change.",
                )
            return rows.take(_repeated(weights))
        return rows.append_column(WEIGHT, weights).sort_by(WEIGHT)


def _repeated(weights: pa.ChunkedArray) -> pa.Array:
    return pa.array(
        [i for i, weight in enumerate(weights.to_pylist()) for _ in range(weight)], pa.int64()
    )


@dataclass(frozen=True, slots=True)
class Unopened:
    """Stands in for a writer that could not be opened; every use raises its error."""

    error: HeadraceError
    guarantee: str = "not known"

    def durable(self) -> Epoch | None:
        """Raise."""
        raise self.error

    def write(self, _epoch: Epoch, _parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        """Raise."""
        raise self.error

    def stored(self) -> Iterator[pa.Table] | None:
        """Raise."""
        raise self.error

    def clear(self) -> None:
        """Raise."""
        raise self.error

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Sinks:
    """Delivers the changelogs of views to sinks, each from its stored position on.

    Delivery runs in the background if epochs are made in the background.
    """

    ledger: Ledger
    loop: EpochLoop
    pump: Pump
    reader: Reader
    destinations: Destinations
    deliveries: Deliveries

    def begin_all(self) -> None:
        """Resume delivery to the sinks in the catalog.

        A sink whose destination cannot be opened shows the error until a statement resumes it.
        """
        for relation in self.reader.catalog:
            if not isinstance(relation, Sink):
                continue
            try:
                opened = self.destinations.opened(relation)
            except HeadraceError as error:
                opened = Unopened(error), DeliverySettings()
            self._begin(relation, *opened)

    def begin(self, sink: Sink) -> str:
        """Start delivering to a sink of the catalog; return its guarantee."""
        return self._begin(sink, *self.destinations.opened(sink))

    def resume(self, sink: Sink) -> bool:
        """Resume a delivery; return whether it had stopped.

        Raises:
            HeadraceError: if its destination cannot be opened.
        """
        delivery = self.deliveries.by_sink[sink.id]
        if delivery.state == DeliveryState.RUNNING:
            return False
        if isinstance(delivery.writer, Unopened):
            delivery.change(*self.destinations.opened(sink))
        delivery.resume()
        return True

    def _begin(self, sink: Sink, writer: SinkWriter, settings: DeliverySettings) -> str:
        history = self.reader.history(self.reader.published, sink.source)
        record = self.ledger.deliveries.all()[sink.id]
        delivery = Delivery(
            self.loop, DeliveryPosition(self.loop, record), history, writer, settings
        )
        self.deliveries.add(delivery, background=self.pump.running)
        return writer.guarantee
