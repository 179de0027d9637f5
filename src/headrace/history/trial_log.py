"""Records what a statement would write, for trials: nothing is appended or rebuilt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.history.amending import Amending
from headrace.ledger import OffsetRange
from headrace.parts.generated_columns import with_offsets
from headrace.parts.log import Log, with_correction
from headrace.types import Offset

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from headrace.catalog import Stream, Table, View
    from headrace.ledger import Correction, DeliveryRecord, LoadProgress, ProducerPosition, Reject
    from headrace.runtime.fill import Progress


@dataclass(frozen=True, slots=True)
class TrialLog(Log):
    """Records changes as the log would append them, without deduplication; writes nothing."""

    taken: list[tuple[Stream | Table, pa.Table]] = field(default_factory=list)

    @classmethod
    def of(cls, log: Log) -> TrialLog:
        """Return a trial log in place of a log."""
        return cls(log.directory, log.ledger, log.appender, log.queries, log.pump, log.admission)

    def append(
        self,
        relation: Stream | Table,
        rows: pa.Table,
        *,
        load: LoadProgress | None = None,
        producer: ProducerPosition | None = None,
        rejects: Sequence[Reject] = (),
        guard: Callable[[Offset], None] | None = None,
        delivered: DeliveryRecord | None = None,
    ) -> OffsetRange:
        """Record changes, with the values of generated columns, at the end of the log."""
        del load, producer, rejects, guard, delivered
        end = self.ledger.head.log_end(relation.id)
        rows = self.completed(relation, rows)
        self.taken.append((relation, with_offsets(relation, rows, end)))
        return OffsetRange(end, Offset(end + rows.num_rows))

    def correct(self, stream: Stream, rows: pa.Table, correction: Correction) -> OffsetRange:
        """Record changes that amend earlier events of a stream."""
        del correction
        end = self.ledger.head.log_end(stream.id)
        self.taken.append((stream, with_correction(rows, end)))
        return OffsetRange(end, Offset(end + rows.num_rows))


class TrialAmending(Amending):
    """Prepares trial corrections: rebuilds no view."""

    __slots__ = ()

    def prepared(self, stream: Stream, progress: Progress) -> tuple[Stream, tuple[View, ...]]:
        """Return the stream; no view is rebuilt."""
        del progress
        return stream, ()

    @classmethod
    def of(cls, amending: Amending) -> TrialAmending:
        """Return the trial form of an amending part."""
        return cls(amending.reader, amending.ledger, amending.engine, amending.definer)
