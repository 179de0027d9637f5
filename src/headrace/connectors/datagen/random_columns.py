"""Made-up values of a column: each is a function of a seed, the column's name and a row's number.

So rows are the same however they are cut into parts, and any of them can be made on its own. The
random numbers are those of SplitMix64 (Steele, Lea and Flood, 2014), which counts, so its n-th
number needs no other before it.
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

from headrace.connectors.options import option, read_options, seconds, share
from headrace.errors import Code, HeadraceError
from headrace.formats.values import RejectedValueError, from_text
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from headrace.connectors.options import Given
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
class Numbered:
    """Rows to make: their numbers, from 0, and their event times in microseconds since 1970."""

    numbers: NDArray[np.uint64]
    times: NDArray[np.int64]


Make: TypeAlias = "Callable[[Numbered], pa.Array]"


class Kind(StrEnum):
    """How the values of a field follow each other."""

    RANDOM = "random"
    SEQUENCE = "sequence"


class Distribution(StrEnum):
    """How often each value comes: all alike, or the k-th as often as ``1 / k ** exponent``."""

    UNIFORM = "uniform"
    ZIPF = "zipf"


def _exponent(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 20:  # noqa: PLR2004 (beyond, only the first value ever comes)
        raise HeadraceError(
            Code.INVALID, f"'{text}' is not an exponent", hint="Write a number from 0 to 20."
        )
    return found


@dataclass(frozen=True, slots=True)
class FieldOptions:
    """How one column is made, as it is written: ``fields.<column>.<option>``."""

    kind: Kind = Kind.RANDOM
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
class Made:
    """How a column is made, and after how many rows its sequence ends; None if it does not."""

    make: Make
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


def made_column(column: Column, given: Iterable[Given], seed: int) -> Made:
    """Return how a column is made, by its options.

    Raises:
        HeadraceError: ``invalid`` for an option that does not exist, does not suit the type, or has
            a value that it cannot have; ``unsupported`` for a type that cannot be made up.
    """
    what = f'field "{column.name}"'
    options = read_options(FieldOptions, given, what)
    field = _Field(column, options, seed, what)
    made = field.sequence() if options.kind is Kind.SEQUENCE else Made(field.random())
    field.require_used()
    if not options.null_rate:
        return made
    rate = options.null_rate
    if not column.nullable:
        raise field.wrong("null-rate", "the column is NOT NULL", "Leave the option out.")

    def with_nulls(rows: Numbered) -> pa.Array:
        absent = random_shares(seed, f"{column.name} null", rows.numbers) < rate
        values = made.make(rows)
        return pc.if_else(pa.array(absent), pa.scalar(None, values.type), values)

    return Made(with_nulls, made.rows)


class _Field:
    """The options of one column while its generator is chosen; those it reads are noted."""

    def __init__(self, column: Column, options: FieldOptions, seed: int, what: str) -> None:
        self.column, self.options, self.seed, self.what = column, options, seed, what
        self.used = {"kind", "null_rate"}

    def wrong(self, key: str, why: str, hint: str) -> HeadraceError:
        return HeadraceError(Code.INVALID, f'option "{key}" of {self.what}: {why}', hint=hint)

    def option(self, name: str) -> Any:
        self.used.add(name)
        return getattr(self.options, name)

    def require_used(self) -> None:
        """Refuse an option that is given and has no effect."""
        for each in fields(FieldOptions):
            if each.name not in self.used and getattr(self.options, each.name) is not None:
                key = (each.metadata.get("keys") or (each.name,))[0]
                kind = f"{self.options.kind} values of type {self.column.sql}"
                raise self.wrong(key, f"{kind} have none", "Leave the option out.")

    # -- sequences -------------------------------------------------------------------------

    def sequence(self) -> Made:
        """Return consecutive numbers from ``start`` to ``end``, as the column's type has them."""
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

        def make(rows: Numbered) -> pa.Array:
            values = (rows.numbers + np.uint64(first % _WORD)).view(np.int64)
            if pa.types.is_decimal(arrow):
                return _decimal_array(values * np.int64(10 ** min(arrow.scale, 18)), arrow)
            return pa.array(values).cast(arrow)

        return Made(make, (high if end is None else end) - first + 1)

    def _whole(self, name: str, otherwise: int | None) -> Any:
        given = self.option(name)
        if given is None:
            return otherwise
        try:
            return int(given)
        except ValueError:
            raise self.wrong(name, f"'{given}' is no number", "Write a whole number.") from None

    # -- random values ---------------------------------------------------------------------

    def random(self) -> Make:
        """Return values of the column's type, of a list or from a range."""
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
            f'column "{self.column.name}" of type {self.column.sql} cannot be made up',
            hint="Compute it from others, as in: place AS named_struct('x', x, 'y', y).",
        )

    def _bits(self, rows: Numbered) -> NDArray[np.uint64]:
        return random_bits(self.seed, self.column.name, rows.numbers)

    def _shares(self, rows: Numbered) -> NDArray[np.float64]:
        return random_shares(self.seed, self.column.name, rows.numbers)

    def _bounds(self, low: int, high: int, scale: int) -> tuple[int, int]:
        """Return ``min`` and ``max`` in units of ``10 ** -scale``, within the type's bounds."""
        found = []
        for name, most in (("min", low), ("max", high)):
            given = self.option(name)
            try:
                units = most if given is None else Decimal(given).scaleb(scale)
            except InvalidOperation:
                raise self.wrong(name, f"'{given}' is no number", "Write a number.") from None
            if units != int(units) or not low <= units <= high:
                type_ = self.column.sql
                raise self.wrong(name, f"'{given}' is no value of type {type_}", "Correct it.")
            found.append(int(units))
        if found[0] > found[1]:
            raise self.wrong("min", "it is above the maximum", "Exchange them.")
        return found[0], found[1]

    def _offsets(self, low: int, high: int) -> Callable[[Numbered], NDArray[np.int64]]:
        """Return random whole numbers of a range."""
        span = high - low + 1
        base = np.uint64(low % _WORD)
        ranked = self._ranked(span)

        def make(rows: Numbered) -> NDArray[np.int64]:
            if ranked is not None:
                return np.int64(low) + ranked(rows)
            bits = self._bits(rows)
            return ((bits if span == _WORD else bits % np.uint64(span)) + base).view(np.int64)

        return make

    def _integers(self, low: int, high: int) -> Make:
        numbers, arrow = self._offsets(low, high), _arrow(self.column)
        return lambda rows: pa.array(numbers(rows)).cast(arrow)

    def _decimals(self, low: int, high: int, type_: t.DecimalType) -> Make:
        units, arrow = self._offsets(low, high), pa.decimal128(type_.precision, type_.scale)
        return lambda rows: _decimal_array(units(rows), arrow)

    def _floats(self) -> Make:
        bounds = []
        for name, otherwise in (("min", 0.0), ("max", 1.0)):
            given = self.option(name)
            try:
                bounds.append(otherwise if given is None else float(given))
            except ValueError:
                raise self.wrong(name, f"'{given}' is no number", "Write a number.") from None
        low, high = bounds
        if not (np.isfinite(low) and np.isfinite(high) and low <= high):
            raise self.wrong("min", "it is above the maximum, or no number", "Exchange them.")
        arrow = _arrow(self.column)
        return lambda rows: pa.array(low + (high - low) * self._shares(rows)).cast(arrow)

    def _of_list(self) -> Make:
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
    ) -> Callable[[Numbered], NDArray[np.int64]] | None:
        """Return ranks below ``count`` that come by weights or by rank; None if all come alike."""
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

        def make(rows: Numbered) -> NDArray[np.int64]:
            found = np.searchsorted(upto, self._shares(rows), side="right")
            return np.minimum(found, count - 1).astype(np.int64)

        return make

    def _words(self, rows: Numbered, count: int) -> NDArray[np.uint8]:
        """Return at least ``count`` random bytes per row, as rows of a matrix."""
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

    def _texts(self) -> Make:
        """Return hexadecimal digits, ``length`` of them."""
        length = self._length()

        def make(rows: Numbered) -> pa.Array:
            found = self._words(rows, -(-length // 2))
            digits = np.stack([_DIGITS[found >> 4], _DIGITS[found & 15]], axis=2)
            letters = digits.reshape(len(found), -1)[:, :length]
            return _fixed(np.ascontiguousarray(letters), pa.string())

        return make

    def _bytes(self) -> Make:
        length = self._length()
        return lambda rows: _fixed(
            np.ascontiguousarray(self._words(rows, length)[:, :length]), pa.binary()
        )

    def _times(self) -> Make:
        """Return the event time of a row, moved back by a random part of ``max-past``."""
        arrow, past = _arrow(self.column), int((self.option("max_past") or 0) * 1_000_000)

        def make(rows: Numbered) -> pa.Array:
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
    """Return numbers of units in the last place as decimals."""
    words = np.stack([units, units >> np.int64(63)], axis=1)  # the low word, and the sign
    return pa.Array.from_buffers(arrow, len(units), [None, pa.py_buffer(words.tobytes())])


def _fixed(values: NDArray[np.uint8], arrow: pa.DataType) -> pa.Array:
    """Return the rows of a matrix of bytes as texts or bytes of one length."""
    count, length = values.shape
    offsets = np.arange(0, (count + 1) * length, length, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(arrow, count, buffers)
