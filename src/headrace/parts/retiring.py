"""Preparations before the first events of a log are retired: their ids, and the views' state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.runtime.retirement import latest_times

if TYPE_CHECKING:
    from headrace.catalog import Stream, View
    from headrace.engine.engine import Engine
    from headrace.ledger import Retired
    from headrace.log import Appender
    from headrace.parts.admission import Admission
    from headrace.types import Offset


@dataclass(frozen=True, slots=True)
class Retiring:
    """Implements the checks of :class:`headrace.runtime.retirement.Retirement`."""

    appender: Appender
    admission: Admission
    engine: Engine

    def keep_ids(self, stream: Stream, end: Offset) -> None:
        """Store the ids of events before an offset, if the stream deduplicates by id.

        Appends to the stream wait meanwhile.
        """
        with self.appender.closed(stream.id):
            self.admission.keep_ids(stream, end)

    def left_by(self, view: View, stream: Stream, retired: Retired) -> int | None:
        """Return the clock from which the state of a view contains no retired event.

        None if that is unknown.
        """
        latest = latest_times(stream, retired)
        return self.engine.left_by(self.engine.circuit(view), stream, latest)
