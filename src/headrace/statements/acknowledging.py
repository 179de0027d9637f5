"""ACKNOWLEDGE REJECTS: rows that were rejected, and need no attention any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import Sink, Stream, Table, title
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from headrace.ledger import Ledger
    from headrace.parts.reader import Reader
    from headrace.sql import AcknowledgeRejects


@dataclass(frozen=True, slots=True)
class Acknowledging:
    """Acknowledges what a stream or table rejected, or the target of a sink refused."""

    reader: Reader
    ledger: Ledger

    def acknowledge(self, statement: AcknowledgeRejects) -> str:
        """Acknowledge rows, all or those of the given ids; they stay listed.

        Raises:
            HeadraceError: ``invalid`` for relations that reject nothing.
        """
        name = statement.name
        relation = self.reader.catalog.resolve(name.dotted, name.span)
        if not isinstance(relation, Stream | Table | Sink):
            raise HeadraceError(
                Code.INVALID,
                f"{title(relation)} rejects no rows",
                hint="Name a stream, a table or a sink.",
                span=name.span,
            )
        count = self.ledger.rejects.acknowledge(relation.id, statement.ids)
        left = self.ledger.rejects.counted(relation.id).unacknowledged
        rows = "row" if count == 1 else "rows"
        return f"acknowledged {count:,} {rows} of {relation.name}; {left:,} still ask for attention"
