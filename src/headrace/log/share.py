"""A range of one relation's log, as data that a step or a query reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.ledger import Segment
    from headrace.types import Offset


@dataclass(frozen=True, slots=True)
class LogShare:
    """The changes ``[first, end)`` of a relation's log, and the segments that contain them."""

    segments: tuple[Segment, ...]
    first: Offset
    end: Offset

    @property
    def rows(self) -> int:
        """The number of changes."""
        return self.end - self.first
