"""A range of one relation's log, described as data for a step or a query."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headrace.types import Offset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.ledger import Segment


_BEGINNING: Final = Offset(0)


@dataclass(frozen=True, slots=True)
class Corrected:
    """The corrections in a log range ``[first, end)``, and the segments that have them.

    A small segment is one correction; a large one may have many, and events between them.
    """

    first: Offset
    end: Offset
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class LogShare:
    """The changes ``[first, end)`` of a relation's log, and the segments that contain them.

    Corrections of events before ``since``, which are no longer retained, are left out. So are
    changes that ``corrected`` supersedes; see :meth:`as_corrected`. A ``sparse`` share has only the
    changes in its segments, which may leave gaps.
    """

    segments: tuple[Segment, ...]
    first: Offset
    end: Offset
    since: Offset = _BEGINNING
    corrected: Corrected | None = None
    sparse: bool = False

    @property
    def rows(self) -> int:
        """The number of changes."""
        if self.sparse:
            return sum(end - first for _, first, end in self._held())
        return self.end - self.first

    @property
    def bytes(self) -> int:
        """About how many bytes the changes have in the log."""
        found = 0
        for each in self.segments:
            within = min(each.range.end, self.end) - max(each.range.first, self.first)
            found += each.file.bytes * max(0, within) // max(1, each.range.rows)
        return found

    def _held(self) -> Iterator[tuple[Segment, Offset, Offset]]:
        """Yield the segments with the offsets of their changes in the share, in order."""
        for each in self.segments:
            first, end = max(each.range.first, self.first), min(each.range.end, self.end)
            if first < end:
                yield each, first, end

    def among(self, segments: tuple[Segment, ...]) -> LogShare:
        """Return the changes of the share that are in some of its segments."""
        if len(segments) == len(self.segments):
            return self
        return replace(self, segments=segments, sparse=True)

    def between(self, low: int, high: int) -> LogShare:
        """Return the changes ``[low, high)`` in the order of the share, and their segments."""
        first, end = Offset(self.first + low), Offset(min(self.first + high, self.end))
        if self.sparse:
            first, end = self._place(low), self._place(high)
        held = (s for s in self.segments if s.range.first < end and s.range.end > first)
        return replace(self, segments=tuple(held), first=first, end=end)

    def _place(self, number: int) -> Offset:
        """Return the offset of a change of a sparse share; of the last one, the end."""
        for _, first, end in self._held():
            if number < end - first:
                return Offset(first + number)
            number -= end - first
        return self.end

    def contiguous(self) -> Iterator[LogShare]:
        """Yield the changes in parts without gaps, in order."""
        if not self.sparse:
            yield self
            return
        part: list[tuple[Segment, Offset, Offset]] = []
        for each in self._held():
            if part and each[1] > part[-1][2]:
                yield self._part(part)
                part = []
            part.append(each)
        if part:
            yield self._part(part)

    def _part(self, held: list[tuple[Segment, Offset, Offset]]) -> LogShare:
        segments = tuple(segment for segment, _, _ in held)
        return replace(self, segments=segments, first=held[0][1], end=held[-1][2], sparse=False)

    def as_corrected(self) -> LogShare:
        """Return the share without the changes that its own corrections supersede.

        The sum is the same, also over its parts together, but an event whose correction is in the
        share is read only in its corrected form. A part of a correction supersedes nothing.
        """
        own = tuple(s for s in self.segments if s.amends)
        return replace(self, corrected=Corrected(self.first, self.end, own)) if own else self
