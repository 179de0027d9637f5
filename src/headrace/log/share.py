"""A range of one relation's log, described as data for a step or a query."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headrace.types import Offset

if TYPE_CHECKING:
    from headrace.ledger import Segment


_BEGINNING: Final = Offset(0)


@dataclass(frozen=True, slots=True)
class Corrected:
    """The corrections in a log range from ``first`` on; each segment is one."""

    first: Offset
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class LogShare:
    """The changes ``[first, end)`` of a relation's log, and the segments that contain them.

    Corrections of events before ``since``, which are no longer retained, are left out. So are
    changes that ``corrected`` supersedes; see :meth:`as_corrected`.
    """

    segments: tuple[Segment, ...]
    first: Offset
    end: Offset
    since: Offset = _BEGINNING
    corrected: Corrected | None = None

    @property
    def rows(self) -> int:
        """The number of changes."""
        return self.end - self.first

    @property
    def bytes(self) -> int:
        """About how many bytes the changes have in the log."""
        found = 0
        for each in self.segments:
            within = min(each.range.end, self.end) - max(each.range.first, self.first)
            found += each.file.bytes * max(0, within) // max(1, each.range.rows)
        return found

    def as_corrected(self) -> LogShare:
        """Return the share without the changes that its own corrections supersede.

        The sum is the same, also over its parts together, but an event whose correction is in the
        share is read only in its corrected form.
        """
        own = tuple(s for s in self.segments if s.amends)
        whole = all(s.range.first >= self.first and s.range.end <= self.end for s in own)
        if not own or not whole:  # a part of a correction does not say what it supersedes
            return self
        return replace(self, corrected=Corrected(self.first, own))
