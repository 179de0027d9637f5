"""The states of folds as bytes: plain values, so that a stored state is never code.

A state is JSON. A value without a JSON form is an object with one field, whose name is its type. A
value decodes to an equal one of the same type, and dictionaries keep their order.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from headrace.errors import shortened

if TYPE_CHECKING:
    from collections.abc import Callable

_NATIVE = frozenset({type(None), bool, int, float, str})
_LONGEST = 60


class NotPlainError(Exception):
    """Raised for a value that is not plain; the message has the value and why."""


def encoded(value: Any) -> bytes:
    """Return a plain value as bytes.

    Plain are None, bool, int, float, str, bytes, Decimal, date, datetime (without a time zone or in
    UTC), time (without a time zone), timedelta, and lists, tuples and dictionaries of these.

    Raises:
        NotPlainError: for any other value, also nested.
    """
    return json.dumps(_to_json(value), separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def decoded(text: bytes) -> Any:
    """Return the value that :func:`encoded` converted to bytes; each call returns a new one."""
    return _of_json(json.loads(text.decode("utf-8", "surrogatepass")))


def _to_json(value: Any) -> Any:
    kind = type(value)
    if kind in _NATIVE:
        return value
    if kind is list:
        return [_to_json(each) for each in value]
    write = _WRITTEN.get(kind)
    if write is None:
        raise NotPlainError(_refusal(value))
    name, form = write
    return {name: form(value)}


def _of_json(value: Any) -> Any:
    if type(value) is list:
        return [_of_json(each) for each in value]
    if type(value) is not dict:
        return value
    ((name, form),) = value.items()
    return _READ[name](form)


def _datetime(value: datetime) -> str:
    if value.tzinfo not in (None, UTC):
        raise NotPlainError(f"{value!r} has another time zone than UTC")
    return value.isoformat()


def _time_of_day(value: time) -> str:
    if value.tzinfo is not None:
        raise NotPlainError(f"{value!r} has a time zone")
    return value.isoformat()


def _entries(value: dict[Any, Any]) -> list[list[Any]]:
    return [[_to_json(key), _to_json(each)] for key, each in value.items()]


_WRITTEN: dict[type, tuple[str, Callable[[Any], Any]]] = {
    tuple: ("tuple", lambda value: [_to_json(each) for each in value]),
    dict: ("dict", _entries),
    bytes: ("bytes", lambda value: base64.b64encode(value).decode("ascii")),
    Decimal: ("decimal", str),
    date: ("date", date.isoformat),
    datetime: ("time", _datetime),
    time: ("time of day", _time_of_day),
    timedelta: ("length", lambda value: [value.days, value.seconds, value.microseconds]),
}
_READ: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda form: tuple(_of_json(each) for each in form),
    "dict": lambda form: {_of_json(key): _of_json(each) for key, each in form},
    "bytes": base64.b64decode,
    "decimal": Decimal,
    "date": date.fromisoformat,
    "time": datetime.fromisoformat,
    "time of day": time.fromisoformat,
    "length": lambda form: timedelta(*form),
}


def _refusal(value: Any) -> str:
    shown = shortened(repr(value), _LONGEST)
    why = "is a set, whose order differs between processes" if _is_set(value) else "is not plain"
    return f"{shown}, a Python {type(value).__name__}, {why}"


def _is_set(value: Any) -> bool:
    return isinstance(value, set | frozenset)
