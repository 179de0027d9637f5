"""Values as JSON and as fields of CSV, exact and standard, for sinks and the shell.

Arrow values as Python objects; values without a Python type are text.

Python's dates and times cover the years 1 to 9999. Others are text in ISO 8601, with a sign if the
year has more than four digits: ``+10000-01-01``, ``-0044-03-15T12:00:00Z``.

Rows as text in the formats for programs: lines of JSON, and CSV.

Columns and rows as JSON, column-wise, with the values of :func:`json_value`.

Scalars are formatted by Arrow. Text with escapes, binary, durations, lists and maps are written
value by value.

Columns as plain text, column-wise, with the values of :func:`csv_text`.

Times as microseconds UTC.
"""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from collections.abc import Callable  # noqa: TC003  (read when the table is made)
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import Code, HeadraceError
from headrace.types import is_variant, variant_texts, variant_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from headrace.algebra.zset.order import Ints


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


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class JsonText(str):
    """A value whose JSON is known: it is written as it is, with all digits of its numbers."""

    __slots__ = ()


def column_values(column: Any) -> list[Any]:
    """Return the values of an Arrow array; a 32-bit float as its shortest decimal.

    A date or time beyond Python's range is text; a variant is its :class:`JsonText`.
    """
    if is_variant(column.type):
        return [None if text is None else JsonText(text) for text in variant_texts(column)]
    if pa.types.is_float32(column.type):
        return [None if v is None else float(str(np.float32(v))) for v in column.to_pylist()]
    return python_values(column, "strict")


def json_value(value: Any) -> Any:
    """Return a lossless value for ``json.dumps``.

    Decimals are strings, because most readers parse a JSON number with a fraction as a float; so
    are floats without a JSON number. Timestamps, dates and durations are ISO 8601, instants in UTC;
    binary is base64, as in Spark's ``to_json``.
    """
    return _IN_JSON.get(type(value), str)(value)


def json_text(value: Any) -> str:
    """Return a value as JSON in one line."""
    if type(value) is JsonText:
        return str(value)
    return _ENCODER.encode(json_value(value))


def csv_text(value: Any) -> str | None:
    """Return a value as a CSV field: as in JSON, but scalars without quotes."""
    plain = str(value) if type(value) is JsonText else json_value(value)
    if plain is None or isinstance(plain, str):
        return plain
    return json_text(value)


def utc(value: datetime) -> datetime:
    """Return an instant in UTC; a time without a zone stays."""
    return value if value.tzinfo is None else value.astimezone(UTC)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else csv_text(key) or ""


def float_text(value: float) -> str:
    """Return a float as its shortest decimal, or ``NaN``, ``Infinity`` or ``-Infinity``."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _duration(value: timedelta) -> str:
    """Return an ISO 8601 duration, such as ``P1DT2H0.5S``."""
    if value < timedelta():
        return "-" + _duration(-value)
    hours, rest = divmod(value.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    fraction = f".{value.microseconds:06}".rstrip("0") if value.microseconds else ""
    clock = "".join(
        (
            f"{hours}H" if hours else "",
            f"{minutes}M" if minutes else "",
            f"{seconds}{fraction}S" if seconds or fraction else "",
        )
    )
    days = f"{value.days}D" if value.days else ""
    return f"P{days}T{clock}" if clock else f"P{days}" if days else "PT0S"


def _as_is(value: Any) -> Any:
    return value


def _list(value: list[Any]) -> list[Any]:
    return [json_value(item) for item in value]


_IN_JSON: dict[type, Callable[[Any], Any]] = {
    type(None): _as_is,
    bool: _as_is,
    int: _as_is,
    str: _as_is,
    JsonText: json.loads,
    float: lambda value: value if math.isfinite(value) else float_text(value),
    Decimal: lambda value: format(value, "f"),
    bytes: lambda value: base64.b64encode(value).decode("ascii"),
    datetime: lambda value: utc(value).isoformat().replace("+00:00", "Z"),
    date: date.isoformat,
    time: time.isoformat,
    timedelta: _duration,
    dict: lambda value: {_key(key): json_value(item) for key, item in value.items()},
    list: _list,
    tuple: _list,
}
"""How each type of value is written; others as text."""


_BATCH_ROWS = 10_000


def rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Yield the table's rows with the values of :func:`column_values`; maps are dictionaries."""
    for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
        if batch.num_columns:
            yield from zip(*map(column_values, batch.columns), strict=True)


def json_rows(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield one JSON object per row.

    Raises:
        HeadraceError: ``invalid`` if two columns have the same name: one would hide the other.
    """
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise HeadraceError(
            Code.INVALID,
            f'column "{twice[0]}" appears twice, which a JSON object cannot show',
            hint="Give the columns different names with AS, or choose CSV.",
        )
    keys = [json_text(name) for name in names]
    for row in rows:
        fields = ",".join(f"{key}:{json_text(v)}" for key, v in zip(keys, row, strict=True))
        yield "{" + fields + "}\n"


def csv_line(values: Iterable[Any]) -> str:
    """Return one record of RFC 4180; NULL is an empty field, empty text is ``""``."""
    return ",".join(map(_csv_field, values)) + "\r\n"


def _csv_field(value: Any) -> str:
    text = csv_text(value)
    if text is None:
        return ""
    if not text or any(c in text for c in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


_NULL: Final = "null"
_ESCAPED: Final = r'["\\\x00-\x1f]'
"""Characters that must be escaped in a JSON string."""


def json_column(column: pa.Array | pa.ChunkedArray) -> pa.StringArray:
    """Return the values of a column as JSON texts, ``null`` for NULL."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # zero or several chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return pc.fill_null(_texts(array), _NULL).cast(pa.string())


def json_objects(columns: Mapping[str, pa.Array | pa.ChunkedArray], rows: int) -> pa.StringArray:
    """Return a JSON object for each of ``rows`` rows; ``columns`` are its fields, by name.

    A column that :func:`json_column` has encoded is passed as :class:`Encoded`.
    """
    if not columns:
        return pa.array(["{}"] * rows, pa.string())
    parts: list[Any] = []
    for at, (name, column) in enumerate(columns.items()):
        parts += [pa.scalar(f"{',' if at else '{'}{json_text(name)}:"), _encoded(column)]
    return pc.binary_join_element_wise(*parts, pa.scalar("}"), "")


class Encoded:
    """A column whose values are already JSON, as a field of :func:`json_objects`."""

    def __init__(self, texts: pa.StringArray) -> None:
        self.texts = texts


def _encoded(column: Any) -> pa.StringArray:
    return column.texts if isinstance(column, Encoded) else json_column(column)


def _texts(array: pa.Array) -> pa.Array:
    """Return the JSON text of each value; NULL stays."""
    kind = array.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return array.cast(pa.string())
    if pa.types.is_floating(kind):
        return _floats(array)
    if pa.types.is_decimal(kind):
        return _decimals(array)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _strings(array)
    if pa.types.is_timestamp(kind) and kind.tz in (None, "UTC"):
        texts = pc.replace_substring(array.cast(pa.string()), " ", "T", max_replacements=1)
        return _times(pc.replace_substring(texts, ".000000", ""), array)
    if pa.types.is_time64(kind):
        texts = array.cast(pa.time64("us"), safe=False).cast(pa.string())
        return _quoted(pc.replace_substring(texts, ".000000", ""))
    if pa.types.is_date(kind):
        return _times(array.cast(pa.string()), array)
    if is_variant(kind):
        return pa.array(variant_texts(array), pa.string())
    if pa.types.is_struct(kind):
        return _structs(array)
    return _one_by_one(array)


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _times(texts: pa.Array, array: pa.Array) -> pa.Array:
    """Return dates or times in quotes, with a sign where the year has one."""
    beyond, quoted = beyond_python(array), _quoted(texts)
    return _replaced(quoted, beyond, array) if pc.any(beyond).as_py() else quoted


def _floats(array: pa.Array) -> pa.Array:
    """Return the shortest decimals, always as numbers with a fraction or exponent."""
    texts = pc.replace_substring_regex(array.cast(pa.string()), r"^(-?[0-9]+)$", r"\1.0")
    finite = pc.is_finite(array)
    if pc.all(finite).as_py() is not False:
        return texts
    return _replaced(texts, pc.invert(finite), array)


def _decimals(array: pa.Array) -> pa.Array:
    texts = array.cast(pa.string())
    with_exponent = pc.match_substring(texts, "E")
    quoted = _quoted(texts)
    return _replaced(quoted, with_exponent, array) if pc.any(with_exponent).as_py() else quoted


def _strings(array: pa.Array) -> pa.Array:
    escaped = pc.match_substring_regex(array, _ESCAPED)
    quoted = _quoted(array)
    return _replaced(quoted, escaped, array) if pc.any(escaped).as_py() else quoted


def _structs(array: pa.StructArray) -> pa.Array:
    fields = {field.name: child for field, child in zip(array.type, array.flatten(), strict=True)}
    texts = json_objects(fields, len(array))
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string()))


def _replaced(texts: pa.Array, where: pa.BooleanArray, array: pa.Array) -> pa.Array:
    """Return texts, with those where the mask is true rewritten value by value."""
    mask = pc.fill_null(where, False)  # noqa: FBT003 - the value of missing ones
    return pc.replace_with_mask(texts, mask, _one_by_one(array.filter(mask)).cast(texts.type))


def _one_by_one(array: pa.Array) -> pa.StringArray:
    values = [None if value is None else json_text(value) for value in column_values(array)]
    return pa.array(values, pa.string())


def text_column(column: Any) -> pa.StringArray:
    """Return the values of an Arrow array or chunked array as text, NULL where it is NULL.

    A value is written as in JSON, but without quotes.
    """
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        return array.cast(pa.string())
    texts = json_column(column)
    if not pa.types.is_nested(kind):
        texts = pc.utf8_trim(texts, '"')
    return pc.if_else(pc.is_valid(texts if column.null_count == 0 else column), texts, None)


_PER_DAY: Final = 86_400_000_000
_PER_UNIT: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_NANOS: Final = 1_000


def is_time(kind: pa.DataType) -> bool:
    """Whether values of a type are points in time: timestamps, with or without a zone, or dates."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def micros(times: pa.Array) -> Ints:
    """Return points in time in microseconds since 1970 UTC, rounded down; 0 for NULL.

    A timestamp without a zone is UTC, and a date is its midnight in UTC.

    Raises:
        OverflowError: if one is further from 1970 than 64 bits of microseconds.
    """
    kind = times.type
    if pa.types.is_date(kind):
        times, unit = times.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), _PER_DAY
    elif kind.unit == "ns":
        found = pc.fill_null(times.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        return np.asarray(found // _NANOS)
    else:
        times, unit = times.cast(pa.int64()), _PER_UNIT[kind.unit]
    found = pc.fill_null(times, 0).to_numpy(zero_copy_only=False)
    if unit > 1 and len(found) and np.abs(found).max() > np.iinfo(np.int64).max // unit:
        raise OverflowError
    return np.asarray(found * unit)
