"""``AS OF``: the epoch or the time at which is read; ``FOR CHANGES``: a range of epochs.

``AS_OF(...)`` reads each row as of its own time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import Code, HeadraceError
from headrace.planning.sql.lexer import quote, quote_dotted

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.types import Epoch


@dataclass(frozen=True, slots=True)
class AsOfEpoch:
    """``AS OF EPOCH n``: the contents at a committed epoch."""

    epoch: Epoch
    span: Span


@dataclass(frozen=True, slots=True)
class AsOfTimestamp:
    """``AS OF TIMESTAMP '...'``: the contents at the last epoch committed by that time."""

    timestamp: str
    span: Span

    @property
    def seconds(self) -> float:
        """The time in Unix seconds; UTC if the text names no offset.

        Raises:
            HeadraceError: ``invalid``, at the clause, if the text is not a timestamp.
        """
        try:
            moment = datetime.fromisoformat(self.timestamp.strip())
        except ValueError as error:
            raise HeadraceError(
                Code.INVALID,
                f"'{self.timestamp}' is not a timestamp",
                hint="Write it as '2026-01-31 12:00:00', in UTC.",
                span=self.span,
            ) from error
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


AsOf: TypeAlias = AsOfEpoch | AsOfTimestamp


@dataclass(frozen=True, slots=True)
class AskedView:
    """A view, and columns with their names in the result; None for all that are not its key.

    ``span`` is the place of the name in a statement.
    """

    name: str
    columns: tuple[tuple[str, str], ...] | None = None
    span: Span | None = None

    @property
    def text(self) -> str:
        """The view as :func:`headrace.planning.sql.fragments.asked_view` reads it."""
        name = quote_dotted(self.name)
        if self.columns is None:
            return name
        return f"{name}({', '.join(f'{quote(c)} AS {quote(new)}' for c, new in self.columns)})"


@dataclass(frozen=True, slots=True)
class PairsAsOf:
    """``AS_OF(TABLE pairs, DESCRIPTOR(time), view, ...)``: rows with the values of views then.

    ``pairs`` is the query of the rows; ``time`` is None for their only column of times.
    """

    pairs: Span
    time: str | None
    views: tuple[AskedView, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class ChangesBetween:
    """``FOR CHANGES BETWEEN EPOCH a AND b``: the changes after ``after``, up to and with ``upto``.

    ``upto`` is None for the epoch at which the query reads.
    """

    after: AsOf
    upto: AsOf | None
    span: Span
