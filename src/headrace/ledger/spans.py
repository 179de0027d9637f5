"""How the database did in spans of time: a bounded number of rows, written by its server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from headrace.ledger import schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.ledger.transactions import Transactions


@dataclass(frozen=True, slots=True)
class StatusSpan:
    """How the database did in ``seconds`` from ``at`` on, in Unix seconds."""

    seconds: int
    at: int
    figures: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans by their length and begin; those that are too old are deleted as others are stored."""

    _transactions: Transactions

    def since(self, seconds: int, at: float) -> tuple[StatusSpan, ...]:
        """Return the spans of so many seconds that end after a time, oldest first."""
        its = schema.spans.c
        query = (
            sa.select(schema.spans)
            .where(its.seconds == seconds, its.at > at - seconds)
            .order_by(its.at)
        )
        with self._transactions.reading() as connection:
            return tuple(
                StatusSpan(row.seconds, row.at, row.figures) for row in connection.execute(query)
            )

    def put(self, spans: Sequence[StatusSpan], oldest: Mapping[int, float]) -> None:
        """Store spans, in place of those that are known by the same length and begin.

        Those of each length that ended before its ``oldest`` time are deleted.

        Raises:
            HeadraceError: CONFLICT if another process has taken over; UNAVAILABLE.
        """
        its = schema.spans.c
        with self._transactions.writing() as writing:
            connection = writing.connection
            for each in spans:
                known = (its.seconds == each.seconds) & (its.at == each.at)
                connection.execute(schema.spans.delete().where(known))
            rows = [{"seconds": s.seconds, "at": s.at, "figures": dict(s.figures)} for s in spans]
            if rows:
                connection.execute(schema.spans.insert(), rows)
            for seconds, at in oldest.items():
                past = (its.seconds == seconds) & (its.at < at - seconds)
                connection.execute(schema.spans.delete().where(past))
