"""Constant durations of four dialects, in microseconds.

``INTERVAL '5' MINUTE``, ``INTERVAL '1:30' HOUR TO MINUTE``, ``INTERVAL '1 day 2 hours'``,
``INTERVAL 5 MINUTES``, and ksqlDB's ``5 MINUTES``.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

from headrace.dialects.tree import nodes_of
from headrace.sql.lexer import Token, TokenKind, string_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dialects.tree import Node

UNITS: dict[str, int] = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
"""The units of fixed length, in microseconds."""

_SHORT = {
    "SEC": "SECOND", "SECS": "SECOND", "S": "SECOND", "MIN": "MINUTE", "MINS": "MINUTE",
    "M": "MINUTE", "HR": "HOUR", "HRS": "HOUR", "H": "HOUR", "D": "DAY", "W": "WEEK",
    "MS": "MILLISECOND", "MSEC": "MILLISECOND", "US": "MICROSECOND",
}  # fmt: skip
_FIELDS = ("DAY", "HOUR", "MINUTE", "SECOND")
_PAIR = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]+)")
_CLOCK = re.compile(r"\s*(\d+):(\d{2})(?::(\d{2}(?:\.\d+)?))?\s*$")
_NUMBER = re.compile(r"\s*[+-]?\d+(?:\.\d+)?\s*$")


def duration_of(text: str) -> int | None:
    """Return the duration of a text, in microseconds; None if it is not a constant duration."""
    return microseconds(nodes_of(text))


def delay_of(watermark: str) -> int:
    """Return the delay of a watermark ``at - INTERVAL '5' SECOND``, in microseconds.

    0 if it is not a constant.
    """
    nodes = nodes_of(watermark)
    signs = [i for i, node in enumerate(nodes) if node.text == "-"]
    if len(signs) != 1:
        return 0
    return microseconds(nodes[signs[0] + 1 :]) or 0


def unit_of(word: str) -> str | None:
    """Return the unit of time that a word denotes, in the singular; None if it is not a unit."""
    upper = word.upper()
    upper = _SHORT.get(upper, upper)
    return upper if upper in UNITS else upper[:-1] if upper[:-1] in UNITS else None


def microseconds(nodes: Sequence[Node]) -> int | None:
    """Return a constant duration; None if it is not constant or its length is not fixed."""
    tokens = [node for node in nodes if isinstance(node, Token)]
    if len(tokens) != len(nodes) or not tokens:
        return None
    if tokens[0].word == "INTERVAL":
        tokens = tokens[1:]
    if not tokens:
        return None
    if tokens[0].kind not in {TokenKind.STRING, TokenKind.DQUOTED}:
        return _counted(tokens)
    text, unit = string_value(tokens[0]), [t.word for t in tokens[1:]]
    match unit:
        case []:
            return _spelled(text)
        case [one]:
            return _times(text, unit_of(one))
        case [first, "TO", last] if first in _FIELDS and last in _FIELDS:
            return _clock(text, first, last)
        case _:
            return None


def spelled(length: int) -> str:
    """Return a duration for Spark's ``window``, in the largest unit that divides it."""
    for unit in ("DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND"):
        if length and length % UNITS[unit] == 0:
            count = length // UNITS[unit]
            return f"'{count} {unit.lower()}{'s' if count > 1 else ''}'"
    return f"'{length} microseconds'"


def _times(count: str, unit: str | None) -> int | None:
    if unit is None or not _NUMBER.match(count):
        return None
    length = Decimal(count.strip()) * UNITS[unit]
    return int(length) if length == int(length) else None


def _counted(tokens: Sequence[Token]) -> int | None:
    """Return the duration ``1 DAY 2 HOURS``."""
    if len(tokens) % 2:
        return None
    total = 0
    for count, unit in zip(tokens[::2], tokens[1::2], strict=True):
        length = _times(count.text, unit_of(unit.word)) if count.kind is TokenKind.NUMBER else None
        if length is None:
            return None
        total += length
    return total


def _spelled(text: str) -> int | None:
    """Return the duration ``1 day 2 hours`` or ``01:30:00``."""
    clock = _CLOCK.match(text)
    if clock:
        return _clock(text, "HOUR", "SECOND" if clock[3] else "MINUTE")
    total, at = 0, 0
    while found := _PAIR.match(text, at):
        length = _times(found[1], unit_of(found[2]))
        if length is None:
            return None
        total, at = total + length, found.end()
    return total if at and not text[at:].strip() else None


def _clock(text: str, first: str, last: str) -> int | None:
    """Return a duration such as ``1 02:03``, with fields from one unit to another."""
    fields = _FIELDS[_FIELDS.index(first) : _FIELDS.index(last) + 1]
    values = [value for value in re.split(r"[\s:]+", text.strip()) if value]
    if len(values) != len(fields):
        return None
    lengths = [_times(value, unit) for value, unit in zip(values, fields, strict=True)]
    known = [length for length in lengths if length is not None]
    return sum(known) if len(known) == len(lengths) else None
