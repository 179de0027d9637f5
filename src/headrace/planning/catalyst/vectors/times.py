"""Dates and times in UTC, of the proleptic Gregorian calendar."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.java_gateway import get_field
from pyspark.sql.types import DateType, DayTimeIntervalType, LongType

from headrace.planning.catalyst.allowed import INTEGERS
from headrace.planning.catalyst.resolved import type_of
from headrace.planning.catalyst.scala import items, node_name
from headrace.planning.catalyst.vectors import decimals, vector
from headrace.planning.catalyst.vectors.reader import (
    TIMES,
    UnprovedError,
    child_of,
    children_of,
    int_argument,
    is_constant,
    known_type,
    require,
    require_utc,
    text_argument,
)
from headrace.planning.catalyst.vectors.vector import DoubtError, integers, made, present
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.algebra.zset.order import Ints
    from headrace.planning.catalyst.vectors.reader import ExpressionReader, Known
    from headrace.planning.catalyst.vectors.vector import Value, Vector


DAY: Final = 86_400_000_000
"""Microseconds per day."""
_LONG: Final = pa.int64()

UNITS: Final[Mapping[str, int]] = {
    "MICROSECOND": 1,
    "MILLISECOND": 1000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": DAY,
    "DD": DAY,
}
"""Microseconds of the periods that all have the same length."""
_MONTHS: Final[Mapping[str, int]] = {
    "MONTH": 1,
    "MON": 1,
    "MM": 1,
    "QUARTER": 3,
    "YEAR": 12,
    "YYYY": 12,
    "YY": 12,
}
"""The months of the other periods."""
_LENGTHS: Final[Mapping[str, int]] = {**UNITS, "WEEK": 7 * DAY}
_WEEKDAYS: Final = {
    name[:length]: number
    for number, name in enumerate(
        "MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY SUNDAY".split()  # noqa: SIM905
    )
    for length in (2, 3, len(name))
}
"""The numbers of the days of the week by name; Monday is 0."""
PERIODS: Final = UNITS.keys() | _MONTHS.keys() | {"WEEK"}
PARTS: Final[Mapping[str, tuple[int, int]]] = {
    "Hour": (UNITS["HOUR"], 24),
    "Minute": (UNITS["MINUTE"], 60),
    "Second": (UNITS["SECOND"], 60),
}
"""The unit of a part of a day, and how many there are until it begins again."""
PATTERNS: Final[Mapping[str, str]] = {
    "yyyy": "%Y",
    "MM": "%m",
    "MMM": "%b",
    "MMMM": "%B",
    "dd": "%d",
    "E": "%a",
    "EE": "%a",
    "EEE": "%a",
    "EEEE": "%A",
    "HH": "%H",
    "hh": "%I",
    "mm": "%M",
    "ss": "%S",
    "ss.SSS": "%S",
    "ss.SSSSSS": "%S",
    "a": "%p",
}
"""The parts of Spark's patterns, as Arrow writes them."""
_FINEST: Final = (
    ("%S", "SECOND"),
    ("%M", "MINUTE"),
    ("%H", "HOUR"),
    ("%I", "HOUR"),
    ("%p", "HOUR"),
)
"""The units that a pattern of Arrow may write, the finest first; without them it writes days."""
_PARTS_OF_PATTERN: Final = re.compile(
    r"ss\.S+|(?P<letter>[A-Za-z])(?P=letter)*|'(?P<quoted>[A-Za-z]+)'|(?P<literal>[-/:., _]+)"
)
_RESOLUTIONS: Final = {"ss.SSS": "ms", "ss.SSSSSS": "us"}
"""The units of the times that Arrow writes with a fraction of a second."""
_PER_SECOND: Final = {"s": 1, "ms": 1000, "us": 1_000_000}
_LAST_DAY: Final = (1 << 31) - 1
_FAR_DAYS: Final = 106_000_000
"""Every time of a date that is nearer to 1970 than so many days is in the range of times."""
_FIRST_WRITTEN, _LAST_WRITTEN = -62_135_596_800_000_000, 253_402_300_800_000_000
"""The microseconds of the years 1 to 9999, which have four digits."""


_PARTS_OF_DATE: Final[Mapping[str, Callable[[Ints], Ints]]] = {
    "DayOfMonth": lambda days: vector.civil(days)[2],
    "DayOfWeek": lambda days: (days + 4) % 7 + 1,
    "DayOfYear": vector.day_of_year,
    "Month": lambda days: vector.civil(days)[1],
    "Quarter": lambda days: (vector.civil(days)[1] + 2) // 3,
    "WeekDay": lambda days: (days + 3) % 7,
    "WeekOfYear": vector.week_of_year,
    "Year": lambda days: vector.civil(days)[0],
}
"""The parts of dates that are numbers, by the class of the expression."""


def as_number(value: Value) -> Value:
    """Return the microseconds of times, or the days of dates, as BIGINT."""
    return made(integers(value), pa.int64(), present(value))


def of_number(value: Value, type_: pa.DataType) -> Value:
    """Return the times of microseconds."""
    return made(integers(value), type_, present(value))


def day_of(value: Value, type_: pa.DataType) -> Value:
    """Return the dates of times."""
    return _dates(integers(value) // DAY, value, type_)


def midnight_of(value: Value, type_: pa.DataType) -> Value:
    """Return the first times of dates; beyond the range of times is a doubt."""
    days = integers(value)
    if len(days) and max(int(days.max()), -int(days.min())) > (1 << 63) // DAY - 1:
        raise DoubtError
    return made(days * DAY, type_, present(value))


def as_seconds(value: Value, type_: pa.DataType = _LONG) -> Value:
    """Return the whole seconds of times since 1970, rounded down, as integers."""
    return as_units(value, UNITS["SECOND"], type_)


def as_units(value: Value, unit: int, type_: pa.DataType = _LONG) -> Value:
    """Return times as integers of a unit, rounded down."""
    return made(integers(value) // unit, _LONG, present(value)).cast(type_)


def seconds_passed(value: Value) -> Value:
    """Return the whole seconds of times or dates since 1970, rounded towards zero."""
    times = midnight_of(value, pa.timestamp("us")) if pa.types.is_date(value.type) else value
    return made(_towards_zero(integers(times), UNITS["SECOND"]), _LONG, present(value))


def as_fraction(value: Value, type_: pa.DataType) -> Value:
    """Return the seconds of times since 1970 as floats."""
    found = integers(value).astype(np.float64) / UNITS["SECOND"]
    return made(found.astype(type_.to_pandas_dtype()), type_, present(value))


def of_units(value: Value, type_: pa.DataType, unit: int = UNITS["SECOND"]) -> Value:
    """Return the times of integers of a unit."""
    found = pc.multiply_checked(made(integers(value), _LONG, present(value)), unit)
    return found.view(type_)


def written_exactly(value: Value, type_: pa.DataType) -> Value:
    """Return times as text with as many digits of a fraction as they need."""
    times = integers(value)
    whole = written(value, "%Y-%m-%d %H:%M:%S")
    fraction = times % UNITS["SECOND"] != 0
    if not fraction.any():
        return whole.cast(type_)
    longer = pc.ascii_rtrim(written(value, "%Y-%m-%d %H:%M:%S", "us"), characters="0")
    return pc.if_else(pa.array(fraction), longer, whole).cast(type_)


def part_of_day(value: Value, unit: int, count: int) -> Value:
    """Return how often a unit has passed since it last began again, as INT."""
    return made((integers(value) // unit % count).astype(np.int32), pa.int32(), present(value))


def part_of_date(value: Value, name: str) -> Value:
    """Return a part of dates, as INT."""
    found = _PARTS_OF_DATE[name](integers(value))
    return made(found.astype(np.int32), pa.int32(), present(value))


def truncated(value: Value, period: str, type_: pa.DataType) -> Value:
    """Return the beginnings of the periods that times are in."""
    times = integers(value)
    if period in UNITS:
        found = times - times % UNITS[period]
    else:
        found = _first_days(times // DAY, period) * DAY
    if (found > times).any():  # an overflow
        raise DoubtError
    return made(found, type_, present(value))


def truncated_date(value: Value, period: str, type_: pa.DataType) -> Value:
    """Return the first dates of the periods that dates are in."""
    return _dates(_first_days(integers(value), period), value, type_)


def moved(value: Value, microseconds: Value, type_: pa.DataType) -> Value:
    """Return times that are later by some microseconds."""
    found = pc.add_checked(as_number(value), _as_long(microseconds))
    return found.view(type_)


def date_moved(value: Value, days: Value, sign: int, type_: pa.DataType) -> Value:
    """Return dates that are later, or earlier, by some days."""
    return _dates(integers(value) + sign * integers(days), value, type_, days)


def months_moved(value: Value, months: Value, type_: pa.DataType) -> Value:
    """Return dates that are later by some months, by their last days if they are shorter."""
    found = vector.months_later(integers(value), integers(months))
    return _dates(found, value, type_, months)


def time_months_moved(value: Value, months: int, type_: pa.DataType) -> Value:
    """Return times that are later by some months, at the same time of the day."""
    times = integers(value)
    days = vector.months_later(times // DAY, months)
    found = days * DAY + times % DAY
    if (np.abs(days) > _FAR_DAYS).any():
        raise DoubtError
    return made(found, type_, present(value))


def last_of_month(value: Value, type_: pa.DataType) -> Value:
    """Return the last dates of the months of dates."""
    year, month, _ = vector.civil(integers(value))
    last = vector.first_of_month(year, month) + vector.days_in_month(year, month) - 1
    return _dates(last, value, type_)


def next_weekday(value: Value, weekday: int, type_: pa.DataType) -> Value:
    """Return the first later dates of a day of the week; 0 is Monday."""
    days = integers(value)
    if (np.abs(days) > _LAST_DAY - 7).any():  # Spark's own result may be another one
        raise DoubtError
    return _dates(days + 1 + (weekday - days - 4) % 7, value, type_)


def elapsed(before: Value, after: Value, unit: int) -> Value:
    """Return how often a unit has passed between times, rounded towards zero."""
    passed = integers(pc.subtract_checked(as_number(after), _as_long(before)))
    return made(_towards_zero(passed, unit), _LONG, present(before, after))


def between(after: Value, before: Value, type_: pa.DataType) -> Value:
    """Return the times that passed from some times or dates to others."""
    unit = DAY if pa.types.is_date(after.type) else 1
    found = pc.subtract_checked(_as_long(after), _as_long(before))
    return pc.multiply_checked(found, unit).view(type_)


def multiplied(value: Value, unit: int) -> Value:
    """Return integers as microseconds, given what one of them is."""
    return pc.multiply_checked(made(integers(value), _LONG, present(value)), unit)


def seconds_of_minute(value: Value, type_: pa.DataType) -> Value:
    """Return the seconds of times in their minutes, with a fraction, as decimals."""
    return decimals.of_units(made(integers(value) % UNITS["MINUTE"], _LONG, present(value)), type_)


def days_between(after: Value, before: Value) -> Value:
    """Return the days from one date to another, as INT."""
    found = made(integers(after) - integers(before), pa.int64(), present(after, before))
    return found.cast(pa.int32())


def written(value: Value, pattern: str, unit: str = "s") -> Value:
    """Return times as text by a pattern of Arrow; a year of other than four digits is a doubt.

    ``unit`` says how many digits of a fraction follow the seconds.
    """
    times, units = integers(value), _PER_SECOND[unit]
    if len(times) and (times.min() < _FIRST_WRITTEN or times.max() >= _LAST_WRITTEN):
        raise DoubtError
    finest = next((UNITS[name] for sign, name in _FINEST if sign in pattern), DAY) // units
    begun = times // finest * finest // (UNITS["SECOND"] // units)
    # Writing a text takes much longer than finding the times that are written alike.
    found = made(begun, pa.timestamp(unit), present(value)).dictionary_encode()
    return pc.strftime(found.dictionary, pattern, locale="C").take(found.indices)


def _towards_zero(times: Ints, unit: int) -> Ints:
    whole, rest = np.divmod(times, unit)
    return np.asarray(whole + ((rest != 0) & (times < 0)))


def _as_long(value: Value) -> Value:
    if isinstance(value, pa.Scalar):
        return pa.scalar(int(integers(value)[0]), pa.int64())
    return as_number(value)


def _dates(days: Ints, value: Value, type_: pa.DataType, *others: Value) -> Value:
    if len(days) and (int(days.min()) < -(1 << 31) or int(days.max()) >= 1 << 31):
        raise DoubtError
    return made(days.astype(np.int32), type_, present(value, *others))


def _first_days(days: Ints, period: str) -> Ints:
    """Return the first days of the weeks, which begin on Mondays, or of months and longer."""
    if period == "WEEK":
        return days - (days + 3) % 7
    year, month, _ = vector.civil(days)
    first = month - 1 - (month - 1) % _MONTHS[period]
    return vector.first_of_month(year, first + 1)


def _time(reader: ExpressionReader, handle: Any) -> Vector:
    """Return an argument that is a time."""
    of = known_type(handle)
    require(handle, when=isinstance(of, TIMES), of=of)
    return reader.vector(handle)


def _part_of_day(reader: ExpressionReader, handle: Any) -> Vector:
    require_utc(handle)
    unit, count = PARTS[node_name(handle)]
    return reader.call(
        part_of_day, pa.int32(), _time(reader, handle.child()), unit=unit, count=count
    )


def _part_of_date(reader: ExpressionReader, handle: Any) -> Vector:
    of = known_type(handle.child())
    require(handle, when=isinstance(of, DateType), of=of)
    return reader.call(part_of_date, pa.int32(), child_of(reader, handle), name=node_name(handle))


def _truncated(reader: ExpressionReader, handle: Any) -> Vector:
    given, arrow = items(handle.children()), to_arrow(known_type(handle))
    if node_name(handle) == "TruncDate":
        value, period = reader.vector(given[0]), text_argument(handle, given[1]).upper()
        require(handle, when=period in PERIODS - UNITS.keys())
        return reader.call(truncated_date, arrow, value, period=period, type_=arrow)
    require_utc(handle)
    period = text_argument(handle, given[0]).upper()
    require(handle, when=period in PERIODS)
    value = _time(reader, given[1])
    return reader.call(truncated, arrow, value, period=period, type_=arrow)


def _as_time(reader: ExpressionReader, handle: Any) -> Vector:
    """Return a conversion between times and their microseconds."""
    source, target = known_type(handle.child()), known_type(handle)
    arrow, value = to_arrow(target), child_of(reader, handle)
    if isinstance(source, TIMES) and isinstance(target, LongType):
        return reader.call(as_number, arrow, value)
    require(handle, when=isinstance(source, (LongType, *TIMES)), of=source)
    require(handle, when=isinstance(target, TIMES), of=target)
    return reader.call(of_number, arrow, value, type_=arrow)


def _moved(reader: ExpressionReader, handle: Any) -> Vector:
    require_utc(handle)
    time, interval = items(handle.children())
    arrow, value = to_arrow(known_type(handle)), _time(reader, time)
    require(handle, when=is_constant(interval))
    if isinstance(type_of(interval), DayTimeIntervalType):
        by = int(interval.value())
    else:
        given = interval.value()
        require(handle, when=get_field(given, "months") == 0)
        by = int(get_field(given, "days")) * DAY + int(get_field(given, "microseconds"))
    require(handle, when=abs(by) < 1 << 62)
    constant = reader.constant(pa.scalar(by, pa.int64()))
    return reader.call(moved, arrow, value, constant, type_=arrow)


def _date_moved(reader: ExpressionReader, handle: Any) -> Vector:
    sign = 1 if node_name(handle) == "DateAdd" else -1
    return reader.call(
        date_moved, pa.date32(), *children_of(reader, handle), sign=sign, type_=pa.date32()
    )


def _days_between(reader: ExpressionReader, handle: Any) -> Vector:
    return reader.call(days_between, pa.int32(), *children_of(reader, handle))


def _written(reader: ExpressionReader, handle: Any) -> Vector:
    require_utc(handle)
    time, pattern = items(handle.children())
    given, unit = _pattern(handle, text_argument(handle, pattern))
    return reader.call(written, pa.string(), _time(reader, time), pattern=given, unit=unit)


def _pattern(handle: Any, text: str) -> tuple[str, str]:
    """Return a pattern of Spark as one of Arrow, and the unit of the times that it writes."""
    given, unit = "", "s"
    for part, is_field in parts_of_pattern(handle, text):
        require(handle, when=not is_field or part in PATTERNS)
        given += PATTERNS[part] if is_field else part
        unit = _RESOLUTIONS.get(part, unit) if is_field else unit
    require(handle, when=unit == "s" or given.count("%S") == 1)
    return given, unit


def _months_moved(reader: ExpressionReader, handle: Any) -> Vector:
    date, months = items(handle.children())
    if node_name(handle) == "AddMonths":
        by = reader.vector(months)
    else:
        by = reader.constant(pa.scalar(int_argument(handle, months), pa.int32()))
    return reader.call(months_moved, pa.date32(), reader.vector(date), by, type_=pa.date32())


def _last_of_month(reader: ExpressionReader, handle: Any) -> Vector:
    return reader.call(last_of_month, pa.date32(), child_of(reader, handle), type_=pa.date32())


def _next_weekday(reader: ExpressionReader, handle: Any) -> Vector:
    date, name = items(handle.children())
    found = _WEEKDAYS.get(text_argument(handle, name).upper())
    require(handle, when=found is not None)
    value = reader.vector(date)
    return reader.call(next_weekday, pa.date32(), value, weekday=found, type_=pa.date32())


def _time_months_moved(reader: ExpressionReader, handle: Any) -> Vector:
    require_utc(handle)
    time, months = items(handle.children())
    arrow, value = to_arrow(known_type(handle)), _time(reader, time)
    by = int_argument(handle, months)
    return reader.call(time_months_moved, arrow, value, months=by, type_=arrow)


def _elapsed(reader: ExpressionReader, handle: Any) -> Vector:
    require_utc(handle)
    unit = _LENGTHS.get(str(handle.unit()).upper())
    require(handle, when=unit is not None)
    times = [_time(reader, each) for each in items(handle.children())]
    return reader.call(elapsed, _LONG, *times, unit=unit)


def _units_moved(reader: ExpressionReader, handle: Any) -> Vector:
    require_utc(handle)
    unit = _LENGTHS.get(str(handle.unit()).upper())
    require(handle, when=unit is not None)
    number, time = items(handle.children())
    arrow, value = to_arrow(known_type(handle)), _time(reader, time)
    by = reader.call(multiplied, _LONG, reader.vector(number), unit=unit)
    return reader.call(moved, arrow, value, by, type_=arrow)


def _between(reader: ExpressionReader, handle: Any) -> Vector:
    of = known_type(handle)
    require(handle, when=isinstance(of, DayTimeIntervalType), of=of)
    arrow = to_arrow(of)
    return reader.call(between, arrow, *children_of(reader, handle), type_=arrow)


def _units_of(unit: int) -> Known:
    def read(reader: ExpressionReader, handle: Any) -> Vector:
        return reader.call(as_units, _LONG, _time(reader, handle.child()), unit=unit)

    return read


def _of_units(unit: int) -> Known:
    def read(reader: ExpressionReader, handle: Any) -> Vector:
        source = known_type(handle.child())
        require(handle, when=type(source) in INTEGERS, of=source)
        arrow, value = to_arrow(known_type(handle)), child_of(reader, handle)
        return reader.call(of_units, arrow, value, type_=arrow, unit=unit)

    return read


def _converted(reader: ExpressionReader, handle: Any) -> Vector:
    """Return a conversion between dates and their numbers of days."""
    arrow = to_arrow(known_type(handle))
    return reader.call(pc.cast, arrow, child_of(reader, handle), target_type=arrow)


def _seconds_of_minute(reader: ExpressionReader, handle: Any) -> Vector:
    require_utc(handle)
    arrow = to_arrow(known_type(handle))
    return reader.call(seconds_of_minute, arrow, _time(reader, handle.child()), type_=arrow)


def _seconds_written(reader: ExpressionReader, handle: Any) -> Vector:
    require_utc(handle)
    seconds, pattern = items(handle.children())
    given, _ = _pattern(handle, text_argument(handle, pattern))
    type_ = pa.timestamp("us", "UTC")
    value = reader.call(of_units, type_, reader.vector(seconds), type_=type_)
    return reader.call(written, pa.string(), value, pattern=given)


def parts_of_pattern(handle: Any, text: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of Spark's pattern of an expression, and whether each is a field."""
    at = 0
    while at < len(text):
        found = _PARTS_OF_PATTERN.match(text, at)
        if found is None:
            raise UnprovedError(node_name(handle))
        at = found.end()
        literal = found["quoted"] or found["literal"]
        yield literal or found.group(), literal is None


KNOWN: Final[Mapping[str, Known]] = {
    "AddMonths": _months_moved,
    "DateAdd": _date_moved,
    "DateAddYMInterval": _months_moved,
    "DateDiff": _days_between,
    "DateFormatClass": _written,
    "DateFromUnixDate": _converted,
    "DateSub": _date_moved,
    "DayOfMonth": _part_of_date,
    "DayOfWeek": _part_of_date,
    "DayOfYear": _part_of_date,
    "FromUnixTime": _seconds_written,
    "Hour": _part_of_day,
    "LastDay": _last_of_month,
    "MicrosToTimestamp": _as_time,
    "MillisToTimestamp": _of_units(UNITS["MILLISECOND"]),
    "Minute": _part_of_day,
    "Month": _part_of_date,
    "PreciseTimestampConversion": _as_time,
    "Quarter": _part_of_date,
    "NextDay": _next_weekday,
    "Second": _part_of_day,
    "SecondWithFraction": _seconds_of_minute,
    "SecondsToTimestamp": _of_units(UNITS["SECOND"]),
    "SubtractDates": _between,
    "SubtractTimestamps": _between,
    "TimestampAdd": _units_moved,
    "TimestampAddInterval": _moved,
    "TimestampAddYMInterval": _time_months_moved,
    "TimestampDiff": _elapsed,
    "TruncDate": _truncated,
    "TruncTimestamp": _truncated,
    "UnixDate": _converted,
    "UnixMicros": _as_time,
    "UnixMillis": _units_of(UNITS["MILLISECOND"]),
    "UnixSeconds": _units_of(UNITS["SECOND"]),
    "WeekDay": _part_of_date,
    "WeekOfYear": _part_of_date,
    "Year": _part_of_date,
}
