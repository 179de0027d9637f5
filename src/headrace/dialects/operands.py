"""Finds the beginning of the operand to the left of an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.dialects.tree import Group, Node
from headrace.sql.keywords import NOT_NAMES
from headrace.sql.lexer import Token, TokenKind

if TYPE_CHECKING:
    from collections.abc import Sequence

_POSTFIX = frozenset({".", "::", "->", ":"})
_NOT_OPERANDS = NOT_NAMES - {"END", "NULL"} | {"QUALIFY", "BETWEEN", "RLIKE", "ILIKE", "ANY", "ALL"}
_VALUES = frozenset({TokenKind.STRING, TokenKind.DQUOTED, TokenKind.NUMBER, TokenKind.BACKQUOTED})
_TYPED = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "INTERVAL", "X"})


def ends_operand(nodes: Sequence[Node], at: int) -> bool:
    """Return whether a value ends at a node, so that an operator follows."""
    if at < 0:
        return False
    node = nodes[at]
    if isinstance(node, Group):
        return True
    return node.kind in _VALUES or (node.kind is TokenKind.WORD and node.word not in _NOT_OPERANDS)


def operand_before(nodes: Sequence[Node], at: int) -> int:
    """Return the first node of the value that ends before ``at``: a column, call or literal."""
    first = _primary(nodes, at - 1)
    while first >= 2:  # noqa: PLR2004 - an operator and what is before it
        if nodes[first - 1].text in _POSTFIX:
            first = _primary(nodes, first - 2)
        elif is_double_arrow(nodes, first - 2):
            first = _primary(nodes, first - 3)
        else:
            break
    return max(first, 0)


def is_double_arrow(nodes: Sequence[Node], at: int) -> bool:
    """Return whether ``->>`` begins at a node; the lexer reads it as two symbols."""
    if at < 0 or at + 1 >= len(nodes) or nodes[at].text != "->":
        return False
    return nodes[at + 1].text == ">" and nodes[at + 1].start == nodes[at].end


def _primary(nodes: Sequence[Node], at: int) -> int:
    while at > 0 and isinstance(nodes[at], Group) and nodes[at].text == "[":
        at -= 1
    node, before = nodes[at], nodes[at - 1] if at > 0 else None
    if before is None or not isinstance(before, Token):
        return at
    if isinstance(node, Group):
        called = before.kind is TokenKind.BACKQUOTED or (
            before.kind is TokenKind.WORD and before.word not in _NOT_OPERANDS
        )
        return at - 1 if called else at
    if node.word == "END":
        depth = 0
        while at > 0:
            depth += (nodes[at].word == "END") - (nodes[at].word == "CASE")
            if depth == 0:
                break
            at -= 1
        return at
    return at - 1 if node.kind is TokenKind.STRING and before.word in _TYPED else at
