"""Generated values of a column: each is a function of the seed, column name and row number.

So rows do not depend on how they are cut into parts, and each can be generated on its own. Random
numbers are those of SplitMix64 (Steele, Lea and Flood, 2014), whose state is a counter: its n-th
number can be computed without the previous ones.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError
from headrace.io.connectors.options import option, read_options, seconds, share
from headrace.io.formats.values import RejectedValueError, from_text
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from headrace.io.connectors.options import Given
    from headrace.types import Column


_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_WORD: Final = 1 << 64
_MOST_RANKS: Final = 1_000_000
_LONGEST: Final = 65_536
_LENGTH: Final = 100
_DAY_MICROS: Final = 86_400_000_000
_DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_BOUNDS: Final[dict[type[t.DataType], tuple[int, int]]] = {
    t.ByteType: (-(1 << 7), (1 << 7) - 1),
    t.ShortType: (-(1 << 15), (1 << 15) - 1),
    t.IntegerType: (-(1 << 31), (1 << 31) - 1),
    t.LongType: (-(1 << 63), (1 << 63) - 1),
}


@dataclass(frozen=True, slots=True)
class RowNumbers:
    """Rows to generate: their numbers, from 0, and event times in microseconds since 1970."""

    numbers: NDArray[np.uint64]
    times: NDArray[np.int64]


Generator: TypeAlias = "Callable[[RowNumbers], pa.Array]"


class FieldKind(StrEnum):
    """Whether the values of a field are random or consecutive numbers."""

    RANDOM = "random"
    SEQUENCE = "sequence"


class Distribution(StrEnum):
    """Frequencies of values: all equal, or that of the k-th proportional to ``k ** -exponent``."""

    UNIFORM = "uniform"
    ZIPF = "zipf"


def _exponent(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 20:  # noqa: PLR2004 (beyond, practically all values are the first)
        raise HeadraceError(
            Code.INVALID, f"'{text}' is not an exponent", hint="Write a number from 0 to 20."
        )
    return found


@dataclass(frozen=True, slots=True)
class FieldOptions:
    """The options of one column's generator, written as ``fields.<column>.<option>``."""

    kind: FieldKind = FieldKind.RANDOM
    min: str | None = None
    max: str | None = None
    length: int | None = None
    start: str | None = None
    end: str | None = None
    values: str | None = None
    weights: str | None = None
    distribution: Distribution | None = None
    exponent: float | None = option(default=None, convert=_exponent)
    null_rate: float | None = option("null-rate", default=None, convert=share)
    max_past: float | None = option("max-past", default=None, convert=seconds)


@dataclass(frozen=True, slots=True)
class GeneratedColumn:
    """A column's generator, and the number of rows after which its sequence ends, if it does."""

    make: Generator
    rows: int | None = None


def random_bits(seed: int, name: str, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return 64 random bits for each row of a named series of random numbers."""
    start = np.uint64(xxhash.xxh3_64_intdigest(name.encode(), seed))
    found = start + (numbers + np.uint64(1)) * _GOLDEN
    found = (found ^ (found >> np.uint64(30))) * _FIRST
    found = (found ^ (found >> np.uint64(27))) * _SECOND
    return found ^ (found >> np.uint64(31))


def random_shares(seed: int, name: str, numbers: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return a random number in [0, 1) for each row of a named series."""
    bits = random_bits(seed, name, numbers) >> np.uint64(11)
    return bits.astype(np.float64) * np.float64(2.0**-53)


def generated_column(column: Column, given: Iterable[Given], seed: int) -> GeneratedColumn:
    """Return the generator of a column for its options.

    Raises:
        HeadraceError: ``invalid`` for an option that is unknown, does not apply to the type, or has
            an invalid value; ``unsupported`` for a type that cannot be generated.
    """
    what = f'field "{column.name}"'
    options = read_options(FieldOptions, given, what)
    field = _Field(column, options, seed, what)
    sequential = options.kind is FieldKind.SEQUENCE
    made = field.sequence() if sequential else GeneratedColumn(field.random())
    field.require_used()
    if not options.null_rate:
        return made
    rate = options.null_rate
    if not column.nullable:
        raise field.wrong("null-rate", "the column is NOT NULL", "Leave the option out.")

    def with_nulls(rows: RowNumbers) -> pa.Array:
        absent = random_shares(seed, f"{column.name} null", rows.numbers) < rate
        values = made.make(rows)
        return pc.if_else(pa.array(absent), pa.scalar(None, values.type), values)

    return GeneratedColumn(with_nulls, made.rows)


class _Field:
    """Chooses the generator of one column; records in ``used`` which options were read."""

    def __init__(self, column: Column, options: FieldOptions, seed: int, what: str) -> None:
        self.column, self.options, self.seed, self.what = column, options, seed, what
        self.used = {"kind", "null_rate"}

    def wrong(self, key: str, why: str, hint: str) -> HeadraceError:
        return HeadraceError(Code.INVALID, f'option "{key}" of {self.what}: {why}', hint=hint)

    def option(self, name: str) -> Any:
        self.used.add(name)
        return getattr(self.options, name)

    def require_used(self) -> None:
        """Refuse a given option that was not read: it has no effect."""
        for each in fields(FieldOptions):
            if each.name not in self.used and getattr(self.options, each.name) is not None:
                key = (each.metadata.get("keys") or (each.name,))[0]
                kind = f"{self.options.kind} values of type {self.column.sql}"
                raise self.wrong(key, f"{kind} do not have it", "Leave the option out.")

    # -- sequences -------------------------------------------------------------------------

    def sequence(self) -> GeneratedColumn:
        """Return a generator of consecutive numbers from ``start`` to ``end``."""
        first, end = self._whole("start", 0), self._whole("end", None)
        type_ = self.column.type
        if end is not None and end < first:
            raise self.wrong("end", "it is below the start", "Exchange them.")
        counted = isinstance(type_, (*_BOUNDS, t.DecimalType, t.FloatType, t.DoubleType))
        if not counted and not isinstance(type_, t.StringType):
            raise self.wrong("kind", f"type {self.column.sql} has no sequence", "Use 'random'.")
        low, high = _BOUNDS.get(type(type_), _BOUNDS[t.LongType])
        if isinstance(type_, t.DecimalType):
            whole = 10 ** max(0, min(type_.precision, 18) - type_.scale) - 1
            low, high = -whole, whole
        if not low <= first <= (high if end is None else end) <= high:
            key = "start" if not low <= first <= high else "end"
            raise self.wrong(key, f"type {self.column.sql} does not hold it", "Use a wider type.")
        arrow = _arrow(self.column)

        def make(rows: RowNumbers) -> pa.Array:
            values = (rows.numbers + np.uint64(first % _WORD)).view(np.int64)
            if pa.types.is_decimal(arrow):
                return _decimal_array(values * np.int64(10 ** min(arrow.scale, 18)), arrow)
            return pa.array(values).cast(arrow)

        return GeneratedColumn(make, (high if end is None else end) - first + 1)

    def _whole(self, name: str, otherwise: int | None) -> Any:
        given = self.option(name)
        if given is None:
            return otherwise
        try:
            return int(given)
        except ValueError:
            hint = "Write a whole number."
            raise self.wrong(name, f"'{given}' is not a number", hint) from None

    # -- random values ---------------------------------------------------------------------

    def random(self) -> Generator:
        """Return a generator of random values from a list or a range."""
        type_ = self.column.type
        if self.options.values is not None:
            return self._of_list()
        match type_:
            case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
                low, high = self._bounds(*_BOUNDS[type(type_)], scale=0)
                return self._integers(low, high)
            case t.DecimalType():
                most = 10 ** min(type_.precision, 18) - 1
                return self._decimals(*self._bounds(-most, most, scale=type_.scale), type_)
            case t.FloatType() | t.DoubleType():
                return self._floats()
            case t.BooleanType():
                return lambda rows: pa.array(self._bits(rows) < np.uint64(1 << 63))
            case t.StringType():
                return self._texts()
            case t.BinaryType():
                return self._bytes()
            case t.DateType() | t.TimestampType() | t.TimestampNTZType():
                return self._times()
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'column "{self.column.name}" of type {self.column.sql} cannot be generated',
            hint="Compute it from others, as in: place AS named_struct('x', x, 'y', y).",
        )

    def _bits(self, rows: RowNumbers) -> NDArray[np.uint64]:
        return random_bits(self.seed, self.column.name, rows.numbers)

    def _shares(self, rows: RowNumbers) -> NDArray[np.float64]:
        return random_shares(self.seed, self.column.name, rows.numbers)

    def _bounds(self, low: int, high: int, scale: int) -> tuple[int, int]:
        """Return ``min`` and ``max`` in units of ``10 ** -scale``, within the type's bounds."""
        found = []
        for name, most in (("min", low), ("max", high)):
            given = self.option(name)
            try:
                units = most if given is None else Decimal(given).scaleb(scale)
            except InvalidOperation:
                raise self.wrong(name, f"'{given}' is not a number", "Write a number.") from None
            if units != int(units) or not low <= units <= high:
                type_ = self.column.sql
                raise self.wrong(name, f"'{given}' is not a value of type {type_}", "Correct it.")
            found.append(int(units))
        if found[0] > found[1]:
            raise self.wrong("min", "it is above the maximum", "Exchange them.")
        return found[0], found[1]

    def _offsets(self, low: int, high: int) -> Callable[[RowNumbers], NDArray[np.int64]]:
        """Return a function that draws integers from ``low`` to ``high``."""
        span = high - low + 1
        base = np.uint64(low % _WORD)
        ranked = self._ranked(span)

        def make(rows: RowNumbers) -> NDArray[np.int64]:
            if ranked is not None:
                return np.int64(low) + ranked(rows)
            bits = self._bits(rows)
            return ((bits if span == _WORD else bits % np.uint64(span)) + base).view(np.int64)

        return make

    def _integers(self, low: int, high: int) -> Generator:
        numbers, arrow = self._offsets(low, high), _arrow(self.column)
        return lambda rows: pa.array(numbers(rows)).cast(arrow)

    def _decimals(self, low: int, high: int, type_: t.DecimalType) -> Generator:
        units, arrow = self._offsets(low, high), pa.decimal128(type_.precision, type_.scale)
        return lambda rows: _decimal_array(units(rows), arrow)

    def _floats(self) -> Generator:
        bounds = []
        for name, otherwise in (("min", 0.0), ("max", 1.0)):
            given = self.option(name)
            try:
                bounds.append(otherwise if given is None else float(given))
            except ValueError:
                raise self.wrong(name, f"'{given}' is not a number", "Write a number.") from None
        low, high = bounds
        if not (np.isfinite(low) and np.isfinite(high) and low <= high):
            hint = "Write finite numbers, the lower one as min."
            raise self.wrong("min", "it is above the maximum, or not finite", hint)
        arrow = _arrow(self.column)
        return lambda rows: pa.array(low + (high - low) * self._shares(rows)).cast(arrow)

    def _of_list(self) -> Generator:
        texts = [each.strip() for each in self.option("values").split(",")]
        convert = from_text(self.column)
        try:
            values = [convert(each) for each in texts]
        except RejectedValueError as refused:
            raise self.wrong("values", str(refused), "Correct it.") from refused
        known = pa.array(values, _arrow(self.column))
        given = self.option("weights")
        weights = None
        if given is not None:
            try:
                weights = np.array([float(each) for each in given.split(",")])
            except ValueError:
                weights = np.zeros(0)
            if len(weights) != len(values) or weights.min() < 0 or not weights.sum() > 0:
                raise self.wrong(
                    "weights", "they are not one number for each value", "Write 70, 20, 10."
                )
        ranked = self._ranked(len(values), weights)
        if ranked is not None:
            return lambda rows: known.take(pa.array(ranked(rows)))
        count = np.uint64(len(values))
        return lambda rows: known.take(pa.array(self._bits(rows) % count))

    def _ranked(
        self, count: int, weights: NDArray[np.float64] | None = None
    ) -> Callable[[RowNumbers], NDArray[np.int64]] | None:
        """Return a function that draws indices below ``count`` by weights or Zipf's law.

        None if all are equally likely.
        """
        distribution, exponent = self.option("distribution"), self.option("exponent")
        if distribution is not Distribution.ZIPF:
            if exponent is not None:
                raise self.wrong("exponent", "only zipf has one", "Set distribution = 'zipf'.")
            if weights is None:
                return None
        elif weights is not None:
            raise self.wrong("weights", "zipf has its own", "Leave one of them out.")
        else:
            if count > _MOST_RANKS:
                why = f"zipf has at most {_MOST_RANKS:,} values"
                raise self.wrong("distribution", why, "Set min and max, or use 'uniform'.")
            weights = np.arange(1, count + 1) ** -(1.0 if exponent is None else exponent)
        upto = np.cumsum(weights / weights.sum())

        def make(rows: RowNumbers) -> NDArray[np.int64]:
            found = np.searchsorted(upto, self._shares(rows), side="right")
            return np.minimum(found, count - 1).astype(np.int64)

        return make

    def _words(self, rows: RowNumbers, count: int) -> NDArray[np.uint8]:
        """Return a matrix with at least ``count`` random bytes in the row of each number."""
        words = [
            random_bits(self.seed, f"{self.column.name} {word}", rows.numbers)
            for word in range(-(-count // 8))
        ]
        stacked = np.stack(words, axis=1).astype("<u8")
        return stacked.view(np.uint8).reshape(len(rows.numbers), -1)

    def _length(self) -> int:
        given = self.option("length")
        length = _LENGTH if given is None else int(given)
        if not 0 < length <= _LONGEST:
            raise self.wrong("length", f"it is not from 1 to {_LONGEST:,}", "Correct it.")
        return length

    def _texts(self) -> Generator:
        """Return a generator of texts of ``length`` hexadecimal digits."""
        length = self._length()

        def make(rows: RowNumbers) -> pa.Array:
            found = self._words(rows, -(-length // 2))
            digits = np.stack([_DIGITS[found >> 4], _DIGITS[found & 15]], axis=2)
            letters = digits.reshape(len(found), -1)[:, :length]
            return _fixed(np.ascontiguousarray(letters), pa.string())

        return make

    def _bytes(self) -> Generator:
        length = self._length()
        return lambda rows: _fixed(
            np.ascontiguousarray(self._words(rows, length)[:, :length]), pa.binary()
        )

    def _times(self) -> Generator:
        """Return a generator of event times, moved back by a random part of ``max-past``."""
        arrow, past = _arrow(self.column), int((self.option("max_past") or 0) * 1_000_000)

        def make(rows: RowNumbers) -> pa.Array:
            times = rows.times
            if past:
                times = times - (self._shares(rows) * past).astype(np.int64)
            if pa.types.is_date(arrow):
                return pa.array((times // _DAY_MICROS).astype(np.int32)).cast(arrow)
            return pa.array(times).cast(arrow)

        return make


def _arrow(column: Column) -> pa.DataType:
    return to_arrow(column.type)


def _decimal_array(units: NDArray[np.int64], arrow: pa.DataType) -> pa.Array:
    """Return unscaled integers as decimals of a type."""
    words = np.stack([units, units >> np.int64(63)], axis=1)  # the low word, and the sign
    return pa.Array.from_buffers(arrow, len(units), [None, pa.py_buffer(words.tobytes())])


def _fixed(values: NDArray[np.uint8], arrow: pa.DataType) -> pa.Array:
    """Return the rows of a matrix of bytes as an array of strings or binaries of equal length."""
    count, length = values.shape
    offsets = np.arange(0, (count + 1) * length, length, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(arrow, count, buffers)
