"""A range of one relation's log, described as data for a step or a query.

The least and greatest values of a segment's columns, stored to skip segments when reading.

They are JSON values: numbers, days and microseconds since 1970, text. Columns of other types, and
those with long text, have no bounds.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.zset import Bounds
from headrace.types import Offset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.algebra.zset import Restriction, Test
    from headrace.storage.ledger import Segment


_OWN: Final = "__"
"""The prefix of columns that are not the relation's."""
_MOST_COLUMNS: Final = 32
_FEW: Final = 16
"""The values of so many rows are compared here: that takes less than calls of Arrow."""
_LONGEST: Final = 64
"""Texts of this length or more are not stored as bounds."""


def bounds_of(rows: pa.Table) -> dict[str, Any]:
    """Return the bounds of the columns of rows, by name; both are None if all values are NULL."""
    found: dict[str, Any] = {}
    for place, name, number in _bounded(rows.schema):
        if len(found) == _MOST_COLUMNS:
            break
        column = rows.column(place)
        if rows.num_rows > _FEW:
            both = pc.min_max(column)
            column = pa.chunked_array([pa.array([both["min"], both["max"]], column.type)])
        chunks = column.chunks if number is None else [c.view(number) for c in column.chunks]
        values: list[Any] = [v for each in chunks for v in each.to_pylist() if v is not None]
        ends: list[Any] = [min(values), max(values)] if values else [None, None]
        if not isinstance(ends[0], str) or max(map(len, ends)) < _LONGEST:
            found[name] = ends
    return found


@lru_cache(maxsize=1024)
def _bounded(schema: pa.Schema) -> tuple[tuple[int, str, pa.DataType | None], ...]:
    """Return the columns that may have bounds: place, name, and the type of numbers, if they are.

    It is None if that is the type of the column.
    """
    found = []
    for place, field in enumerate(schema):
        number = _as_number(field.type)
        kept = number is not None or pa.types.is_string(field.type)
        if kept and not field.name.startswith(_OWN):
            found.append((place, field.name, None if number == field.type else number))
    return tuple(found)


def merged_bounds(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bounds of the union of two sets of rows."""
    found = {}
    for name in first.keys() & second.keys():
        ends = [end for both in (first[name], second[name]) for end in both if end is not None]
        found[name] = [min(ends), max(ends)] if ends else [None, None]
    return found


def read_bounds(known: Mapping[str, Any], schema: pa.Schema) -> dict[str, Bounds]:
    """Decode bounds from :func:`bounds_of` to values of a relation's columns."""
    found = {}
    for name, both in known.items():
        if name not in schema.names:
            continue
        type_ = schema.field(name).type
        number = _as_number(type_)
        stored = type_ if number is None else number
        low, high = (pa.scalar(value, stored).cast(type_) for value in both)
        found[name] = Bounds(low, high) if low.is_valid else Bounds(None, None)
    return found


@dataclass(frozen=True, slots=True)
class Pruning:
    """Says which segments may hold rows that meet a restriction, by their bounds as stored.

    It is plain data, which travels to where segments are listed; a segment costs a comparison of
    two values for each test.
    """

    tests: tuple[_Within, ...] = ()

    @classmethod
    def of(cls, restriction: Restriction) -> Pruning:
        """Return the pruning of a restriction over the columns of a log."""
        return cls(tuple(w for w in map(_within, restriction.tests) if w is not None))

    def may_hold(self, known: Mapping[str, Any]) -> bool:
        """Whether a segment with these bounds may hold such a row, as far as they are known."""
        return all(w.may_hold(*known[w.column]) for w in self.tests if w.column in known)

    def holds_all(self, known: Mapping[str, Any]) -> bool:
        """Whether all rows of a segment pass, apart from those with NULL in a tested column."""
        return all(w.column in known and w.holds_all(*known[w.column]) for w in self.tests)


@dataclass(frozen=True, slots=True)
class _Within:
    """A test of a column, in values as bounds are stored; ``values`` ascend."""

    column: str
    values: tuple[Any, ...] | None = None
    low: Any = None
    high: Any = None
    above: Any = None
    below: Any = None

    def may_hold(self, least: Any, greatest: Any) -> bool:
        if least is None:
            return False
        if self.values is not None:
            place = bisect_left(self.values, least)
            return place < len(self.values) and bool(self.values[place] <= greatest)
        return self._passes(greatest, least)

    def holds_all(self, least: Any, greatest: Any) -> bool:
        if least is None:
            return False
        if self.values is not None:
            return bool(least == greatest) and least in self.values
        return self._passes(least, greatest)

    def _passes(self, low_end: Any, high_end: Any) -> bool:
        """Whether one value is within the bounds from below, and another one those from above."""
        return (
            (self.low is None or low_end >= self.low)
            and (self.above is None or low_end > self.above)
            and (self.high is None or high_end <= self.high)
            and (self.below is None or high_end < self.below)
        )


def _within(test: Test) -> _Within | None:
    """Return a test in values as bounds are stored; None if they are compared differently."""
    ends = {name: _stored(bound) for name, bound in test.bounds.items()}
    values = None
    if test.values is not None:
        given = [_stored(value) for value in test.values.drop_null()]
        values = None if any(isinstance(each, float) for each in given) else tuple(sorted(given))
        if values is None:
            return None
    if any(isinstance(each, float) for each in ends.values()):
        return None
    return _Within(test.column, values, **ends)


def _stored(value: pa.Scalar) -> Any:
    number = _as_number(value.type)
    return value.as_py() if number is None else value.cast(number).as_py()


def _as_number(type_: pa.DataType) -> pa.DataType | None:
    """Return the integer type in which values of a type are stored, or None."""
    if pa.types.is_integer(type_):
        return type_
    if pa.types.is_date32(type_):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(type_) or pa.types.is_time64(type_) else None


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
