"""Dates and times in UTC, of the proleptic Gregorian calendar."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.java_gateway import get_field
from pyspark.sql.types import DateType, DayTimeIntervalType, LongType

from headrace.catalyst.resolved import type_of
from headrace.catalyst.scala import items, node_name
from headrace.catalyst.vectors.arrays import integers, made, present
from headrace.catalyst.vectors.reader import (
    TIMES,
    child_of,
    children_of,
    is_constant,
    known_type,
    require,
    require_utc,
    text_argument,
)
from headrace.catalyst.vectors.vector import DoubtError
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.catalyst.vectors.reader import ExpressionReader, Known
    from headrace.catalyst.vectors.vector import Value, Vector
    from headrace.zset.equality import Ints

DAY: Final = 86_400_000_000
"""Microseconds per day."""
_ERA: Final = 146_097
"""Days in 400 years."""
_FROM_MARCH: Final = 719_468
"""Days from 1 March of the year 0 to 1 January 1970."""

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
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
}
"""The parts of Spark's patterns that are texts of a fixed length, as Arrow writes them."""
_FINEST: Final = (("%S", "SECOND"), ("%M", "MINUTE"), ("%H", "HOUR"))
"""The units that a pattern of Arrow may write, the finest first; without them it writes days."""
_PATTERN: Final = re.compile(r"(?:yyyy|MM|dd|HH|mm|ss|[-/:., _])*")
_FIRST_WRITTEN, _LAST_WRITTEN = -62_135_596_800_000_000, 253_402_300_800_000_000
"""The microseconds of the years 1 to 9999, which have four digits."""


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


def part_of_day(value: Value, unit: int, count: int) -> Value:
    """Return how often a unit has passed since it last began again, as INT."""
    return made((integers(value) // unit % count).astype(np.int32), pa.int32(), present(value))


def part_of_date(value: Value, name: str) -> Value:
    """Return the year, month or day of dates, as INT."""
    year, month, day = _civil(integers(value))
    found = {"Year": year, "Month": month, "DayOfMonth": day, "Quarter": (month + 2) // 3}[name]
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


def days_between(after: Value, before: Value) -> Value:
    """Return the days from one date to another, as INT."""
    found = made(integers(after) - integers(before), pa.int64(), present(after, before))
    return found.cast(pa.int32())


def written(value: Value, pattern: str) -> Value:
    """Return times as text by a pattern of Arrow; a year of other than four digits is a doubt."""
    times = integers(value)
    if len(times) and (times.min() < _FIRST_WRITTEN or times.max() >= _LAST_WRITTEN):
        raise DoubtError
    finest = next((UNITS[unit] for sign, unit in _FINEST if sign in pattern), DAY)
    begun = made(times // finest * (finest // UNITS["SECOND"]), pa.timestamp("s"), present(value))
    # Writing a text takes much longer than finding the times that are written alike.
    found = pc.dictionary_encode(begun)
    return pc.strftime(found.dictionary, pattern, locale="C").take(found.indices)


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
    year, month, _ = _civil(days)
    first = month - 1 - (month - 1) % _MONTHS[period]
    return _day_number(year, first + 1)


def _civil(days: Ints) -> tuple[Ints, Ints, Ints]:
    """Return year, month and day of numbers of days since 1970.

    Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
    """
    shifted = days + _FROM_MARCH
    era, of_era = shifted // _ERA, shifted % _ERA
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    from_march = (5 * of_year + 2) // 153
    day = of_year - (153 * from_march + 2) // 5 + 1
    month = np.where(from_march < 10, from_march + 3, from_march - 9)  # noqa: PLR2004
    return year + era * 400 + (month <= 2), month, day  # noqa: PLR2004


def _day_number(year: Ints, month: Ints) -> Ints:
    """Return the numbers of the first days of months; the inverse of :func:`_civil`."""
    year = year - (month <= 2)  # noqa: PLR2004
    era, of_era = year // 400, year % 400
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5  # noqa: PLR2004
    return era * _ERA + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _FROM_MARCH


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
    text = text_argument(handle, pattern)
    require(handle, when=_PATTERN.fullmatch(text) is not None)
    given = re.sub("[a-zA-Z]+", lambda found: PATTERNS[found.group()], text)
    return reader.call(written, pa.string(), _time(reader, time), pattern=given)


KNOWN: Final[Mapping[str, Known]] = {
    "DateAdd": _date_moved,
    "DateDiff": _days_between,
    "DateFormatClass": _written,
    "DateSub": _date_moved,
    "DayOfMonth": _part_of_date,
    "Hour": _part_of_day,
    "MicrosToTimestamp": _as_time,
    "Minute": _part_of_day,
    "Month": _part_of_date,
    "PreciseTimestampConversion": _as_time,
    "Quarter": _part_of_date,
    "Second": _part_of_day,
    "TimestampAddInterval": _moved,
    "TruncDate": _truncated,
    "TruncTimestamp": _truncated,
    "UnixMicros": _as_time,
    "Year": _part_of_date,
}
