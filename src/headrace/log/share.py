"""A range of one relation's log, as data that a step or a query reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.types import Offset

if TYPE_CHECKING:
    from headrace.ledger import Segment


_BEGINNING: Final = Offset(0)


@dataclass(frozen=True, slots=True)
class LogShare:
    """The changes ``[first, end)`` of a relation's log, and the segments that contain them.

    Corrections of events before ``since`` are left out: these events are no longer kept.
    """

    segments: tuple[Segment, ...]
    first: Offset
    end: Offset
    since: Offset = _BEGINNING

    @property
    def rows(self) -> int:
        """The number of changes."""
        return self.end - self.first
