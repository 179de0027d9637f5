"""Land an external source in the log: its position enters the ledger together with its segment.

What was appended and where the source continues are one transaction, so each change counts once,
whatever is interrupted. The log's offsets are the only ones that views know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.ledger import LoadProgress

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from headrace.ledger import Ledger
    from headrace.runtime.ports import AppendRows, Part
    from headrace.types import Offset, RelationId

_ROWS, _PARTS = "rows", "parts"


@dataclass(slots=True)
class Ingest:
    """One source being landed in the log of one relation.

    ``source`` identifies it among all that were ever landed there. ``rows`` and ``parts`` count
    what it has led to since its beginning; ``landed`` and ``rejected`` only since this object was
    made.
    """

    append: AppendRows
    source: str
    position: Mapping[str, Any] | None = None
    """Where the source continues; None at its beginning."""
    rows: int = 0
    parts: int = 0
    landed: int = 0
    rejected: int = 0

    @classmethod
    def of(cls, ledger: Ledger, relation: RelationId, source: str, append: AppendRows) -> Ingest:
        """Return the ingest of a source, which continues where its last part ended."""
        known = ledger.loads.progress(relation, source)
        if known is None:
            return cls(append, source)
        kept = {key: value for key, value in known.progress.items() if key not in (_ROWS, _PARTS)}
        # Loads from before parts were counted have made one.
        rows, parts = known.progress.get(_ROWS, 0), known.progress.get(_PARTS, 1)
        return cls(append, source, kept, rows, parts)

    def take(self, part: Part) -> None:
        """Land a part that has whole rows, unless it says nothing new."""
        if part.rows.num_rows or part.rejects or part.notes or part.position != self.position:
            self.land(part, part.rows)

    def land(self, part: Part, changes: pa.Table) -> Offset:
        """Append one part durably: its changes, rejects and position; return the log's end."""
        rows, parts = self.rows + changes.num_rows, self.parts + 1
        progress = {**part.position, _ROWS: rows, _PARTS: parts}
        load = LoadProgress(self.source, progress, notes=part.notes)
        end = self.append(changes, load=load, rejects=part.rejects)
        self.rows, self.parts, self.position = rows, parts, part.position
        self.landed += changes.num_rows
        self.rejected += len(part.rejects)
        return end

    def finish(self, nothing: pa.Table) -> Offset:
        """Record that the source has ended; ``nothing`` has the columns of changes, and no rows."""
        ended = LoadProgress(self.source, dict(self.position or {}), finished=True)
        return self.append(nothing, load=ended, rejects=())
