"""Texts as numbers, booleans, dates and times.

Whether a text can be read depends on its *layout*: the text with each digit written as 0. A column
has few of them, so that each is looked at once. A layout is read here, or it is known that Spark
reads no such text, or it is left to Spark. A text that cannot be read is NULL under TRY, else a
doubt: the error is Spark's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StringType, TimestampType

from headrace.algebra.zset.order import valid
from headrace.algebra.zset.sums import rounded
from headrace.planning.catalyst.allowed import is_plain_text
from headrace.planning.catalyst.scala import items
from headrace.planning.catalyst.vectors import decimals, vector
from headrace.planning.catalyst.vectors.reader import (
    TIMES,
    known_type,
    require,
    require_utc,
    text_argument,
)
from headrace.planning.catalyst.vectors.times import DAY, UNITS, parts_of_pattern, seconds_passed
from headrace.planning.catalyst.vectors.vector import Bytes, DoubtError, floats, integers, made
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt
    from pyspark.sql.types import DataType

    from headrace.algebra.zset.order import Bools, Ints
    from headrace.planning.catalyst.vectors.reader import ExpressionReader, Known
    from headrace.planning.catalyst.vectors.vector import Value, Vector


BLANKS: Final = "".join(map(chr, range(0x21))) + "\x7f"
"""The characters that Spark ignores around whole numbers, booleans, dates and times."""
_SPACES: Final = BLANKS[:-1]
"""The characters that Java ignores around floats."""
_BLANK: Final = rb"[\x00-\x20\x7f]*"
_SPACE: Final = rb"[\x00-\x20]*"
_SHORT_WHOLE: Final = re.compile(rb"-?0{1,18}")
_WHOLE: Final = re.compile(_BLANK + rb"[+-]?0{1,100}" + _BLANK)
_ANY_WHOLE: Final = re.compile(_BLANK + rb"[+-]?0+" + _BLANK)
_DECIMAL: Final = re.compile(rb"[+-]?(?:0{1,38}(?:\.0{0,38})?|\.0{1,38})")
_FLOAT_TEXT: Final = rb"(?:0{1,40}(?:\.0{0,40})?|\.0{1,40})(?:[eE][+-]?0{1,3})?"
_FLOAT: Final = re.compile(rb"-?" + _FLOAT_TEXT)
_SLOW_FLOAT: Final = re.compile(_SPACE + rb"[+-]?" + _FLOAT_TEXT + _SPACE)
_MAYBE_NAMED: Final = re.compile(rb"(?i).*(?:nan|inf).*", re.DOTALL)
_ANY_DECIMAL: Final = rb"(?:0+\.?0*|\.0+)(?:[eE][+-]?0+)?"
_MAYBE_DECIMAL: Final = re.compile(_SPACE + rb"[+-]?" + _ANY_DECIMAL + _SPACE)
_MAYBE_FLOAT: Final = re.compile(
    _SPACE + rb"[+-]?(?:0[xX].*|" + _ANY_DECIMAL + rb"[dDfF]?)" + _SPACE, re.DOTALL
)
_DATE: Final = re.compile(
    _BLANK + rb"(?P<year>0000)(?:-(?P<month>00?)(?:-(?P<day>00?)(?:[ T].*)?)?)?" + _BLANK,
    re.DOTALL,
)
_MAYBE_DATE: Final = re.compile(
    _BLANK + rb"[+-]?0{4,7}(?:-00?(?:-00?(?:[ T].*)?)?)?" + _BLANK, re.DOTALL
)
_TIME: Final = re.compile(
    _BLANK
    + rb"(?P<year>0000)(?:-(?P<month>00?)(?:-(?P<day>00?)"
    + rb"(?:[ T](?P<hour>00?):(?P<minute>00?)(?::(?P<second>00?)(?:\.(?P<fraction>0{1,9}))?)?"
    + rb"(?P<zone>Z|[+-](?P<hours>00):?(?P<minutes>00))?)?)?)?"
    + _BLANK
)
_NO_TIME: Final = re.compile(
    _BLANK + rb"(?:[^0T+\x00-\x20\x7f-].*|[T+-][^0].*|0{0,3}|0{8,})" + _BLANK, re.DOTALL
)
_TRUE: Final = ("t", "true", "y", "yes", "1")
_FALSE: Final = ("f", "false", "n", "no", "0")
_FEW_DIGITS: Final = 18
_DIGITS: Final = 38
"""The most digits of a decimal."""
_MOST_MINUTES: Final = 18 * 60
"""The most minutes of an offset from UTC."""
_FIELDS: Final = {
    "yyyy": "(?P<year>0000)",
    "MM": "(?P<month>00)",
    "dd": "(?P<day>00)",
    "HH": "(?P<hour>00)",
    "mm": "(?P<minute>00)",
    "ss": "(?P<second>00)",
    "ss.SSS": "(?P<second>00)\\.(?P<fraction>000)",
    "ss.SSSSSS": "(?P<second>00)\\.(?P<fraction>000000)",
}
"""The layouts of the parts of patterns for reading."""
_OF_OTHER_LENGTHS: Final = rb"\(\?P<(?:year|fraction)>0+\)"


class _Way(IntEnum):
    """What becomes of texts of one layout."""

    FAILS = 0
    DIRECT = 1
    SLOW = 2
    UNSURE = 3


def whole(value: Value, type_: pa.DataType, *, tried: bool) -> Value:
    """Return texts as integers."""
    ways, shown = _ways(value, _way_of_whole)
    found = _where(value, ways == _Way.DIRECT).cast(pa.int64())
    numbers, failed = integers(found).copy(), shown & (ways == _Way.FAILS)
    for row in np.flatnonzero(shown & (ways == _Way.SLOW)).tolist():
        number = int(value[row].as_py().strip(BLANKS))
        fits = -(1 << 63) <= number < 1 << 63
        numbers[row], failed[row] = number if fits else 0, not fits
    limit = 1 << (type_.bit_width - 1)
    failed |= (numbers < -limit) | (numbers > limit - 1)
    numbers[failed] = 0
    kept = _without(shown, failed, tried=tried)
    return made(numbers.astype(type_.to_pandas_dtype()), type_, kept)


def _way_of_whole(layout: bytes) -> _Way:
    if _SHORT_WHOLE.fullmatch(layout):
        return _Way.DIRECT
    if _WHOLE.fullmatch(layout):
        return _Way.SLOW
    return _Way.UNSURE if _ANY_WHOLE.fullmatch(layout) else _Way.FAILS


def floating(value: Value, type_: pa.DataType, *, tried: bool) -> Value:
    """Return texts as the nearest floats."""
    ways, shown = _ways(value, _way_of_float)
    found = _where(value, ways == _Way.DIRECT).cast(type_)
    slow = np.flatnonzero(shown & (ways == _Way.SLOW))
    if len(slow):
        if type_ != pa.float64():
            raise DoubtError  # it might be rounded twice
        numbers = floats(found).copy()
        numbers[slow] = [float(value[row].as_py().strip(_SPACES)) for row in slow.tolist()]
        found = made(numbers, type_, shown & (ways != _Way.FAILS))
    return _known_column(found, ways, shown, tried=tried)


def _way_of_float(layout: bytes) -> _Way:
    if _FLOAT.fullmatch(layout):
        return _Way.DIRECT
    if _SLOW_FLOAT.fullmatch(layout):
        return _Way.SLOW
    unsure = _MAYBE_NAMED.fullmatch(layout) or _MAYBE_FLOAT.fullmatch(layout)
    return _Way.UNSURE if unsure else _Way.FAILS


def decimal(value: Value, type_: pa.Decimal128Type, *, tried: bool) -> Value:
    """Return texts as decimals, rounded; one that does not fit is a doubt."""
    ways, shown = _ways(value, _way_of_decimal)
    direct = _where(value, ways == _Way.DIRECT)
    _, known = Bytes.of(direct).layouts()
    scale = max((len(each.partition(b".")[2]) for each in known), default=0)
    if max(map(len, known), default=0) < _FEW_DIGITS:
        found = decimals.rescaled(direct.cast(pa.decimal128(_DIGITS, scale)), type_)
    else:
        # One digit more than the type has decides how the text is rounded.
        kept = min(scale, type_.scale + 1)
        cut = pc.replace_substring_regex(direct, rf"(\.[0-9]{{{kept}}})[0-9]+", r"\1")
        found = rounded(cut.cast(pa.decimal256(2 * _DIGITS, kept)), type_)
    return _known_column(found, ways, shown, tried=tried)


def _way_of_decimal(layout: bytes) -> _Way:
    if _DECIMAL.fullmatch(layout):
        return _Way.DIRECT
    unsure = _MAYBE_DECIMAL.fullmatch(layout) or not layout.isascii()
    return _Way.UNSURE if unsure else _Way.FAILS


def boolean(value: Value, type_: pa.DataType, *, tried: bool) -> Value:
    """Return texts as booleans."""
    shown = valid(value)
    bare = pc.ascii_lower(pc.utf8_trim(value, characters=BLANKS))
    true = pc.is_in(bare, value_set=pa.array(_TRUE)).to_numpy(zero_copy_only=False)
    false = pc.is_in(bare, value_set=pa.array(_FALSE)).to_numpy(zero_copy_only=False)
    return made(true, type_, _without(shown, shown & ~(true | false), tried=tried))


def date(value: Value, type_: pa.DataType, *, tried: bool) -> Value:
    """Return texts as dates: those of a year of four digits, a month and a day."""
    read = _read_times(value, _DATE.fullmatch, lambda layout: not _MAYBE_DATE.fullmatch(layout))
    days = (read.micros // DAY).astype(np.int32)
    return made(days, type_, _without(read.shown, read.failed, tried=tried))


def time(value: Value, type_: pa.DataType, *, zones: bool, tried: bool) -> Value:
    """Return texts as times: a date alone, or with hours, minutes and seconds.

    With ``zones``, they may have an offset from UTC; else one is a doubt.
    """
    read = _read_times(value, _TIME.fullmatch, _NO_TIME.fullmatch)
    if not zones and read.zoned:
        raise DoubtError
    return made(read.micros, type_, _without(read.shown, read.failed, tried=tried))


def by_pattern(
    value: Value, type_: pa.DataType, layout: bytes, similar: bytes, unit: int, *, tried: bool
) -> Value:
    """Return texts of one layout as times, or as numbers of a unit.

    Texts of a ``similar`` layout are a doubt; Spark reads no others.
    """
    maybe = re.compile(similar, re.IGNORECASE).fullmatch
    read = _read_times(value, re.compile(layout).fullmatch, lambda each: not maybe(each))
    if read.least_year == 0:
        raise DoubtError
    return made(read.micros // unit, type_, _without(read.shown, read.failed, tried=tried))


@dataclass(frozen=True, slots=True)
class _Times:
    """Texts as microseconds: which rows have one, and for which of them reading fails."""

    micros: Ints
    shown: Bools
    failed: Bools
    zoned: bool
    least_year: int


def _read_times(
    value: Value,
    matched: Callable[[bytes], re.Match[bytes] | None],
    fails: Callable[[bytes], object],
) -> _Times:
    """Read texts of the layouts that are matched; of others, those that fail, or a doubt."""
    shown = valid(value)
    given = Bytes.of(value)
    codes, known = given.layouts()
    micros, failed = np.zeros(len(codes), np.int64), np.zeros(len(codes), np.bool_)
    order = np.argsort(codes, kind="stable")
    ends, zoned, least = np.cumsum(np.bincount(codes, minlength=len(known))), False, 1
    for layout, end, count in zip(known, ends.tolist(), np.diff(ends, prepend=0), strict=True):
        rows = order[end - count : end]
        rows = rows[shown[rows]]
        if not len(rows):
            continue
        match = matched(layout)
        if match is None:
            if not fails(layout):
                raise DoubtError
            failed[rows] = True
            continue
        parts = _Parts(given, rows, match)
        micros[rows], failed[rows] = parts.micros()
        zoned |= parts.spans.get("zone") is not None
        least = min(least, int(parts.number("year").min()))
    return _Times(micros, shown, failed, zoned, least)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of dates and times of one layout, in some rows."""

    given: Bytes
    rows: Ints
    match: re.Match[bytes]

    @property
    def spans(self) -> Mapping[str, bytes | None]:
        """The parts by name; those that the layout does not have are None."""
        return self.match.groupdict()

    def number(self, name: str, default: int = 0) -> Ints:
        """Return the numbers of a part."""
        if self.spans.get(name) is None:
            return np.full(len(self.rows), default, np.int64)
        return self.given.number(self.rows, *self.match.span(name))

    def micros(self) -> tuple[Ints, Bools]:
        """Return microseconds since 1970, and where there is no such date or time."""
        year, month, day = self.number("year"), self.number("month", 1), self.number("day", 1)
        known = (month >= 1) & (month <= 12)  # noqa: PLR2004
        month = np.where(known, month, 1)
        known &= (day >= 1) & (day <= vector.days_in_month(year, month))
        days = vector.first_of_month(year, month) + day - 1
        hour, minute, second = map(self.number, ("hour", "minute", "second"))
        known &= (hour < 24) & (minute < 60) & (second < 60)  # noqa: PLR2004
        seconds = ((days * 24 + hour) * 60 + minute) * 60 + second - self._offset()
        return seconds * 1_000_000 + self._fraction(), ~known

    def _fraction(self) -> Ints:
        """Return microseconds; further digits are left out."""
        digits = self.spans.get("fraction")
        if digits is None:
            return np.zeros(len(self.rows), np.int64)
        start, end = self.match.span("fraction")
        end = min(end, start + 6)
        return np.asarray(self.given.number(self.rows, start, end) * 10 ** (6 - (end - start)))

    def _offset(self) -> Ints:
        """Return the seconds of offsets from UTC; one of more than 18 hours is a doubt."""
        hours, minutes = self.number("hours"), self.number("minutes")
        if ((hours * 60 + minutes > _MOST_MINUTES) | (minutes >= 60)).any():  # noqa: PLR2004
            raise DoubtError
        if self.spans.get("hours") is None:
            return hours
        sign = -1 if self.match["zone"].startswith(b"-") else 1
        return np.asarray(sign * (hours * 60 + minutes) * 60)


def _ways(value: Value, way: Callable[[bytes], _Way]) -> tuple[npt.NDArray[np.int8], Bools]:
    """Return what becomes of each text, and which are not NULL; one that is unsure is a doubt."""
    shown = valid(value)
    codes, known = Bytes.of(value).layouts()
    ways = np.fromiter(map(way, known), np.int8, len(known))[codes]
    if (shown & (ways == _Way.UNSURE)).any():
        raise DoubtError
    return ways, shown


def _where(value: Value, chosen: Bools) -> pa.Array:
    """Return the texts that are chosen, and NULL for others."""
    if chosen.all():
        return value
    return pc.if_else(pa.array(chosen), value, pa.scalar(None, value.type))


def _without(shown: Bools, failed: Bools, *, tried: bool) -> Bools | None:
    """Return which rows are not NULL: not those that failed under TRY; else these are a doubt."""
    if failed.any():
        if not tried:
            raise DoubtError
        shown = shown & ~failed
    return None if shown.all() else shown


def _known_column(
    found: pa.Array, ways: npt.NDArray[np.int8], shown: Bools, *, tried: bool
) -> pa.Array:
    """Return values that were read, and NULL where that failed; see :func:`_without`."""
    _without(shown, shown & (ways == _Way.FAILS), tried=tried)
    return found


_READERS: Final[Mapping[str, Callable[..., Value]]] = {
    "boolean": boolean,
    "date": date,
    "decimal": decimal,
    "float": floating,
    "instant": time,
    "integer": whole,
}
"""What reads texts as values of each kind of type."""


def from_text(reader: ExpressionReader, handle: Any, kind: str, target: DataType) -> Vector | None:
    """Return a cast of a text to a type of some kind, or None if only Spark evaluates it."""
    mode = str(handle.evalMode())
    if kind not in _READERS or (mode == "LEGACY" and kind not in ("date", "instant")):
        return None
    arrow, parameters = to_arrow(target), {}
    if kind == "instant":
        require_utc(handle)
        parameters = {"zones": isinstance(target, TimestampType)}
    value, tried = reader.vector(handle.child()), mode != "ANSI"
    return reader.call(_READERS[kind], arrow, value, type_=arrow, tried=tried, **parameters)


def _by_pattern(reader: ExpressionReader, handle: Any) -> Vector:
    """Read a text by a pattern, or convert a date or time to seconds."""
    given, pattern = items(handle.children())[:2]
    source, target = known_type(given), known_type(handle)
    arrow = to_arrow(target)
    if not isinstance(source, StringType):
        return reader.call(seconds_passed, arrow, reader.vector(given))
    require_utc(handle)
    require(handle, when=is_plain_text(source), of=source)
    layout = _layout_of(handle, text_argument(handle, pattern))
    is_time = isinstance(target, TIMES)
    require(handle, when=is_time or b"<fraction>" not in layout)
    return reader.call(
        by_pattern,
        arrow,
        reader.vector(given),
        type_=arrow,
        layout=layout,
        similar=re.sub(_OF_OTHER_LENGTHS, rb"[+-]?0+", layout),
        unit=1 if is_time else UNITS["SECOND"],
        tried=not handle.failOnError(),
    )


def _layout_of(handle: Any, pattern: str) -> bytes:
    """Return the layout of the texts that a pattern of Spark reads, as a regular expression."""
    found = ""
    for part, is_field in parts_of_pattern(handle, pattern):
        field = _FIELDS.get(part, "") if is_field else re.escape(part)
        require(handle, when=bool(field) and (not is_field or field not in found))
        found += field
    require(handle, when="<year>" in found)
    return found.encode()


KNOWN: Final[Mapping[str, Known]] = {
    "GetTimestamp": _by_pattern,
    "ToUnixTimestamp": _by_pattern,
    "UnixTimestamp": _by_pattern,
}
