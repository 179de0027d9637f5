"""Arrow values as Python objects; values without a Python type are text.

Python's dates and times cover the years 1 to 9999. Others are text in ISO 8601, with a sign if the
year has more than four digits: ``+10000-01-01``, ``-0044-03-15T12:00:00Z``.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from headrace.types import is_variant, variant_values

_FIRST_DAY: Final = -719_162
"""The first day in Python's range, in days since 1970; and the first one after the last."""
_END_DAY: Final = 2_932_897
_DAY: Final = 86_400_000_000
_ERA_DAYS: Final = 146_097
"""The days of 400 years, after which the calendar repeats."""

Maps = Literal["strict"] | None
"""Whether maps are dictionaries, or lists of pairs."""


def python_values(column: pa.Array | pa.ChunkedArray, maps: Maps = None) -> list[Any]:
    """Return the values of an Arrow array; dates and times beyond Python's are text.

    A variant is the Python object of its JSON.
    """
    if is_variant(column.type):
        return variant_values(column)
    try:
        found: list[Any] = column.to_pylist(maps_as_pydicts=maps)
    except (ValueError, OverflowError):
        return [_value(scalar, maps) for scalar in column]
    return found


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries of :func:`python_values`."""
    columns = [python_values(column) for column in table.columns]
    if not columns:
        return [{} for _ in range(table.num_rows)]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _value(scalar: pa.Scalar, maps: Maps) -> Any:
    try:
        return scalar.as_py(maps_as_pydicts=maps)
    except (ValueError, OverflowError):
        pass
    kind = scalar.type
    if pa.types.is_map(kind):
        pairs = [(_value(each["key"], maps), _value(each["value"], maps)) for each in scalar.values]
        return pairs if maps is None else dict(pairs)
    if pa.types.is_struct(kind):
        return {field.name: _value(scalar[at], maps) for at, field in enumerate(kind)}
    if pa.types.is_date(kind):
        return date_text(scalar.cast(pa.date32()).value)
    if pa.types.is_timestamp(kind):
        micros = scalar.cast(pa.timestamp("us", kind.tz)).value
        return time_text(micros, "" if kind.tz is None else "Z")
    return [_value(each, maps) for each in scalar.values]


def date_text(days: int) -> str:
    """Return a number of days since 1970 as a date of the proleptic Gregorian calendar."""
    era, day_of_era = divmod(days + 719_468, _ERA_DAYS)  # eras begin with 1 March of a year
    year = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // (_ERA_DAYS - 1)
    ) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    months = (5 * day_of_year + 2) // 153
    day, month = day_of_year - (153 * months + 2) // 5 + 1, (months + 2) % 12 + 1
    return f"{_year(400 * era + year + (month <= 2))}-{month:02}-{day:02}"  # noqa: PLR2004


def time_text(micros: int, zone: str) -> str:
    """Return microseconds since 1970 as date and time, with the zone's suffix."""
    days, rest = divmod(micros, _DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    minutes, second = divmod(seconds, 60)
    clock = f"{minutes // 60:02}:{minutes % 60:02}:{second:02}"
    return f"{date_text(days)}T{clock}{f'.{fraction:06}' if fraction else ''}{zone}"


def _year(year: int) -> str:
    sign = "-" if year < 0 else "+" if year > 9999 else ""  # noqa: PLR2004
    return f"{sign}{abs(year):04}"


def beyond_python(values: pa.Array) -> pa.BooleanArray:
    """Return a mask of dates or times beyond Python's range; NULL for NULL."""
    is_date = pa.types.is_date(values.type)
    numbers = values.cast(pa.int32() if is_date else pa.int64())
    first, end = _FIRST_DAY, _END_DAY
    if not is_date:
        first, end = first * _DAY, end * _DAY
    return pc.or_(pc.less(numbers, first), pc.greater_equal(numbers, end))
