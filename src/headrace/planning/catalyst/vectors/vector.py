"""Expressions that are evaluated over Arrow columns, without the JVM.

A vector yields exactly the values that Spark would, or raises :class:`DoubtError`: an expression
that fails on a row, a number that overflows, or a value for which equality is not proved. Whoever
evaluates it then has Spark evaluate the expression, with its own value or its own error.

Arrow columns as integers and bytes of NumPy, and back.

Days, months and years of the proleptic Gregorian calendar, as numbers.

Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.zset.order import bit_width, valid, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from headrace.algebra.zset.order import Bools, Ints


Value: TypeAlias = "pa.Array | pa.Scalar"
"""A value for each row, or one for all of them."""

HIGHEST: Final = 150
"""The greatest height of a vector that is evaluated: each level is three calls on Python's stack,
which has room for a thousand."""


class DoubtError(Exception):
    """Spark's value is not known here for some row; perhaps it is an error."""


@dataclass(slots=True, eq=False)
class InputRows:
    """The rows that vectors are evaluated over; each vector is evaluated once.

    They are all ``count`` rows of some columns, or those at some ``positions``.
    """

    columns: Sequence[pa.Array | pa.ChunkedArray]
    count: int
    positions: pa.Array | None = None
    found: dict[Vector, Value | DoubtError] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: pa.Table) -> InputRows:
        """Return the rows of a table."""
        return cls(rows.columns, rows.num_rows)

    def column(self, index: int) -> pa.Array:
        """Return one of the columns."""
        found = self.columns[index]
        if isinstance(found, pa.ChunkedArray):
            found = found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()
        return found if self.positions is None else found.take(self.positions)

    def at(self, positions: Ints) -> InputRows:
        """Return the rows at some positions."""
        taken = pa.array(positions)
        if self.positions is not None:
            taken = self.positions.take(taken)
        return InputRows(self.columns, len(taken), taken)


@dataclass(frozen=True, slots=True, eq=False)
class Vector(ABC):
    """An expression over columns; ``type`` is the type of its values."""

    type: pa.DataType

    def over(self, rows: InputRows) -> Value:
        """Return the values for rows.

        Raises:
            DoubtError: a value may differ from Spark's.
        """
        found = rows.found.get(self)
        if found is None:
            try:
                found = self.computed(rows)
            except DoubtError as doubt:
                rows.found[self] = doubt
                raise
            except (pa.ArrowException, ArithmeticError) as error:
                rows.found[self] = DoubtError()
                raise DoubtError from error
            rows.found[self] = found
        elif isinstance(found, DoubtError):
            raise found
        return found

    @abstractmethod
    def computed(self, rows: InputRows) -> Value:
        """Compute the values; an error of Arrow, or an overflow, is a doubt. See :meth:`over`."""

    def column(self, rows: InputRows) -> pa.Array:
        """Return the values for rows as a column of the vector's type; see :meth:`over`."""
        found = self.over(rows)
        if isinstance(found, pa.Scalar):
            if not found.is_valid:
                return pa.nulls(rows.count, self.type)
            found = pa.repeat(found, rows.count)
        return found if found.type == self.type else found.cast(self.type)


@dataclass(frozen=True, slots=True, eq=False)
class InputColumn(Vector):
    """The column at a position."""

    position: int

    def computed(self, rows: InputRows) -> Value:
        """Return the column."""
        found = rows.column(self.position)
        return found if found.type == self.type else found.cast(self.type)


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Vector):
    """One value for all rows."""

    value: pa.Scalar

    def computed(self, _rows: InputRows) -> Value:
        """Return the constant."""
        return self.value


@dataclass(frozen=True, slots=True, eq=False)
class Call(Vector):
    """A function of other vectors, called with their values and with ``parameters`` by name.

    At least one of the values is a column.
    """

    function: Callable[..., Value]
    given: tuple[Vector, ...]
    parameters: tuple[tuple[str, Any], ...] = ()

    def computed(self, rows: InputRows) -> Value:
        """Return what the function returns."""
        values = [each.over(rows) for each in self.given]
        if all(isinstance(value, pa.Scalar) for value in values):
            values = [each.column(rows) for each in self.given]
        if not self.parameters:
            return self.function(*values)
        return self.function(*values, **dict(self.parameters))


@dataclass(frozen=True, slots=True, eq=False)
class Choice(Vector):
    """The value of ``then`` where a condition is true, elsewhere that of ``otherwise``.

    Neither is in doubt because of a row for which the other is chosen.
    """

    when: Vector
    then: Vector
    otherwise: Vector

    def computed(self, rows: InputRows) -> Value:
        """Evaluate both alternatives, if rows of both are chosen."""
        when = self.when.column(rows)
        chosen = when.true_count
        if chosen == rows.count:
            return self.then.column(rows)
        if chosen == 0:
            return self.otherwise.column(rows)
        try:
            then, otherwise = self.then.column(rows), self.otherwise.column(rows)
        except DoubtError:
            return self._by_row(when, rows)
        return pc.if_else(pc.fill_null(when, fill_value=False), then, otherwise)

    def _by_row(self, when: pa.Array, rows: InputRows) -> Value:
        """Evaluate each alternative over the rows that it is chosen for, and no others."""
        true = pc.fill_null(when, fill_value=False).to_numpy(zero_copy_only=False)
        chosen, others = np.flatnonzero(true), np.flatnonzero(~true)
        found = [self.then.column(rows.at(chosen)), self.otherwise.column(rows.at(others))]
        order = np.empty(rows.count, np.int64)
        order[np.concatenate([chosen, others])] = np.arange(rows.count)
        return pa.concat_arrays(found).take(pa.array(order))


@dataclass(frozen=True, slots=True, eq=False)
class Connective(Vector):
    """AND or OR, whose result is ``decided`` if the left condition has that value.

    The right condition is not in doubt because of a row for which the left one decides.
    """

    left: Vector
    right: Vector
    decided: bool

    def computed(self, rows: InputRows) -> Value:
        """Evaluate both conditions, if rows need both."""
        left = self.left.column(rows)
        connect = pc.or_kleene if self.decided else pc.and_kleene
        try:
            return connect(left, self.right.over(rows))
        except DoubtError:
            decided = pc.fill_null(pc.equal(left, self.decided), fill_value=False)
            if not decided.true_count:
                raise
        needed = np.flatnonzero(~decided.to_numpy(zero_copy_only=False))
        places = np.full(rows.count, -1, np.int64)
        places[needed] = np.arange(len(needed))
        right = self.right.column(rows.at(needed))
        return connect(left, right.take(pa.array(places, mask=places < 0)))


@dataclass(frozen=True, slots=True, eq=False)
class Failure(Vector):
    """An expression that fails on every row."""

    def computed(self, rows: InputRows) -> Value:
        """Raise, if there are rows."""
        if rows.count:
            raise DoubtError
        return pa.array([], self.type)


def height(vector: Vector) -> int:
    """Return how many levels of vectors a vector is made of, itself included."""
    heights: dict[Vector, int] = {}
    waiting = [vector]
    while waiting:
        parts = tuple(_parts(waiting[-1]))
        unknown = [each for each in parts if each not in heights]
        if unknown:
            waiting += unknown
        else:
            heights[waiting.pop()] = 1 + max((heights[each] for each in parts), default=0)
    return heights[vector]


def _parts(vector: Vector) -> Iterator[Vector]:
    for each in fields(vector):
        value = getattr(vector, each.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Vector):
                yield part


def present(*given: Value) -> Bools | None:
    """Return for each row whether no value is NULL; None if no value is."""
    found: Bools | None = None
    for each in given:
        if isinstance(each, pa.Scalar):
            if not each.is_valid:
                raise DoubtError
        elif each.null_count:
            found = valid(each) if found is None else found & valid(each)
    return found


def integers(value: Value) -> Ints:
    """Return the values of a fixed-width type of up to 64 bits as integers; 0 for NULL."""
    if isinstance(value, pa.Scalar):
        value = pa.repeat(value, 1)
    if not len(value):
        return np.zeros(0, np.int64)
    found = words(value, bit_width(value.type)).astype(np.int64, copy=False)
    return np.where(valid(value), found, 0) if value.null_count else found


def floats(value: Value) -> npt.NDArray[np.floating]:
    """Return the values of a type of floating-point numbers; 0 for NULL."""
    if isinstance(value, pa.Scalar):
        value = pa.repeat(value, 1)
    found: npt.NDArray[np.floating] = value.to_numpy(zero_copy_only=False)
    return np.where(valid(value), found, found.dtype.type(0)) if value.null_count else found


def made(found: npt.NDArray[np.generic], type_: pa.DataType, shown: Bools | None) -> pa.Array:
    """Return integers, floats or booleans as a column of a type of their width."""
    column = pa.array(found, mask=None if shown is None else ~shown)
    return column if column.type == type_ else column.view(type_)


@dataclass(frozen=True, slots=True)
class Bytes:
    """Texts or binary values as ranges of ``data``: where each starts, and its length in bytes.

    That of a NULL is empty.
    """

    data: npt.NDArray[np.uint8]
    starts: Ints
    lengths: Ints

    @classmethod
    def of(cls, value: pa.Array) -> Bytes:
        """Return the bytes of a column: ``data`` has no others."""
        _, offsets, data = value.buffers()
        if not len(value) or data is None:
            none = np.zeros(len(value), np.int64)
            return cls(np.zeros(0, np.uint8), none, none)
        ends = np.frombuffer(offsets, np.int32)[value.offset : value.offset + len(value) + 1]
        ends = ends.astype(np.int64)
        given = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
        lengths = np.diff(ends)
        if value.null_count:
            lengths = np.where(valid(value), lengths, 0)
        return cls(given, ends[:-1] - ends[0], lengths)

    def part(self, starts: Ints, lengths: Ints) -> Bytes:
        """Return ranges that begin at some bytes of these ranges."""
        return Bytes(self.data, self.starts + starts, lengths)

    def texts(self, shown: Bools | None, type_: pa.DataType) -> pa.Array:
        """Return the ranges as a column of texts or binary values."""
        ends = np.zeros(len(self.starts) + 1, np.int64)
        np.cumsum(self.lengths, out=ends[1:])
        if ends[-1] >= 1 << 31:
            raise DoubtError
        places = np.arange(ends[-1]) + np.repeat(self.starts - ends[:-1], self.lengths)
        buffers = [
            None if shown is None else pa.array(shown).buffers()[1],
            pa.py_buffer(ends.astype(np.int32)),
            pa.py_buffer(self.data[places]),
        ]
        return pa.Array.from_buffers(type_, len(self.starts), buffers)

    def characters(self) -> Ints:
        """Return the number of characters of each text in UTF-8."""
        counts = np.append(0, np.cumsum(self._begins()))
        return np.asarray(counts[self.starts + self.lengths] - counts[self.starts])

    def byte_of(self, character: Ints) -> Ints:
        """Return the byte of each text that a character begins at, or its end."""
        begins = self._begins()
        places = np.append(np.flatnonzero(begins), len(self.data))
        before = np.append(0, np.cumsum(begins))[self.starts]
        found = places[np.minimum(before + character, len(places) - 1)] - self.starts
        return np.minimum(found, self.lengths)

    def _begins(self) -> Bools:
        """Return whether a character begins at each byte."""
        return np.asarray((self.data & np.uint8(0xC0)) != np.uint8(0x80))

    def layouts(self) -> tuple[Ints, list[bytes]]:
        """Return the different values with each digit written as 0, and which one each row has."""
        rows = len(self.starts)
        ends = pa.py_buffer(np.append(self.starts, len(self.data)).astype(np.int32))
        shown = [None, ends, pa.py_buffer(_WITHOUT_DIGITS[self.data])]
        found = pa.Array.from_buffers(pa.binary(), rows, shown).dictionary_encode()
        return found.indices.to_numpy().astype(np.int64), found.dictionary.to_pylist()

    def number(self, rows: Ints, start: int, end: int) -> Ints:
        """Return the number whose digits, 18 at most, stand at the same place of some rows."""
        found = np.zeros(len(rows), np.int64)
        for place in range(start, end):
            found = found * 10 + (self.data[self.starts[rows] + place] - np.uint8(ord("0")))
        return found


_WITHOUT_DIGITS: Final = np.arange(256, dtype=np.uint8)
_WITHOUT_DIGITS[ord("0") : ord("9") + 1] = ord("0")


def column_of(value: Value) -> pa.Array:
    """Return a value as a column; a constant as one row."""
    return pa.repeat(value, 1) if isinstance(value, pa.Scalar) else value


_ERA: Final = 146_097
"""Days in 400 years."""
_FROM_MARCH: Final = 719_468
"""Days from 1 March of the year 0 to 1 January 1970."""
_FEBRUARY: Final = 2
_LENGTHS: Final = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


def civil(days: Ints) -> tuple[Ints, Ints, Ints]:
    """Return year, month and day of numbers of days since 1970."""
    shifted = days + _FROM_MARCH
    era, of_era = shifted // _ERA, shifted % _ERA
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    from_march = (5 * of_year + 2) // 153
    day = of_year - (153 * from_march + 2) // 5 + 1
    month = np.where(from_march < 10, from_march + 3, from_march - 9)  # noqa: PLR2004
    return year + era * 400 + (month <= _FEBRUARY), month, day


def first_of_month(year: Ints, month: Ints) -> Ints:
    """Return the numbers of the first days of months; the inverse of :func:`civil`."""
    year = year - (month <= _FEBRUARY)
    era, of_era = year // 400, year % 400
    of_year = (153 * (month + np.where(month > _FEBRUARY, -3, 9)) + 2) // 5
    return era * _ERA + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _FROM_MARCH


def days_in_month(year: Ints, month: Ints) -> Ints:
    """Return how many days months have."""
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    return np.asarray(_LENGTHS[month - 1] + (leap & (month == _FEBRUARY)))


def months_later(days: Ints, months: Ints | int) -> Ints:
    """Return the same days of later months, or the last ones of months that are shorter."""
    year, month, day = civil(days)
    total = year * 12 + month - 1 + months
    year, month = total // 12, total % 12 + 1
    return first_of_month(year, month) + np.minimum(day, days_in_month(year, month)) - 1


def week_of_year(days: Ints) -> Ints:
    """Return the numbers of ISO weeks: from Monday on, in the year of their Thursday."""
    thursday = days - (days + 3) % 7 + 3
    year, _, _ = civil(thursday)
    return (thursday - first_of_month(year, np.ones_like(year))) // 7 + 1


def day_of_year(days: Ints) -> Ints:
    """Return the numbers of days from 1 January on, which is 1."""
    year, _, _ = civil(days)
    return days - first_of_month(year, np.ones_like(year)) + 1
