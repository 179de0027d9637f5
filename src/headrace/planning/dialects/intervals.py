"""Constant durations of four dialects, in microseconds.

``INTERVAL '5' MINUTE``, ``INTERVAL '1:30' HOUR TO MINUTE``, ``INTERVAL '1 day 2 hours'``,
``INTERVAL 5 MINUTES``, and ksqlDB's ``5 MINUTES``.

Intervals of other dialects: ``INTERVAL n DAY``, ``INTERVAL '1' DAY(3)``, ``(a - b) HOUR``.

The time after ``AS OF``: finds its end, since an alias without ``AS`` may follow.

It is a value expression in Spark's grammar: operands and arithmetic operators, without
comparisons and without AND and OR.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.planning.dialects.tree import (
    Found,
    Group,
    Node,
    ends_operand,
    is_group,
    is_query,
    nodes_of,
)
from headrace.planning.sql.lexer import NOT_NAMES, Token, TokenKind, string_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.planning.dialects.writer import Scope, Writer
    from headrace.planning.sql.cursor import Cursor


_OF_DAYS = frozenset({"DAY", "HOUR", "MINUTE", "SECOND"})
_UNITS = _OF_DAYS | {"YEAR", "MONTH", "WEEK", "QUARTER"}
_MONTHS = {
    "MONTH": "make_ym_interval(0, CAST(months_between({0}, {1}) AS INT))",
    "YEAR": "make_ym_interval(CAST(months_between({0}, {1}) / 12 AS INT), 0)",
}
_OPERATORS = frozenset({"+", "-", "*", "/", "<", ">", "=", "<=", ">=", "<>", "!=", "!", "<=>"})
_GOES_ON = frozenset(
    "AS AND OR BETWEEN IS IN NOT THEN ELSE END WHEN".split()  # noqa: SIM905
)
"""The words before which an expression has no name."""

_PART_OF_NAME = frozenset({TokenKind.WORD, TokenKind.BACKQUOTED})


def interval(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """Translate ``INTERVAL`` with an expression, a precision, or quarters."""
    if nodes[at].word != "INTERVAL" or (at and nodes[at - 1].text.upper() in {".", "AS"}):
        return None
    sign = at + 1 < len(nodes) and nodes[at + 1].text in {"-", "+"}
    first = at + 1 + sign
    if first + 1 >= len(nodes):
        return None
    if isinstance(nodes[first], Token) and nodes[first].kind is TokenKind.STRING:  # type: ignore[union-attr]
        return _literal(writer, nodes, at, first)
    return None if sign else _computed(writer, nodes, at, scope)


def _literal(writer: Writer, nodes: Sequence[Node], at: int, text: int) -> Found | None:
    """``INTERVAL '1' DAY(3)``: without the precision; ``INTERVAL '1' QUARTER``: in months."""
    written = f"INTERVAL {'-' if nodes[at + 1].text == '-' else ''}{nodes[text].text}"
    end, precise = text + 1, False
    unit = _unit(nodes, end)
    if unit == "QUARTER":
        return Found(end + 1, [writer.put(f"({written} MONTH * 3)", nodes[at], nodes[end])])
    while unit:
        written += f" {unit}"
        end += 1
        if end < len(nodes) and is_group(nodes[end]):
            end, precise = end + 1, True
        to = end + 1 < len(nodes) and nodes[end].word == "TO"
        unit = _unit(nodes, end + 1) if to else ""
        written += " TO" if unit else ""
        end += bool(unit)
    return Found(end, [writer.put(written, nodes[at], nodes[end - 1])]) if precise else None


def _computed(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """``INTERVAL x DAY``: as many times that unit."""
    end = at + 1
    if is_group(nodes[end]):
        end += 1
    else:
        while end < len(nodes) and _names(nodes[end]) and not _unit(nodes, end):
            end += 2 if end + 1 < len(nodes) and nodes[end + 1].text == "." else 1
            if nodes[end - 1].text != ".":
                break
    unit = _unit(nodes, end)
    if end == at + 1 or not unit or nodes[end - 1].text == ".":
        return None
    times, one = ("3 * ", "MONTH") if unit == "QUARTER" else ("", unit)
    template = f"(({{0}}) * {times}INTERVAL '1' {one})"
    place = nodes[at], nodes[end]
    return Found(end + 1, writer.filled(template, [tuple(nodes[at + 1 : end])], place, scope))


def between(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """``(a - b) HOUR``: the difference in whole units, where the unit cannot be an alias."""
    group = nodes[at]
    if not isinstance(group, Group) or group.text != "(" or ends_operand(nodes, at - 1):
        return None
    unit = _unit(nodes, at + 1)
    minus = [i for i, node in enumerate(group.inside) if node.text == "-" and i]
    if not unit or not minus or is_query(group.inside) or _may_be_alias(nodes, at + 1):
        return None
    place = group, nodes[at + 1]
    if unit in _OF_DAYS:
        text = f"CAST(({{0}}) AS INTERVAL {unit})"
        return Found(at + 2, writer.filled(text, [group.inside], place, scope))
    if unit not in _MONTHS or len(minus) > 1:
        raise writer.refused(
            f"a difference in {unit} is not supported", "Use timestampdiff(unit, a, b).", *place
        )
    sides = [group.inside[: minus[0]], group.inside[minus[0] + 1 :]]
    return Found(at + 2, writer.filled(_MONTHS[unit], sides, place, scope))


def _may_be_alias(nodes: Sequence[Node], at: int) -> bool:
    """Return whether a word after an expression may be its name, as in ``SELECT (a - b) day``."""
    following = nodes[at + 1] if at + 1 < len(nodes) else None
    if following is None or following.text == ",":
        return is_query(nodes)
    return following.text not in _OPERATORS and following.word not in _GOES_ON


def _unit(nodes: Sequence[Node], at: int) -> str:
    """Return the unit of time at a node in the singular; empty if there is none."""
    word = nodes[at].word.removesuffix("S") if 0 <= at < len(nodes) else ""
    return word if word in _UNITS else ""


def _names(node: Node) -> bool:
    return isinstance(node, Token) and node.kind in _PART_OF_NAME


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


_STRINGS = frozenset({TokenKind.STRING, TokenKind.DQUOTED})
_NAMES = frozenset({TokenKind.WORD, TokenKind.BACKQUOTED})
_SIGNS = frozenset({"+", "-", "~"})
_TIME_EXPRESSION_OPERATORS = frozenset({"+", "-", "*", "/", "%", "||", "|", "&", "^"})
_CLOSING = {"(": ")", "[": "]"}
_TIME_EXPRESSION_UNITS = frozenset(
    f"{unit}{plural}"
    for unit in (
        *("YEAR", "QUARTER", "MONTH", "WEEK", "DAY"),
        *("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"),
    )
    for plural in ("", "S")
)
_CLOCKS = frozenset(
    {
        "CURRENT_DATE",
        "CURRENT_TIME",
        "CURRENT_TIMESTAMP",
        "GETDATE",
        "LOCALTIMESTAMP",
        "NOW",
        "PROCTIME",
        "SYSDATE",
    }
)
_CALLED = frozenset({"NOW", "PROCTIME", "GETDATE", "SYSDATE"})
"""Functions that read the clock only if called: without parentheses they are columns."""


def take_time(cursor: Cursor) -> list[Token]:
    """Take a time, and return its tokens.

    Raises:
        HeadraceError: ``invalid`` if no time begins here or an operand is missing.
    """
    start = cursor.index
    _operand(cursor)
    while cursor.token.text in _TIME_EXPRESSION_OPERATORS or cursor.at("DIV"):
        cursor.advance()
        _operand(cursor)
    return cursor.tokens[start : cursor.index]


def is_constant(time: Sequence[Token]) -> bool:
    """Return whether a time consists of literals alone."""
    for i, token in enumerate(time):
        if token.kind not in _NAMES:
            continue
        typed = i + 1 < len(time) and time[i + 1].kind in _STRINGS
        counted = i > 0 and time[i - 1].kind in {*_STRINGS, TokenKind.NUMBER}
        interval = token.word == "INTERVAL" and i + 1 < len(time)
        if not (typed or counted or interval):
            return False
    return True


def refuse_clock(cursor: Cursor, time: Sequence[Token]) -> None:
    """Raise if a time reads the clock."""
    for i, token in enumerate(time):
        called = i + 1 < len(time) and time[i + 1].text == "("
        qualified = i > 0 and time[i - 1].text == "."
        if token.word not in _CLOCKS or qualified or (token.word in _CALLED and not called):
            continue
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"FOR SYSTEM_TIME AS OF the time of processing, {token.word}, is not supported",
            hint="Use a time in the data, such as that of the event, which does not change later.",
            span=cursor.span(token, token),
        )


def _operand(cursor: Cursor) -> None:
    while cursor.token.text in _SIGNS:
        cursor.advance()
    token = cursor.token
    if token.kind is TokenKind.SYMBOL and token.text == "(":
        _brackets(cursor)
    elif token.word == "CASE":
        _case(cursor)
    elif token.word == "INTERVAL" and _begins_interval(cursor):
        _interval(cursor)
    elif token.kind is TokenKind.WORD and cursor.peek(1).kind in _STRINGS:
        cursor.advance()  # TIMESTAMP '...'
        cursor.advance()
    elif token.kind in _STRINGS or token.kind is TokenKind.NUMBER:
        cursor.advance()
    elif token.kind in _NAMES and token.word not in NOT_NAMES:
        _time_expression_names(cursor)
    else:
        raise cursor.expected("a time", hint="It is a column such as o.ts, or TIMESTAMP '...'.")
    _postfix(cursor)


def _time_expression_names(cursor: Cursor) -> None:
    """Take a column or a call: a name with its dots, and the brackets after it."""
    cursor.advance()
    while cursor.token.text == "." and cursor.peek(1).kind in _NAMES:
        cursor.advance()
        cursor.advance()
    if cursor.at_symbol("("):
        _brackets(cursor)


def _postfix(cursor: Cursor) -> None:
    """Take the suffixes that bind closer than operators: an index, a field, a cast."""
    while True:
        if cursor.at_symbol("["):
            _brackets(cursor)
        elif cursor.token.text in {".", "::"} and cursor.peek(1).kind in _NAMES:
            cursor.advance()
            _time_expression_names(cursor)
        else:
            return


def _begins_interval(cursor: Cursor) -> bool:
    following = cursor.peek(1)
    return following.kind in {*_STRINGS, TokenKind.NUMBER} or following.text in _SIGNS


def _interval(cursor: Cursor) -> None:
    """Take ``INTERVAL 1 DAY 2 HOURS``, ``INTERVAL '1' DAY``, ``INTERVAL '1:30' HOUR TO MINUTE``."""
    cursor.advance()
    while True:
        if cursor.token.text in _SIGNS:
            cursor.advance()
        cursor.advance()
        if cursor.token.word in _TIME_EXPRESSION_UNITS:
            cursor.advance()
        if cursor.at("TO") and cursor.peek(1).word in _TIME_EXPRESSION_UNITS:
            cursor.advance()
            cursor.advance()
        if cursor.token.kind is not TokenKind.NUMBER:
            return


def _case(cursor: Cursor) -> None:
    depth = 0
    while not cursor.at_end():
        depth += (cursor.token.word == "CASE") - (cursor.token.word == "END")
        cursor.advance()
        if depth == 0:
            return


def _brackets(cursor: Cursor) -> None:
    """Skip the bracketed tokens that begin here, including the closing bracket."""
    depth = 0
    while not cursor.at_end():
        token = cursor.token
        if token.kind is TokenKind.SYMBOL:
            depth += (token.text in _CLOSING) - (token.text in _CLOSING.values())
        cursor.advance()
        if depth == 0:
            return
