"""Spark's operations on dates, timestamps and intervals that never fail.

Such an operation can be evaluated before it is known whether its result is needed. The value added
to a time must be a constant of at most about 10,000 years: larger or computed values may overflow.
Truncation to an unknown unit returns NULL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    CalendarIntervalType,
    DayTimeIntervalType,
    IntegralType,
    YearMonthIntervalType,
)

from headrace.catalyst.resolved import type_of
from headrace.catalyst.scala import kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_DAYS: Final = 3_660_000
_MONTHS: Final = 120_000
_MICROSECONDS: Final = _DAYS * 86_400_000_000
_QUANTITY: Final = 10_000
"""The most units that may be added; the largest supported unit is a year."""

_ADDING = (
    "AddMonths",
    "DateAdd",
    "DateAddYMInterval",
    "DateSub",
    "TimestampAddInterval",
    "TimestampAddYMInterval",
)
"""The operations on a time and a value that is added or subtracted."""

_ON_ANY_VALUE = frozenset(
    {
        "DateDiff",
        "DateFromUnixDate",
        "DayOfMonth",
        "DayOfWeek",
        "DayOfYear",
        "Greatest",
        "Hour",
        "LastDay",
        "Least",
        "Minute",
        "Month",
        "Quarter",
        "Second",
        "SecondWithFraction",
        "TruncDate",
        "TruncTimestamp",
        "UnixDate",
        "UnixMicros",
        "UnixMillis",
        "UnixSeconds",
        "WeekDay",
        "WeekOfYear",
        "Year",
        "YearOfWeek",
    }
)
_UNITS = frozenset(
    {"MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "DAYOFYEAR"}
    | {"WEEK", "MONTH", "QUARTER", "YEAR"}
)


def is_total(value: Any, kind: str, parts: Sequence[Any]) -> bool:
    """Return whether an operation on some operands fails for no values of these."""
    if kind in _ADDING:
        return _is_small(parts[1])
    if kind == "TimestampAdd":
        return str(value.unit()).upper() in _UNITS and _is_small(parts[0], _QUANTITY)
    return kind in _ON_ANY_VALUE


def _is_small(added: Any, most: int = _DAYS) -> bool:
    """Return whether an added value is a constant of at most ``most`` in magnitude."""
    if kind_of(added) != "Literal":
        return False
    value = added.value()
    if value is None:
        return True
    match type_of(added):
        case IntegralType():
            return abs(int(value)) <= min(most, _MONTHS)
        case DayTimeIntervalType():
            return abs(int(value)) <= _MICROSECONDS
        case YearMonthIntervalType():
            return abs(int(value)) <= _MONTHS
        case CalendarIntervalType():
            months = abs(int(value.extractAsPeriod().toTotalMonths()))
            days = abs(int(value.extractAsPeriod().getDays()))
            rest = abs(int(value.extractAsDuration().toDays()))
            return months <= _MONTHS and days <= _DAYS and rest <= _DAYS
        case _:
            return False
