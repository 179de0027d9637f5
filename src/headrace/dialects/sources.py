"""Arrays in FROM: ``CROSS JOIN UNNEST(items) AS t(item)``, ``generate_series(1, 3) AS g``.

Spark's own ``range`` is a source of rows in a query that is evaluated once, and in a view, whose
inputs are relations, an array.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.dialects.tree import Found, Group, Node, is_group, split_at
from headrace.dialects.writer import Edits, Scope, Writer
from headrace.sql.lexer import TokenKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dialects.blocks import Block

_FUNCTIONS = frozenset({"UNNEST", "GENERATE_SERIES", "RANGE"})
_ASCENDING = "CASE WHEN ({0}) <= ({1}) THEN sequence({0}, {1}) END"
_STEPPED = (
    "CASE WHEN (({2}) > 0 AND ({0}) <= ({1})) OR (({2}) < 0 AND ({0}) >= ({1})) "
    "THEN sequence({0}, {1}, {2}) END"
)
_RANGES = {
    1: "CASE WHEN ({0}) > 0 THEN sequence(0L, CAST({0} AS BIGINT) - 1) END",
    2: ("CASE WHEN ({0}) < ({1}) THEN sequence(CAST({0} AS BIGINT), CAST({1} AS BIGINT) - 1) END"),
    3: (
        "CASE WHEN ({2}) > 0 AND ({0}) < ({1}) THEN"
        " sequence(CAST({0} AS BIGINT), CAST({1} AS BIGINT) - 1, CAST({2} AS BIGINT))"
        " WHEN ({2}) < 0 AND ({0}) > ({1}) THEN"
        " sequence(CAST({0} AS BIGINT), CAST({1} AS BIGINT) + 1, CAST({2} AS BIGINT)) END"
    ),
}
"""Spark's ``range`` by the number of its arguments."""

_NUMBERED = "transform({0}, (__x, __i) -> struct(__x, __i + 1))"


@dataclass(frozen=True, slots=True)
class _Item:
    """An array in FROM: the nodes ``[start, end)`` with the words that join it, and its names.

    ``at`` is the function; it equals ``start`` if the array depends on no other relation.
    """

    start: int
    at: int
    end: int
    name: Node
    group: Group
    outer: bool
    alias: str
    columns: tuple[str, ...]
    numbered: bool
    """Whether the last column is the position of an element, from 1."""


def array_sources(writer: Writer, block: Block, scope: Scope) -> Edits | None:
    """Translate arrays in FROM: to LATERAL VIEW at the end of FROM, else to a subquery."""
    first, last = block.clauses.get("FROM", (0, 0))
    items = [
        _item(writer, block, at, last)
        for at in range(first, last - 1)
        if block.nodes[at].word in _FUNCTIONS
        and is_group(block.nodes[at + 1])
        and (at == first or block.nodes[at - 1].text == "," or _joins(block.nodes[at - 1]))
    ]
    if not items:
        return None
    replaced = {}
    for which, item in enumerate(items):
        place = block.nodes[item.start], block.nodes[item.end - 1]
        template, arguments = _array(writer, item)
        whole = item.start in {first, item.at}
        if writer.once and item.start == item.at and item.name.word == "RANGE":
            begin, end = "range(", f") AS {item.alias}({', '.join(item.columns)})"
            listed = ", ".join(f"{{{n}}}" for n in range(len(arguments)))
            inside = replace(scope, function=item.name.word)
            text = begin + listed + end
            replaced[item.start] = Found(item.end, writer.filled(text, arguments, place, inside))
            continue
        if whole:
            begin, end = "(SELECT ", f") AS {item.alias}"
        elif item.end == (items[which + 1].start if which + 1 < len(items) else last):
            begin = f" LATERAL VIEW {'OUTER ' if item.outer else ''}"
            end = f" {item.alias}"
        else:
            raise writer.refused(
                f"{item.name.text} before other relations is not supported",
                "Move it to the end of FROM.",
                *place,
            )
        function = "inline" if len(item.columns) > 1 else "explode"
        text = f"{begin}{function}({template})"
        listed = ", ".join(item.columns)
        if whole:
            text += f" AS ({listed}){end}" if len(item.columns) > 1 else f" AS {listed}{end}"
        else:
            text += f"{end} AS {listed}"
        inside = replace(scope, function=item.name.word)
        replaced[item.start] = Found(item.end, writer.filled(text, arguments, place, inside))
    return Edits(scope, replaced)


def _joins(node: Node) -> bool:
    return node.word in {"JOIN", "LATERAL"}


def _array(writer: Writer, item: _Item) -> tuple[str, list[tuple[Node, ...]]]:
    arguments = split_at(item.group.inside)
    if item.name.word == "UNNEST" and len(arguments) == 1:
        return _NUMBERED if item.numbered else "{0}", arguments
    if item.name.word == "RANGE" and len(arguments) in _RANGES:
        return _RANGES[len(arguments)], arguments
    if item.name.word == "GENERATE_SERIES" and len(arguments) in {2, 3}:
        return (_ASCENDING if len(arguments) == 2 else _STEPPED), arguments  # noqa: PLR2004
    raise writer.refused(
        f"{item.name.text} with {len(arguments)} arguments is not supported",
        "Use one UNNEST for each array.",
        item.name,
        item.group,
    )


def _item(writer: Writer, block: Block, at: int, last: int) -> _Item:
    nodes = block.nodes
    group = nodes[at + 1]
    assert isinstance(group, Group)  # noqa: S101 - is_group
    start, outer = _joined(nodes, at)
    end = at + 2
    numbered = [node.word for node in nodes[end : end + 2]] == ["WITH", "ORDINALITY"]
    if end < last and nodes[end].word == "WITH":
        if not numbered or nodes[at].word != "UNNEST":
            raise writer.refused(
                f"{nodes[at].text} WITH {nodes[min(end + 1, last - 1)].text} is not supported",
                "Use LATERAL VIEW posexplode(array) t AS position, element.",
                nodes[end],
            )
        end += 2
    if end < last and nodes[end].word == "AS":
        end += 1
    alias = nodes[at].text.lower()
    if end < last and _is_alias(nodes[end]):
        alias = nodes[end].text
        end += 1
    named = "id" if nodes[at].word == "RANGE" else alias
    columns: tuple[str, ...] = (named, "ordinality") if numbered else (named,)
    if end < last and is_group(nodes[end]):
        listed = nodes[end]
        assert isinstance(listed, Group)  # noqa: S101 - is_group
        columns = tuple(each[0].text for each in split_at(listed.inside) if each) or columns
        if numbered and len(columns) != 2:  # noqa: PLR2004 - an element and its position
            raise writer.refused(
                f"UNNEST WITH ORDINALITY AS {alias} with {len(columns)} columns is not supported",
                "Name two, the element and its position; take the fields of a struct in SELECT.",
                listed,
            )
        end += 1
    if _is_constant(group.inside):
        return _Item(at, at, end, nodes[at], group, False, alias, columns, numbered)  # noqa: FBT003
    on_true = [n.word for n in nodes[end : end + 2]] == ["ON", "TRUE"]
    if outer is None or (outer and not on_true) or (end < last and nodes[end].word in _CONDITIONS):
        if not (outer is not None and on_true):
            raise writer.refused(
                f"this join with {nodes[at].text} is not supported",
                "Use CROSS JOIN, or LEFT JOIN ... ON TRUE.",
                nodes[start],
                group,
            )
        end += 2
    return _Item(start, at, end, nodes[at], group, bool(outer), alias, columns, numbered)


def _is_constant(nodes: Sequence[Node]) -> bool:
    """Return whether an array is a literal."""
    for node in nodes:
        if isinstance(node, Group):
            if not _is_constant(node.inside):
                return False
        elif node.kind in {TokenKind.WORD, TokenKind.BACKQUOTED} and node.word != "ARRAY":
            return False
    return True


_CONDITIONS = frozenset({"ON", "USING"})
_NOT_ALIASES = frozenset({"ON", "JOIN", "CROSS", "LEFT", "INNER", "RIGHT", "FULL", "LATERAL"})


def _is_alias(node: Node) -> bool:
    named = bool(node.word) and node.word not in _NOT_ALIASES
    return named or node.text.startswith("`")


def _joined(nodes: Sequence[Node], at: int) -> tuple[int, bool | None]:
    """Return the first node of the words that join an item, and whether it is an outer join."""
    start = at
    while nodes[start - 1].word in {
        "LATERAL",
        "JOIN",
        "CROSS",
        "INNER",
        "LEFT",
        "OUTER",
        "RIGHT",
        "FULL",
    }:
        start -= 1
    words = {node.word for node in nodes[start:at]}
    if nodes[start - 1].text == ",":
        start -= 1
    if words & {"RIGHT", "FULL"}:
        return start, None
    return start, "LEFT" in words
