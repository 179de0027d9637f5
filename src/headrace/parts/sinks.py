"""The sinks of a database, and the deliveries to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import Sink
from headrace.errors import HeadraceError
from headrace.ledger import DeliveryState
from headrace.runtime.deliveries import Delivery, DeliverySettings
from headrace.runtime.delivery_position import DeliveryPosition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from headrace.ledger import Ledger
    from headrace.parts.destinations import Destinations
    from headrace.parts.reader import Reader
    from headrace.runtime.deliveries import Deliveries
    from headrace.runtime.epoch import EpochLoop
    from headrace.runtime.ports import RefusedRow, SinkWriter
    from headrace.runtime.pump import Pump
    from headrace.types import Epoch


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
