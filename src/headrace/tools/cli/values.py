"""Values as text: exact and standard for programs, readable for people."""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003  (read when the tables are made)
from datetime import datetime, time
from decimal import Decimal
from typing import Any

from headrace.execution.serving.values import csv_text, float_text, json_text, utc

NULL = "NULL"
"""The text for NULL in tables."""


def is_number(value: Any) -> bool:
    """Return whether a value is a number, which is aligned to the right."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def cell_text(value: Any) -> str:
    """Return a value as text for a table cell, without control characters of the terminal."""
    return _IN_CELLS.get(type(value), _scalar)(value)


def _shown(text: str) -> str:
    r"""Return text with control characters as escapes (``\x1b``); line breaks stay."""
    if text.isprintable():
        return text
    return "".join(
        c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode("ascii")
        for c in text
    )


def _scalar(value: Any) -> str:
    return csv_text(value) or ""


def _nested(value: Any) -> str:
    return _shown(json_text(value))


def _timestamp(value: datetime) -> str:
    return _short(utc(value).replace(tzinfo=None).isoformat(sep=" "), value)


def _short(text: str, value: datetime | time) -> str:
    """Return a time without the zeros at the end of its fraction."""
    return text.rstrip("0") if value.microsecond else text


_IN_CELLS: dict[type, Callable[[Any], str]] = {
    type(None): lambda _: NULL,
    str: _shown,
    float: float_text,
    bytes: bytes.hex,
    datetime: _timestamp,
    time: lambda value: _short(value.isoformat(), value),
    list: _nested,
    tuple: _nested,
    dict: _nested,
}
"""The text of each type of value in table cells; others are as in CSV."""
