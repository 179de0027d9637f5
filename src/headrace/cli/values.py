"""Values as text: exact and standard for programs, readable for people."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable  # noqa: TC003  (read when the tables are made)
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

NULL = "NULL"
"""How a missing value is shown in tables."""

_BATCH_ROWS = 10_000


def rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Yield the table's rows as Python values; maps are dictionaries."""
    for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
        if batch.num_columns:
            yield from zip(*map(column_values, batch.columns), strict=True)


def column_values(column: Any) -> list[Any]:
    """Return the values of an Arrow array; a 32-bit float as its shortest decimal."""
    if pa.types.is_float32(column.type):
        return [None if v is None else float(str(np.float32(v))) for v in column.to_pylist()]
    values: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return values


def is_number(value: Any) -> bool:
    """Say whether a value stands at the right of its column."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def json_value(value: Any) -> Any:
    """Return what ``json.dumps`` writes for a value without losing any of it.

    Decimals are strings, since most readers take a JSON number with a fraction for a float;
    so are the floats that JSON has no number for. Timestamps, dates and durations are ISO 8601,
    in UTC where they are instants; binary is base64, as Spark's ``to_json`` has it.
    """
    return _IN_JSON.get(type(value), str)(value)


def json_text(value: Any) -> str:
    """Return a value as JSON in one line."""
    return json.dumps(json_value(value), ensure_ascii=False, separators=(",", ":"))


def csv_text(value: Any) -> str | None:
    """Return a value as the field of a CSV file: as in JSON, but scalars without quotes."""
    plain = json_value(value)
    if plain is None or isinstance(plain, str):
        return plain
    return json_text(value)


def cell_text(value: Any) -> str:
    """Return a value as people read it in a table; it never steers the terminal."""
    return _IN_CELLS.get(type(value), _scalar)(value)


def _utc(value: datetime) -> datetime:
    return value if value.tzinfo is None else value.astimezone(UTC)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else csv_text(key) or ""


def _float_text(value: float) -> str:
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


def _shown(text: str) -> str:
    r"""Return text with control characters as escapes (``\x1b``); a line break stays one."""
    if text.isprintable():
        return text
    return "".join(
        c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode("ascii")
        for c in text
    )


def _as_is(value: Any) -> Any:
    return value


def _scalar(value: Any) -> str:
    return csv_text(value) or ""


def _nested(value: Any) -> str:
    return _shown(json_text(value))


def _list(value: list[Any]) -> list[Any]:
    return [json_value(item) for item in value]


def _timestamp(value: datetime) -> str:
    text = _utc(value).replace(tzinfo=None).isoformat(sep=" ")
    return text.rstrip("0") if value.microsecond else text


_IN_JSON: dict[type, Callable[[Any], Any]] = {
    type(None): _as_is,
    bool: _as_is,
    int: _as_is,
    str: _as_is,
    float: lambda value: value if math.isfinite(value) else _float_text(value),
    Decimal: lambda value: format(value, "f"),
    bytes: lambda value: base64.b64encode(value).decode("ascii"),
    datetime: lambda value: _utc(value).isoformat().replace("+00:00", "Z"),
    date: date.isoformat,
    time: time.isoformat,
    timedelta: _duration,
    dict: lambda value: {_key(key): json_value(item) for key, item in value.items()},
    list: _list,
    tuple: _list,
}
"""How each type of value is written; others as text."""

_IN_CELLS: dict[type, Callable[[Any], str]] = {
    type(None): lambda _: NULL,
    str: _shown,
    float: _float_text,
    bytes: bytes.hex,
    datetime: _timestamp,
    list: _nested,
    tuple: _nested,
    dict: _nested,
}
"""How each type of value is shown; others as in CSV."""
