"""Intervals of other dialects: ``INTERVAL n DAY``, ``INTERVAL '1' DAY(3)``, ``(a - b) HOUR``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.dialects.operands import ends_operand
from headrace.dialects.tree import Found, Group, Node, is_group, is_query
from headrace.sql.lexer import Token, TokenKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dialects.writer import Scope, Writer

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
