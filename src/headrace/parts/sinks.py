"""The sinks of a database, and the deliveries to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import Sink
from headrace.runtime.deliveries import Delivery

if TYPE_CHECKING:
    from headrace.ledger import Ledger
    from headrace.parts.destinations import Destinations
    from headrace.parts.reader import Reader
    from headrace.runtime.deliveries import Deliveries
    from headrace.runtime.epoch import EpochLoop
    from headrace.runtime.pump import Pump


@dataclass(frozen=True, slots=True)
class Sinks:
    """Has the changelogs of views delivered, each from its stored position on.

    Sinks are delivered to in the background if epochs are made there too.
    """

    ledger: Ledger
    loop: EpochLoop
    pump: Pump
    reader: Reader
    destinations: Destinations
    deliveries: Deliveries

    def begin_all(self) -> None:
        """Resume delivery to the sinks in the catalog."""
        for relation in self.reader.catalog:
            if isinstance(relation, Sink):
                self.begin(relation)

    def begin(self, sink: Sink) -> str:
        """Start delivering to a sink of the catalog; return its guarantee."""
        history = self.reader.history(self.reader.published, sink.source)
        writer, settings = self.destinations.opened(sink)
        record = self.ledger.deliveries()[sink.id]
        delivery = Delivery(self.loop, record, history, writer, settings)
        self.deliveries.add(delivery, background=self.pump.running)
        return writer.guarantee
