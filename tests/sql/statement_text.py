"""Statements as short text, so that a test shows what was read."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from headrace.errors import Span
from headrace.planning.sql import Fragment, Name, Option, parse


def one(text: str) -> Any:
    """Return the only statement of a text."""
    (statement,) = parse(text)
    return statement


def plain(value: Any) -> Any:
    """Return a statement without places, as plain values: what differs from a default, by field."""
    match value:
        case Name() | Fragment():
            return str(value) if isinstance(value, Name) else value.text
        case Option():
            return (value.key, value.value)
        case tuple():
            return tuple(plain(item) for item in value)
        case _ if is_dataclass(value) and not isinstance(value, type):
            shown = {
                f.name: plain(getattr(value, f.name))
                for f in fields(value)
                if not f.name.endswith("span") and getattr(value, f.name) != f.default
            }
            return {"is": type(value).__name__, **shown}
        case _:
            return value


def spans(value: Any) -> list[Span]:
    """Return every span in a statement."""
    if isinstance(value, Span):
        return [value]
    if isinstance(value, tuple):
        return [span for item in value for span in spans(item)]
    if is_dataclass(value) and not isinstance(value, type):
        return [span for f in fields(value) for span in spans(getattr(value, f.name))]
    return []
