"""Days, months and years of the proleptic Gregorian calendar, as numbers.

Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from headrace.zset.equality import Ints

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
