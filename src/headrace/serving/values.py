"""Values as JSON and as fields of CSV, exact and standard, for sinks and the shell."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable  # noqa: TC003  (read when the table is made)
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.serving.python_values import python_values
from headrace.types import is_variant, variant_texts

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
