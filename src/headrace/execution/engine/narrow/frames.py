"""Window functions over sorted rows, vectorised, with the values that Spark computes.

Rows are in the order of their window: group by group, and within a group by the ORDER BY. A *frame*
is a range of positions for each row. Where Spark's value is not known, such as for a sum that may
overflow, functions raise :class:`~headrace.planning.catalyst.vectors.DoubtError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.zset import OrderBy, row_codes
from headrace.algebra.zset.order import order_keys, ordered, refined, valid
from headrace.algebra.zset.sums import decimal_words
from headrace.planning.catalyst.vectors import DoubtError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from headrace.algebra.zset.order import Bools, Ints, SortedBy


if TYPE_CHECKING:
    Floats = npt.NDArray[np.float64]

_LOW: Final = np.int64(0xFFFFFFFF)
_HALF: Final = np.int64(32)
_FITS: Final = float(2**62)
"""Sums of absolute values up to this one fit 64 bits, although they are estimated as floats."""
_WHOLE: Final = float(2**52)
"""Sums of whole numbers up to this one are exact as floats, in any order."""
_MOST_ADDED: Final = 20_000_000
"""The most additions of floats for frames that do not start with their group."""
_MARGIN: Final = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class Distance:
    """A bound by value: the row of a group whose column ``values`` reaches that in ``bounds``.

    Both are given by position; ``values`` are in the order ``by``.
    """

    values: int
    bounds: int
    by: OrderBy


@dataclass(frozen=True, slots=True)
class FrameBounds:
    """The bounds of frames, relative to the row; None is the end of the group.

    A number counts rows. With ``peers``, a bound of 0 is the first or last row that is equal in
    the ORDER BY.
    """

    lower: int | Distance | None
    upper: int | Distance | None
    peers: bool = False


@dataclass(frozen=True)
class Frames:
    """For each row, the positions ``[starts, stops)`` of its frame, perhaps none."""

    starts: Ints
    stops: Ints

    @cached_property
    def lengths(self) -> Ints:
        """The numbers of rows."""
        return self.stops - self.starts

    @property
    def longest(self) -> int:
        """The largest number of rows of a frame."""
        return int(self.lengths.max(initial=0))


@dataclass(frozen=True)
class Groups:
    """Where groups and peers start among sorted rows: a flag for each row."""

    group_starts: Bools
    peer_starts: Bools

    @cached_property
    def rows(self) -> Ints:
        """The positions of the rows."""
        return np.arange(len(self.group_starts))

    @cached_property
    def group(self) -> Frames:
        """The group of each row."""
        return _stretches(self.group_starts)

    @cached_property
    def peers(self) -> Frames:
        """The rows of each row's group that are equal to it in the ORDER BY."""
        return _stretches(self.peer_starts)

    @cached_property
    def sizes(self) -> Ints:
        """The number of rows in each row's group."""
        return self.group.lengths

    @cached_property
    def numbers(self) -> Ints:
        """``row_number()``."""
        return self.rows - self.group.starts + 1

    @cached_property
    def ranks(self) -> Ints:
        """``rank()``."""
        return self.peers.starts - self.group.starts + 1

    def frames(self, frame: FrameBounds, columns: Sequence[pa.Array]) -> Frames:
        """Return the frames with some bounds."""
        group, rows = self.group, self.rows
        first = last = rows
        if frame.peers:
            first, last = self.peers.starts, self.peers.stops - 1
        match frame.lower:
            case None:
                starts = group.starts
            case Distance():
                starts = self._reached(frame.lower, columns, "left")
            case lower:
                starts = first + lower
        match frame.upper:
            case None:
                stops = group.stops
            case Distance():
                stops = self._reached(frame.upper, columns, "right")
            case upper:
                stops = last + (upper + 1)
        starts = np.clip(starts, group.starts, group.stops)
        return Frames(starts, np.clip(stops, starts, group.stops))

    def _reached(
        self, distance: Distance, columns: Sequence[pa.Array], side: Literal["left", "right"]
    ) -> Ints:
        """Return where bounds would be inserted among the values of the group."""
        rows = len(self.rows)
        both = pa.concat_arrays([columns[distance.values], columns[distance.bounds]])
        order, codes = ordered(np.zeros(2 * rows, np.int64), order_keys(both, distance.by))
        numbers = np.empty(2 * rows, np.int64)
        numbers[order] = codes
        numbers += np.tile(np.cumsum(self.group_starts) * (2 * rows), 2)
        return np.searchsorted(numbers[:rows], numbers[rows:], side)


def _stretches(starts: Bools) -> Frames:
    first = np.flatnonzero(starts)
    lengths = np.diff(first, append=len(starts))
    found = np.repeat(first, lengths)
    return Frames(found, found + np.repeat(lengths, lengths))


@dataclass(frozen=True, slots=True)
class Order:
    """The order of rows: by columns ``by`` position; the first are the groups.

    The next ``ordered`` are the ORDER BY. ``stable``: equal rows keep their order.
    """

    by: tuple[OrderBy, ...]
    grouped: int
    ordered: int
    stable: bool

    def sorted(
        self, columns: Sequence[pa.Array], count: int
    ) -> tuple[Ints, Groups, list[pa.Array]]:
        """Return the positions of rows in their order, and their groups in that order.

        The first columns are those of the order; the others are returned in that order too.
        """
        keys, others = columns[: len(self.by)], columns[len(self.by) :]
        rows, starts = np.arange(count), np.zeros(count, np.bool_)
        starts[:1] = True
        given = [_sorted_by(*pair) for pair in zip(keys, self.by, strict=True)]
        rows, grouped = refined(rows, starts, given[: self.grouped])
        last = self.grouped + self.ordered
        rows, peers = refined(rows, grouped, given[self.grouped : last])
        rest = given[last:]
        if self.stable:
            rest.append(_sorted_by(pa.array(np.arange(count)), OrderBy("")))
        rows, _ = refined(rows, peers, rest)
        taken = pa.array(rows)
        return rows, Groups(grouped, peers), [each.take(taken) for each in others]


def _sorted_by(column: pa.Array, by: OrderBy) -> SortedBy:
    return column, lambda values: order_keys(values, by)


def row_number(groups: Groups) -> pa.Array:
    """Return the number of each row in its group."""
    return pa.array(groups.numbers.astype(np.int32))


def rank(groups: Groups) -> pa.Array:
    """Return the number of the first of each row's peers."""
    return pa.array(groups.ranks.astype(np.int32))


def dense_rank(groups: Groups) -> pa.Array:
    """Return the number of each row's peers among the sets of peers of its group."""
    before: Ints = np.cumsum(groups.peer_starts)
    return pa.array((before - before[groups.group.starts] + 1).astype(np.int32))


def percent_rank(groups: Groups) -> pa.Array:
    """Return the part of the other rows that are before each row's peers."""
    others = groups.sizes - 1
    return pa.array(np.where(others > 0, (groups.ranks - 1) / np.maximum(others, 1), 0.0))


def cume_dist(groups: Groups) -> pa.Array:
    """Return the part of the rows that are not after each row's peers."""
    return pa.array((groups.peers.stops - groups.group.starts) / groups.sizes)


def ntile(groups: Groups, count: int) -> pa.Array:
    """Return the bucket of each row, of ``count`` buckets that differ by one row at most."""
    at = groups.numbers - 1
    size, larger = groups.sizes // count, groups.sizes % count
    turn = larger * (size + 1)
    rest = larger + (at - turn) // np.maximum(size, 1)
    return pa.array((np.where(at < turn, at // (size + 1), rest) + 1).astype(np.int32))


def neighbour(
    groups: Groups,
    values: pa.Array,
    default: pa.Array | None = None,
    *,
    offset: int,
    skip_nulls: bool,
) -> pa.Array:
    """Return the value ``offset`` rows later in the group, earlier if negative, or the default.

    With ``skip_nulls``, rows whose value is NULL do not count.
    """
    if not skip_nulls:
        at = groups.rows + offset
        found = (at >= groups.group.starts) & (at < groups.group.stops)
    else:
        places, before = _valid_places(values)
        nth = before[groups.rows + 1] + offset - 1 if offset > 0 else before[:-1] + offset
        found = (nth >= before[groups.group.starts]) & (nth < before[groups.group.stops])
        at = places[np.where(found, nth, 0)] if len(places) else nth
    if default is None:
        return _taken(values, at, found)
    both = pa.concat_arrays([values, default])
    return both.take(pa.array(np.where(found, at, len(values) + groups.rows)))


def nth(frames: Frames, values: pa.Array, *, position: int, skip_nulls: bool) -> pa.Array:
    """Return the value at a position of each frame, from 0 or, if negative, from its end.

    With ``skip_nulls``, rows whose value is NULL do not count.
    """
    starts, stops, places = frames.starts, frames.stops, None
    if skip_nulls:
        places, before = _valid_places(values)
        starts, stops = before[starts], before[stops]
    at = (starts if position >= 0 else stops) + position
    found = (at >= starts) & (at < stops)
    if places is not None and len(places):
        at = places[np.where(found, at, 0)]
    return _taken(values, at, found)


def count(frames: Frames, *columns: pa.Array) -> pa.Array:
    """Return the numbers of rows in which no column is NULL."""
    shown = _shown(*columns)
    return pa.array(frames.lengths if shown is None else _counts(frames, shown))


def integer_sum(frames: Frames, values: pa.Array, *, type_: pa.DataType) -> pa.Array:
    """Return sums of integers; NULL without values."""
    shown = _shown(values)
    numbers = _numbers(values, shown)
    if np.abs(numbers.astype(np.float64)).sum() >= _FITS:
        raise DoubtError
    return _some(_differences(frames, numbers), frames, shown, type_)


def float_sum(frames: Frames, values: pa.Array, *, type_: pa.DataType) -> pa.Array:
    """Return sums of numbers as floats, added in order; NULL without values. NaN is a doubt."""
    shown = _shown(values)
    return _some(_float_sums(frames, _as_floats(values, shown)), frames, shown, type_)


def float_total(frames: Frames, values: pa.Array) -> pa.Array:
    """Return sums of numbers as floats, added in order; 0 without values. NaN is a doubt."""
    return pa.array(_float_sums(frames, _as_floats(values, _shown(values))))


def decimal_sum(frames: Frames, values: pa.Array, *, type_: pa.Decimal128Type) -> pa.Array:
    """Return sums of decimals, of a type with the same scale; NULL without values."""
    shown = _shown(values)
    counts = frames.lengths if shown is None else _counts(frames, shown)
    return _decimal_sums(frames, values, shown, type_, counts > 0)


def decimal_total(frames: Frames, values: pa.Array, *, type_: pa.Decimal128Type) -> pa.Array:
    """Return sums of decimals, of a type with the same scale; 0 without values."""
    return _decimal_sums(frames, values, _shown(values), type_, None)


def extreme(frames: Frames, values: pa.Array, *, largest: bool) -> pa.Array:
    """Return the least or largest value; NULL without values. Of equal floats, the first one."""
    return _taken(values, *_extremes(frames, values, largest=largest, last=False))


def of_extreme(frames: Frames, values: pa.Array, by: pa.Array, *, largest: bool) -> pa.Array:
    """Return the value where another is least or largest: the last one, of several."""
    return _taken(values, *_extremes(frames, by, largest=largest, last=True))


def collected(frames: Frames, values: pa.Array, *, type_: pa.ListType) -> pa.Array:
    """Return lists of the values that are not NULL; frames follow each other without a gap."""
    places, before = _valid_places(values)
    offsets = pa.array(before[np.append(frames.starts, frames.stops[-1:])].astype(np.int32))
    return pa.ListArray.from_arrays(offsets, values.take(pa.array(places)), type=type_)


def joined(
    frames: Frames, values: pa.Array, *columns: pa.Array, delimiter: str, by: tuple[OrderBy, ...]
) -> pa.Array:
    """Return the texts that are not NULL joined, in an order by columns, NULL without texts.

    Frames follow each other without a gap.
    """
    if by:
        starts = np.zeros(len(values), np.bool_)
        starts[frames.starts[frames.lengths > 0]] = True
        given = [_sorted_by(*pair) for pair in zip(columns, by, strict=True)]
        given.append(_sorted_by(pa.array(np.arange(len(values))), OrderBy("")))
        rows, _ = refined(np.arange(len(values)), starts, given)
        values = values.take(pa.array(rows))
    lists = collected(frames, values, type_=pa.list_(values.type))
    found = pc.binary_join(lists, delimiter)
    return pc.if_else(pc.equal(pc.list_value_length(lists), 0), None, found)


def only(frames: Frames, columns: Sequence[pa.Array], kept: Bools) -> tuple[Frames, list[pa.Array]]:
    """Return frames over those rows that are kept, and these rows of columns."""
    before, taken = _sums_before(kept), pa.array(np.flatnonzero(kept))
    return Frames(before[frames.starts], before[frames.stops]), [c.take(taken) for c in columns]


def firsts(frames: Frames, columns: Sequence[pa.Array]) -> Bools:
    """Return the first row of each set of equal rows of a frame; frames do not overlap."""
    rows = len(columns[0])
    number = np.zeros(rows, np.int64)
    number[frames.starts[(frames.lengths > 0) & (frames.starts > 0)]] = 1
    codes = row_codes([pa.array(np.cumsum(number)), *columns], rows)
    found = np.zeros(rows, np.bool_)
    found[np.unique(codes, return_index=True)[1]] = True
    return found


def _extremes(frames: Frames, values: pa.Array, *, largest: bool, last: bool) -> tuple[Ints, Bools]:
    """Return the position of the least or largest value of each frame, and whether it has one."""
    rows, shown = len(values), valid(values)
    if not rows:
        return frames.starts, np.zeros(len(frames.starts), np.bool_)
    order, codes = ordered(np.zeros(rows, np.int64), order_keys(values, OrderBy("")))
    numbers = np.empty(rows, np.int64)
    numbers[order] = codes
    if largest:
        numbers = rows - numbers
    places = np.arange(rows)
    numbers = numbers * rows + (rows - 1 - places if last else places)
    worst = np.int64(2**62)
    numbers[~shown] = worst
    found = np.full(len(frames.starts), worst)
    lengths, width, level = frames.lengths, 1, numbers
    while True:
        here = np.flatnonzero((lengths >= width) & (lengths < 2 * width))
        left, right = frames.starts[here], frames.stops[here] - width
        found[here] = np.minimum(level[left], level[right])
        if 2 * width > frames.longest:
            break
        level = np.minimum(level[:-width], level[width:])
        width *= 2
    at = found % rows
    return rows - 1 - at if last else at, found < worst


def _taken(values: pa.Array, at: Ints, found: Bools) -> pa.Array:
    """Return the values at some positions, NULL where none is found."""
    return values.take(pa.array(at, mask=~found))


def _shown(*columns: pa.Array) -> Bools | None:
    """Return for each row whether no column is NULL; None if none is anywhere."""
    shown: Bools | None = None
    for column in columns:
        if column.null_count:
            shown = valid(column) if shown is None else shown & valid(column)
    return shown


def _valid_places(values: pa.Array) -> tuple[Ints, Ints]:
    """Return the positions of values that are not NULL, and how many are before each position."""
    shown = valid(values)
    return np.flatnonzero(shown), _sums_before(shown)


def _sums_before(numbers: Ints | Bools) -> Ints:
    found = np.zeros(len(numbers) + 1, np.int64)
    np.cumsum(numbers, out=found[1:])
    return found


def _differences(frames: Frames, numbers: Ints | Bools) -> Ints:
    """Return sums of integers over frames, modulo 2**64."""
    before = _sums_before(numbers)
    return np.asarray(before[frames.stops] - before[frames.starts])


def _counts(frames: Frames, shown: Bools) -> Ints:
    return _differences(frames, shown)


def _some(
    found: npt.NDArray[np.generic], frames: Frames, shown: Bools | None, type_: pa.DataType
) -> pa.Array:
    """Return sums as a column, NULL for frames without values."""
    counts = frames.lengths if shown is None else _counts(frames, shown)
    return pa.array(found, mask=counts == 0).cast(type_)


def _numbers(values: pa.Array, shown: Bools | None) -> Ints:
    """Return integers, 0 for NULL."""
    if shown is not None:
        values = values.fill_null(0)
    return np.asarray(values.to_numpy(zero_copy_only=False).astype(np.int64))


def _as_floats(values: pa.Array, shown: Bools | None) -> Floats:
    """Return numbers as floats, 0 for NULL, without -0.0."""
    if pa.types.is_integer(values.type):
        return _numbers(values, shown).astype(np.float64)
    found = values.to_numpy(zero_copy_only=False).astype(np.float64)
    return np.asarray((found if shown is None else np.where(shown, found, 0.0)) + 0.0)


def _float_sums(frames: Frames, numbers: Floats) -> Floats:
    """Add up floats over frames, from first to last."""
    with np.errstate(all="ignore"):
        whole = np.abs(numbers).sum() < _WHOLE and (numbers == np.floor(numbers)).all()
        if whole:
            return _differences(frames, numbers.astype(np.int64)).astype(np.float64)
        found = _added(frames, numbers)
    if np.isnan(found).any():
        raise DoubtError
    return found


def _added(frames: Frames, numbers: Floats) -> Floats:
    """Add up floats over frames, from first to last."""
    begins = np.unique(frames.starts)
    ends = np.zeros(len(numbers) + 1, np.int64)
    np.maximum.at(ends, frames.starts, frames.stops)
    if (ends[begins][:-1] <= begins[1:]).all():
        return _running(frames, numbers, begins, ends[begins])
    if int(frames.lengths.sum()) > _MOST_ADDED:
        raise DoubtError
    found = np.zeros(len(frames.starts))
    left, step = np.flatnonzero(frames.lengths), 0
    while len(left):
        found[left] += numbers[frames.starts[left] + step]
        step += 1
        left = left[frames.lengths[left] > step]
    return found


def _running(frames: Frames, numbers: Floats, begins: Ints, ends: Ints) -> Floats:
    """Add up floats over frames; frames that overlap start at the same row."""
    sums = np.zeros(len(numbers) + 1)
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        np.cumsum(numbers[begin:end], out=sums[begin:end])
    return np.where(frames.lengths > 0, sums[frames.stops - 1], 0.0)


def _decimal_sums(
    frames: Frames,
    values: pa.Array,
    shown: Bools | None,
    type_: pa.Decimal128Type,
    present: Bools | None,
) -> pa.Array:
    words = decimal_words(values)
    low, high = words[:, 0], words[:, 1]
    if shown is not None:
        low, high = np.where(shown, low, 0), np.where(shown, high, 0)
    small = np.array_equal(high, low >> np.int64(63))
    sizes = low.astype(np.float64) if small else high * 2.0**64 + low.astype(np.uint64)
    bound = np.abs(sizes).max(initial=0.0) * frames.longest * _MARGIN
    if bound >= 10**type_.precision:
        raise DoubtError
    if small and bound < _FITS:
        total = _differences(frames, low)
        upper = total >> np.int64(63)
    else:
        total, upper = _limbs(frames, low, high)
    data = np.stack([total, upper], axis=1)
    bitmap = None if present is None or present.all() else pa.array(present).buffers()[1]
    return pa.Array.from_buffers(type_, len(total), [bitmap, pa.py_buffer(data)])


def _limbs(frames: Frames, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Return the low and high words of sums, added in four limbs of 32 bits."""
    carry = np.zeros(len(frames.starts), np.int64)
    kept = []
    for limb in (low & _LOW, (low >> _HALF) & _LOW, high & _LOW, high >> _HALF):
        total = _differences(frames, limb) + carry
        kept.append(total & _LOW)
        carry = total >> _HALF
    return kept[0] | (kept[1] << _HALF), kept[2] | (kept[3] << _HALF)
