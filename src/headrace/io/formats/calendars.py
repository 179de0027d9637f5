"""Dates and times that Spark wrote in the calendar that was in use at their time.

Until version 3.0 Spark wrote dates and times before 15 October 1582 by the Julian calendar, and
still does in its mode ``LEGACY``: a date is stored as the number that the same year, month and day
have there. Marks in a file say so, and in which time zone times were written. Values are moved to
the proleptic Gregorian calendar here as Spark's own readers do, by its table of time zones.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyspark

from headrace.errors import Code, HeadraceError
from headrace.planning.catalyst.vectors.vector import first_of_month

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.algebra.zset.order import Ints


SPARK: Final = b"org.apache.spark."
"""What the names of marks begin with."""
_VERSION: Final = "org.apache.spark.version"
_DATETIME: Final = "org.apache.spark.legacyDateTime"
_INT96: Final = "org.apache.spark.legacyINT96"
_ZONE: Final = "org.apache.spark.timeZone"
_TABLE: Final = "julian-gregorian-rebase-micros.json"
_GREGORIAN: Final = -141_427
"""15 October 1582, the day after 4 October."""
_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND
_FIRST_DAY: Final = -719_164
"""1 January of the year 1 in the Julian calendar: with it the tables of time zones begin."""
_OFFSET: Final = re.compile(r"(?:GMT|UTC)([+-])(\d{1,2}):?(\d{2})?")


@dataclass(frozen=True)
class Calendar:
    """Moves what was written in a time zone, if it was written in the former calendar."""

    zone: str | None
    """None where nothing is moved."""

    @classmethod
    def of_datetimes(cls, marks: Mapping[str, str]) -> Self:
        """Return the calendar of dates, and of times in 64 bits, in a file with these marks."""
        return cls._of(marks, _DATETIME, "3.0.0")

    @classmethod
    def of_int96(cls, marks: Mapping[str, str]) -> Self:
        """Return the calendar of times in 96 bits in a Parquet file with these marks."""
        return cls._of(marks, _INT96, "3.1.0")

    @classmethod
    def _of(cls, marks: Mapping[str, str], mark: str, since: str) -> Self:
        # Spark compares its versions as texts, too.
        former = _VERSION in marks and (marks[_VERSION] < since or mark in marks)
        return cls(marks.get(_ZONE, "UTC") if former else None)

    @property
    def is_former(self) -> bool:
        """Whether values may be moved."""
        return self.zone is not None

    def moved(self, values: pa.Array) -> pa.Array:
        """Return dates, or times; times have microseconds then."""
        kind = values.type
        if self.zone is None or not len(values):
            return values
        if pa.types.is_date32(kind):
            return _with(values, pa.int32(), _days_moved)
        if pa.types.is_timestamp(kind) and kind.unit != "ns":
            in_micros = values.cast(pa.timestamp("us", kind.tz))
            return _with(in_micros, pa.int64(), self._micros_moved)
        return values

    def _micros_moved(self, micros: Ints) -> Ints:
        zone = _zone(self.zone or "UTC")
        at = np.searchsorted(zone.switches, micros, side="right") - 1
        found = np.asarray(micros + zone.shifts[at.clip(0)])
        if (at >= 0).all():
            return found
        days = (micros + zone.offset) // _DAY
        before = micros + (_days_moved(days) - days) * _DAY + zone.shifts[0] - 2 * _DAY
        return np.asarray(np.where(at < 0, before, found))


@dataclass(frozen=True)
class _Zone:
    """From when on times are moved by how much, and the zone's offset before, in microseconds."""

    switches: Ints
    shifts: Ints
    offset: int


def _with(values: pa.Array, number: pa.DataType, function: Any) -> pa.Array:
    """Return times whose numbers a function has changed; NULL stays."""
    numbers = pc.fill_null(values.view(number), 0).to_numpy().astype(np.int64)
    mask = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    changed = function(numbers).astype(number.to_pandas_dtype())
    return pa.array(changed, number, mask=mask).view(values.type)


def _days_moved(days: Ints) -> Ints:
    """Return the days with the year, month and day that days have in the former calendar.

    29 February of a year that has none now is 1 March.
    """
    if not (days < _GREGORIAN).any():
        return days
    # Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", for 4-year cycles.
    shifted = days + 719_470
    cycle, of_cycle = shifted // 1461, shifted % 1461
    year_of_cycle = (of_cycle - of_cycle // 1460) // 365
    of_year = of_cycle - 365 * year_of_cycle
    from_march = (5 * of_year + 2) // 153
    day = of_year - (153 * from_march + 2) // 5
    month = np.where(from_march < 10, from_march + 3, from_march - 9)  # noqa: PLR2004
    year = cycle * 4 + year_of_cycle + (month <= 2)  # noqa: PLR2004
    return np.asarray(np.where(days < _GREGORIAN, first_of_month(year, month) + day, days))


def _zone(name: str) -> _Zone:
    found = _zones().get(name)
    if found is None:
        utc, offset = _zones()["UTC"], _fixed_offset(name)
        return _Zone(utc.switches - offset, utc.shifts, offset)
    return found


def _fixed_offset(name: str) -> int:
    found = _OFFSET.fullmatch(name)
    if found is None:
        return 0  # as Java does with a name that it does not know
    sign, hours, minutes = found.groups()
    return int(f"{sign}1") * (int(hours) * 3600 + int(minutes or 0) * 60) * _SECOND


@cache
def _zones() -> Mapping[str, _Zone]:
    """Return Spark's table of time zones."""
    homes = [Path(pyspark.__file__).parent, Path(os.environ.get("SPARK_HOME") or "/nowhere")]
    for jar in (jar for home in homes for jar in (home / "jars").glob("spark-*.jar")):
        with ZipFile(jar) as archive:
            if _TABLE in archive.namelist():
                return {row["tz"]: _of_row(row) for row in json.loads(archive.read(_TABLE))}
    raise HeadraceError(
        Code.UNAVAILABLE,
        "the table of time zones in former calendars was not found",
        f'It is "{_TABLE}", in a file of Spark.',
    )


def _of_row(row: Mapping[str, Any]) -> _Zone:
    switches, shifts = np.array(row["switches"]) * _SECOND, np.array(row["diffs"]) * _SECOND
    return _Zone(switches, shifts, _FIRST_DAY * _DAY - int(switches[0]))
